"""A check that counts in words: its values, its limits, and why it says what it says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.judge.histograms import quantile
from vllm_upgrade_operator.judge.noise import State
from vllm_upgrade_operator.judge.power import detectable
from vllm_upgrade_operator.judge.safety import ENOUGH
from vllm_upgrade_operator.judge.words import (
    over_stable,
    percent,
    phrase,
    plural,
    relation,
    seconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.counted import Counted, Limit


# From so many times on a share says more than an increase.
_SHARE_INSTEAD = 6.0


def values(check: Check, counted: Counted) -> tuple[float | None, float | None]:
    """Give the canary's and the stable pods' present value."""
    canary, stable = counted.shown
    return _value(check, counted, canary), _value(check, counted, stable)


def _value(check: Check, counted: Counted, shown: Sequence[float]) -> float | None:
    if not shown:
        return None
    if check.quantile is not None:
        return quantile(counted.bounds, shown, check.quantile)
    bad, of = shown
    return bad / of if of > 0 else None


def show(check: Check, value: float | None) -> str:
    """Write a value with its unit."""
    return seconds(value) if check.metric in LATENCIES else percent(value)


def sentence(check: Check, counted: Counted, named: Sequence[Limit], *, clear: bool) -> str:
    """Put value, limits and requests into a clause.

    Args:
        check: The check.
        counted: What it keeps.
        named: The limits that it is about; all where none stands out.
        clear: Whether they are broken beyond doubt.
    """
    value, stable = values(check, counted)
    limits = list(named) or counted.limits(check)
    beyond = clear or any(limit.series.beyond(limit.terms) for limit in limits)
    words = [_limit(check, counted, limit, stable) for limit in limits]
    text = phrase(show(check, value), relation(clear=clear, beyond=beyond), words)
    if clear and check.metric in LATENCIES and named:
        text += _slower(counted, named[0])
    return f"{text}, in {plural(counted.requests, 'request')}"


def _limit(check: Check, counted: Counted, limit: Limit, stable: float | None) -> str:
    if not limit.relative:
        beside = "" if stable is None else f" (stable {show(check, stable)})"
        return f"the limit of {show(check, check.max)}{beside}"
    factor = 1 + (check.max_increase or 0.0)
    if check.metric not in LATENCIES:
        return over_stable(percent, stable, factor)
    frozen = None if counted.place is None else counted.place.quantile
    if limit.series.is_alone and frozen is not None:
        return (
            f"the limit, frozen from stable pods, of {seconds(frozen * factor)} "
            f"(stable {seconds(frozen)})"
        )
    return over_stable(seconds, frozen, factor)


def _slower(counted: Counted, limit: Limit) -> str:
    """Say what was counted: the share above a bound."""
    share, allowed = limit.series.share, limit.terms.limit
    if share is None or allowed is None:
        return ""
    return f": {percent(share)} of them{_where(counted, limit)}, where {percent(allowed)} may be"


def power(check: Check, counted: Counted, limits: int, confidence: float) -> str:
    """Say which harm would have been seen; empty where nothing can be said.

    Args:
        check: The check.
        counted: What it keeps.
        limits: How many share the error budget.
        confidence: Of the whole upgrade, below 1.
    """
    limits_of_it = counted.limits(check)
    seen = [(detectable(limit, limits, confidence), limit) for limit in limits_of_it]
    # What one limit does not see another may.
    found = [(worse, limit) for worse, limit in seen if worse is not None]
    if not found:
        return ""
    worse, limit = min(found, key=lambda pair: pair[0])
    _, _, x0, n0 = limit.series.totals
    share = worse * max(x0, 0.5) / n0
    if check.metric in LATENCIES:
        return f"{percent(share)} of them{_where(counted, limit)} would have been seen"
    if worse > _SHARE_INSTEAD:
        return f"{percent(share)} or more would have been seen"
    return f"an increase of {math.ceil((worse - 1) * 20) * 5}% or more would have been seen"


def _where(counted: Counted, limit: Limit) -> str:
    """Name the bound above which a latency's limit is counted."""
    place = counted.place if limit.relative else None
    return "" if place is None else f" above {seconds(counted.bounds[place.index])}"


def noise(check: Check, counted: Counted) -> str:
    """Say what the stable pods' bad events are like: the noisiest of what is counted."""
    states = [limit.series.noise.state for limit in counted.limits(check)]
    return max(states, key=(State.QUIET, State.UNKNOWN, State.LOUD).index).value if states else ""


def open_question(check: Check, counted: Counted) -> str:
    """Say why the canary was not shown to be safe yet, and what helps."""
    limits = counted.limits(check)
    if any(limit.suspicion() >= ENOUGH for limit in limits):
        return (
            "PodsDiffer: looks worse, but a pod may be so by nature; more canary pods tell sooner"
            if not any(limit.harm() >= ENOUGH for limit in limits)
            else "looks worse, not certain yet"
        )
    if any(_stable_too(limit) for limit in limits):
        return "stable pods are beyond it too: too much load, or a limit that cannot be kept"
    if any(limit.series.beyond(limit.terms) for limit in limits):
        return "not certain yet"
    if any(limit.series.noise.state is State.LOUD for limit in limits):
        return "Bursty: they come in bursts on stable pods, so that safety takes longer to show"
    more = [_requests_to_go(limit) for limit in limits if not limit.safe()]
    if more and all(m is not None for m in more):
        return f"shown to be safe after some {max(m or 0 for m in more):.0f} requests more"
    return "not shown to be safe yet"


def _stable_too(limit: Limit) -> bool:
    """Whether canary and stable pods are beyond a limit that does not follow from the latter."""
    series, terms = limit.series, limit.terms
    return series.beyond_with_stable(terms) and series.stable_share > (terms.limit or 0.0)


def _requests_to_go(limit: Limit) -> float | None:
    """Estimate from the evidence so far; None where there is hardly any."""
    safety, requests = limit.series.bets[limit.index].safety, limit.series.totals[1]
    won = math.log(safety.value)
    if won < 0.3 or requests <= 0:
        return None
    return max(10.0, math.ceil(requests * (math.log(ENOUGH) / won - 1) / 10) * 10)
