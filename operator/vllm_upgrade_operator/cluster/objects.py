"""Deployments and ControllerRevisions as the API server gives them, read into values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster.pods import TEMPLATE_HASH
from vllm_upgrade_operator.upgrade.names import ATTEMPT, INHERITED_FROM, UPGRADE
from vllm_upgrade_operator.upgrade.observation import Canary, Candidate, KnownGood, Orphan, Target
from vllm_upgrade_operator.upgrade.surroundings import Reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.upgrade.observation import Pod

_REFUSAL_LIMIT = 400


def parse_target(
    raw: Mapping[str, Any],
    sets: Iterable[Mapping[str, Any]],
    pods: Iterable[Pod],
    container: str | None,
) -> Target:
    """Read the Deployment that is upgraded.

    Args:
        raw: The Deployment, as the API server gives it.
        sets: The ReplicaSets that it owns.
        pods: Their pods.
        container: Name of its vLLM container, where that can be told.
    """
    metadata, spec = raw["metadata"], raw["spec"]
    status: Mapping[str, Any] = raw.get("status") or {}
    return Target(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=int(metadata["generation"]),
        observed_generation=int(status.get("observedGeneration", 0)),
        replicas=int(spec.get("replicas", 1)),
        total=int(status.get("replicas", 0)),
        updated=int(status.get("updatedReplicas", 0)),
        ready=int(status.get("readyReplicas", 0)),
        available=int(status.get("availableReplicas", 0)),
        template=spec["template"],
        strategy=str((spec.get("strategy") or {}).get("type", "RollingUpdate")),
        managed_fields=tuple(metadata.get("managedFields") or ()),
        pods=tuple(pods),
        template_hash=template_hash(spec["template"], sets),
        container=container,
        paused=bool(spec.get("paused", False)),
        owner=_controller(metadata),
        replica_failure=_condition(status, "ReplicaFailure", "True"),
        late=_condition(status, "Progressing", "False", "ProgressDeadlineExceeded"),
    )


def _controller(metadata: Mapping[str, Any]) -> str | None:
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return f"{owner['kind']} {owner['name']}"
    return None


def _condition(
    status: Mapping[str, Any], type_: str, value: str, reason: str | None = None
) -> str | None:
    """Give the message of a Deployment's condition, where it has this status and reason."""
    for found in status.get("conditions") or ():
        wanted = reason is None or found.get("reason") == reason
        if found["type"] == type_ and found["status"] == value and wanted:
            return str(found.get("message") or found.get("reason") or type_)
    return None


def template_hash(template: Mapping[str, Any], sets: Iterable[Mapping[str, Any]]) -> str | None:
    """Find the `pod-template-hash` of the ReplicaSet that has this template.

    As the Deployment controller does: equal but for that label, and the oldest where several are.
    """
    equal = [s for s in sets if _without_hash(s["spec"]["template"]) == template]
    equal.sort(key=lambda s: (s["metadata"]["creationTimestamp"], s["metadata"]["name"]))
    for found in equal:
        value = (found["metadata"].get("labels") or {}).get(TEMPLATE_HASH)
        if value is not None:
            return str(value)
    return None


def _without_hash(template: Mapping[str, Any]) -> dict[str, Any]:
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k != TEMPLATE_HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def parse_canary(raw: Mapping[str, Any] | None, pods: tuple[Pod, ...]) -> Canary | None:
    """Read the canary Deployment; without one, what is left are its pods."""
    if raw is None:
        gone = Canary(replicas=0, pods=pods, attempt="", deleting=True, gone=True)
        return gone if pods else None
    metadata = raw["metadata"]
    return Canary(
        replicas=int(raw["spec"].get("replicas", 1)),
        pods=pods,
        attempt=(metadata.get("annotations") or {}).get(ATTEMPT, ""),
        deleting="deletionTimestamp" in metadata,
        refusal=_refusal(raw.get("status") or {}),
    )


def _refusal(status: Mapping[str, Any]) -> str | None:
    """Why pods cannot be created, such as for a quota: the condition that the Deployment has."""
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message", "no message"))[:_REFUSAL_LIMIT]
    return None


def parse_known_good(raw: Mapping[str, Any]) -> KnownGood:
    """Read the ControllerRevision with the known-good configuration."""
    data = raw["data"]
    return KnownGood(
        name=raw["metadata"]["name"],
        target_uid=data["targetUID"],
        template=data["template"],
        template_hash=data["templateHash"],
        replicas=int(data["replicas"]),
        digests=tuple(data["digests"]),
        version=data.get("version"),
        managed_fields=tuple(data["managedFields"]),
        container=data.get("container"),
        pullable=bool(data.get("pullable", False)),
        references=tuple(
            Reference(
                kind=r["kind"],
                name=r["name"],
                optional=False,
                resource_version=r["resourceVersion"],
            )
            for r in data.get("references", ())
        ),
        inherited=(raw["metadata"].get("annotations") or {}).get(INHERITED_FROM),
    )


def parse_candidate(raw: Mapping[str, Any]) -> Candidate:
    """Read the ControllerRevision with the candidate's template."""
    return Candidate(attempt=raw["data"]["attempt"], template=raw["data"]["template"])


def parse_orphan(
    revisions: Iterable[Mapping[str, Any]], target_uid: str, in_use: frozenset[str]
) -> Orphan | None:
    """Find what an upgrade left behind for a target; of several the oldest.

    Args:
        revisions: ControllerRevisions of the namespace that carry our label.
        target_uid: The target, which owns them.
        in_use: UIDs of the upgrades that have not ended: what they recorded is theirs.
    """
    left: dict[str, list[Mapping[str, Any]]] = {}
    for raw in sorted(revisions, key=lambda r: str(r["metadata"]["creationTimestamp"])):
        metadata = raw["metadata"]
        owners = [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
        upgrade = metadata["labels"][UPGRADE]
        if target_uid in owners and upgrade not in in_use:
            left.setdefault(upgrade, []).append(raw)
    if not left:
        return None
    found = next(iter(left.values()))
    known = next((r for r in found if "targetUID" in r["data"]), None)
    candidate = next((r for r in found if "attempt" in r["data"]), None)
    ordered = [r for r in (known, candidate) if r is not None]
    name = ordered[0]["metadata"]["name"].removesuffix("-spare")
    return Orphan(
        upgrade=name.removesuffix("-known-good").removesuffix("-candidate"),
        known_good=None if known is None else parse_known_good(known),
        candidate=None if candidate is None else candidate["data"]["template"],
        revisions=tuple(r["metadata"]["name"] for r in ordered),
    )
