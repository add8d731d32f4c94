"""Promotion that a person decides: asked for where the spec says so, or by their own will.

It skips what is left of holds, steps and evidence, and says what it skipped. It never skips
verification, and harm still acts: until then, and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import HandledActions, Phase
from vllm_upgrade_operator.upgrade.flow import note, remember
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.names import APPROVED_BY, PROMOTE
from vllm_upgrade_operator.upgrade.traffic import is_fully_admitted, traffic_labels

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation

_FROM_HALT = frozenset({"Inconclusive"})


def asked(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether a person wants this attempt promoted; `verbs.hear` has ruled out wrong values."""
    value = (o.annotations.get(PROMOTE) or "")[:128]
    done = status.handled_actions.promote if status.handled_actions else None
    return bool(value) and value != done


def impossible(o: Observation, status: VLLMUpgradeStatus) -> str | None:
    """Say why nobody can promote it now, and what to do; None where it can be."""
    if status.phase == Phase.CANARY:
        return None
    if status.phase == Phase.HALTED and status.progress.halt_reason in _FROM_HALT:
        if status.progress.promoted or _all_in_traffic(o):
            return None
        return "not all canary pods serve and are in the traffic: wait for that, then ask again"
    if status.phase == Phase.HALTED:
        return (
            f"it is halted for {status.progress.halt_reason}, which missing evidence is not: do "
            "what status.message says"
        )
    return f"it is {status.phase}; only a verified canary in the traffic can be promoted"


def record(
    o: Observation, status: VLLMUpgradeStatus, skipped: str, now: float
) -> VLLMUpgradeStatus:
    """Remember that it was acted on, whose decision it was, and what it skipped."""
    person = o.annotations.get(APPROVED_BY, "somebody who did not say who")
    handled = (status.handled_actions or HandledActions()).model_copy(
        update={"promote": o.annotations[PROMOTE][:128]}
    )
    return note(
        remember(status.model_copy(update={"handled_actions": handled}), decided=True),
        "PromotedByPerson",
        f"promoted by {person}; {skipped}",
        now,
    )


def command(o: Observation, status: VLLMUpgradeStatus) -> str:
    """Give the command that promotes the present attempt."""
    attempt = status.attempt.id if status.attempt else ""
    return (
        f"kubectl -n {o.namespace} annotate --overwrite vllmupgrade {o.name} "
        f"{PROMOTE}={attempt} {APPROVED_BY}=<your user name>"
    )


def _all_in_traffic(o: Observation) -> bool:
    if o.candidate is None or o.canary is None:
        return False
    labels = traffic_labels(o.candidate.template, o.traffic_keys)
    pods = [p for p in o.canary.pods if not (p.terminating or p.ended)]
    return len(pods) == o.canary.replicas and all(
        is_ready(p) and is_fully_admitted(p, labels) for p in pods
    )
