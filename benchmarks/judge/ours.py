"""Our judge on counts: below what reads them from pods and above what it is in a status."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge.traces import LOOK_SECONDS, Outcome
from benchmarks.judge.worlds import TAILS
from vllm_upgrade_operator.judge.budget import enough
from vllm_upgrade_operator.judge.safety import ENOUGH
from vllm_upgrade_operator.judge.series import FLOOR, Bet, Series, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.judge.traces import Counted, Floats, Traces

CONFIDENCE = 0.99

_COLD_LOOKS = 30


def terms(check: Counted) -> list[Terms]:
    """Give the limits of a check: one for what is compared, one for what is never allowed."""
    found: list[Terms] = []
    if check.allowed is not None and check.margin is not None:
        found.append(Terms(margin=check.margin, limit=check.allowed, slack=check.slack))
    elif check.margin is not None:
        floor = FLOOR if check.maximum is None else check.maximum
        found.append(Terms(margin=check.margin, floor=floor))
    if check.maximum is not None:
        found.append(Terms(margin=1.0, limit=check.maximum))
    return found


def alpha(checks: Sequence[Counted]) -> float:
    """Give the part of the error budget that one limit has to itself."""
    return (1 - CONFIDENCE) / sum(len(terms(check)) for check in checks)


def outcome(traces: Traces) -> Outcome:
    """Judge each run, look by look, until it is rolled back or at its end."""
    ends = [_Upgrade(traces, run).judge() for run in range(traces.runs)]
    return Outcome(
        acted=np.array([acted for acted, _ in ends]), safe=np.array([safe for _, safe in ends])
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """One limit of a check.

    Attributes:
        series: The events.
        index: Number of the bet.
        terms: What it is about.
        of_load: Whether more load than stable pods have would explain it.
    """

    series: Series
    index: int
    terms: Terms
    of_load: bool


class _Upgrade:
    """One run."""

    def __init__(self, traces: Traces, run: int) -> None:
        self._traces = traces
        self._bad: Floats = traces.bad[run].astype(float)
        self._of: Floats = traces.of[run].astype(float)
        self._terms = [terms(check) for check in traces.checks]
        self._series = [Series([Bet() for _ in limits]) for limits in self._terms]
        self._limits = [
            _Limit(series=series, index=index, terms=term, of_load=check.name != "errors")
            for series, limits, check in zip(self._series, self._terms, traces.checks, strict=True)
            for index, term in enumerate(limits)
        ]

    def judge(self) -> tuple[float, float]:
        """Give the seconds from the canary's first traffic to rollback and to being safe."""
        learned, safe = self._traces.learned, math.inf
        bad, of = self._bad.tolist(), self._of.tolist()
        for look in range(len(bad[0])):
            for number, series in enumerate(self._series):
                pods = list(zip(bad[number][look], of[number][look], strict=True))
                self._look(number, series, look, pods)
            if look < learned:
                continue
            at = (look - learned + 1) * LOOK_SECONDS
            if self._harmful():
                return at, safe
            if safe == math.inf and self._safe():
                safe = at
        return math.inf, safe

    def _look(
        self, number: int, series: Series, look: int, pods: list[tuple[float, float]]
    ) -> None:
        canaries = self._traces.canaries
        canary = {f"canary-{i}": pod for i, pod in enumerate(pods[:canaries])}
        stable = {f"stable-{i}": pod for i, pod in enumerate(pods[canaries:])}
        counted = look >= self._first(number)
        series.look(self._terms[number], canary if counted else {}, stable)

    def _first(self, number: int) -> int:
        """The look from which on a check counts the canary: warm-up, and a cold cache's end."""
        traces = self._traces
        if traces.checks[number].name in TAILS:
            return traces.learned + max(traces.warmup, min(traces.cold, _COLD_LOOKS))
        return traces.first

    def _harmful(self) -> bool:
        evidence = [limit.series.harm(limit.index, limit.terms) for limit in self._limits]
        return enough(evidence, CONFIDENCE) or any(
            limit.series.flagrant(limit.terms, of_load=limit.of_load) for limit in self._limits
        )

    def _safe(self) -> bool:
        return all(
            limit.series.safe(limit.index, limit.terms)
            and limit.series.evidence(limit.index, limit.terms) < ENOUGH
            for limit in self._limits
        )
