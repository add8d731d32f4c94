"""One look at the cluster: everything that a decision needs, read afresh.

An error of the API is raised as what it is; it never becomes "not there".
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase, VLLMUpgradeSpec, VLLMUpgradeStatus
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.around import surroundings
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.ends import explained
from vllm_upgrade_operator.cluster.look import SeenPod
from vllm_upgrade_operator.cluster.objects import (
    parse_canary,
    parse_candidate,
    parse_known_good,
    parse_orphan,
    parse_target,
)
from vllm_upgrade_operator.cluster.pods import controller_uid, parse_pod
from vllm_upgrade_operator.cluster.proposal import propose
from vllm_upgrade_operator.cluster.selectors import (
    deployment_selector,
    pool_selector,
    service_selector,
)
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.upgrade import names
from vllm_upgrade_operator.upgrade.attempts import spec_hash
from vllm_upgrade_operator.upgrade.conflicts import Rival, conflict
from vllm_upgrade_operator.upgrade.observation import KnownGood, Observation, Refusal, Target
from vllm_upgrade_operator.upgrade.preflight.capacity import most_canary_pods
from vllm_upgrade_operator.upgrade.preflight.subject import Subject
from vllm_upgrade_operator.upgrade.selection import traffic_keys
from vllm_upgrade_operator.upgrade.times import seconds
from vllm_upgrade_operator.vllm.container import find_container
from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.look import Looks
    from vllm_upgrade_operator.cluster.memory import Memory
    from vllm_upgrade_operator.upgrade.decision import Needs
    from vllm_upgrade_operator.upgrade.selection import Selector


class UnreadableError(Exception):
    """A VLLMUpgrade has a spec or status that this version of the operator does not know."""


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A VLLMUpgrade as the API server gave it, with its spec and status read."""

    raw: Mapping[str, Any]
    spec: VLLMUpgradeSpec
    status: VLLMUpgradeStatus

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata."""
        found: Mapping[str, Any] = self.raw["metadata"]
        return found

    @property
    def deleted_at(self) -> float | None:
        """When somebody has deleted it; None where nobody has."""
        text = self.metadata.get("deletionTimestamp")
        return None if text is None else seconds(text)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The objects of one namespace that concern one upgrade, as the API server gives them."""

    target: Mapping[str, Any] | None
    sets: tuple[Mapping[str, Any], ...]
    target_pods: tuple[Mapping[str, Any], ...]
    canary: Mapping[str, Any] | None
    canary_pods: tuple[Mapping[str, Any], ...]
    known_good: Mapping[str, Any] | None
    candidate: Mapping[str, Any] | None


async def read_upgrade(client: Client, namespace: str, name: str) -> Upgrade | None:
    """Read a VLLMUpgrade; None where there is none.

    Raises:
        ApiError: It could not be read.
        UnreadableError: Its spec or status is of another version.
    """
    raw = await client.find(paths.upgrade(namespace, name))
    if raw is None:
        return None
    try:
        spec = VLLMUpgradeSpec.model_validate(raw["spec"])
        status = VLLMUpgradeStatus.model_validate(raw.get("status") or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise UnreadableError(
            f"{field}: {first['msg']} (this operator and the CustomResourceDefinition are of "
            "different versions: upgrade both)"
        ) from error
    return Upgrade(raw, spec, status)


async def gather(
    client: Client, looker: Looks, memory: Memory, upgrade: Upgrade, needed: Needs
) -> Observation:
    """Read what concerns an upgrade. Raises `ApiError`."""
    metadata, spec = upgrade.metadata, upgrade.spec
    namespace = metadata["namespace"]
    cluster = await _read(client, upgrade)
    container = _container_name(cluster, spec.container)
    target_pods = _seen(cluster.target_pods, container)
    canary_pods = _seen(cluster.canary_pods, container)
    memory.keep(p.pod.uid for p in (*target_pods, *canary_pods))
    canary_pods, target_pods = await _explained(client, memory, cluster, canary_pods, target_pods)
    looked_at = time.time() if needed.look else None
    pods = await looker.look(
        (*target_pods, *canary_pods),
        memory,
        scrape_seconds=seconds_of(spec.analysis.interval) if needed.look else None,
    )
    target = None
    if cluster.target is not None:
        target = parse_target(cluster.target, cluster.sets, pods[: len(target_pods)], container)
    known_good = None if cluster.known_good is None else parse_known_good(cluster.known_good)
    selectors = await _selectors(client, namespace, cluster.target)
    observation = Observation(
        name=metadata["name"],
        namespace=namespace,
        uid=metadata["uid"],
        generation=int(metadata["generation"]),
        annotations=metadata.get("annotations") or {},
        deleting=upgrade.deleted_at is not None,
        deleted_at=upgrade.deleted_at,
        spec=spec,
        spec_hash=spec_hash(spec),
        target=target,
        canary=parse_canary(cluster.canary, pods[len(target_pods) :]),
        known_good=known_good,
        candidate=None if cluster.candidate is None else parse_candidate(cluster.candidate),
        traffic_keys=_traffic_keys(target, known_good, selectors, spec),
        selectors=selectors,
        looked_at=looked_at,
        refused=memory.refused,
    )
    if upgrade.status.phase in (Phase.PENDING, Phase.PREFLIGHT):
        observation = await _beside(client, upgrade, observation)
    if needed.proposal and cluster.target is not None and target is not None:
        proposed = await propose(client, cluster.target, spec)
        template = target.template if isinstance(proposed, Refusal) else proposed
        around = memory.surroundings(template, time.time())
        if around is None:
            around = await surroundings(
                client,
                cluster.target,
                template,
                stable_nodes=[str(p["spec"].get("nodeName")) for p in cluster.target_pods],
                pods=most_canary_pods(Subject(o=observation, target=target)),
            )
            memory.remember_surroundings(template, time.time(), around)
        return replace(observation, proposed=proposed, surroundings=around)
    return observation


async def _beside(client: Client, upgrade: Upgrade, o: Observation) -> Observation:
    """Look for other upgrades of the target, and for what is left of them."""
    found = await _if_served(client, paths.upgrades(o.namespace))
    rivals = [_rival(item) for item in found]
    first = conflict(_rival(upgrade.raw), rivals)
    if upgrade.status.phase != Phase.PREFLIGHT or o.target is None:
        return replace(o, conflict=first)
    revisions = await client.get(paths.revisions(o.namespace), labelSelector=names.UPGRADE)
    in_use = frozenset(r.uid for r in rivals if r.uid == o.uid or not r.ended)
    return replace(o, conflict=first, orphan=parse_orphan(revisions["items"], o.target.uid, in_use))


async def _read(client: Client, upgrade: Upgrade) -> _Cluster:
    namespace, name = upgrade.metadata["namespace"], upgrade.metadata["name"]
    ours = f"{names.CANARY}={upgrade.metadata['uid']}"
    target, known_good, candidate = await together(
        client.find(path)
        for path in (
            paths.deployment(namespace, upgrade.spec.target_ref.name),
            paths.revision(namespace, names.known_good_name(name)),
            paths.revision(namespace, names.candidate_name(name)),
        )
    )
    canaries, canary_pods = await together(
        client.get(path, labelSelector=ours)
        for path in (paths.deployments(namespace), paths.pods(namespace))
    )
    if target is not None and "deletionTimestamp" in target["metadata"]:
        # Deleted in the foreground, or held by somebody's finalizer: no controller acts on it any
        # more, so there is nothing to upgrade and nothing to put back.
        target = None
    sets, pods = await _owned(client, namespace, target)
    return _Cluster(
        target=target,
        sets=sets,
        target_pods=pods,
        canary=next(iter(canaries["items"]), None),
        canary_pods=tuple(canary_pods["items"]),
        known_good=_ours(known_good, upgrade),
        candidate=_ours(candidate, upgrade),
    )


def _ours(revision: Mapping[str, Any] | None, upgrade: Upgrade) -> Mapping[str, Any] | None:
    """A revision of that name may be another upgrade's, deleted since, or anybody's."""
    if revision is None:
        return None
    labels = revision["metadata"].get("labels") or {}
    return revision if labels.get(names.UPGRADE) == upgrade.metadata["uid"] else None


async def _owned(
    client: Client, namespace: str, target: Mapping[str, Any] | None
) -> tuple[tuple[Mapping[str, Any], ...], tuple[Mapping[str, Any], ...]]:
    """The target's ReplicaSets and pods: by ownership, not only by labels.

    An admitted canary pod carries the target's labels and is not the target's.
    """
    if target is None:
        return (), ()
    selector = _selector(target["spec"]["selector"])
    found_sets, found_pods = await together(
        client.get(path, labelSelector=selector)
        for path in (paths.replica_sets(namespace), paths.pods(namespace))
    )
    uid = target["metadata"]["uid"]
    sets = tuple(s for s in found_sets["items"] if controller_uid(s) == uid)
    owners = {s["metadata"]["uid"] for s in sets}
    pods = tuple(p for p in found_pods["items"] if controller_uid(p) in owners)
    return sets, pods


_OPERATORS = {"In": "{key} in ({values})", "NotIn": "{key} notin ({values})"}


def _selector(selector: Mapping[str, Any]) -> str:
    """Write a label selector as the query parameter has it."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, operator = term["key"], term["operator"]
        if operator == "Exists":
            parts.append(key)
        elif operator == "DoesNotExist":
            parts.append(f"!{key}")
        else:
            parts.append(_OPERATORS[operator].format(key=key, values=",".join(term["values"])))
    return ",".join(parts)


def _container_name(cluster: _Cluster, given: str | None) -> str | None:
    """Name of the vLLM container; None where none can be told: preflight says so to the user."""
    if given is not None:
        return given
    if cluster.target is None:
        return None
    try:
        found = find_container(cluster.target["spec"]["template"]["spec"])
    except TemplateError:
        return None
    return str(found["name"])


def _seen(pods: Iterable[Mapping[str, Any]], container: str | None) -> tuple[SeenPod, ...]:
    return tuple(
        SeenPod(parse_pod(p, name), p, name) for p in pods for name in [_name(p, container)]
    )


async def _explained(
    client: Client,
    memory: Memory,
    cluster: _Cluster,
    canary_pods: tuple[SeenPod, ...],
    target_pods: tuple[SeenPod, ...],
) -> tuple[tuple[SeenPod, ...], tuple[SeenPod, ...]]:
    """Find out why containers ended, of the candidate: stable pods had their reasons before."""
    good = None if cluster.known_good is None else cluster.known_good["data"]["templateHash"]

    async def one(seen: SeenPod, *, judged: bool) -> SeenPod:
        return await explained(client, seen, memory) if judged else seen

    canaries = await together(one(p, judged=True) for p in canary_pods)
    targets = await together(
        one(p, judged=good not in (None, p.pod.template_hash)) for p in target_pods
    )
    return tuple(canaries), tuple(targets)


def _name(pod: Mapping[str, Any], container: str | None) -> str:
    """Name of its vLLM container; a pod without that one is none of ours, and fails no parser."""
    present = [str(c["name"]) for c in pod["spec"]["containers"]]
    return container if container is not None and container in present else present[0]


async def _selectors(
    client: Client, namespace: str, target: Mapping[str, Any] | None
) -> tuple[Selector, ...]:
    """What selects pods in the target's namespace; nothing where there is no target."""
    if target is None:
        return ()
    services = await client.get(paths.services(namespace))
    found = [deployment_selector(target), *(service_selector(s) for s in services["items"])]
    found += [pool_selector(p) for p in await _if_served(client, paths.inference_pools(namespace))]
    return tuple(s for s in found if s is not None)


def _traffic_keys(
    target: Target | None,
    known_good: KnownGood | None,
    selectors: tuple[Selector, ...],
    spec: VLLMUpgradeSpec,
) -> frozenset[str]:
    """By known-good's labels where it is recorded: the same keys through the whole attempt."""
    if target is None:
        return frozenset(spec.strategy.traffic_labels)
    template = target.template if known_good is None else known_good.template
    labels = (template.get("metadata") or {}).get("labels") or {}
    return traffic_keys(labels, selectors, spec.strategy.traffic_labels)


async def _if_served(client: Client, path: str) -> list[Mapping[str, Any]]:
    """List a collection of an API that the cluster need not have."""
    try:
        found = await client.get(path)
    except ApiError as error:
        # Whoever may list them gets a 404 only where the cluster does not have that API.
        if error.status == 404:
            return []
        raise
    items: list[Mapping[str, Any]] = found["items"]
    return items


def _rival(raw: Mapping[str, Any]) -> Rival:
    metadata = raw["metadata"]
    return Rival(
        name=metadata["name"],
        uid=metadata["uid"],
        created=metadata["creationTimestamp"],
        target=raw["spec"]["targetRef"]["name"],
        phase=(raw.get("status") or {}).get("phase", ""),
    )
