"""Where in a latency's buckets a check counts: a bound, and the share that may lie above it.

Quantiles of a few hundred requests are guesses; counts above a bucket bound are exact. So a limit
on a quantile becomes a limit on a share. With `max` it is plain: no more than 1 % of the requests
may lie above it for a p99. With `maxIncrease` the stable pods' own latencies, made longer by as
much, say which share would lie above each bound; of the bounds near the limit that one is taken at
which a canary beyond it shows soonest.

What coarse buckets cost: between two bounds nothing is known. vLLM's buckets of seconds lie a
factor of 1.3 to 2.5 apart, so that a canary may be slower than `maxIncrease` by up to as much
before it shows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge.histograms import above, quantile

if TYPE_CHECKING:
    from collections.abc import Sequence

BEYOND = 1.5
"""How many times slower than allowed a canary is that should show soonest."""

NEAR = 2.0
"""Bounds are tried up to this factor away from the limit."""

LEAST_OF_TAIL = 0.25
"""Part of the tail's share (1 % for a p99) that is always allowed."""

MOST_MARGIN = 5.0
"""How many times the stable pods' share above the bound is asked for at most."""

_ROUNDING = 0.95


@dataclass(frozen=True, slots=True)
class Place:
    """Where to count.

    Attributes:
        index: Of the bound.
        allowed: Share of the canary's requests that may lie above it, 0 to 1.
        margin: How many times the stable pods' share above it the canary's may be.
        slack: How many times `allowed` the canary has to be shown to stay below.
        quantile: Of the stable pods, in seconds; None where the limit does not depend on it.
    """

    index: int
    allowed: float
    margin: float
    slack: float
    quantile: float | None = None


def of_limit(bounds: Sequence[float], q: float, limit: float) -> Place:
    """Place a limit in seconds: at the first bound that is not below it."""
    finite = [b for b in bounds if b < math.inf]
    index = next((i for i, b in enumerate(finite) if b >= _ROUNDING * limit), len(finite) - 1)
    return Place(max(0, index), 1 - q, 1.0, 1.0)


def of_stable(
    bounds: Sequence[float], counts: Sequence[float], q: float, increase: float
) -> Place | None:
    """Place a limit that follows from the stable pods' latencies.

    Args:
        bounds: Upper bounds of the buckets, ascending; the last is infinity.
        counts: Stable pods' observations per bucket.
        q: The quantile, 0 to 1.
        increase: By which fraction it may be longer.

    Returns:
        None where nothing can be told: no observation, or no finite bound.
    """
    value = quantile(bounds, counts, q)
    if value is None or len(bounds) < 2:
        return None
    factor, total = 1 + increase, sum(counts)
    target = factor * value
    finite = range(len(bounds) - 1)
    near = [i for i in finite if bounds[i] > 0 and target / NEAR <= bounds[i] <= target * NEAR]
    if not near:
        near = [min(finite, key=lambda i: abs(bounds[i] - target))]
    least = LEAST_OF_TAIL * (1 - q)

    def allowed(index: int) -> float:
        return max(least, _longer(bounds, counts, bounds[index] / factor))

    def shows(index: int) -> float:
        slow = _longer(bounds, counts, bounds[index] / (factor * BEYOND))
        return _divergence(max(slow, allowed(index)), allowed(index))

    index = max(near, key=lambda i: (shows(i), -abs(bounds[i] - target)))
    share = above(counts, index) / total
    ratio = allowed(index) / share if share > 0 else MOST_MARGIN
    # A quantile that is kept has no more than its tail above; that much must be shown, not less.
    slack = factor * max(1.0, (1 - q) / allowed(index))
    margin = max(factor, min(MOST_MARGIN, ratio))
    return Place(index, min(0.95, allowed(index)), margin, slack, value)


def _longer(bounds: Sequence[float], counts: Sequence[float], value: float) -> float:
    """Give the share of observations above a value, linear within its bucket."""
    total, slower = sum(counts), 0.0
    for i, count in enumerate(counts):
        low = bounds[i - 1] if i else 0.0
        if value <= low:
            slower += count
        elif value < bounds[i]:
            part = 1.0 if bounds[i] == math.inf else (bounds[i] - value) / (bounds[i] - low)
            slower += count * part
    return slower / total


def _divergence(p: float, q: float) -> float:
    """Evidence per request where `q` is claimed and `p` is true."""
    if p <= q or q <= 0 or q >= 1:
        return 0.0
    rest = (1 - p) * math.log((1 - p) / (1 - q)) if p < 1 else 0.0
    return p * math.log(p / q) + rest
