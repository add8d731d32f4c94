"""`vllm-upgrade inventory` on the control plane: workloads of several kinds, only read."""

from __future__ import annotations

import csv
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localcluster import build
from tests.cluster.accounts import as_account
from tests.cluster.commands import vllm_upgrade
from tests.cluster.kit import run, target_manifest
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.fleet import read_fleet
from vllm_upgrade_operator.cluster.log_looker import LogLooker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.kit import Serving
    from vllm_upgrade_operator.cluster.client import Client

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
GROUP = "leaderworkerset.x-k8s.io"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def manifest(name: str, image: str, *args: str, **env: str) -> Manifest:
    """A Deployment of one simulated server."""
    made = target_manifest(image, 1, args, env, 0)
    made["metadata"]["name"] = name
    labels = {"app": name}
    made["spec"]["selector"]["matchLabels"] = labels
    made["spec"]["template"]["metadata"]["labels"] = labels
    return made


def template(made: Manifest) -> Manifest:
    found: Manifest = made["spec"]["template"]
    return found


@pytest.fixture
async def groups(client: Client) -> AsyncIterator[str]:
    """The API of LeaderWorkerSets, without its controller: the test makes the pods itself."""
    name = f"leaderworkersets.{GROUP}"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "plural": "leaderworkersets",
        "singular": "leaderworkerset",
        "kind": "LeaderWorkerSet",
        "listKind": "LeaderWorkerSetList",
    }
    await client.create(
        CRDS,
        {
            "metadata": {
                "name": name,
                "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
            },
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        },
    )
    yield f"/apis/{GROUP}/v1"
    await client.delete(f"{CRDS}/{name}")


async def served(serving: Serving, path: str) -> None:
    async def there() -> bool:
        try:
            await serving.client.get(path)
        except ApiError:
            return False
        return True

    await serving.until(there, path)


async def several(serving: Serving, groups: str) -> None:
    """A workload of each kind, all ready."""
    apps = f"/apis/apps/v1/namespaces/{serving.namespace}"
    core = f"/api/v1/namespaces/{serving.namespace}"
    bounded = ("--max-num-queued-reqs", "64")
    pinned = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    deployments = [
        manifest("pinned", "sim/vllm:0.28.0", **pinned),
        manifest("gone", "sim/vllm:0.28.0", SIM_ARCHITECTURE="MPTForCausalLM"),
        manifest("unbounded", "sim/vllm:0.29.0"),
        manifest("bounded", "sim/vllm:0.32.0", *bounded),
    ]
    for deployment in deployments:
        await serving.client.create(f"{apps}/deployments", deployment)
    await serving.client.create(
        f"{apps}/deployments",
        {
            **manifest("web", "sim/sleep:latest"),
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web"}},
                    "spec": {"containers": [{"name": "web", "image": "sim/sleep:latest"}]},
                },
            },
        },
    )
    made = manifest("stateful", "sim/vllm:0.32.0")
    container = template(made)["spec"]["containers"][0]
    line = "vllm serve m --port 8000 --max_num_queued_reqs 64"
    container.update(command=["sh", "-c"], args=[line])
    made["kind"] = "StatefulSet"
    made["spec"] |= {"serviceName": "stateful"}
    made["spec"].pop("minReadySeconds")
    await serving.client.create(f"{apps}/statefulsets", made)
    bare = template(manifest("bare", "sim/vllm:0.33.0", *bounded))
    bare["metadata"]["name"] = "bare"
    await serving.client.create(f"{core}/pods", bare)
    await served(serving, f"{groups}/leaderworkersets")
    leader = template(manifest("big", "sim/vllm:0.33.0", *bounded))
    group = await serving.client.create(
        f"{groups}/namespaces/{serving.namespace}/leaderworkersets",
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "LeaderWorkerSet",
            "metadata": {"name": "big"},
            "spec": {"leaderWorkerTemplate": {"leaderTemplate": {"spec": leader["spec"]}}},
        },
    )
    leader["metadata"] |= {
        "name": "big-0",
        "labels": {
            "leaderworkerset.sigs.k8s.io/name": "big",
            "leaderworkerset.sigs.k8s.io/worker-index": "0",
        },
        "ownerReferences": [
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "LeaderWorkerSet",
                "name": "big",
                "uid": group["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    await serving.client.create(f"{core}/pods", leader)

    async def all_ready() -> bool:
        pods = await serving.pods()
        ready = [
            any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"]["conditions"])
            for p in pods
            if p["status"].get("conditions")
        ]
        return len(pods) == 7 and len(ready) == 7 and all(ready)

    await serving.until(all_ready, "seven pods ready")


async def versions_of_everything(serving: Serving) -> dict[str, str]:
    """The resourceVersion of all that a command might have changed, but for what the status is."""
    found = {}
    for path in (
        f"/apis/apps/v1/namespaces/{serving.namespace}/deployments",
        f"/apis/apps/v1/namespaces/{serving.namespace}/statefulsets",
        f"/api/v1/namespaces/{serving.namespace}/pods",
    ):
        for raw in (await serving.client.get(path))["items"]:
            found[raw["metadata"]["uid"]] = raw["metadata"]["resourceVersion"]
    return found


async def test_every_workload_is_listed_the_most_severe_first(
    serving: Serving, groups: str
) -> None:
    await several(serving, groups)
    before = await versions_of_everything(serving)
    ran = await vllm_upgrade(
        "inventory", "-n", serving.namespace, "--target-version", "0.33.0", "-o", "json"
    )
    assert ran.code == 1, ran
    assert ran.err == ""
    read = ran.json()
    rows = {w["name"]: w for w in read["workloads"]}
    assert [w["name"] for w in read["workloads"]][:3] == ["gone", "pinned", "unbounded"]
    seen = {
        name: (w["kind"], w["version"], w["onV1"], w["onV2"], w["severity"])
        for name, w in rows.items()
    }
    assert seen == {
        "gone": ("Deployment", "0.28.0", 0, 1, "CannotStart"),
        "pinned": ("Deployment", "0.28.0", 1, 0, "FallsBack"),
        "unbounded": ("Deployment", "0.29.0", 0, 1, "Admission"),
        "bounded": ("Deployment", "0.32.0", 0, 1, "None"),
        "stateful": ("StatefulSet", "0.32.0", 0, 1, "Advice"),
        "bare": ("Pod", "0.33.0", 0, 1, "Advice"),
        "big": ("LeaderWorkerSet", "0.33.0", 0, 1, "Advice"),
    }
    assert {w["versionFrom"] for w in rows.values()} == {"observed"}
    assert rows["gone"]["architecture"] == "MPTForCausalLM"
    assert rows["gone"]["predictedRunner"] is None
    assert "MPTForCausalLM" in rows["gone"]["nextStep"]
    assert rows["pinned"]["predictedRunner"] == "V1"
    assert rows["bounded"]["predictedRunner"] == "V2"
    assert rows["stateful"]["admissionLimits"] == "max-num-queued-reqs=64"
    assert read["totals"]["endpoints"] == 7
    assert read["totals"]["fallbackRatio"] == round(1 / 7, 4)
    assert await versions_of_everything(serving) == before

    table = await vllm_upgrade("inventory", "--namespace", serving.namespace)
    assert table.code == 1, table
    lines = table.out.splitlines()
    assert lines[1].split()[:4] == [serving.namespace, "Deployment/gone", "0.28.0", "V2:1"]
    assert lines[-1].endswith("7 endpoints: 1 on V1, 6 on V2, 0 unknown; fallback ratio 14%")
    text = await vllm_upgrade("inventory", "-n", serving.namespace, "-o", "csv")
    listed = list(csv.DictReader(io.StringIO(text.out)))
    assert [r["name"] for r in listed][:2] == ["gone", "pinned"]

    everywhere = await vllm_upgrade("inventory", "--all-namespaces", "-o", "json", seconds=120)
    names = {(w["namespace"], w["name"]) for w in everywhere.json()["workloads"]}
    assert {(serving.namespace, name) for name in seen} <= names
    assert not [n for n, _ in names if n == "vllm-upgrade-system"]


async def test_whoever_may_not_list_is_told_so(serving: Serving) -> None:
    """An account without rights: nothing is found, and it is said why."""
    async with await as_account(serving.client, serving.namespace, "default") as account:
        found = await read_fleet(account, LogLooker(account), serving.namespace)
    assert found.workloads == ()
    assert len(found.unread) >= 3
    assert all("cannot list resource" in sentence for sentence in found.unread)


async def test_it_is_a_plugin_of_kubectl() -> None:
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    said = await run("env", f"PATH={path}", build.kubectl(), "vllm-upgrade", "--version")
    assert said == "kubectl vllm-upgrade 0.1.0\n"
