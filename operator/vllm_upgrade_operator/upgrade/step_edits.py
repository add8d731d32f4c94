"""Steps that are edited under way.

Steps are known by their position. A present step whose pods are asked for otherwise now begins
anew: pods, hold, approval. Where steps were taken out so that the present one is not there any
more, the last that is left is meant. Everything else of a step, such as its hold, applies as it is
written at the moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import StepStatus
from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade.flow import note, remember
from vllm_upgrade_operator.upgrade.steps import replicas_of
from vllm_upgrade_operator.upgrade.times import rfc3339
from vllm_upgrade_operator.upgrade.traffic import is_admitted

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import Step, VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Target


def begin_step(
    o: Observation, target: Target, status: VLLMUpgradeStatus, index: int, now: float
) -> VLLMUpgradeStatus:
    """Fix the number of canary pods of a step.

    Never fewer than are in the traffic: taking pods out of it is for a rollback to do.
    """
    steps = o.spec.strategy.steps
    pods = () if o.canary is None else o.canary.pods
    admitted = sum(is_admitted(p, o.traffic_keys) for p in pods if not (p.terminating or p.ended))
    step = StepStatus(
        index=index,
        total=len(steps),
        replicas=replicas_of(steps[index], target.replicas, max(1, admitted)),
        asked=_asked(steps[index]),
    )
    return remember(
        status.model_copy(update={"step": step}),
        step_since=None,
        passed_at=None,
        approval_since=None,
        wanted_since=rfc3339(now),
        unsettled_since=None,
    )


def follow(
    o: Observation, target: Target, status: VLLMUpgradeStatus, now: float
) -> VLLMUpgradeStatus:
    """Bring the present step in line with the spec, and say so in the timeline."""
    steps, present = o.spec.strategy.steps, status.step
    if present is None:
        return begin_step(o, target, status, 0, now)
    index = min(present.index, len(steps) - 1)
    if present.asked == _asked(steps[index]):
        step = present.model_copy(update={"index": index, "total": len(steps)})
        if step == present:
            return status
        words = f"step {index + 1} of {len(steps)} goes on"
        return _told(status.model_copy(update={"step": step}), words, now)
    again = begin_step(o, target, status, index, now)
    replicas = 0 if again.step is None else again.step.replicas
    words = f"step {index + 1} of {len(steps)} begins anew with {plural(replicas, 'canary pod')}"
    wanted = replicas_of(steps[index], target.replicas)
    if replicas > wanted:
        words += f", not {wanted}: those in the traffic stay in it until the end"
    return _told(again, words, now)


def _told(status: VLLMUpgradeStatus, words: str, now: float) -> VLLMUpgradeStatus:
    return note(status, "StepsChanged", f"spec.strategy.steps changed: {words}", now)


def _asked(step: Step) -> str:
    return f"{step.percent}%" if step.replicas is None else str(step.replicas)
