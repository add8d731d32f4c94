"""A regular expression for one of many words, whose common beginnings are looked at once."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# A word ends where a branch has this key.
_END = ""


class _Branch(dict[str, "_Branch"]):
    """What may follow, by the next character."""


def alternatives(words: Iterable[str]) -> str:
    """Give a pattern that matches any of the words, the longest that fits."""
    root = _Branch()
    for word in words:
        branch = root
        for character in word:
            branch = branch.setdefault(character, _Branch())
        branch[_END] = _Branch()
    return _pattern(root)


def _pattern(branch: _Branch) -> str:
    following = [
        re.escape(character) + _pattern(after)
        for character, after in sorted(branch.items())
        if character != _END
    ]
    if not following:
        return ""
    if _END in branch:
        return f"(?:{'|'.join(following)})?"
    return following[0] if len(following) == 1 else f"(?:{'|'.join(following)})"
