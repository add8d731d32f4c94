"""What can be seen of the pods' work: the condition `MetricsAvailable`.

It is false, with the reason, where metrics of a serving pod cannot be read, where a metric that a
check needs is missing, and where one side gets no requests at all: in each of these nothing is
known, and nothing may be concluded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.judge.judge import IDLE_LOOKS
from vllm_upgrade_operator.upgrade import conditions
from vllm_upgrade_operator.upgrade.flow import phase_since, remember, since
from vllm_upgrade_operator.upgrade.names import CANARY
from vllm_upgrade_operator.upgrade.scrapes import ADVICE
from vllm_upgrade_operator.upgrade.times import clock, rfc3339

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.judge.model import Judgement
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

NO_TRAFFIC = "NoTraffic"
METRICS_MISSING = "MetricsMissing"
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The pods that serve.

    Attributes:
        canary: Canary pods and promoted ones, whether or not they are in the traffic.
        admitted: Those of them that are.
        stable: Pods on known-good.
    """

    canary: Sequence[Pod]
    admitted: Sequence[Pod]
    stable: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class _Finding:
    """Why the condition is false."""

    reason: str
    message: str


def note_traffic(sides: Sides, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Remember when either side was last seen to have requests."""
    if any(map(_works, sides.admitted)):
        status = remember(status, canary_asked_at=rfc3339(now))
    if any(map(_works, sides.stable)):
        status = remember(status, stable_asked_at=rfc3339(now))
    return status


def note_unread(
    o: Observation, sides: Sides, status: VLLMUpgradeStatus, now: float
) -> VLLMUpgradeStatus:
    """Say in the condition whether the serving pods' metrics could be read."""
    return _put(o, sides, status, _unread(sides), now)


def note_gaps(
    o: Observation,
    sides: Sides,
    status: VLLMUpgradeStatus,
    judgement: Judgement | None,
    now: float,
) -> VLLMUpgradeStatus:
    """Say in it too what is missing in what was read, where pods are judged.

    Args:
        o: What was seen.
        sides: The pods.
        status: With the traffic of this look noted.
        judgement: Of this look; None where there was none.
        now: The time.
    """
    finding = (
        _unread(sides)
        or (None if judgement is None else _missing(judgement))
        or _untouched(o, sides, status, now)
    )
    return _put(o, sides, status, finding, now)


def blindness(status: VLLMUpgradeStatus) -> str | None:
    """Give the condition's message where it is false."""
    for condition in status.conditions:
        if condition.type == conditions.METRICS_AVAILABLE and condition.status == "False":
            lack = "" if condition.reason == NO_TRAFFIC else "metrics are missing: "
            return lack + condition.message
    return None


def had_no_request(status: VLLMUpgradeStatus, since_then: float) -> bool:
    """Whether the candidate's pods were not seen to have any request since a time."""
    # A look at that very moment saw what came before.
    return since(status.progress.canary_asked_at, since_then) <= since_then


def _put(
    o: Observation,
    sides: Sides,
    status: VLLMUpgradeStatus,
    finding: _Finding | None,
    now: float,
) -> VLLMUpgradeStatus:
    read = [*sides.canary, *sides.stable]
    message = f"metrics of {len(read)} pods read"
    lost = [f"{pod.name}: {pod.lost.message}" for pod in read if pod.lost is not None]
    if lost:
        message += (
            f"; what happened since the look before is not known of {'; '.join(lost[:_NAMED])}"
        )
    return conditions.put(
        status,
        conditions.METRICS_AVAILABLE,
        finding is None,
        "Scraped" if finding is None else finding.reason,
        message if finding is None else finding.message,
        generation=o.generation,
        now=now,
    )


def _unread(sides: Sides) -> _Finding | None:
    """Name the pods that could not be read, those of the candidate first."""
    blind = [
        (f"{_role(pod)} pod {pod.name}", pod.scrape_error)
        for pod in sides.canary
        if pod.scrape_error is not None
    ] + [
        (f"stable pod {pod.name}", pod.scrape_error)
        for pod in sides.stable
        if pod.scrape_error is not None
    ]
    if not blind:
        return None
    words = [f"{pod}: {problem.message}" for pod, problem in blind[:_NAMED]]
    if len(blind) > _NAMED:
        words.append(f"and {len(blind) - _NAMED} more pods")
    advice = dict.fromkeys(ADVICE[problem.reason] for _, problem in blind[:_NAMED])
    return _Finding(str(blind[0][1].reason), f"{'; '.join(words)}. To do: {'; '.join(advice)}")


def _missing(judgement: Judgement) -> _Finding | None:
    gaps = [r for r in judgement.results if r.missing and not r.observe_only]
    if not gaps:
        return None
    by_words: dict[str, list[str]] = {}
    for result in gaps:
        by_words.setdefault(result.reason, []).append(result.name)
    words = [f"{why} (check {', '.join(names)})" for why, names in by_words.items()]
    if len(words) > _NAMED:
        words = [*words[:_NAMED], f"and {len(words) - _NAMED} more metrics"]
    return _Finding(
        METRICS_MISSING,
        f"{'; '.join(words)}. To do: see whether vLLM runs with --disable-log-stats, or set the "
        "check's mode to Observe or Disabled in spec.analysis.checks",
    )


def _untouched(
    o: Observation, sides: Sides, status: VLLMUpgradeStatus, now: float
) -> _Finding | None:
    """Say which side gets no requests: as long without any as makes a check hold again."""
    progress = status.progress
    began = since(progress.step_since, phase_since(status, now))
    canary_since = since(progress.canary_asked_at, began)
    stable_since = since(progress.stable_asked_at, began)
    patience = IDLE_LOOKS * seconds_of(o.spec.analysis.interval)
    canary_idle = _all_read(sides.admitted) and now - canary_since >= patience
    stable_idle = _all_read(sides.stable) and now - stable_since >= patience
    role = _role(sides.admitted[0]) if sides.admitted else ""
    canary = f"{role} {_names(sides.admitted)} since {clock(canary_since)}"
    stable = f"stable {_names(sides.stable)} since {clock(stable_since)}"
    if canary_idle and (stable_idle or not sides.stable):
        beside = f", nor {stable}" if stable_idle else ""
        return _Finding(
            NO_TRAFFIC,
            f"no request has reached {canary}{beside}. To do: send traffic to the Service",
        )
    if canary_idle:
        return _Finding(
            NO_TRAFFIC,
            f"no request has reached {canary}, while stable pods get some. To do: see "
            "whether a router sends to these pods; clients that keep their connections only meet "
            "new pods when they connect anew",
        )
    if stable_idle:
        return _Finding(
            NO_TRAFFIC,
            f"no request has reached {stable}: there is nothing to compare with. To do: "
            "see why the router sends to canary pods alone",
        )
    return None


def _all_read(pods: Sequence[Pod]) -> bool:
    """Whether there are pods and what each did since the look before is known."""
    return bool(pods) and all(p.delta is not None for p in pods)


def _works(pod: Pod) -> bool:
    """Whether a pod was seen to get requests, or to have some."""
    offered = None if pod.delta is None else pod.delta.offered
    return bool(offered or pod.in_flight)


def _role(pod: Pod) -> str:
    return "canary" if CANARY in pod.labels else "promoted"


def _names(pods: Sequence[Pod]) -> str:
    names = sorted(p.name for p in pods)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{'pod' if len(names) == 1 else 'pods'} {', '.join(names[:_NAMED])}{more}"
