"""Our judge on counts: below what reads them from pods and above what it is in a status."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge.traces import LOOK_SECONDS, Outcome
from benchmarks.judge.worlds import TAILS
from vllm_upgrade_operator.judge.budget import enough
from vllm_upgrade_operator.judge.series import Bet, Series, Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.judge.traces import Counted, Floats, Traces

CONFIDENCE = 0.99

_COLD_LOOKS = 30


def terms(check: Counted) -> list[Terms]:
    """Give the limits of a check: one for what is compared, one for what is never allowed."""
    found: list[Terms] = []
    if check.margin is not None:
        found.append(Terms(margin=check.margin))
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


class _Upgrade:
    """One run."""

    def __init__(self, traces: Traces, run: int) -> None:
        self._traces = traces
        self._bad: Floats = traces.bad[run].astype(float)
        self._of: Floats = traces.of[run].astype(float)
        self._terms = [terms(check) for check in traces.checks]
        self._series = [Series([Bet() for _ in limits]) for limits in self._terms]

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
        evidence = [
            series.harm(i, term)
            for series, limits in zip(self._series, self._terms, strict=True)
            for i, term in enumerate(limits)
        ]
        return enough(evidence, CONFIDENCE)

    def _safe(self) -> bool:
        return all(
            series.safe(i, term)
            for series, limits in zip(self._series, self._terms, strict=True)
            for i, term in enumerate(limits)
        )
