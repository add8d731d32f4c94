"""What a check of a gauge keeps: a bounded window of blocks of looks.

A block is the mean of a few looks. The window slides by whole blocks, so that it can be asked
whether something was bad *throughout* the window and not only at one time in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOOKS_PER_BLOCK = 4
BLOCKS = 5
"""Closed blocks that are kept: with the open one the window is 20 to 24 looks long."""

ENOUGH_TO_SPEAK = 2
"""Looks from which on the open block counts as a block of its own."""

FLAGRANT_BLOCKS = 3
"""Blocks in a row after which something is acted on that is too bad for a burst to explain."""

MEMORY = 30
"""Blocks over which it is remembered how bad single stable pods were."""

CANARY_SUM = "ct"
CANARY_COUNT = "cn"
"""Keys of a block: a sum of the canary's, and of how many."""

Block = dict[str, float]

Means = dict[str, tuple[float, float]]
"""By stable pod: a sum, and of how many; their quotient is the pod's mean."""


@dataclass(slots=True)
class Held:
    """The window of one check.

    Attributes:
        closed: The last full blocks, oldest first.
        current: The block that is being filled.
        looks: Looks in the block that is being filled.
        requests: Canary requests since it began.
        idle: Looks in a row without anything new from the canary.
        alone: Looks in a row without a stable pod to compare with.
        pods: Of single stable pods, in the block that is being filled.
        worst: The highest mean of a single stable pod, for each of the last blocks.
    """

    closed: list[Block] = field(default_factory=list)
    current: Block = field(default_factory=dict)
    looks: int = 0
    requests: float = 0.0
    idle: int = 0
    alone: int = 0
    pods: Means = field(default_factory=dict)
    worst: list[float] = field(default_factory=list)

    def add(self, look: Block, pods: Mapping[str, tuple[float, float]]) -> None:
        """Add one look that counts.

        Args:
            look: The numbers that are summed up; empty while the canary does not count yet.
            pods: Sum and number of what single stable pods showed, by pod; may be empty.
        """
        if self.looks == LOOKS_PER_BLOCK:
            if self.current:
                self.closed = [*self.closed, self.current][-BLOCKS:]
            self.worst = [*self.worst, *_highest(self.pods)][-MEMORY:]
            self.current, self.looks, self.pods = {}, 0, {}
        for name, (value, number) in pods.items():
            before = self.pods.get(name, (0.0, 0.0))
            self.pods[name] = (before[0] + value, before[1] + number)
        self.current = total([self.current, look])
        self.looks += 1

    def recent(self, count: int) -> list[Block]:
        """Give the last blocks, oldest first; fewer where there are not so many yet."""
        speaking = self.current.get(CANARY_COUNT, 0.0) >= ENOUGH_TO_SPEAK
        return [*self.closed, *([self.current] if speaking else [])][-count:]

    def unprecedented(self, count: int) -> bool:
        """Whether the canary's mean was higher than any stable pod's, in each of the last blocks.

        A queue that builds up by chance takes a while to go again, and looks like harm as long as
        it lasts. What single stable pods went through lately is what chance can do here.
        """
        worst = max([*self.worst, *_highest(self.pods)], default=None)
        if worst is None:
            return True
        return all(
            b.get(CANARY_SUM, 0.0) > worst * b.get(CANARY_COUNT, 0.0) for b in self.recent(count)
        )

    def dump(self) -> dict[str, Any]:
        """Write it down as plain lists and numbers."""
        return {
            "b": self.closed,
            "c": self.current,
            "n": [self.looks, self.requests, self.idle, self.alone],
            "p": self.pods,
            "w": self.worst,
        }

    @classmethod
    def load(cls, raw: dict[str, Any]) -> Held:
        """Read what `dump` wrote."""
        looks, requests, idle, alone = raw["n"]
        pods = {name: (value, number) for name, (value, number) in raw["p"].items()}
        return cls(raw["b"], raw["c"], looks, requests, idle, alone, pods, raw["w"])


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
