"""The mean of something per request, on the canary and on stable pods, and how sure it is.

A *cell* is one pod in one look: so many requests, and a sum over them. Requests of one cell may be
alike (one tenant sends a batch), so cells and not requests are taken to be independent, and what
stable pods differ by beyond that (sessions that stick to a pod) is added as a variance of pods.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

WINDOW_SECONDS = 600.0
"""What was so long ago counts for a third."""

PODS = 8
"""Stable pods that are followed one by one, at most: this has to fit into a status."""

# Six looks of one pod: the older ones count for a little less.
_FEWEST_CELLS = 5.5
_GONE = 0.5

Cells = dict[str, tuple[float, float]]
"""By pod: number of requests, and the sum over them."""


def fading(seconds: float) -> float:
    """Give the factor by which what was known before counts, so many seconds later."""
    return math.exp(-seconds / WINDOW_SECONDS)


@dataclass
class Side:
    """Sums over the cells of one side, newer ones counting for more.

    Attributes:
        n: Requests.
        s: The sum over them.
        nn: Squares of `n`, of single cells.
        ns: Products of `n` and `s`.
        ss: Squares of `s`.
        w: Weights of the cells.
        ww: Their squares.
    """

    n: float = 0.0
    s: float = 0.0
    nn: float = 0.0
    ns: float = 0.0
    ss: float = 0.0
    w: float = 0.0
    ww: float = 0.0

    def fade(self, factor: float) -> None:
        """Make all that is older count for less."""
        square = factor * factor
        self.n, self.s, self.w = self.n * factor, self.s * factor, self.w * factor
        self.nn, self.ns = self.nn * square, self.ns * square
        self.ss, self.ww = self.ss * square, self.ww * square

    def add(self, n: float, s: float) -> None:
        """Add a cell."""
        self.n, self.s = self.n + n, self.s + s
        self.nn, self.ns, self.ss = self.nn + n * n, self.ns + n * s, self.ss + s * s
        self.w, self.ww = self.w + 1.0, self.ww + 1.0

    @property
    def mean(self) -> float:
        """The sum per request."""
        return self.s / self.n if self.n > 0 else 0.0

    @property
    def cells(self) -> float:
        """How many cells of equal weight there might be."""
        return self.w * self.w / self.ww if self.ww > 0 else 0.0

    def enough(self, fewest: float) -> bool:
        """Whether there are so many requests, in cells enough to know how they differ."""
        return self.cells >= _FEWEST_CELLS and self.n >= fewest

    @property
    def variance(self) -> float:
        """Of the mean, as cells differ from each other."""
        mean, cells = self.mean, self.cells
        spread = self.ss - 2 * mean * self.ns + mean * mean * self.nn
        return max(0.0, spread) / (self.n * self.n) * cells / (cells - 1)


@dataclass(frozen=True, slots=True)
class Difference:
    """The canary's mean beside the stable pods'.

    Attributes:
        canary: Mean of the canary's requests.
        stable: Mean of the stable pods' requests.
        sigmas: By how many standard errors the canary's is higher; negative where it is lower.
    """

    canary: float
    stable: float
    sigmas: float


@dataclass
class Pair:
    """Both sides of one quantity, over a window of looks.

    Attributes:
        canary: Its pods together.
        stable: The stable pods together.
        pods: Requests and sum of single stable pods, by a short form of their name.
        canaries: Canary pods in the last look that had any.
    """

    canary: Side = field(default_factory=Side)
    stable: Side = field(default_factory=Side)
    pods: dict[str, tuple[float, float]] = field(default_factory=dict)
    canaries: float = 0.0

    def add(self, canary: Mapping[str, tuple[float, float]], stable: Cells, seconds: float) -> None:
        """Add a look that took so long."""
        factor = fading(seconds)
        self.canary.fade(factor)
        self.stable.fade(factor)
        faded = {key: (n * factor, s * factor) for key, (n, s) in self.pods.items()}
        self.pods = {key: (n, s) for key, (n, s) in faded.items() if n >= _GONE}
        for side, cells in ((self.canary, canary), (self.stable, stable)):
            for n, s in cells.values():
                if n > 0:
                    side.add(n, s)
        asked = sum(n > 0 for n, _ in canary.values())
        self.canaries = float(asked) if asked else self.canaries
        for name in sorted(stable):
            key = f"{crc32(name.encode()):x}"
            if stable[name][0] > 0 and (key in self.pods or len(self.pods) < PODS):
                n, s = self.pods.get(key, (0.0, 0.0))
                self.pods[key] = (n + stable[name][0], s + stable[name][1])

    def ratio(self, fewest: float, least_spread: float) -> Difference | None:
        """Compare means that are above zero, by their logarithms.

        Args:
            fewest: Requests that each side must have had.
            least_spread: By how much equal pods are taken to differ where there are too few stable
                ones to learn it from: a standard deviation of the logarithm.
        """
        if not (self.canary.enough(fewest) and self.stable.enough(fewest)):
            return None
        if self.canary.mean <= 0 or self.stable.mean <= 0:
            return None
        difference = math.log(self.canary.mean / self.stable.mean)
        variance = (
            self.canary.variance / self.canary.mean**2
            + self.stable.variance / self.stable.mean**2
            + self._pod_variance(self.stable.mean, least_spread)
        )
        return self._difference(difference, variance)

    def share(self, fewest: float, least_spread: float) -> Difference | None:
        """Compare means that are shares, 0 to 1, as they are; `least_spread` is one of those."""
        if not (self.canary.enough(fewest) and self.stable.enough(fewest)):
            return None
        variance = (
            self.canary.variance + self.stable.variance + self._pod_variance(1.0, least_spread)
        )
        return self._difference(self.canary.mean - self.stable.mean, variance)

    def _difference(self, difference: float, variance: float) -> Difference:
        return Difference(self.canary.mean, self.stable.mean, difference / math.sqrt(variance))

    def _pod_variance(self, unit: float, least_spread: float) -> float:
        """Variance that pods add to the difference, in squares of `unit`.

        What stable pods differ by, beyond what their own cells do, is an estimate of few degrees
        of freedom: it is drawn towards `least_spread`, which counts for two more pods.
        """
        count = len(self.pods)
        total = sum(n for n, _ in self.pods.values())
        mean = self.stable.mean
        learned = 0.0
        if count > 1:
            between = sum(n / total * (s / n - mean) ** 2 for n, s in self.pods.values())
            by_chance = (count - 1) * self.stable.variance
            learned = max(0.0, between - by_chance) * count / (count - 1)
        prior = (least_spread * unit) ** 2 * (1.0 if count > 1 else 4.0)
        spread = (2 * prior + (count - 1) * learned) / (count + 1)
        return spread / unit**2 * (1 / max(1.0, self.canaries) + 1 / max(1, count))
