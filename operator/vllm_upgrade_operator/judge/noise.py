"""How noisy bad events are, learned from the stable pods alone.

Only how events are split between the pods counts, so that bursts and a daily rhythm which all pods
share are no noise: pairs of bad events of the same pod are counted against the pairs that chance
gives. With one stable pod its looks stand in for pods, and shared bursts cannot be told apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

LOUD = 1.0
"""Standard errors of excess pairs from which on events are not taken for independent: a little
excess only makes each event count for a little less."""

CALM = 1.5
"""Variance of the counts, in multiples of that of independent events, up to which a look is
evidence by itself."""

CLUMPED = 5.0
"""The same up to which it is enough to let each event count for so much less."""

LASTING = 2.5
"""How many times larger clumps may be in blocks than in looks: more are bursts that last."""

PRECISE = 0.15
"""Relative standard error of the pairs in blocks up to which silence is proof of calm."""

LEARNING_LOOKS = (180, 120, 60)
"""Looks at the stable pods before they can be called quiet: with one, with two, with more."""


class State(StrEnum):
    """What is known of the noise."""

    QUIET = "quiet"
    """Events are independent, or almost: each look is evidence."""
    UNKNOWN = "unknown"
    """Too little was seen, or events come in clumps: a block of looks is evidence, but no more than
    was seen calm before."""
    LOUD = "loud"
    """Events come in bursts, or in some pods more than in others: only ranks are evidence."""


@dataclass(slots=True)
class Pairs:
    """Pairs of bad events of the same pod: seen, expected, and the variance of what is seen."""

    seen: float = 0.0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, counts: Iterable[tuple[float, float]]) -> None:
        """Add one span of time: of each pod its bad events and its requests."""
        bad = of = same = squares = 0.0
        for x, n in counts:
            bad += x
            of += n
            same += x * (x - 1)
            squares += n * n
        if bad <= 1 or of <= 0:
            return
        concentration = squares / (of * of)
        pairs = bad * (bad - 1)
        self.seen += same
        self.expected += pairs * concentration
        self.variance += 2 * pairs * concentration * (1 - concentration)

    @property
    def surprise(self) -> float:
        """Excess of the pairs in standard errors."""
        return (self.seen - self.expected) / math.sqrt(self.variance + 1)

    @property
    def excess(self) -> float:
        """By which fraction there are more pairs than expected; 0 where none are expected."""
        return self.seen / self.expected - 1 if self.expected > 0 else 0.0

    @property
    def sure_excess(self) -> float:
        """The same less one standard error: a handful of events says little."""
        if self.expected <= 0:
            return 0.0
        return max(0.0, (self.seen - math.sqrt(self.variance + 1)) / self.expected - 1)

    @property
    def error(self) -> float:
        """Relative standard error of the expectation; infinite where none are expected."""
        return math.sqrt(self.variance + 1) / self.expected if self.expected > 0 else math.inf


@dataclass(slots=True)
class Noise:
    """What was learned.

    Attributes:
        looks: Looks with stable pods that had requests.
        pods: Most stable pods that were seen at a time.
        by_look: Pairs within looks.
        by_block: Pairs within blocks of looks.
        blocks: Blocks times stable pods.
        single: With one pod, over all blocks: bad events, requests, pairs of bad events of a block,
            squares of its requests.
        spans: Bad events, and in how many of a pod's looks and blocks they were.
        state: What the noise was taken for when the last block ended.
        weight: For how much an event counts since then, 0 to 1.
    """

    looks: int = 0
    pods: int = 0
    by_look: Pairs = field(default_factory=Pairs)
    by_block: Pairs = field(default_factory=Pairs)
    blocks: int = 0
    single: list[float] = field(default_factory=lambda: [0.0] * 4)
    spans: list[float] = field(default_factory=lambda: [0.0] * 3)
    state: State = State.UNKNOWN

    weight: float = 1.0

    def look(self, stable: list[tuple[float, float]]) -> None:
        """Learn from one look at the stable pods."""
        if not any(n > 0 for _, n in stable):
            return
        self.looks += 1
        self.pods = max(self.pods, len(stable))
        if len(stable) > 1:
            self.by_look.add(stable)

    def block(
        self, stable: list[tuple[float, float]], looks: int, single: list[tuple[float, float]]
    ) -> None:
        """Learn from a block.

        Args:
            stable: Its sums, by pod.
            looks: How many it has.
            single: Its looks one by one, where there is one pod.
        """
        if not any(n > 0 for _, n in stable):
            return
        self.blocks += len(stable)
        for i, more in enumerate((sum(x for x, _ in stable), len(stable) * looks, len(stable))):
            self.spans[i] += more
        if len(stable) > 1:
            self.by_block.add(stable)
        else:
            self._alone(stable[0], single)
        self._conclude()

    def _alone(self, whole: tuple[float, float], looks: list[tuple[float, float]]) -> None:
        self.by_look.add(looks)
        x, n = whole
        bad, of, same, squares = (
            before + more
            for before, more in zip(self.single, (x, n, x * (x - 1), n * n), strict=True)
        )
        self.single = [bad, of, same, squares]
        concentration = squares / (of * of)
        pairs = max(0.0, bad * (bad - 1))
        self.by_block = Pairs(
            same, pairs * concentration, 2 * pairs * concentration * (1 - concentration)
        )

    @property
    def wanted(self) -> int:
        """Looks that learning takes."""
        return LEARNING_LOOKS[min(max(self.pods, 1), len(LEARNING_LOOKS)) - 1]

    def _conclude(self) -> None:
        bad, looks, blocks = self.spans
        short, long = self._clump(self.by_look, bad, looks), self._clump(self.by_block, bad, blocks)
        self.weight = 1 / max(short, long)
        # Clumps that end within a look are as large in a block; what lasts grows with the span.
        if self.weight < 1 / CLUMPED or long > LASTING * short:
            self.state = State.LOUD
        elif self.looks < self.wanted or self.by_block.error > PRECISE or self.weight < 1 / CALM:
            self.state = State.UNKNOWN
        else:
            self.state = State.QUIET

    def _clump(self, pairs: Pairs, bad: float, spans: float) -> float:
        """Variance of a pod's count in a span, in multiples of that of independent events."""
        if pairs.surprise < LOUD or not spans:
            return 1.0
        # Pods are held against their own mean, which hides a part of what they differ by.
        seen = 1 - 1 / self.pods if self.pods > 1 else 1.0
        return 1 + pairs.excess / seen * bad / spans

    @property
    def block_cap(self) -> float:
        """Most that a block may add while the noise is unknown: its like was seen so often calm."""
        return math.log1p(self.blocks)

    @property
    def dispersion(self) -> float:
        """Variance of a pod's rate in a block, relative to the rate's square; a little is added."""
        return 1.5 * max(self.by_block.excess, self.by_look.excess / 3, 0.02 / 1.5)
