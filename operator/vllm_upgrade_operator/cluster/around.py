"""Reading what lies around a target. What may not be read is said as that, and what to grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.mentions import claims_of, mentions_of
from vllm_upgrade_operator.cluster.placing import free_of, requests_of, unfit
from vllm_upgrade_operator.cluster.selectors import budget_selector
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.upgrade.preflight.capacity import pods_that_fit
from vllm_upgrade_operator.upgrade.surroundings import (
    Budget,
    Claim,
    Node,
    Reference,
    Surroundings,
    Unread,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.mentions import Mention

T = TypeVar("T")

NODES_COUNTED = 50
"""On how many suitable nodes the pods are counted at most; fewer where there is room enough."""


async def surroundings(
    client: Client,
    target: Mapping[str, Any],
    template: Mapping[str, Any],
    *,
    stable_nodes: Sequence[str],
    pods: int,
) -> Surroundings:
    """Read what lies around a target.

    Args:
        client: The API server.
        target: The Deployment as it is.
        template: The candidate's pod template, or the target's where there is none.
        stable_nodes: Name of the node of each of the target's pods.
        pods: Canary pods that there has to be room for.

    Raises:
        ApiError: Something could not be read for another reason than that it is not allowed.
    """
    namespace = target["metadata"]["namespace"]
    spec: Mapping[str, Any] = template.get("spec") or {}
    mentioned = mentions_of(spec)
    stable = mentions_of(target["spec"]["template"].get("spec") or {})
    nodes = await _or_unread(
        _nodes(client, spec, stable_nodes, pods), "list nodes and pods in all namespaces"
    )
    claims = await _or_unread(
        together(_claim(client, namespace, name) for name in claims_of(spec)),
        "get persistentvolumeclaims",
    )
    budgets = await _or_unread(
        _budgets(client, namespace), "list poddisruptionbudgets of the group policy"
    )
    found = await _or_unread(
        together(_reference(client, namespace, m) for m in dict.fromkeys((*mentioned, *stable))),
        "get configmaps and secrets",
    )
    return Surroundings(
        requests=requests_of(spec),
        nodes=nodes,
        claims=claims if isinstance(claims, Unread) else tuple(claims),
        budgets=budgets,
        references=_of(found, mentioned),
        stable_references=_of(found, stable),
        config_maps={}
        if isinstance(found, Unread)
        else {r.name: data for r, data in found if data is not None},
    )


async def _or_unread(call: Coroutine[object, object, T], grant: str) -> T | Unread:
    try:
        return await call
    except ApiError as error:
        if not error.unauthorized:
            raise
        return Unread(why=f"this may not be read: grant the right to {grant} ({error.message})")


async def _nodes(
    client: Client, spec: Mapping[str, Any], stable_nodes: Sequence[str], pods: int
) -> tuple[Node, ...]:
    """Read the nodes, and count pods on suitable ones until there is room enough."""
    raws = (await client.get(paths.nodes()))["items"]
    requests = requests_of(spec)
    found, room, counted = [], 0, 0
    for raw in sorted(raws, key=lambda r: str(r["metadata"]["name"])):
        name = str(raw["metadata"]["name"])
        why, free = unfit(raw, spec), None
        if why is None and room < pods and counted < NODES_COUNTED:
            free = free_of(raw, await _pods_on(client, name))
            room, counted = room + pods_that_fit(requests, free), counted + 1
        found.append(
            Node(
                name=name,
                labels=raw["metadata"].get("labels") or {},
                unfit=why,
                free=free,
                stable_pods=stable_nodes.count(name),
            )
        )
    return tuple(found)


async def _pods_on(client: Client, node: str) -> list[Mapping[str, Any]]:
    """Pods that hold something of a node; the API server finds them by an index."""
    alive = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
    found = await client.get(paths.all_pods(), fieldSelector=alive)
    items: list[Mapping[str, Any]] = found["items"]
    return items


async def _claim(client: Client, namespace: str, name: str) -> Claim:
    raw = await client.find(paths.volume_claim(namespace, name))
    if raw is None:
        return Claim(name=name, access_modes=())
    bound = (raw.get("status") or {}).get("accessModes")
    return Claim(name=name, access_modes=tuple(bound or raw["spec"].get("accessModes") or ()))


async def _budgets(client: Client, namespace: str) -> tuple[Budget, ...]:
    found = await client.get(paths.disruption_budgets(namespace))
    return tuple(
        Budget(
            name=raw["metadata"]["name"],
            selector=budget_selector(raw),
            min_available=_text(raw["spec"].get("minAvailable")),
            max_unavailable=_text(raw["spec"].get("maxUnavailable")),
        )
        for raw in found["items"]
    )


async def _reference(
    client: Client, namespace: str, mention: Mention
) -> tuple[Reference, dict[str, str] | None]:
    """Read a ConfigMap with its data; of a Secret the metadata alone."""
    if mention.kind == "ConfigMap":
        raw = await client.find(paths.config_map(namespace, mention.name))
    else:
        raw = await client.find_metadata(paths.secret(namespace, mention.name))
    reference = Reference(
        kind=mention.kind,
        name=mention.name,
        optional=mention.optional,
        resource_version=None if raw is None else raw["metadata"]["resourceVersion"],
    )
    is_read = raw is not None and mention.kind == "ConfigMap"
    return reference, dict((raw or {}).get("data") or {}) if is_read else None


def _of(
    found: Sequence[tuple[Reference, object]] | Unread, mentions: Sequence[Mention]
) -> tuple[Reference, ...] | Unread:
    if isinstance(found, Unread):
        return found
    wanted = frozenset(mentions)
    return tuple(r for r, _ in found if (r.kind, r.name, r.optional) in wanted)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
