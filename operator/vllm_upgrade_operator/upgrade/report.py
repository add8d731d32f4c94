"""What the status says besides the phase: counts, runners, conditions, and the printer columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import (
    CanaryStatus,
    Display,
    Phase,
    RunnerCounts,
    RunnersStatus,
)
from vllm_upgrade_operator.upgrade import conditions, pausing
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.judging import is_promoted
from vllm_upgrade_operator.upgrade.traffic import is_admitted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

_FINISHED = {
    Phase.SUCCEEDED: "Promoted",
    Phase.ROLLED_BACK: "RolledBack",
    Phase.BLOCKED: "Blocked",
}
_CANDIDATE_GOES = frozenset({Phase.ROLLING_BACK, *_FINISHED})
_ABORTED = frozenset({"Aborted", "ForeignChange"})


def report(o: Observation, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Bring everything in status up to date that follows from the phase and the observation."""
    status = _counted(o, status)
    status = _conditions(o, status, now)
    return status.model_copy(
        update={"observed_generation": o.generation, "display": _display(status)}
    )


def _counted(o: Observation, status: VLLMUpgradeStatus) -> VLLMUpgradeStatus:
    pods = () if o.canary is None else tuple(p for p in o.canary.pods if not p.terminating)
    targets = () if o.target is None else tuple(p for p in o.target.pods if not p.terminating)
    promoted = [p for p in targets if status.progress.promoted and is_promoted(o, p)]
    candidates = [*pods, *promoted]
    counted = status.model_copy(
        update={
            "canary": CanaryStatus(
                desired=0 if o.canary is None else o.canary.replicas,
                ready=sum(is_ready(p) for p in pods),
                admitted=sum(is_admitted(p, o.traffic_keys) for p in pods),
            )
        }
    )
    if not candidates and status.runners is not None and status.phase in _CANDIDATE_GOES:
        # What was last seen of the candidate is the result: it outlives its pods.
        stable = _runner_counts(targets)
        runners = status.runners.model_copy(update={"stable": stable})
        return counted.model_copy(update={"runners": runners})
    runners = RunnersStatus(
        stable=_runner_counts(p for p in targets if p not in promoted),
        canary=_runner_counts(candidates),
        fallback_ratio=_fallback_ratio(candidates, o.spec.runner.expected),
    )
    return counted.model_copy(update={"runners": runners})


def _runner_counts(pods: Iterable[Pod]) -> RunnerCounts:
    seen = ["Unknown" if p.runner is None else str(p.runner.runner) for p in pods]
    return RunnerCounts(v1=seen.count("V1"), v2=seen.count("V2"), unknown=seen.count("Unknown"))


def _fallback_ratio(pods: list[Pod], expected: str) -> str | None:
    """Pods observed on MRV1 among pods whose runner was observed; None where none was.

    Where V1 is what was asked for it is no fallback.
    """
    seen = [str(p.runner.runner) for p in pods if p.runner is not None]
    known = [runner for runner in seen if runner in ("V1", "V2")]
    if not known:
        return None
    fallen = 0 if expected == "V1" else known.count("V1")
    return f"{100 * fallen / len(known):g}%"


def _conditions(o: Observation, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    phase, message, generation = status.phase, status.message or "", o.generation

    def put(
        current: VLLMUpgradeStatus,
        type_: str,
        value: bool | None,  # noqa: FBT001 - true, false or unknown
        reason: str,
    ) -> VLLMUpgradeStatus:
        return conditions.put(
            current, type_, value, reason, message, generation=generation, now=now
        )

    if phase not in _FINISHED:
        status = conditions.drop(
            status, conditions.FINISHED, conditions.PROMOTED, conditions.ROLLED_BACK
        )
        if phase == Phase.HALTED:
            reason = status.progress.halt_reason or "Halted"
            status = put(status, conditions.READY, False, reason)
            status = put(status, conditions.STALLED, True, reason)
            return conditions.drop(status, conditions.RECONCILING)
        status = put(status, conditions.READY, None, str(phase))
        status = put(status, conditions.RECONCILING, True, _reconciling_reason(o, status))
        return conditions.drop(status, conditions.STALLED)
    reason = _FINISHED[phase]
    if phase == Phase.ROLLED_BACK and status.progress.result_reason in _ABORTED:
        reason = "Aborted"
    status = conditions.drop(status, conditions.RECONCILING)
    status = put(status, conditions.FINISHED, True, reason)
    if phase == Phase.SUCCEEDED:
        status = put(status, conditions.PROMOTED, True, reason)
        status = put(status, conditions.READY, True, reason)
        return conditions.drop(status, conditions.STALLED)
    if phase == Phase.ROLLED_BACK:
        why = status.progress.result_reason or reason
        status = put(status, conditions.ROLLED_BACK, True, why)
        status = put(status, conditions.PROMOTED, False, why)
    status = put(status, conditions.READY, False, reason)
    return put(status, conditions.STALLED, True, reason)


def _reconciling_reason(o: Observation, status: VLLMUpgradeStatus) -> str:
    if pausing.stops(o, status):
        return "Paused"
    if status.phase == Phase.CANARY and status.progress.approval_since is not None:
        return "WaitingForApproval"
    return str(status.phase)


def _display(status: VLLMUpgradeStatus) -> Display:
    values = {c.name: f"{c.canary}/{c.stable}" for c in status.checks}
    step = status.step
    canary = status.canary
    known = ", ".join(status.known_good.images) if status.known_good else ""
    candidate = status.candidate
    return Display(
        step=f"{step.index + 1}/{step.total}" if step else "",
        canary=f"{canary.ready}/{canary.desired}" if canary else "",
        runner=_runner_column(status),
        rejections=values.get("rejections", ""),
        queue=values.get("queue", ""),
        ttft=values.get("ttft-p99", ""),
        known_good=known[:256],
        candidate=(candidate.version or "") if candidate else "",
    )


def _runner_column(status: VLLMUpgradeStatus) -> str:
    """Name the candidate's runners, such as `V2` or `V1:1 V2:3`."""
    if status.runners is None:
        return ""
    counts = status.runners.canary
    pairs = [("V1", counts.v1), ("V2", counts.v2), ("Unknown", counts.unknown)]
    present = [(name, count) for name, count in pairs if count]
    if len(present) == 1:
        return present[0][0]
    return " ".join(f"{name}:{count}" for name, count in present)
