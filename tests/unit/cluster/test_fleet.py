"""Which workloads run vLLM, and which pods are theirs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.objects import pod
from tests.unit.cluster.stub import StubClient
from tests.unit.vllm import shapes
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.fleet import Fleet, read_fleet
from vllm_upgrade_operator.cluster.log_looker import LogLooker
from vllm_upgrade_operator.vllm.runner import Runner

DEPLOYMENTS = "/apis/apps/v1/deployments"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
GROUPS = "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets"
PODS = "/api/v1/pods"

LOG = (
    "(EngineCore pid=7) INFO 11-30 20:39:11 [core.py:133] Initializing a V1 LLM engine (v0.29.0) "
    "with config: model='m'\n"
    "(Worker pid=7) INFO 11-30 20:39:11 [gpu_worker.py:162] Using V2 Model Runner\n"
)
OTHER = {"containers": [{"name": "web", "image": "nginx:1.29"}]}


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


def workload(name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "serving", "name": name, **metadata},
        "spec": {"template": {"spec": spec}},
    }


def a_pod(
    name: str, owner: tuple[str, str] | None, labels: dict[str, str], spec: dict[str, Any]
) -> dict[str, Any]:
    raw = pod()
    container = spec["containers"][0]["name"]
    raw["metadata"] |= {"name": name, "namespace": "serving", "uid": f"uid-{name}"}
    raw["metadata"]["labels"] = labels
    raw["metadata"].pop("ownerReferences", None)
    if owner is not None:
        raw["metadata"]["ownerReferences"] = owned(*owner)
    raw["spec"] = spec
    raw["status"]["containerStatuses"] = [
        {**raw["status"]["containerStatuses"][-1], "name": container}
    ]
    return raw


def cluster(**lists: list[dict[str, Any]]) -> StubClient:
    objects: dict[str, Any] = {
        DEPLOYMENTS: {"items": lists.get("deployments", [])},
        STATEFUL_SETS: {"items": lists.get("sets", [])},
        PODS: {"items": lists.get("pods", [])},
    }
    if "groups" in lists:
        objects[GROUPS] = {"items": lists["groups"]}
    for raw in lists.get("pods", []):
        objects[paths.log("serving", raw["metadata"]["name"])] = {"text": LOG}
    return StubClient(objects)


async def fleet(client: StubClient) -> Fleet:
    return await read_fleet(client, LogLooker(client), None)


def named(found: Fleet) -> dict[str, list[str]]:
    return {f"{w.kind}/{w.name}": [p.name for p in w.pods] for w in found.workloads}


async def test_a_deployments_pods_are_those_of_its_replica_sets() -> None:
    labels = {"app": "llm", "pod-template-hash": "abc"}
    found = await fleet(
        cluster(
            deployments=[workload("llm", shapes.DOCS), workload("web", OTHER)],
            pods=[
                a_pod("llm-abc-1", ("ReplicaSet", "llm-abc"), labels, shapes.DOCS),
                a_pod("web-1", ("ReplicaSet", "web-abc"), labels, OTHER),
            ],
        )
    )
    assert named(found) == {"Deployment/llm": ["llm-abc-1"]}
    (only,) = found.workloads
    (seen,) = only.pods
    assert (seen.version, seen.runner and seen.runner.runner) == ("0.29.0", Runner.V2)
    assert only.container is not None
    assert only.container["name"] == "mistral-7b"
    assert found.unread == ()


async def test_a_replica_set_of_nobody_is_a_workload_of_its_own() -> None:
    labels = {"pod-template-hash": "abc"}
    found = await fleet(
        cluster(pods=[a_pod("x-1", ("ReplicaSet", "gone-abc"), labels, shapes.DOCS)])
    )
    assert named(found) == {"ReplicaSet/gone-abc": ["x-1"]}


async def test_pods_of_another_controller_are_one_workload_and_bare_ones_each_their_own() -> None:
    found = await fleet(
        cluster(
            pods=[
                a_pod("m-1", ("Model", "llama"), {}, shapes.KUBEAI),
                a_pod("m-2", ("Model", "llama"), {}, shapes.KUBEAI),
                a_pod("bare", None, {}, shapes.KUBEAI),
                a_pod("web", None, {}, OTHER),
            ]
        )
    )
    assert named(found) == {"Model/llama": ["m-1", "m-2"], "Pod/bare": ["bare"]}


async def test_a_leader_worker_set_is_served_by_its_leaders() -> None:
    """And the StatefulSets that it is made of are not listed beside it."""
    group = {
        "metadata": {"namespace": "serving", "name": "big"},
        "spec": {
            "leaderWorkerTemplate": {
                "leaderTemplate": {"spec": shapes.LWS_LEADER},
                "workerTemplate": {"spec": OTHER},
            }
        },
    }
    name = {"leaderworkerset.sigs.k8s.io/name": "big"}
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    of_the_set = {"ownerReferences": owned("LeaderWorkerSet", "big")}
    found = await fleet(
        cluster(
            groups=[group],
            sets=[workload("big", shapes.LWS_LEADER, **of_the_set)],
            pods=[
                a_pod("big-0", ("StatefulSet", "big"), {**name, index: "0"}, shapes.LWS_LEADER),
                a_pod("big-0-1", ("StatefulSet", "big-0"), {**name, index: "1"}, OTHER),
            ],
        )
    )
    assert named(found) == {"LeaderWorkerSet/big": ["big-0"]}


async def test_a_workload_that_another_controller_makes_names_it() -> None:
    runtime = {"ownerReferences": owned("VLLMRuntime", "llama")}
    found = await fleet(cluster(deployments=[workload("llm", shapes.DOCS, **runtime)]))
    (only,) = found.workloads
    assert (only.kind, only.name, only.owner) == ("Deployment", "llm", "VLLMRuntime llama")
    assert only.pods == ()


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (shapes.DYNAMO, "dynamo.vllm"),
        (shapes.RAY_SERVE, "ray-head has vLLM within another server"),
        (shapes.KAITO, "workspace-phi has vLLM within another server"),
    ],
)
async def test_vllm_in_another_server_is_listed_with_why(spec: dict[str, Any], says: str) -> None:
    found = await fleet(
        cluster(sets=[workload("x", spec)], pods=[a_pod("x-0", ("StatefulSet", "x"), {}, spec)])
    )
    (only,) = found.workloads
    assert only.container is None
    assert says in (only.problem or "")
    assert [p.version for p in only.pods] == ["0.29.0"]


async def test_config_maps_that_tell_vllm_something_are_read_where_they_may_be() -> None:
    path = paths.config_map("serving", "vllm-settings")
    client = cluster(deployments=[workload("llm", shapes.EKS_NEURON)])
    client.objects[path] = {"data": {"config.yaml": "max-num-queued-reqs: 8"}}
    (only,) = (await fleet(client)).workloads
    assert only.config_maps == {"vllm-settings": {"config.yaml": "max-num-queued-reqs: 8"}}
    words = 'configmaps is forbidden: User "u" cannot get resource "configmaps" in API group ""'
    client.failures["GET", path] = ApiError(403, "Forbidden", words)
    (only,) = (await fleet(client)).workloads
    assert only.config_maps == {}


async def test_pods_that_have_ended_are_none() -> None:
    ended = a_pod("done", None, {}, shapes.KUBEAI)
    ended["status"]["phase"] = "Succeeded"
    assert named(await fleet(cluster(pods=[ended]))) == {}


async def test_a_log_that_may_not_be_read_leaves_the_runner_unknown() -> None:
    client = cluster(pods=[a_pod("bare", None, {}, shapes.KUBEAI)])
    refused = ApiError(403, "Forbidden", 'User "u" cannot get resource "pods/log" in API group ""')
    client.failures["TEXT", paths.log("serving", "bare")] = refused
    (only,) = (await fleet(client)).workloads
    (seen,) = only.pods
    assert seen.runner is not None
    assert seen.runner.runner is Runner.UNKNOWN
    assert "403" in seen.runner.how


async def test_what_may_not_be_listed_is_said_and_the_rest_is_listed() -> None:
    client = cluster(deployments=[workload("llm", shapes.DOCS)])
    words = 'statefulsets.apps is forbidden: User "u" cannot list resource "statefulsets"'
    client.failures["GET", STATEFUL_SETS] = ApiError(403, "Forbidden", words)
    found = await fleet(client)
    assert named(found) == {"Deployment/llm": []}
    assert found.unread == (words,)


async def test_another_failure_is_a_failure() -> None:
    client = cluster()
    client.failures["GET", PODS] = ApiError(500, "InternalError", "etcd")
    with pytest.raises(ApiError, match="etcd"):
        await fleet(client)


class Paged(StubClient):
    """A collection of two pages."""

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        if path != PODS:
            return await super().get(path)
        second = query.get("continue") == "next"
        item = a_pod("b" if second else "a", None, {}, shapes.KUBEAI)
        return {"items": [item], "metadata": {} if second else {"continue": "next"}}


async def test_a_large_collection_is_read_page_by_page() -> None:
    client = Paged(cluster().objects)
    for name in ("a", "b"):
        client.objects[paths.log("serving", name)] = {"text": LOG}
    assert named(await fleet(client)) == {"Pod/a": ["a"], "Pod/b": ["b"]}


async def test_one_namespace_is_asked_by_its_own_paths() -> None:
    client = StubClient(
        {
            "/apis/apps/v1/namespaces/serving/deployments": {"items": []},
            "/apis/apps/v1/namespaces/serving/statefulsets": {"items": []},
            "/api/v1/namespaces/serving/pods": {"items": []},
        }
    )
    found = await read_fleet(client, LogLooker(client), "serving")
    assert found == Fleet((), ())
