"""Tails of the binomial distribution: how surprising a count is."""

from __future__ import annotations

import math

# Above this many trials the normal approximation is better than needed, and much cheaper.
_EXACT_UP_TO = 20_000
_NEGLIGIBLE = 1e-17


def upper_tail(k: float, n: float, p: float) -> float:
    """Chance of `k` or more successes in `n` trials of chance `p`; counts are rounded.

    Where `k` is not above what is expected the answer is 1: nothing is surprising then.
    """
    k, n = round(k), round(n)
    if k <= n * p or k <= 0:
        return 1.0
    if p <= 0 or k > n:
        return 0.0
    if n > _EXACT_UP_TO:
        z = (k - 0.5 - n * p) / math.sqrt(n * p * (1 - p))
        return 0.5 * math.erfc(z / math.sqrt(2))
    term = math.exp(
        math.lgamma(n + 1)
        - math.lgamma(k + 1)
        - math.lgamma(n - k + 1)
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )
    total = 0.0
    odds = p / (1 - p)
    for i in range(int(k), int(n) + 1):
        total += term
        if term <= _NEGLIGIBLE * total or term == 0.0:
            break
        term *= (n - i) / (i + 1) * odds
    return min(1.0, total)


def more_than(bad: float, of: float, other_bad: float, other_of: float, factor: float) -> float:
    """Chance to see so many bad events here, if the rate were `factor` times the other's.

    Given how many bad events there were in all, those on this side are binomial: exact for
    Poisson counts, and a common trend of both sides cancels.
    """
    if of <= 0 or other_of <= 0 or factor <= 0:
        return 1.0
    share = factor * of / (factor * of + other_of)
    return upper_tail(bad, bad + other_bad, share)


def less_than(good: float, of: float, other_good: float, other_of: float, factor: float) -> float:
    """Chance to see so few events here, if the rate were `factor` times the other's.

    The mirror of `more_than`: seen from the other side its events are too many.
    """
    if factor <= 0:
        return 1.0
    return more_than(other_good, other_of, good, of, 1 / factor)
