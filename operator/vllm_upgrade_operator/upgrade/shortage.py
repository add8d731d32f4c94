"""Canary pods that are not even created, as where a quota leaves no room for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade import conditions
from vllm_upgrade_operator.upgrade.flow import Turn, roll_back, since, wait
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.names import canary_name

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

_QUOTA = "exceeded quota"
"""What the quota admission of the API server says (plugin/pkg/admission/resourcequota)."""


def of_pods(o: Observation, status: VLLMUpgradeStatus, pods: list[Pod], now: float) -> Turn | None:
    """Wait for pods that are missing, at most `scheduleDeadline`; None where none is.

    While others still start it is said of those, unless it is known why none can be created.
    """
    wanted = status.step.replicas if status.step else 0
    if o.canary is None or len(pods) >= wanted:
        return None
    refusal = o.canary.refusal
    if refusal is not None:
        status = conditions.put(
            status,
            conditions.CAPACITY_AVAILABLE,
            False,
            "PodsNotCreated",
            refusal,
            generation=o.generation,
            now=now,
        )
    end = since(status.progress.wanted_since, now) + seconds_of(o.spec.strategy.schedule_deadline)
    if now > end:
        return _given_up(o, status, len(pods), now)
    ready = sum(is_ready(p) for p in pods)
    if ready < len(pods) and refusal is None:
        return None
    why = "" if refusal is None else f"; no more can be created: {refusal}"
    return wait(status, f"waiting for canary pods: {ready} of {wanted} ready{why}", until=end)


def _given_up(o: Observation, status: VLLMUpgradeStatus, created: int, now: float) -> Turn:
    wanted = status.step.replicas if status.step else 0
    refusal = o.canary.refusal if o.canary else None
    quota = refusal is not None and _QUOTA in refusal
    name = canary_name(o.spec.target_ref.name)
    why = refusal or f"see the Events of the ReplicaSet of Deployment {name}"
    return roll_back(
        status,
        "QuotaExceeded" if quota else "NoPods",
        f"only {created} of {plural(wanted, 'canary pod')} were created within "
        f"spec.strategy.scheduleDeadline ({o.spec.strategy.schedule_deadline}): {why}"
        + ("; raise the ResourceQuota, or lower spec.strategy.steps" if quota else ""),
        now=now,
    )
