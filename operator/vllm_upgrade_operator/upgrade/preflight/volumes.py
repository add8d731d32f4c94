"""Can the candidate's pods have the volumes that they mount, beside the stable pods?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
)
from vllm_upgrade_operator.upgrade.surroundings import Unread

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial

_HOSTNAME = "kubernetes.io/hostname"
_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_WAY_OUT = (
    "use a claim with ReadWriteMany or ReadOnlyMany, or give the candidate another volume by "
    "spec.candidate.templatePatch"
)


def shared_volumes(t: Trial) -> Answer:
    """A volume that one node or one pod may use at a time keeps a canary elsewhere waiting."""
    claims = t.surroundings.claims
    if isinstance(claims, Unread):
        return unknown("ClaimsUnread", claims.why)
    if not claims:
        return not_applicable("the candidate mounts no PersistentVolumeClaim")
    for claim in claims:
        if not claim.access_modes:
            return block(
                "ClaimNotFound",
                f"PersistentVolumeClaim {claim.name} of the candidate's template does not exist: "
                "create it, or take the volume out",
            )
        modes = ", ".join(claim.access_modes)
        if _SHARED & frozenset(claim.access_modes):
            continue
        if "ReadWriteOncePod" in claim.access_modes:
            return block(
                "VolumeNotShared",
                f"PersistentVolumeClaim {claim.name} has access mode {modes}: only one pod may use "
                f"it, and the stable pods do; {_WAY_OUT}",
            )
        if not _one_node(t):
            return block(
                "VolumeNotShared",
                f"PersistentVolumeClaim {claim.name} has access mode {modes}: a canary pod on "
                f"another node would wait for it for ever; {_WAY_OUT}, or keep all pods on one "
                f"node by a nodeSelector of {_HOSTNAME}",
            )
    return passed(f"volumes that may be shared: {', '.join(c.name for c in claims)}")


def _one_node(t: Trial) -> bool:
    """Whether the candidate can only go where the stable pods are."""
    if _HOSTNAME in (t.pod.get("nodeSelector") or {}):
        return True
    nodes = t.surroundings.nodes
    return not isinstance(nodes, Unread) and sum(n.unfit is None for n in nodes) == 1
