"""Look at everything that one decision needs. An API error is an error, never "not there"."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.v1alpha1 import Phase, VLLMUpgradeSpec, VLLMUpgradeStatus
from vllm_upgrade_operator.cluster import paths, pods, proposal
from vllm_upgrade_operator.upgrade.names import (
    ATTEMPT,
    CANARY,
    FIELD_MANAGER,
    UPGRADE,
    candidate_name,
    canary_name,
    known_good_name,
)
from vllm_upgrade_operator.upgrade.observation import (
    Canary,
    Candidate,
    KnownGood,
    Observation,
    Pod,
    Refusal,
    Target,
)
from vllm_upgrade_operator.vllm import containers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.memory import Memory
    from vllm_upgrade_operator.cluster.probe import Prober
    from vllm_upgrade_operator.upgrade.decision import Needs

    Object = dict[str, Any]

_ENDED = frozenset({Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED})


@dataclass(frozen=True, slots=True)
class _Seen:
    """The objects of one look, as the API server gave them."""

    deployment: Object | None
    sets: list[Object]
    target_pods: list[Object]
    canary: Object | None
    canary_pods: list[Object]
    known_good: Object | None
    candidate: Object | None
    services: list[Object]
    upgrades: list[Object]


async def gather(  # noqa: PLR0913 - what a look is made of
    client: Client,
    prober: Prober,
    memory: Memory,
    upgrade: Object,
    needs: Needs,
    now: float,
) -> Observation:
    """Build an observation. Raises `ApiError`, and ValueError where the spec cannot be read."""
    metadata = upgrade["metadata"]
    spec = VLLMUpgradeSpec.model_validate(upgrade["spec"])
    seen = await _read(client, metadata, spec)
    container = _container(seen, spec)
    parsed = _Parsed(
        _parse(seen.target_pods, container), _parse(seen.canary_pods, container)
    )
    raw = {p["metadata"]["uid"]: p for p in [*seen.target_pods, *seen.canary_pods]}
    memory.keep_only(set(raw))
    probed = await asyncio.gather(
        *(
            prober.probe(memory, pod, raw[pod.uid], container, look=needs.look, now=now)
            for pod in (*parsed.target, *parsed.canary)
        )
    )
    split = len(parsed.target)
    known_good = None if seen.known_good is None else _known_good(seen.known_good)
    proposed: Mapping[str, Any] | Refusal | None = None
    if needs.proposal and seen.deployment is not None:
        proposed = await proposal.propose(client, seen.deployment, spec)
    return Observation(
        name=metadata["name"],
        namespace=metadata["namespace"],
        uid=metadata["uid"],
        generation=metadata["generation"],
        annotations=metadata.get("annotations") or {},
        deleting="deletionTimestamp" in metadata,
        spec=spec,
        spec_hash=spec_hash(spec),
        target=None
        if seen.deployment is None
        else _target(seen.deployment, seen.sets, tuple(probed[:split])),
        canary=_canary(seen, tuple(probed[split:])),
        known_good=known_good,
        candidate=None if seen.candidate is None else _candidate(seen.candidate),
        proposed=proposed,
        traffic_keys=_traffic_keys(seen, spec, known_good),
        conflict=_conflict(upgrade, seen.upgrades),
        looked=needs.look,
    )


@dataclass(frozen=True, slots=True)
class _Parsed:
    target: tuple[Pod, ...]
    canary: tuple[Pod, ...]


def spec_hash(spec: VLLMUpgradeSpec) -> str:
    """Hash what is tried: `candidate`, `container` and `runner`."""
    tried = spec.model_dump(
        mode="json", by_alias=True, include={"candidate", "container", "runner"}
    )
    return hashlib.sha256(json.dumps(tried, sort_keys=True).encode()).hexdigest()


async def _read(client: Client, metadata: Object, spec: VLLMUpgradeSpec) -> _Seen:
    namespace, name = metadata["namespace"], metadata["name"]
    target = spec.target_ref.name

    async def items(path: str, selector: str = "") -> list[Object]:
        query = {"labelSelector": selector} if selector else {}
        return list((await client.get(path, **query))["items"])

    deployment, canary, known_good, candidate, canary_pods, services, upgrades = (
        await asyncio.gather(
            client.find(paths.apps(namespace, "deployments", target)),
            client.find(paths.apps(namespace, "deployments", canary_name(target))),
            client.find(paths.apps(namespace, "controllerrevisions", known_good_name(name))),
            client.find(paths.apps(namespace, "controllerrevisions", candidate_name(name))),
            items(paths.core(namespace, "pods"), f"{CANARY}={metadata['uid']}"),
            items(paths.core(namespace, "services")),
            items(paths.upgrades(namespace)),
        )
    )
    sets: list[Object] = []
    target_pods: list[Object] = []
    if deployment is not None:
        selector = _selector(deployment["spec"]["selector"])
        sets, target_pods = await asyncio.gather(
            items(paths.apps(namespace, "replicasets"), selector),
            items(paths.core(namespace, "pods"), selector),
        )
        sets = [s for s in sets if _owned_by(s, deployment["metadata"]["uid"])]
        owners = {s["metadata"]["uid"] for s in sets}
        target_pods = [p for p in target_pods if any(_owned_by(p, uid) for uid in owners)]
    if canary is not None and not _owned_by(canary, metadata["uid"]):
        canary = None
    return _Seen(
        deployment=deployment,
        sets=sets,
        target_pods=target_pods,
        canary=canary,
        canary_pods=canary_pods,
        known_good=_ours(known_good, metadata["uid"]),
        candidate=_ours(candidate, metadata["uid"]),
        services=services,
        upgrades=upgrades,
    )


def _container(seen: _Seen, spec: VLLMUpgradeSpec) -> str:
    """Name of the vLLM container; empty where it cannot be told, which preflight reports."""
    source = seen.deployment or seen.canary
    if source is None:
        return spec.container or ""
    try:
        return containers.find(source["spec"]["template"], spec.container)
    except ValueError:
        return spec.container or ""


def _parse(raw: list[Object], container: str) -> tuple[Pod, ...]:
    return tuple(
        pods.parse(pod, container) for pod in sorted(raw, key=lambda p: str(p["metadata"]["name"]))
    )


def _target(deployment: Object, sets: list[Object], target_pods: tuple[Pod, ...]) -> Target:
    spec, status = deployment["spec"], deployment.get("status") or {}
    metadata = deployment["metadata"]
    return Target(
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        generation=metadata["generation"],
        observed_generation=status.get("observedGeneration", 0),
        replicas=spec["replicas"],
        total=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        ready=status.get("readyReplicas", 0),
        available=status.get("availableReplicas", 0),
        template=spec["template"],
        match_labels=spec["selector"].get("matchLabels") or {},
        strategy=spec["strategy"]["type"],
        managed_fields=tuple(metadata.get("managedFields") or ()),
        last_writer=_last_writer(metadata.get("managedFields") or []),
        pods=target_pods,
        template_hash=_template_hash(deployment, sets),
    )


def _template_hash(deployment: Object, sets: list[Object]) -> str | None:
    """pod-template-hash of the ReplicaSet that the Deployment controller made last."""
    revision = "deployment.kubernetes.io/revision"
    wanted = (deployment["metadata"].get("annotations") or {}).get(revision)
    for found in sets:
        if wanted is not None and found["metadata"]["annotations"].get(revision) == wanted:
            return str(found["metadata"]["labels"][pods.TEMPLATE_HASH])
    return None


def _last_writer(entries: list[Object]) -> str:
    writers = [e for e in entries if not e.get("subresource") and e["manager"] != FIELD_MANAGER]
    if not writers:
        return "somebody"
    newest = max(writers, key=lambda e: str(e.get("time", "")))
    return f"{newest['manager']} at {newest.get('time', 'an unknown time')}"


def _canary(seen: _Seen, canary_pods: tuple[Pod, ...]) -> Canary | None:
    if seen.canary is None:
        if not canary_pods:
            return None
        return Canary(replicas=0, pods=canary_pods, attempt="", deleting=True)
    return Canary(
        replicas=seen.canary["spec"]["replicas"],
        pods=canary_pods,
        attempt=(seen.canary["metadata"].get("annotations") or {}).get(ATTEMPT, ""),
        deleting="deletionTimestamp" in seen.canary["metadata"],
    )


def _known_good(revision: Object) -> KnownGood:
    data = revision["data"]
    return KnownGood(
        name=revision["metadata"]["name"],
        target_uid=data["targetUID"],
        template=data["template"],
        template_hash=data["templateHash"],
        replicas=data["replicas"],
        digests=tuple(data["digests"]),
        version=data.get("version"),
        managed_fields=tuple(data["managedFields"]),
    )


def _candidate(revision: Object) -> Candidate:
    data = revision["data"]
    return Candidate(attempt=data["attempt"], template=data["template"])


def _ours(revision: Object | None, uid: str) -> Object | None:
    """An object of that name that another upgrade made (one deleted and made again) is not ours."""
    if revision is None:
        return None
    return revision if (revision["metadata"].get("labels") or {}).get(UPGRADE) == uid else None


def _traffic_keys(
    seen: _Seen, spec: VLLMUpgradeSpec, known_good: KnownGood | None
) -> frozenset[str]:
    """Keys by which the target selects, and each Service that selects its pods.

    By known-good's labels where there are some: what routes to the stable pods must route to the
    canary, whatever the target's template says in the meantime.
    """
    if seen.deployment is None:
        return frozenset(spec.strategy.traffic_labels)
    template = seen.deployment["spec"]["template"] if known_good is None else known_good.template
    labels: Mapping[str, str] = (template.get("metadata") or {}).get("labels") or {}
    keys = set(seen.deployment["spec"]["selector"].get("matchLabels") or {})
    for service in seen.services:
        selector: Mapping[str, str] = service["spec"].get("selector") or {}
        if selector and all(labels.get(k) == v for k, v in selector.items()):
            keys |= set(selector)
    return frozenset(keys | set(spec.strategy.traffic_labels))


def _conflict(upgrade: Object, upgrades: list[Object]) -> str | None:
    """Name of an upgrade of the same target that goes first: the older one, by name if equal."""
    mine = upgrade["metadata"]
    for other in upgrades:
        metadata = other["metadata"]
        if metadata["uid"] == mine["uid"]:
            continue
        if other["spec"]["targetRef"]["name"] != upgrade["spec"]["targetRef"]["name"]:
            continue
        phase = (other.get("status") or {}).get("phase", Phase.PENDING)
        started = phase not in _ENDED and phase != Phase.PENDING
        older = (metadata["creationTimestamp"], metadata["name"]) < (
            mine["creationTimestamp"],
            mine["name"],
        )
        if started or (phase == Phase.PENDING and older):
            return str(metadata["name"])
    return None


def _owned_by(child: Object, uid: str) -> bool:
    return any(o.get("uid") == uid for o in child["metadata"].get("ownerReferences") or [])


def _selector(selector: Object) -> str:
    """Write a label selector as a query."""
    parts = [f"{k}={v}" for k, v in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or []:
        key, values = expression["key"], ",".join(expression.get("values") or [])
        parts.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[expression["operator"]]
        )
    return ",".join(parts)


def read_status(upgrade: Object) -> VLLMUpgradeStatus:
    """Read the status of an upgrade; an absent one is the status of a new upgrade."""
    return VLLMUpgradeStatus.model_validate(upgrade.get("status") or {})
