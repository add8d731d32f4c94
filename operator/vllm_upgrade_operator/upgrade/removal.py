"""Taking the canary away: out of the traffic first, then drained, then deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade.decision import DeleteCanary, Withdraw
from vllm_upgrade_operator.upgrade.health import LOST_SECONDS, is_stuck
from vllm_upgrade_operator.upgrade.times import clock
from vllm_upgrade_operator.upgrade.traffic import is_admitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.upgrade.decision import Action
    from vllm_upgrade_operator.upgrade.observation import Canary, Observation, Pod

_DEFAULT_GRACE_SECONDS = 30.0
"""terminationGracePeriodSeconds where a pod template gives none (Kubernetes API reference)."""

SETTLE_SECONDS = 2.0
"""Routers learn of a withdrawn pod within about a second (tried); until then it is not drained."""


def withdrawals(o: Observation) -> tuple[Withdraw, ...]:
    """Withdraw every canary pod that carries a traffic label."""
    pods = () if o.canary is None else o.canary.pods
    return tuple(
        Withdraw(pod=p.name, pod_uid=p.uid, keys=o.traffic_keys)
        for p in pods
        if is_admitted(p, o.traffic_keys)
    )


def withdrawals_of_lost(o: Observation, now: float) -> tuple[Withdraw, ...]:
    """Withdraw canary pods on lost nodes: if they come back they are verified again first."""
    lost = {p.name for p in (o.canary.pods if o.canary else ()) if p.node_lost or is_stuck(p, now)}
    return tuple(w for w in withdrawals(o) if w.pod in lost)


def remove_canary(
    o: Observation, *, began: float, now: float
) -> tuple[str, tuple[Action, ...], float] | None:
    """Give what is waited for, what to do and until when; None when the canary is gone.

    Args:
        o: What was seen.
        began: When the removal began: from then on the pods have their grace period to drain.
        now: The time.
    """
    if o.canary is None or _forgotten(o, now):
        return None
    end = began + max(grace_seconds(o), SETTLE_SECONDS)
    admitted = withdrawals(o)
    if admitted:
        names = ", ".join(w.pod for w in admitted)
        return f"taking {names} out of the traffic", admitted, end
    if o.canary.deleting:
        return _going(o.canary, grace_seconds(o), now)
    busy = [
        p
        for p in o.canary.pods
        if not (p.terminating or p.ended or p.node_lost) and p.in_flight != 0
    ]
    drained = not busy and now >= began + SETTLE_SECONDS
    if drained or now >= end:
        return "deleting the canary", (DeleteCanary(),), end
    return f"{drain_words(busy)} until {clock(end)}", (), end


def drain_words(busy: Sequence[Pod]) -> str:
    """Say which withdrawn pods still have requests."""
    counts = ", ".join(
        f"{p.name} ("
        + (
            "its requests are not read yet"
            if p.in_flight is None
            else plural(p.in_flight, "request")
        )
        + ")"
        for p in busy
    )
    return f"draining {counts}" if busy else "letting routers forget the canary"


def _going(canary: Canary, grace: float, now: float) -> tuple[str, tuple[Action, ...], float]:
    """Wait for the pods of a deleted Deployment; those that cannot end do not hold it up."""
    left = [p for p in canary.pods if not is_stuck(p, now)]
    if canary.pods and not left:
        names = ", ".join(p.name for p in canary.pods)
        words = f"{names} does not end, for its node does not answer: going on without it"
        return words, (DeleteCanary(without_pods=True),), now + grace
    ends = [p.gone_at + LOST_SECONDS for p in left if p.gone_at is not None]
    end = max(ends, default=now + grace)
    return f"waiting for {plural(len(left), 'canary pod')} to end, until {clock(end)}", (), end


def _forgotten(o: Observation, now: float) -> bool:
    """Whether all that is left are pods that will not end: out of the traffic, on lost nodes."""
    return (
        o.canary is not None
        and o.canary.gone
        and not withdrawals(o)
        and all(is_stuck(p, now) for p in o.canary.pods)
    )


def without_stuck(o: Observation, now: float) -> Observation:
    """Leave out pods that were to be gone long ago: nothing waits for a node that is lost."""
    target = o.target
    if target is not None and any(is_stuck(p, now) for p in target.pods):
        left = tuple(p for p in target.pods if not is_stuck(p, now))
        o = replace(o, target=replace(target, pods=left))
    return replace(o, canary=None) if _forgotten(o, now) else o


def grace_seconds(o: Observation) -> float:
    """The termination grace period of the candidate's pods, in seconds."""
    template = {} if o.candidate is None else o.candidate.template
    grace = (template.get("spec") or {}).get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)
