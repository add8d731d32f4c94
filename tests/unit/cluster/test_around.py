"""What lies around a target is read with as few rights as can be, and what is forbidden is said."""

from __future__ import annotations

import copy
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster.around import NODES_COUNTED, surroundings
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.mentions import Mention, claims_of, mentions_of
from vllm_upgrade_operator.upgrade.surroundings import Reference, Unread

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.surroundings import Surroundings

CORE = "/api/v1/namespaces/serving"
BUDGETS = "/apis/policy/v1/namespaces/serving/poddisruptionbudgets"

SPEC: dict[str, Any] = {
    "containers": [
        {
            "name": "vllm",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "env": [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
        }
    ],
    "volumes": [
        {"name": "m", "persistentVolumeClaim": {"claimName": "models"}},
        {"name": "t", "configMap": {"name": "templates"}},
    ],
}


def test_every_way_to_refer_to_something_is_seen() -> None:
    spec = {
        "initContainers": [{"envFrom": [{"secretRef": {"name": "a"}}]}],
        "containers": [
            {
                "env": [
                    {"name": "x", "value": "y"},
                    {"name": "z", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {
                        "name": "b",
                        "valueFrom": {
                            "configMapKeyRef": {"name": "b", "key": "k", "optional": True}
                        },
                    },
                ],
                "envFrom": [{"configMapRef": {"name": "b"}}],
            }
        ],
        "volumes": [
            {"secret": {"secretName": "c", "optional": True}},
            {
                "projected": {
                    "sources": [
                        {"secret": {"name": "d"}},
                        {"configMap": {"name": "e"}},
                        {"serviceAccountToken": {"path": "token"}},
                    ]
                }
            },
            {"emptyDir": {}},
            {"persistentVolumeClaim": {"claimName": "p"}},
            {"persistentVolumeClaim": {"claimName": "p"}},
        ],
    }
    assert mentions_of(spec) == (
        Mention("ConfigMap", "b", optional=False),
        Mention("ConfigMap", "e", optional=False),
        Mention("Secret", "a", optional=False),
        Mention("Secret", "c", optional=True),
        Mention("Secret", "d", optional=False),
    )
    assert claims_of(spec) == ("p",)


def node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {
            "allocatable": {"nvidia.com/gpu": "1", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def target(spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"namespace": "serving"}, "spec": {"template": {"spec": spec}}}


def answers(nodes: int = 1) -> dict[str, Any]:
    return {
        "/api/v1/nodes": {"items": [node(f"n{i:03}") for i in range(nodes)]},
        "/api/v1/pods": {"items": []},
        f"{CORE}/persistentvolumeclaims/models": {
            "spec": {"accessModes": ["ReadWriteOnce"]},
            "status": {"accessModes": ["ReadWriteMany"]},
        },
        BUDGETS: {
            "items": [
                {
                    "metadata": {"name": "pdb"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "llm"}}},
                }
            ]
        },
        f"{CORE}/configmaps/templates": {
            "metadata": {"resourceVersion": "11"},
            "data": {"chat": "text"},
        },
        f"{CORE}/secrets/keys": {"metadata": {"resourceVersion": "12"}, "data": {"k": "s3cret"}},
    }


async def read(client: StubClient, pods: int = 1, spec: dict[str, Any] = SPEC) -> Surroundings:
    return await surroundings(
        client, target(SPEC), {"spec": spec}, stable_nodes=["n000"], pods=pods
    )


async def test_all_of_it() -> None:
    around = await read(StubClient(answers()))
    assert around.requests == {"nvidia.com/gpu": 1, "pods": 1}
    assert not isinstance(around.nodes, Unread)
    (only,) = around.nodes
    assert (only.name, only.free, only.stable_pods) == (
        "n000",
        {"nvidia.com/gpu": Decimal(1), "pods": Decimal(10)},
        1,
    )
    assert not isinstance(around.claims, Unread)
    assert around.claims[0].access_modes == ("ReadWriteMany",)
    assert not isinstance(around.budgets, Unread)
    assert (around.budgets[0].min_available, around.budgets[0].max_unavailable) == ("1", None)
    expected = (
        Reference(kind="ConfigMap", name="settings", optional=True, resource_version=None),
        Reference(kind="ConfigMap", name="templates", optional=False, resource_version="11"),
        Reference(kind="Secret", name="keys", optional=False, resource_version="12"),
    )
    assert around.references == around.stable_references == expected
    assert around.config_maps == {"templates": {"chat": "text"}}


async def test_what_the_candidate_adds_is_not_known_goods() -> None:
    spec = copy.deepcopy(SPEC)
    spec["volumes"].append({"name": "n", "secret": {"secretName": "new"}})
    more = {**answers(), f"{CORE}/secrets/new": {"metadata": {"resourceVersion": "13"}}}
    around = await read(StubClient(more), spec=spec)
    assert not isinstance(around.references, Unread)
    assert not isinstance(around.stable_references, Unread)
    assert "new" in [r.name for r in around.references]
    assert "new" not in [r.name for r in around.stable_references]


@pytest.mark.parametrize(("pods", "counted"), [(1, 1), (3, 3), (1000, NODES_COUNTED)])
async def test_pods_are_counted_until_there_is_room_enough(pods: int, counted: int) -> None:
    around = await read(StubClient(answers(nodes=60)), pods=pods)
    assert not isinstance(around.nodes, Unread)
    assert sum(n.free is not None for n in around.nodes) == counted


def forbidden(what: str) -> ApiError:
    return ApiError(
        403,
        "Forbidden",
        f'User "u" cannot list resource "{what}" in API group "" at the cluster scope',
    )


@pytest.mark.parametrize(
    ("path", "field", "grant"),
    [
        ("/api/v1/nodes", "nodes", "list nodes"),
        (f"{CORE}/persistentvolumeclaims/models", "claims", "get persistentvolumeclaims"),
        (BUDGETS, "budgets", "list poddisruptionbudgets"),
        (f"{CORE}/secrets/keys", "references", "get configmaps and secrets"),
    ],
)
async def test_what_is_forbidden_is_unread_with_what_to_grant(
    path: str, field: str, grant: str
) -> None:
    client = StubClient(answers())
    client.failures["GET", path] = forbidden("x")
    around = await read(client)
    found = getattr(around, field)
    assert isinstance(found, Unread)
    assert grant in found.why
    others = {"nodes", "claims", "budgets", "references"} - {field}
    assert not any(isinstance(getattr(around, other), Unread) for other in others)


async def test_another_failure_is_a_failure() -> None:
    client = StubClient(answers())
    client.failures["GET", "/api/v1/nodes"] = ApiError(500, "InternalError", "etcd")
    with pytest.raises(ApiError, match="etcd"):
        await read(client)
