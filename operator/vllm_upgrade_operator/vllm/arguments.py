"""A command line's tokens, parted into flags with their values.

As vLLM's own parser sees them: `--flag value`, `--flag=value`, a bare flag, `a_b` and `a-b` are
one flag, a flag may take several values. Abbreviations are not followed: which flags a version
has is not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = re.compile(r"-\d+(?:\.\d*)?|-\.\d+")

# EngineArgs.add_cli_args gives these a short spelling too.
_SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-cc": "compilation-config",
    "-q": "quantization",
}


def long_form(name: str) -> str | None:
    """Give the flag that a short spelling (`tp` of `-tp`) stands for; None where it is none."""
    return _SHORT.get(f"-{name}")


@dataclass(frozen=True, slots=True)
class Flag:
    """One occurrence of a flag.

    Attributes:
        name: In its canonical form, without the dashes in front.
        start: Index of its token.
        end: Index after its last value; `start + 1` for a bare flag and for `--flag=value`.
        inline: The value of `--flag=value`; None for the other forms.
    """

    name: str
    start: int
    end: int
    inline: str | None


def canonical(name: str) -> str:
    """Give a flag's one spelling: no dashes in front, `-` for `_` up to a dot.

    What follows a dot is a key of a JSON setting (`--speculative-config.num_tokens`) and is kept.
    """
    head, dot, tail = name.lstrip("-").partition(".")
    return head.replace("_", "-") + dot + tail


def is_flag(token: str) -> bool:
    """Whether a token is a flag and not a value; negative numbers are values."""
    return len(token) > 1 and token.startswith("-") and not _NUMBER.fullmatch(token)


def find_flags(tokens: Sequence[str], begin: int = 0) -> list[Flag]:
    """Find all flags from an index on. What stands before the first one is positional."""
    flags: list[Flag] = []
    index = begin
    while index < len(tokens):
        token = tokens[index]
        if not is_flag(token):
            index += 1
            continue
        spelled, equals, value = token.partition("=")
        end = index + 1
        if not equals:
            while end < len(tokens) and not is_flag(tokens[end]):
                end += 1
        flags.append(
            Flag(
                name=_SHORT.get(spelled) or canonical(spelled),
                start=index,
                end=end,
                inline=value if equals else None,
            )
        )
        index = end
    return flags
