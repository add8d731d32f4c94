"""A hold counts from when the last pod became ready, and may begin anew only for so long.

A pod that loses its readiness, or is replaced, has not served through the hold. Each time it comes
back the hold begins again; that is no progress, so it ends by a limit of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.upgrade.flow import remember, since
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import Step, VLLMUpgradeSpec, VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Pod


def hold_began(pods: Iterable[Pod], status: VLLMUpgradeStatus, now: float) -> float:
    """When the present hold began: with the step, or with the pod that became ready last."""
    began = since(status.progress.step_since, now)
    return max([began, *(p.ready_at for p in pods if p.ready_at is not None)])


def unsettled(status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Remember since when pods of the step are missing, not ready, or again in their hold."""
    if status.progress.unsettled_since is not None:
        return status
    return remember(status, unsettled_since=rfc3339(now))


def limit(
    spec: VLLMUpgradeSpec, step: Step, pods: Iterable[Pod], status: VLLMUpgradeStatus
) -> float | None:
    """Until when pods have to settle; None while they are settled.

    A hold and `maxDuration`, as evidence has; a pod that was made meanwhile, or is yet to be made,
    may need a node and its start on top.
    """
    if status.progress.unsettled_since is None:
        return None
    began = since(status.progress.unsettled_since, 0.0)
    end = began + seconds_of(step.hold) + seconds_of(spec.analysis.max_duration)
    wanted = status.step.replicas if status.step else 0
    kept = [p for p in pods if p.created_at < began]
    if len(kept) >= wanted:
        return end
    strategy = spec.strategy
    start = max([seconds_of(strategy.start_deadline), *(p.startup_seconds for p in pods)])
    return end + seconds_of(strategy.schedule_deadline) + start
