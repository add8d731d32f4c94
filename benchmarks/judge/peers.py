"""The rules of others, as their sources have them, on the same counts.

Each looks at every check that it can be told about and rolls back for any of them. Checks that
have a hard limit alone are held against that; preemptions nobody else looks at.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import stats

from benchmarks.judge.traces import (
    LOOK_SECONDS,
    LOOKS_PER_MINUTE,
    Floats,
    Outcome,
    seconds_to_first,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.judge.traces import Counted, Traces

_RATIO = 2.0
_MINUTE = 60.0
_UNSEEN = "preemptions"

_KAYENTA_EVERY = 5
# MannWhitneyClassifier of NetflixACAJudge: a two-sided interval of 98 %, and its tolerance.
_KAYENTA_TAIL = 0.01
_KAYENTA_TOLERANCE = 0.25

_Z_LEVEL = 0.01


def argo(traces: Traces, failure_limit: int) -> Outcome:
    """Argo Rollouts: one measurement a minute, failed where a rate is above twice stable's.

    The analysis fails with more than `failure_limit` failed measurements of one metric, in all
    (`assessMetricFailureInconclusiveOrError`). A ratio of 0/0 is not above anything.
    """
    failed = _failed_minutes(traces).cumsum(axis=2) > failure_limit
    return Outcome(acted=seconds_to_first(failed, _MINUTE, _before(traces)))


def flagger(traces: Traces, threshold: int = 5) -> Outcome:
    """Flagger: the same measurements; a tick with any failed one counts, in all.

    The count is compared at the beginning of the next tick, before its own measurements
    (`advanceCanary`), so a rollback comes a tick after the last failure that it needed.
    """
    failed = np.logical_or.reduce(_failed_minutes(traces), axis=1).cumsum(axis=1) >= threshold
    return Outcome(acted=seconds_to_first(failed[:, None], _MINUTE, _before(traces)) + _MINUTE)


def kayenta(traces: Traces) -> Outcome:
    """Kayenta: Mann-Whitney on points of a minute, judged every five minutes on all of them.

    A metric is High where the lower end of the interval of the shift (98 %, both sides) is above
    a quarter of the estimated shift, and the ratio of the means is at least 1 (or is none). That
    the lower end is above a value is the same as that the one-sided test of the canary's points
    less that value rejects at 1 %. Every metric is critical: one that is High fails the canary.
    """
    canary, stable = _minute_rates(traces)
    ends = range(_KAYENTA_EVERY, canary.shape[2] + 1, _KAYENTA_EVERY)
    high = np.stack([_high(canary[:, :, :end], stable[:, :, :end]) for end in ends], axis=2)
    return Outcome(acted=seconds_to_first(high, _KAYENTA_EVERY * _MINUTE, _before(traces)))


def z_each_look(traces: Traces) -> Outcome:
    """Test the difference of two shares at 1 %, one-sided, on all requests so far, each look."""
    bad1, of1, bad0, of0 = (side[:, _seen(traces)].cumsum(axis=2) for side in traces.sides())
    with np.errstate(invalid="ignore", divide="ignore"):
        pooled = (bad1 + bad0) / (of1 + of0)
        error = np.sqrt(pooled * (1 - pooled) * (1 / of1 + 1 / of0))
        z = (bad1 / of1 - bad0 / of0) / error
    over = z > stats.norm.isf(_Z_LEVEL)
    return Outcome(acted=seconds_to_first(over, LOOK_SECONDS, _before(traces)))


PEERS: dict[str, Callable[[Traces], Outcome]] = {
    "Argo Rollouts, failureLimit 0": lambda traces: argo(traces, 0),
    "Argo Rollouts, failureLimit 3": lambda traces: argo(traces, 3),
    "Flagger, threshold 5": flagger,
    "Kayenta": kayenta,
    "z-test each look": z_each_look,
}


def _before(traces: Traces) -> float:
    return traces.warmup * LOOK_SECONDS


def _seen(traces: Traces) -> list[int]:
    return [i for i, check in enumerate(traces.checks) if check.name != _UNSEEN]


def _minute_rates(traces: Traces) -> tuple[Floats, Floats]:
    """Shares of bad requests of canary and stable by run, check and minute; NaN for none."""
    bad1, of1, bad0, of0 = (_minutes(side[:, _seen(traces)]) for side in traces.sides())
    with np.errstate(invalid="ignore"):
        return bad1 / of1, bad0 / of0


def _minutes(looks: Floats) -> Floats:
    whole = looks.shape[2] // LOOKS_PER_MINUTE
    cut = looks[:, :, : whole * LOOKS_PER_MINUTE]
    summed: Floats = cut.reshape(*looks.shape[:2], whole, LOOKS_PER_MINUTE).sum(axis=3)
    return summed


def _failed_minutes(traces: Traces) -> npt.NDArray[np.bool_]:
    canary, stable = _minute_rates(traces)
    checks = [traces.checks[number] for number in _seen(traces)]
    failed = [
        canary[:, number] > _most(check, stable[:, number]) for number, check in enumerate(checks)
    ]
    return np.stack(failed, axis=1)


def _most(check: Counted, stable: Floats) -> Floats | float:
    if check.margin is not None:
        return _RATIO * stable
    return math.inf if check.maximum is None else check.maximum


def _high(canary: Floats, stable: Floats) -> npt.NDArray[np.bool_]:
    """Whether each run and check is High on the points of the last axis."""
    shifts = (canary[..., :, None] - stable[..., None, :]).reshape(*canary.shape[:2], -1)
    gaps = bool(np.isnan(shifts).any())
    middle = np.nanmedian if gaps else np.median
    shift = middle(shifts, axis=-1)
    moved = canary - _KAYENTA_TOLERANCE * np.abs(shift)[..., None]
    found = stats.mannwhitneyu(
        moved,
        stable,
        alternative="greater",
        method="asymptotic",
        axis=-1,
        nan_policy="omit" if gaps else "propagate",
    )
    mean = np.nanmean if gaps else np.mean
    below = mean(canary, axis=-1) < mean(stable, axis=-1)
    zero = (mean(canary, axis=-1) == 0) | (mean(stable, axis=-1) == 0)
    # With all points alike the statistic is 0/0: identical data pass.
    return np.asarray((np.asarray(found.pvalue) < _KAYENTA_TAIL) & (~below | zero))
