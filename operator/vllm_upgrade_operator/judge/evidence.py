"""What one check keeps from look to look: a bounded window of blocks of looks, and totals.

A block is the sum of a few looks. The window slides by whole blocks, so that what has to be kept
in the API server stays small, and so that it can be asked whether something was bad *throughout*
the window and not only in one burst of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOOKS_PER_BLOCK = 4
BLOCKS = 5
"""Closed blocks that are kept: with the open one the window is 20 to 24 looks long."""

HARMFUL_LOOKS = 3
OF_LOOKS = 5
"""Harm is a limit found broken in so many of the last so many looks."""

ENOUGH_TO_SPEAK = 2
"""Looks from which on the open block counts as a block of its own."""

FLAGRANT_BLOCKS = 2
"""Blocks in a row after which something is acted on that is too bad for a burst to explain."""

FLAGRANT_EVENTS = 20.0
"""Canary requests that such a finding needs."""

MEMORY = 30
"""Blocks over which it is remembered how bad single stable pods were."""

PODS = 32
"""Stable pods that are followed one by one, at most: this has to fit into a status."""

STABLE = "s"
"""First letter of the keys of a block that say something of stable pods."""

CANARY_SUM = "ct"
CANARY_COUNT = "cn"
"""Keys of a block: a sum of the canary's, and of how many."""

_FORMAT = 1

Block = dict[str, float]

Means = dict[str, tuple[float, float]]
"""By stable pod: a sum, and of how many; their quotient is the pod's mean."""


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
        pods: Of single stable pods, in the block that is being filled.
        worst: The highest mean of a single stable pod, for each of the last blocks.
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
    pods: Means = field(default_factory=dict)
    worst: list[float] = field(default_factory=list)

    def add(self, look: Block, pods: Mapping[str, tuple[float, float]]) -> None:
        """Add one look that counts.

        Args:
            look: The numbers that are summed up.
            pods: Sum and number of what single stable pods showed, by pod name; may be empty.
        """
        if self.looks == LOOKS_PER_BLOCK:
            self.closed = [*self.closed, self.current][-BLOCKS:]
            self.worst = [*self.worst, *_highest(self.pods)][-MEMORY:]
            self.current, self.looks, self.pods = {}, 0, {}
        for name in sorted(pods)[:PODS]:
            key = f"{crc32(name.encode()):x}"
            before, more = self.pods.get(key, (0.0, 0.0)), pods[name]
            self.pods[key] = (before[0] + more[0], before[1] + more[1])
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

    def unprecedented(self, count: int) -> bool:
        """Whether the canary's mean was higher than any stable pod's, in each of the last blocks.

        A queue that builds up by chance takes a while to go again, and looks like harm as long as
        it lasts. What single stable pods went through lately is what chance can do here.
        """
        speaking = _highest(self.pods) if self.looks >= ENOUGH_TO_SPEAK else []
        worst = max([*self.worst, *speaking], default=None)
        if worst is None:
            return True
        return all(
            b.get(CANARY_SUM, 0.0) > worst * b.get(CANARY_COUNT, 0.0) for b in self.recent(count)
        )

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
                "p": {k: [_number(t), _number(n)] for k, (t, n) in self.pods.items()},
                "w": [_number(w) for w in self.worst],
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
        pods={k: (t, n) for k, (t, n) in raw["p"].items()},
        worst=raw["w"],
    )


def total(blocks: Iterable[Block]) -> Block:
    """Add blocks up."""
    result: Block = {}
    for block in blocks:
        for key, value in block.items():
            result[key] = result.get(key, 0.0) + value
    return result


def _highest(pods: Means) -> list[float]:
    """Give the highest mean; nothing where no pod has one."""
    means = [t / n for t, n in pods.values() if n > 0]
    return [max(means)] if means else []


def _canary_only(block: Block) -> Block:
    return {key: value for key, value in block.items() if not key.startswith(STABLE)}


def _short(block: Block) -> Block:
    return {key: _number(value) for key, value in block.items() if value}


def _number(value: float) -> float:
    """Keep six digits, and whole numbers whole: most are counts."""
    if float(value).is_integer():
        return int(value)
    return float(f"{value:.6g}")
