"""Giving canary pods up, one for one, for new pods of the target that find no room.

The canary is extra: whatever of it is given up, the target has its replicas. So where nothing else
is free, its pods make room, and promotion ends. Taken out of the traffic first, then drained, then
deleted by making the canary smaller, which deletes the pods with the lowest deletion cost first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade import conditions
from vllm_upgrade_operator.upgrade.decision import EnsureCanary, Release
from vllm_upgrade_operator.upgrade.flow import note, remember, since
from vllm_upgrade_operator.upgrade.health import is_ready, is_stuck
from vllm_upgrade_operator.upgrade.judging import is_promoted
from vllm_upgrade_operator.upgrade.names import RELEASED_AT
from vllm_upgrade_operator.upgrade.removal import SETTLE_SECONDS, drain_words, grace_seconds
from vllm_upgrade_operator.upgrade.times import clock, rfc3339, seconds
from vllm_upgrade_operator.upgrade.traffic import withdrawn_template

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.decision import Action
    from vllm_upgrade_operator.upgrade.observation import Candidate, Observation, Pod, Target

_CREATION_SECONDS = 10.0
"""A ReplicaSet whose pod was refused tries again ever later (tried: within these seconds)."""

Relief = tuple["VLLMUpgradeStatus", list[str], tuple["Action", ...]]
"""The status, what to say, what to do."""


def relieve(o: Observation, status: VLLMUpgradeStatus, now: float) -> Relief:
    """Make room where new pods of the target find none, as far as canary pods can."""
    target, candidate = o.target, o.candidate
    if target is None or candidate is None:
        return status, [], ()
    short = [p for p in _waiting(o, target) if p.unschedulable is not None]
    status = _capacity(o, status, short, now)
    canary = o.canary
    if canary is None or canary.deleting:
        return status, [], ()
    leaving = [p for p in canary.pods if p.terminating and not is_stuck(p, now)]
    alive = [p for p in canary.pods if not (p.terminating or p.ended)]
    released = [p for p in alive if RELEASED_AT in p.annotations]
    kept = [p for p in alive if RELEASED_AT not in p.annotations]
    if released or leaving:
        status = remember(status, released_at=rfc3339(now))
        return (status, *_finish(o, candidate, released, kept, now))
    # What has just become free takes a moment to be used.
    pause = SETTLE_SECONDS if short else _CREATION_SECONDS
    if now < since(status.progress.released_at, 0.0) + pause:
        return status, [], ()
    number = min(_needed(o, target, short, now), len(kept))
    if number <= 0:
        return status, [], ()
    # Those that serve least go first, as the ReplicaSet controller would have it too.
    victims = sorted(kept, key=lambda p: (p.scheduled_at is not None, is_ready(p), p.name))
    return _release(o, status, target, short, victims[:number], now)


def _waiting(o: Observation, target: Target) -> list[Pod]:
    return [
        p
        for p in target.pods
        if is_promoted(o, p) and p.scheduled_at is None and not (p.terminating or p.ended)
    ]


def _needed(o: Observation, target: Target, short: list[Pod], now: float) -> int:
    """How many pods' room is missing, beyond what the rollout itself is about to free."""
    going = sum(p.terminating for p in target.pods)
    patience = grace_seconds(o) + SETTLE_SECONDS
    waited = [p for p in short if now - p.created_at >= SETTLE_SECONDS]
    overdue = [p for p in waited if now - p.created_at >= patience]
    refused = 1 if target.replica_failure is not None and not short else 0
    # A pod on a node that is gone may be terminating for ever.
    return max(len(overdue), len(waited) + refused - going)


def _release(  # noqa: PLR0913, PLR0917 - what was found out about one situation
    o: Observation,
    status: VLLMUpgradeStatus,
    target: Target,
    short: list[Pod],
    victims: list[Pod],
    now: float,
) -> Relief:
    names = ", ".join(p.name for p in victims)
    why = (
        f"{short[0].name} cannot be scheduled: {short[0].unschedulable}"
        if short
        else f"{target.name} cannot make a pod: {target.replica_failure}"
    )
    words = f"releasing {names} of the canary to make room, for {why}"
    actions = tuple(
        Release(pod=p.name, pod_uid=p.uid, keys=o.traffic_keys, at=now) for p in victims
    )
    status = remember(status, released_at=rfc3339(now))
    return note(status, "CanaryReleased", words, now), [words], actions


def _finish(
    o: Observation, candidate: Candidate, released: list[Pod], kept: list[Pod], now: float
) -> tuple[list[str], tuple[Action, ...]]:
    """Drain what was released, then have the canary made smaller by it."""
    if not released:
        return ["waiting for released canary pods to end"], ()
    names = ", ".join(p.name for p in released)
    if o.canary is not None and o.canary.replicas <= len(kept):
        return [f"waiting for released {names} to end"], ()
    since_ = max(_released_at(p, now) for p in released)
    end = since_ + max(grace_seconds(o), SETTLE_SECONDS)
    busy = [p for p in released if p.in_flight != 0]
    if now < end and (busy or now < since_ + SETTLE_SECONDS):
        draining = f"{drain_words(busy)} until {clock(end)}"
        return [f"released from the canary to make room: {draining}"], ()
    smaller = EnsureCanary(
        attempt=candidate.attempt,
        replicas=len(kept),
        template=withdrawn_template(candidate.template, o.traffic_keys),
    )
    return [f"deleting {names}, released from the canary to make room"], (smaller,)


def _released_at(pod: Pod, now: float) -> float:
    """When a pod was released; an annotation that says nothing means just now."""
    try:
        return seconds(pod.annotations[RELEASED_AT])
    except ValueError:
        return now


def _capacity(
    o: Observation, status: VLLMUpgradeStatus, short: list[Pod], now: float
) -> VLLMUpgradeStatus:
    known = any(c.type == conditions.CAPACITY_AVAILABLE for c in status.conditions)
    if not short and not known:
        return status
    return conditions.put(
        status,
        conditions.CAPACITY_AVAILABLE,
        not short,
        "Unschedulable" if short else "Scheduled",
        f"{short[0].name}: {short[0].unschedulable}" if short else "promoted pods have nodes",
        generation=o.generation,
        now=now,
    )
