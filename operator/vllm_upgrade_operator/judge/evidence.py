"""What one check keeps from look to look: a bounded window of blocks of looks, and totals.

A block is the sum of a few looks. The window slides by whole blocks, so that what has to be kept
in the API server stays small, and so that it can be asked whether something was bad *throughout*
the window and not only in one burst of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOKS_PER_BLOCK = 4
BLOCKS = 5
"""Closed blocks that are kept: with the open one the window is 20 to 24 looks long."""

HARMFUL_LOOKS = 3
OF_LOOKS = 5
"""Harm is a limit found broken in so many of the last so many looks."""

ENOUGH_TO_SPEAK = 2
"""Looks from which on the open block counts as a block of its own."""

STABLE = "s"
"""First letter of the keys of a block that say something of stable pods."""

_FORMAT = 1

Block = dict[str, float]


@dataclass
class Evidence:
    """The evidence of one check.

    Attributes:
        closed: The last full blocks, oldest first.
        current: The block that is being filled.
        looks: Looks in the block that is being filled.
        broken: Whether the limit was broken, for the last looks that counted.
        requests: Canary requests since the evidence began.
        idle: Looks in a row without anything new from the canary.
        alone: Looks in a row without a stable pod to compare with.
        reference: The stable pods' value when it was last known.
        bounds: Bucket bounds of a latency; empty for other metrics.
    """

    closed: list[Block] = field(default_factory=list)
    current: Block = field(default_factory=dict)
    looks: int = 0
    broken: list[bool] = field(default_factory=list)
    requests: float = 0.0
    idle: int = 0
    alone: int = 0
    reference: float | None = None
    bounds: tuple[float, ...] = ()

    def add(self, look: Block) -> None:
        """Add one look that counts."""
        if self.looks == LOOKS_PER_BLOCK:
            self.closed = [*self.closed, self.current][-BLOCKS:]
            self.current, self.looks = {}, 0
        self.current = total([self.current, look])
        self.looks += 1

    def forget_stable(self) -> None:
        """Drop the stable pods' part of the window: they are gone for good."""
        self.closed = [_canary_only(b) for b in self.closed]
        self.current = _canary_only(self.current)

    def window(self) -> Block:
        """Sum up everything that is kept."""
        return total([*self.closed, self.current])

    def recent(self, count: int) -> list[Block]:
        """Give the last blocks, oldest first; fewer where there are not so many yet."""
        speaking = [self.current] if self.looks >= ENOUGH_TO_SPEAK else []
        return [*self.closed, *speaking][-count:]

    def note(self, *, broken: bool) -> None:
        """Remember whether this look found the limit broken."""
        self.broken = [*self.broken, broken][-OF_LOOKS:]

    @property
    def harmful(self) -> bool:
        """Whether the limit was broken often enough to act, and still is."""
        return sum(self.broken) >= HARMFUL_LOOKS and self.broken[-1]

    def dump(self, signature: str) -> str:
        """Write it down in a compact form."""
        return json.dumps(
            {
                "v": _FORMAT,
                "of": signature,
                "b": [_short(b) for b in self.closed],
                "c": _short(self.current),
                "l": self.looks,
                "x": "".join("1" if b else "0" for b in self.broken),
                "n": self.requests,
                "i": self.idle,
                "a": self.alone,
                "r": self.reference,
                # JSON has no infinity; the last bound always is.
                "le": list(self.bounds[:-1]),
            },
            separators=(",", ":"),
        )


def load(text: str | None, signature: str) -> Evidence:
    """Read what `dump` wrote.

    Evidence of another format, or of a check that has changed since, is no evidence: it begins
    again, which can only delay a verdict.
    """
    try:
        raw = json.loads(text) if text else None
    except json.JSONDecodeError:
        raw = None
    if not isinstance(raw, dict) or raw.get("v") != _FORMAT or raw.get("of") != signature:
        return Evidence()
    bounds = tuple(float(b) for b in raw["le"])
    return Evidence(
        closed=[dict(b) for b in raw["b"]],
        current=dict(raw["c"]),
        looks=raw["l"],
        broken=[c == "1" for c in raw["x"]],
        requests=raw["n"],
        idle=raw["i"],
        alone=raw["a"],
        reference=raw["r"],
        bounds=(*bounds, float("inf")) if bounds else (),
    )


def total(blocks: Iterable[Block]) -> Block:
    """Add blocks up."""
    result: Block = {}
    for block in blocks:
        for key, value in block.items():
            result[key] = result.get(key, 0.0) + value
    return result


def _canary_only(block: Block) -> Block:
    return {key: value for key, value in block.items() if not key.startswith(STABLE)}


def _short(block: Block) -> Block:
    return {key: _number(value) for key, value in block.items() if value}


def _number(value: float) -> float:
    """Keep six digits, and whole numbers whole: most are counts."""
    rounded = float(f"{value:.6g}")
    return int(rounded) if rounded.is_integer() else rounded
