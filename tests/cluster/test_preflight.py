"""Preflight on the control plane: what it finds before anything is started, and how it is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.accounts import as_account
from tests.cluster.commands import vllm_upgrade
from tests.cluster.kit import condition, quick_spec, target_manifest
from tests.cluster.test_bad_input import asleep, snapshot
from vllm_upgrade_operator.cluster.around import surroundings
from vllm_upgrade_operator.upgrade.surroundings import Unread

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.commands import Ran
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

Manifest = dict[str, Any]
PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
FAST_PREFILL = [{"flag": "kv-sharing-fast-prefill"}]


def pod_spec(target: Manifest) -> Manifest:
    found: Manifest = target["spec"]["template"]["spec"]
    return found


def with_claim(target: Manifest) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "models"}}
    pod_spec(target)["volumes"] = [{"name": "models", **claim}]


async def claim(serving: Serving, mode: str) -> None:
    await serving.client.create(
        f"/api/v1/namespaces/{serving.namespace}/persistentvolumeclaims",
        {
            "metadata": {"name": "models"},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
        },
    )


async def found(serving: Serving) -> dict[str, tuple[str, str]]:
    """Result and reason of each check in status."""
    status = await serving.status()
    return {c["name"]: (c["result"], c["reason"]) for c in status.get("preflight", [])}


async def test_all_that_blocks_is_told_at_once_and_nothing_is_started(serving: Serving) -> None:
    await asleep(serving, with_claim)
    await claim(serving, "ReadWriteOnce")
    anywhere = {"spec": {"nodeSelector": {"kubernetes.io/hostname": None}}}
    candidate = {**quick_spec()["candidate"], "args": FAST_PREFILL, "templatePatch": anywhere}
    before = await snapshot(serving)
    await serving.upgrade(candidate=candidate)
    await serving.phase("Blocked")
    status = await serving.status()
    assert "Model Runner V2 does not yet support: KV sharing fast prefill" in status["message"]
    assert status["message"].endswith("these block too, see status.preflight: volumes")
    results = await found(serving)
    assert results["runner-possible"] == ("Block", "RunnerImpossible")
    assert results["volumes"] == ("Block", "VolumeNotShared")
    assert condition(status, "Finished") == ("True", "Blocked")
    assert "RunnerImpossible" in [reason for reason, _, _ in await serving.events()]
    assert await snapshot(serving) == before


async def test_a_fallback_without_an_exception_is_blocked_and_one_with_it_runs(
    serving: Serving,
) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    candidate = {"image": "sim/vllm:0.29.0", "version": "0.29.0", "args": FAST_PREFILL}
    candidate["unsetEnv"] = list(PINNED_TO_V1)
    await serving.upgrade(candidate=candidate)
    await serving.phase("Blocked")
    assert (await found(serving))["runner"] == ("Block", "FallbackNotExcepted")
    excepted = {
        "feature": "KV sharing fast prefill",
        "reason": "test",
        "owner": "team",
        "retestAfter": "2099-01-01",
    }
    await serving.load(10)
    await serving.set_spec({"runner": {"expected": "V2", "exceptions": [excepted]}})
    await serving.phase("Canary", passing=("Blocked",))
    assert (await found(serving))["runner"] == ("Warn", "FallbackExcepted")


async def test_warnings_are_told_once_and_kept_and_do_not_stop_it(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.load(10)
    await serving.upgrade()
    await serving.phase("Canary")
    results = await found(serving)
    assert results["admission"] == ("Warn", "QueueUnbounded")
    assert results["grace-period"] == ("Warn", "NoDrain")
    assert results["capacity"] == ("Pass", "Passed")
    told = [
        (t, note) for reason, t, note in await serving.events() if reason == "PreflightWarnings"
    ]
    assert len(told) == 1
    assert told[0][0] == "Warning"
    assert "admission: " in told[0][1]
    status = await serving.status()
    assert "warnings" not in status["message"]
    assert status["knownGood"]["flags"] == ["model=m", "port=8000"]
    assert status["candidate"]["flags"] == ["model=m", "port=8000"]


async def test_known_good_keeps_versions_and_nothing_else_of_what_is_referred_to(
    serving: Serving,
) -> None:
    core = f"/api/v1/namespaces/{serving.namespace}"
    settings = await serving.client.create(
        f"{core}/configmaps", {"metadata": {"name": "settings"}, "data": {"SETTING": "c0ntent"}}
    )
    keys = await serving.client.create(
        f"{core}/secrets", {"metadata": {"name": "keys"}, "stringData": {"KEY": "s3cret"}}
    )
    target = target_manifest("sim/vllm:0.28.0", 1, (), PINNED_TO_V1, 0)
    pod_spec(target)["containers"][0]["envFrom"] = [
        {"configMapRef": {"name": "settings"}},
        {"secretRef": {"name": "keys"}},
    ]
    await serving.serve(target)
    await serving.upgrade(runner={"expected": "Any"})
    await serving.phase("Starting", "Verifying", "Canary")
    record = await serving.client.get(
        f"/apis/apps/v1/namespaces/{serving.namespace}/controllerrevisions/up-known-good"
    )
    assert record["data"]["references"] == [
        {
            "kind": "ConfigMap",
            "name": "settings",
            "resourceVersion": settings["metadata"]["resourceVersion"],
        },
        {
            "kind": "Secret",
            "name": "keys",
            "resourceVersion": keys["metadata"]["resourceVersion"],
        },
    ]
    everything = json.dumps([record, await serving.status(), await serving.events()])
    assert "s3cret" not in everything
    assert "c0ntent" not in everything


async def test_a_secret_that_is_missing_is_named(serving: Serving) -> None:
    await asleep(serving)
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "no-such", "key": "k"}}}]
    await serving.upgrade(candidate={**quick_spec()["candidate"], "env": env})
    await serving.phase("Blocked")
    status = await serving.status()
    assert status["timeline"][-1]["reason"] == "ReferenceNotFound"
    assert status["message"].startswith("Secret no-such, which the candidate's template refers to")


async def test_what_may_not_be_read_is_unknown_with_what_to_grant(serving: Serving) -> None:
    """On a real API server's words: an account that may read nothing at all."""
    await asleep(serving, with_claim)
    target = await serving.target()
    pod_spec(target)["volumes"].append({"name": "c", "configMap": {"name": "x"}})
    async with await as_account(serving.client, serving.namespace, "default") as account:
        around = await surroundings(
            account, target, target["spec"]["template"], stable_nodes=[], pods=1
        )
    for part, grant in (
        (around.nodes, "list nodes and pods in all namespaces"),
        (around.claims, "get persistentvolumeclaims"),
        (around.budgets, "list poddisruptionbudgets of the group policy"),
        (around.references, "get configmaps and secrets"),
    ):
        assert isinstance(part, Unread)
        assert f"grant the right to {grant} (" in part.why
        assert "is forbidden" in part.why


async def test_the_present_room_is_counted(serving: Serving) -> None:
    """Of both nodes together, which have eight GPUs each."""
    await asleep(serving)
    limits = {"resources": {"limits": {"nvidia.com/gpu": "9"}}}
    anywhere = {"kubernetes.io/hostname": None}
    containers = [{"name": "vllm", **limits}]
    patch = {"spec": {"containers": containers, "nodeSelector": anywhere}}
    candidate = {**quick_spec()["candidate"], "templatePatch": patch}
    await serving.upgrade(candidate=candidate)

    async def warned() -> bool:
        return (await found(serving)).get("capacity") == ("Warn", "NoRoom")

    await serving.until(warned, "the lack of room in status.preflight")


# The command line.


def upgrade_file(serving: Serving, path: Path, **spec: Any) -> str:
    manifest = {
        "apiVersion": "vllmupgrade.dev/v1alpha1",
        "kind": "VLLMUpgrade",
        "metadata": {"name": "up", "namespace": serving.namespace},
        "spec": {**quick_spec(), **spec},
    }
    file = path / "upgrade.json"
    file.write_text(json.dumps(manifest))
    return str(file)


def results(ran: Ran) -> dict[str, str]:
    return {c["name"]: c["result"] for c in ran.json()["checks"]}


async def test_the_command_line_says_the_same_and_creates_nothing(
    serving: Serving, tmp_path: Path
) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    before = await snapshot(serving)
    good = upgrade_file(serving, tmp_path, runner={"expected": "Any"})
    ran = await vllm_upgrade("preflight", "-f", good, "-o", "json")
    assert ran.code in (0, 3), ran
    assert ran.json()["wouldStart"] is True
    beforehand = results(ran)
    assert beforehand["admission"] == "Warn"
    assert "Block" not in beforehand.values()
    candidate = {**quick_spec()["candidate"], "args": FAST_PREFILL}
    bad = upgrade_file(serving, tmp_path, candidate=candidate)
    ran = await vllm_upgrade("preflight", "--filename", bad)
    assert ran.code == 1, ran
    assert ran.out.splitlines()[1].split()[:2] == ["Block", "runner-possible"]
    assert ran.out.splitlines()[-1].endswith(": it would not start")
    assert await snapshot(serving) == before
    assert await serving.client.find(serving.path()) is None
    await serving.upgrade(runner={"expected": "Any"})
    await serving.phase("Starting", "Verifying", "Canary")
    status = await serving.status()
    assert {c["name"]: c["result"] for c in status["preflight"]} == beforehand


async def test_the_command_line_reads_standard_input_and_names_what_is_missing(
    serving: Serving, tmp_path: Path
) -> None:
    file = upgrade_file(serving, tmp_path, targetRef={"name": "none"})
    with open(file) as text:  # noqa: PTH123, ASYNC230 - a small local file
        ran = await vllm_upgrade("preflight", "-f", "-", stdin=text.read())
    assert ran.code == 1, ran
    assert "there is no Deployment none in namespace" in ran.out


async def test_what_the_api_server_would_refuse_is_a_wrong_file(
    serving: Serving, tmp_path: Path
) -> None:
    await asleep(serving)
    descending = [{"replicas": 3}, {"replicas": 1}]
    file = upgrade_file(serving, tmp_path, strategy={"steps": descending})
    ran = await vllm_upgrade("preflight", "-f", file)
    assert ran.code == 2, ran
    assert "the API server would refuse it" in ran.err
    assert "spec.strategy.steps" in ran.err
    assert ran.out == ""


async def test_a_cluster_that_cannot_be_reached_is_code_3(tmp_path: Path) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps(config))
    ran = await vllm_upgrade("inventory", "--kubeconfig", str(file))
    assert ran.code == 3, ran
    assert ran.err.startswith("vllm-upgrade: error: cannot reach the API server: ")
    assert len(ran.err.splitlines()) == 1
