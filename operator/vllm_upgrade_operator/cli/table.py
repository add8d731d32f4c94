"""Text in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GAP = "   "


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write rows under a head, each column as wide as its widest cell; the last one is free.

    A cell is one line: line breaks and other characters that a terminal would act on are replaced.
    """
    lines = [list(head), *([_plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
    return "\n".join(
        _GAP.join([*(c.ljust(w) for c, w in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def _plain(cell: str) -> str:
    """What comes from a cluster must not move the cursor or colour the screen."""
    return "".join(c if c.isprintable() else " " for c in cell) or "-"
