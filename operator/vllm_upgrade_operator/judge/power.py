"""What would have been seen: how bad the canary could be without being found out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge.noise import State
from vllm_upgrade_operator.judge.series import FAST_PART

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.counted import Limit

# Bets are split over degrees of harm and lose a little: this much more than the bound is needed.
_LOSS = 1.3
_PRECISION = 1.03
_MOST = 100.0


def detectable(limit: Limit, limits: int, confidence: float) -> float | None:
    """Give how many times the stable pods' share would have been seen in about half of all cases.

    Args:
        limit: What the canary is held against.
        limits: How many share the error budget.
        confidence: Of the whole upgrade.

    Returns:
        None where nothing can be said: too little was seen, or bad events come in bursts. A rule of
        thumb from Wald's bound.
    """
    series, terms = limit.series, limit.terms
    _, n1, x0, n0 = series.totals
    if n1 <= 0 or n0 <= 0 or series.noise.state is State.LOUD:
        return None
    needed = _LOSS * math.log(limits / ((1 - confidence) * FAST_PART))
    # Nothing bad among so many is as good as half an event.
    share = max(x0, 0.5) / n0
    low, high = terms.margin * series.allowance, min(_MOST, 1 / share)

    def seen(worse: float) -> bool:
        return _compared(worse, terms.margin, share, n1, n0) >= needed and (
            terms.limit is None or _limited(share * worse, terms.limit, n1) >= needed
        )

    if low >= high or not seen(high):
        return None
    # More harm is always easier to see, so the least that is seen can be closed in on.
    while high / low > _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seen(middle) else (middle, high)
    return high


def _compared(worse: float, margin: float, share: float, n1: float, n0: float) -> float:
    """Evidence in the split of bad events between the sides."""
    p = n1 * worse / (n1 * worse + n0)
    q = n1 * margin / (n1 * margin + n0)
    trials = share * (n1 * worse + n0)
    return trials * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))


def _limited(rate: float, limit: float, n1: float) -> float:
    """Evidence in the canary's requests alone."""
    if rate <= limit:
        return 0.0
    if limit <= 0:
        return math.inf
    rest = (1 - rate) * math.log((1 - rate) / (1 - limit)) if rate < 1 else 0.0
    return n1 * (rate * math.log(rate / limit) + rest)
