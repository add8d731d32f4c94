"""What is written down of one rule in one case."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.judge.bounds import interval
from benchmarks.judge.traces import LOOK_SECONDS, Floats, Outcome, Traces

if TYPE_CHECKING:
    import numpy.typing as npt

    from benchmarks.judge.cases import Case

SAFE_WITHIN_SECONDS = 15 * 60.0
HOUR_SECONDS = 60 * 60.0

Row = dict[str, Any]


def row(case: Case, rule: str, outcome: Outcome, harmed: Floats, wald_seconds: float | None) -> Row:
    """Sum up.

    Args:
        case: The case.
        rule: Whose outcome it is.
        outcome: What the rule did.
        harmed: By run, requests that were harmed before the rollback.
        wald_seconds: How long any test needs; None where that is not known.

    Returns:
        `false_rollback`: share of runs rolled back without harm, or before it began, and the ends
        of its interval; `missed`: share of harmful runs never rolled back; `median_s` and `p95_s`:
        time from the onset to the rollback, of the runs that were not rolled back before; None
        where that many were never rolled back; `harmed_requests`: median; `inconclusive`: share of
        harmless runs neither rolled back nor found safe after 15 minutes; `safe_median_s` and
        `safe_p95_s`: time until found safe; `wrongly_safe`: share of harmful runs found safe
        after the onset and before a rollback; `bound_ratio`: `median_s` over `wald_s` and one
        look, since no rule acts between two looks.
    """
    runs = outcome.acted.size
    acted, onset = outcome.acted, case.onset_seconds
    false = acted <= onset if case.harmful else np.isfinite(acted)
    low, high = interval(int(false.sum()), runs)
    found: Row = {
        "question": case.question.value,
        "case": case.name,
        "rule": rule,
        "runs": runs,
        "harmful": case.harmful,
        "false_rollback": _share(false),
        "false_rollback_low": round(low, 5),
        "false_rollback_high": round(high, 5),
        "missed": None,
        "inconclusive": None,
        "median_s": None,
        "p95_s": None,
        "harmed_requests": None,
        "wald_s": None if wald_seconds is None else round(wald_seconds, 1),
        "bound_ratio": None,
    }
    if case.harmful:
        found |= _of_harm(acted[~false] - onset, harmed[~false], wald_seconds)
    if outcome.safe is not None:
        found |= _of_safety(case, acted, outcome.safe)
    return found


def _of_harm(after: Floats, harmed: Floats, wald_seconds: float | None) -> Row:
    if not after.size:
        return {}
    median = _quantile(after, 0.5)
    ratio = None
    if median is not None and wald_seconds is not None:
        ratio = round(median / (wald_seconds + LOOK_SECONDS), 2)
    return {
        "missed": _share(np.isinf(after)),
        "median_s": median,
        "p95_s": _quantile(after, 0.95),
        "harmed_requests": round(float(np.median(harmed)), 1),
        "bound_ratio": ratio,
    }


def _of_safety(case: Case, acted: Floats, safe: Floats) -> Row:
    if case.harmful:
        return {"wrongly_safe": _share((safe > case.onset_seconds) & (safe < acted))}
    return {
        "inconclusive": _share((safe > SAFE_WITHIN_SECONDS) & (acted > SAFE_WITHIN_SECONDS)),
        "inconclusive_1h": _share((safe > HOUR_SECONDS) & (acted > HOUR_SECONDS)),
        "safe_median_s": _quantile(safe, 0.5),
        "safe_p95_s": _quantile(safe, 0.95),
    }


def harmed_requests(case: Case, traces: Traces, acted: Floats) -> Floats:
    """Count the canary's bad requests beyond the stable pods' share, up to the rollback.

    Returns:
        By run; of the checks that show the harm, the one with most.
    """
    numbers = [i for i, check in enumerate(traces.checks) if check.name in case.harmed_checks]
    if not case.harmful or not numbers:
        return np.zeros(traces.runs)
    bad1, of1, bad0, of0 = (side[:, numbers] for side in traces.sides())
    end = (np.arange(bad1.shape[2]) + 1 + traces.warmup) * LOOK_SECONDS
    counts = (end > case.onset_seconds) & (end <= acted[:, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(of0 > 0, bad0 / of0, 0.0).mean(axis=2, keepdims=True)
    excess = ((bad1 - of1 * share) * counts[:, None]).sum(axis=2)
    most: Floats = np.maximum(0.0, excess.max(axis=1))
    return most


def _share(hits: npt.NDArray[np.bool_]) -> float:
    return round(float(hits.mean()), 5)


def _quantile(seconds: Floats, share: float) -> float | None:
    """The smallest value that so many are not above; None where it is infinite."""
    value = float(np.quantile(seconds, share, method="inverted_cdf"))
    return None if math.isinf(value) else value
