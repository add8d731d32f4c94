"""The judge's words: what it looks at and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.judge.counters import Delta


class Verdict(StrEnum):
    """What the evidence says."""

    PASS = "Pass"  # noqa: S105 - a verdict, not a password
    HARM = "Harm"
    HOLD = "Hold"
    """Not enough is known yet, or what is known is not good enough to go on."""
    NOT_APPLICABLE = "NotApplicable"
    """Of one check alone: these servers have nothing that it could judge, and need not have."""
    INCONCLUSIVE = "Inconclusive"
    """Set by the state machine alone, where the deadline came before the evidence."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at all pods.

    Attributes:
        at: Seconds since the Unix epoch.
        canary: By pod name; only pods that take traffic and are warm.
        stable: By pod name; empty where no stable pods are left (bake).
        warming: By pod name: canary pods that take traffic and are not warm yet.
        admitted: By pod name: seconds since a canary pod was let into the traffic.
    """

    at: float
    canary: Mapping[str, Delta]
    stable: Mapping[str, Delta]
    warming: Mapping[str, Delta] = field(default_factory=dict)
    admitted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check says, for a person.

    Attributes:
        name: Of the check.
        metric: What it measures.
        canary: The canary's value over the window, with its unit; `-` where there is none.
        stable: The stable pods' value over the same window.
        limit: What the value is held against.
        requests: Canary requests (for latencies: observations) since the evidence began.
        verdict: Of this check alone.
        reason: One sentence with the check's value, its limit and the number of requests.
        observe_only: The check is shown and never acted on.
        doubtful: A limit looks broken and it may be chance, or the metric is missing: nothing good
            may be concluded yet.
        power: Which harm would have been seen by now, as a clause; empty where nothing can be said.
        noise: What the stable pods' bad events are like: quiet, loud or unknown; empty where none
            are counted.
        missing: Pods do not expose what the check needs; the reason names metric, side and pods.
    """

    name: str
    metric: str
    canary: str
    stable: str
    limit: str
    requests: int
    verdict: Verdict
    reason: str
    observe_only: bool = False
    doubtful: bool = False
    power: str = ""
    noise: str = ""
    missing: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """What all checks say together, and what has to be kept for the next look.

    Attributes:
        results: One per check that is not disabled, in the order of the checks.
        evidence: By check name; opaque, bounded strings.
        verdict: `Harm` if a check that is enforced found harm; `Pass` only if all of those pass
            that apply, and one does; else `Hold`.
    """

    results: tuple[CheckResult, ...]
    evidence: dict[str, str]
    verdict: Verdict
