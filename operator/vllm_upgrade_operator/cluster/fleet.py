"""Every workload that runs vLLM, in one namespace or in all: read through the API server alone.

Pods are told by who controls them. What no listed workload controls is grouped by its own
controller, as KubeAI's Models or Ray's clusters are, or stands for itself.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.look import AT_ONCE, SeenPod
from vllm_upgrade_operator.cluster.memory import Memory
from vllm_upgrade_operator.cluster.mentions import mentions_of
from vllm_upgrade_operator.cluster.pods import TEMPLATE_HASH, parse_pod
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.upgrade.inventory.workload import Workload
from vllm_upgrade_operator.vllm.container import find_container, serving_containers, vllm_containers
from vllm_upgrade_operator.vllm.errors import TemplateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.look import Looks

# Which pods of a LeaderWorkerSet serve: the leaders of its groups (lws, docs/concepts).
_GROUP_NAME = "leaderworkerset.sigs.k8s.io/name"
_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
_ENDED = frozenset({"Succeeded", "Failed"})

Key = tuple[str, str, str]
"""Namespace, kind and name."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """What was found, and what could not be looked at, as sentences."""

    workloads: tuple[Workload, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A workload before its pods were asked."""

    owner: str | None
    pod_spec: Mapping[str, Any]
    container: Mapping[str, Any] | None
    problem: str | None


async def read_fleet(client: Client, looker: Looks, namespace: str | None) -> Fleet:
    """Read all workloads that run vLLM.

    Args:
        client: The API server.
        looker: Who asks the pods.
        namespace: Where to look; None: in all namespaces.

    Raises:
        ApiError: Something could not be read for another reason than that it is not allowed.
    """
    unread: list[str] = []
    raws = [
        (kind, raw)
        for kind in paths.WORKLOADS
        for raw in await _listed(client, paths.workloads(kind, namespace), unread)
    ]
    pods = await _listed(client, paths.pods_in(namespace), unread)
    known = {(_namespace(raw), kind, _name(raw)): raw for kind, raw in raws}
    by_key = _grouped(pods, known)
    found: dict[Key, _Found] = {}
    for kind, raw in raws:
        key = (_namespace(raw), kind, _name(raw))
        owner = _controller(raw)
        if owner is not None and (key[0], *owner) in known:
            # Such as the StatefulSets that a LeaderWorkerSet is made of.
            continue
        workload = _recognised(_template(kind, raw), None if owner is None else " ".join(owner))
        if workload is not None:
            found[key] = workload
    for key, members in by_key.items():
        if key not in found and key not in known:
            workload = _recognised(members[0]["spec"], None)
            if workload is not None:
                found[key] = workload
    maps = _ConfigMaps(client)
    workloads = await together(
        _looked_at(looker, maps, key, workload, by_key.get(key, []))
        for key, workload in found.items()
    )
    return Fleet(tuple(workloads), tuple(unread))


async def _listed(client: Client, path: str, unread: list[str]) -> list[Mapping[str, Any]]:
    """List a collection; one that is not served is empty, one that may not be read is noted."""
    try:
        return await client.items(path)
    except ApiError as error:
        if error.status == 404:
            return []
        if not error.unauthorized:
            raise
        unread.append(error.message)
        return []


def _grouped(
    pods: Iterable[Mapping[str, Any]], known: Mapping[Key, object]
) -> dict[Key, list[Mapping[str, Any]]]:
    """Group pods by what they belong to, such as the Deployment above their ReplicaSet."""
    grouped: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for pod in pods:
        if (pod.get("status") or {}).get("phase") in _ENDED:
            continue
        key = _key_of(pod, known)
        if key is not None:
            grouped[key].append(pod)
    return dict(grouped)


def _key_of(pod: Mapping[str, Any], known: Mapping[Key, object]) -> Key | None:
    """Tell what a pod belongs to; None for one that serves nothing, as a worker of a group."""
    namespace = _namespace(pod)
    labels = pod["metadata"].get("labels") or {}
    group = labels.get(_GROUP_NAME)
    if group is not None and (namespace, "LeaderWorkerSet", group) in known:
        leads = labels.get(_INDEX, "0") == "0"
        return (namespace, "LeaderWorkerSet", group) if leads else None
    owner = _controller(pod)
    if owner is None:
        return namespace, "Pod", _name(pod)
    kind, name = owner
    if kind == "ReplicaSet":
        # Named by its Deployment and the hash of its template.
        suffix = f"-{labels.get(TEMPLATE_HASH)}"
        deployment = (namespace, "Deployment", name.removesuffix(suffix))
        if name.endswith(suffix) and deployment in known:
            return deployment
    return namespace, kind, name


def _recognised(pod_spec: Mapping[str, Any], owner: str | None) -> _Found | None:
    """Find the vLLM container; None where nothing looks like vLLM."""
    try:
        container: dict[str, Any] | None = find_container(pod_spec)
        problem = None
    except TemplateError as error:
        likely = vllm_containers(pod_spec)
        if not likely:
            return None
        container, problem = None, str(error)
        if not serving_containers(pod_spec):
            problem = (
                f"container {likely[0]} has vLLM within another server, whose settings are not "
                "read here: upgrade it by what deploys it"
            )
    return _Found(owner=owner, pod_spec=pod_spec, container=container, problem=problem)


class _ConfigMaps:
    """Reads the ConfigMaps that pod specs refer to; what may not be read is left out."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def of(self, namespace: str, pod_spec: Mapping[str, Any]) -> dict[str, Mapping[str, str]]:
        """Give their data, by name."""
        names = [m.name for m in mentions_of(pod_spec) if m.kind == "ConfigMap"]
        found = await together(self._one(namespace, name) for name in names)
        return {n: data for n, data in zip(names, found, strict=True) if data is not None}

    async def _one(self, namespace: str, name: str) -> Mapping[str, str] | None:
        async with self._slots:
            try:
                raw = await self._client.find(paths.config_map(namespace, name))
            except ApiError as error:
                if not error.unauthorized:
                    raise
                return None
        return None if raw is None else dict(raw.get("data") or {})


async def _looked_at(
    looker: Looks, maps: _ConfigMaps, key: Key, found: _Found, raws: Iterable[Mapping[str, Any]]
) -> Workload:
    namespace, kind, name = key
    pods = await looker.look(
        [_seen(raw, found) for raw in raws if raw["spec"].get("containers")],
        Memory(),
        scrape_seconds=None,
    )
    return Workload(
        namespace=namespace,
        kind=kind,
        name=name,
        owner=found.owner,
        pod_spec=found.pod_spec,
        container=found.container,
        problem=found.problem,
        pods=pods,
        config_maps=await maps.of(namespace, found.pod_spec),
    )


def _seen(raw: Mapping[str, Any], found: _Found) -> SeenPod:
    """A pod with its container; where that is not known, with the first that looks like vLLM."""
    present = [str(c["name"]) for c in raw["spec"]["containers"]]
    wanted = [str(found.container["name"])] if found.container else vllm_containers(raw["spec"])
    name = next((n for n in wanted if n in present), present[0])
    return SeenPod(parse_pod(raw, name), raw, name)


def _template(kind: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod spec of a workload: of a LeaderWorkerSet that of its leaders."""
    spec = raw["spec"]
    if kind == "LeaderWorkerSet":
        both = spec.get("leaderWorkerTemplate") or {}
        template = both.get("leaderTemplate") or both.get("workerTemplate") or {}
    else:
        template = spec.get("template") or {}
    found: Mapping[str, Any] = template.get("spec") or {}
    return found


def _controller(raw: Mapping[str, Any]) -> tuple[str, str] | None:
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["kind"]), str(owner["name"])
    return None


def _namespace(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"]["namespace"])


def _name(raw: Mapping[str, Any]) -> str:
    return str(raw["metadata"]["name"])
