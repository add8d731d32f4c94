"""A histogram of seconds with fixed bounds."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Any

BOUNDS = tuple(
    round(mantissa * 10.0**exponent, 6)
    for exponent in (-3, -2, -1, 0, 1)
    for mantissa in (1.0, 1.5, 2.0, 3.0, 5.0, 7.5)
)
"""Upper bounds of the buckets, in seconds: 1 ms to 75 s."""


class Histogram:
    """Counts of observations per bucket; the last bucket has no upper bound."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._sum += seconds

    def quantile(self, share: float) -> float | None:
        """Give the upper bound of the bucket that the quantile lies in; None without data."""
        total = sum(self._counts)
        if not total:
            return None
        reached = accumulate(self._counts)
        place = next(i for i, count in enumerate(reached) if count >= share * total)
        return BOUNDS[place] if place < len(BOUNDS) else float("inf")

    def report(self) -> dict[str, Any]:
        """Give count, sum, quantiles and the buckets that are not empty, by upper bound."""
        names = (*map(str, BOUNDS), "+Inf")
        return {
            "count": sum(self._counts),
            "sum": round(self._sum, 6),
            "p50": _finite(self.quantile(0.5)),
            "p99": _finite(self.quantile(0.99)),
            "buckets": {n: c for n, c in zip(names, self._counts, strict=True) if c},
        }


def _finite(bound: float | None) -> float | None:
    """JSON has no infinity."""
    return None if bound == float("inf") else bound
