"""The words of a shell script, as far as they can be told without running it.

Only for reading: a script is never changed (see `command.py`, which edits what is one simple
command). What only the shell can know is marked, not guessed.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# What ends a command, or redirects it.
_OPERATORS = ";&|()<>\n"
_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[A-Za-z_]\w*)\}|(?P<plain>[A-Za-z_]\w*))")
# A value with any of these would not stay one word where it is not quoted.
_SPLITS = re.compile(r"""[\s;&|()<>$`"'\\*?\[#~]""")
_LIMIT = 64 * 1024
# What another command prints; brackets from the innermost on, as deep as people write them.
_PRINTED = re.compile(r"\$\([^()]*\)|`[^`]*`")
_DEPTH = 4
# The number before a redirection is no word.
_DESCRIPTOR = re.compile(r"(?<=\s)\d(?=[<>])")


def commands(script: str, variables: Mapping[str, str]) -> list[list[str]] | None:
    """Part a script into commands and these into words.

    Args:
        script: As given to `sh -c`.
        variables: The environment that it runs in, as far as it is known.

    Returns:
        The commands in order; a word that only the shell can tell still holds its `$` or backtick.
        None where the script cannot be parted: a quote that does not end, or it is too long.
    """
    if len(script) > _LIMIT:
        return None
    joined = _DESCRIPTOR.sub("", script.replace("\\\n", " "))
    for _ in range(_DEPTH):
        joined = _PRINTED.sub("$_", joined)
    lexer = shlex.shlex(_filled(joined, variables), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word and set(word) <= set(_OPERATORS):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return None
    return [words for words in found if words and not words[0].startswith("#")]


def is_open(word: str) -> bool:
    """Whether only the shell knows what a word becomes."""
    return "$" in word or "`" in word


def _filled(script: str, variables: Mapping[str, str]) -> str:
    """Put in the values of variables that are known, where they stay one word."""

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"]
        known = variables.get(name)
        if known is None or not known or _SPLITS.search(known):
            return match.group()
        return known

    return _REFERENCE.sub(value, script)
