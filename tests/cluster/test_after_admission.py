"""What happens to pods that take traffic: harm is told by its cause, and what is none is not called
so."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.faults import fault
from tests.cluster.kit import DOMAIN, condition, quick_spec
from tests.cluster.pool import own_nodes
from vllm_upgrade_operator.cluster.client import MERGE

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
LONG = [{"replicas": 1, "hold": "100s"}]


def candidate(**env: str) -> dict[str, Any]:
    """The quick candidate with these variables."""
    found: dict[str, Any] = copy.deepcopy(quick_spec()["candidate"])
    found["env"] += [{"name": name, "value": value} for name, value in env.items()]
    return found


def strategy(*steps: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**quick_spec()["strategy"], "steps": list(steps) or LONG, **changes}


async def admitted(serving: Serving, but: str = "") -> dict[str, Any]:
    """Wait for a canary pod in the traffic, another one than `but` (a UID), and give it."""
    found: list[dict[str, Any]] = []

    async def is_there() -> bool:
        found[:] = [
            p for p in await serving.pods(f"{DOMAIN}/canary,app=llm") if p["metadata"]["uid"] != but
        ]
        return bool(found)

    await serving.until(is_there, "a canary pod in the traffic")
    return found[0]


async def result(serving: Serving) -> tuple[str, str]:
    """Wait for the rollback; give its reason and message."""
    await serving.phase("RolledBack")
    status = await serving.status()
    found = condition(status, "RolledBack")
    assert found is not None
    return found[1], str(status["message"])


def conditions(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod["status"]["conditions"]
    return found


HARM: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "exit": (
        {"SIM_FAULT_EXIT_CODE": "7@4"},
        "ContainerExited",
        ("ended with exit code 7", "look at its log"),
    ),
    "engine death": ({"SIM_FAULT_ENGINE_DEATH": "1@4"}, "EngineDied", ("engine died", "its log")),
    "out of memory": (
        {"SIM_FAULT_OOM": "1@4"},
        "OutOfMemory",
        ("while serving", "OOMKilled", "memory limit"),
    ),
    "hang": (
        {"SIM_FAULT_HANG": "1@4"},
        "EngineHung",
        ("made no token for", "though its server answers"),
    ),
    "only errors": (
        {"SIM_FAULT_ERROR_FRACTION": "1"},
        "RequestsFail",
        ("requests with a server error since it started",),
    ),
}


@pytest.mark.parametrize("name", HARM)
async def test_harm_is_told_by_its_cause(serving: Serving, name: str) -> None:
    env, reason, says = HARM[name]
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.load(15)
    await serving.upgrade(candidate=candidate(**env), strategy=strategy())
    found, message = await result(serving)
    assert found == reason, message
    for words in says:
        assert words in message
    assert "llm-canary-" in message
    assert await serving.canaries() == []
    assert len(await serving.pods("app=llm")) == 2
    assert reason in [r for r, _, _ in await serving.events()]


@pytest.mark.parametrize("how", ["deleted", "evicted"])
async def test_a_pod_that_somebody_takes_away_is_replaced_and_verified_again(
    serving: Serving, how: str
) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.load(15)
    await serving.upgrade(strategy=strategy({"replicas": 1, "hold": "10s"}))
    first = await admitted(serving)

    async def holds() -> bool:
        return "holding with 1 canary pod" in str((await serving.status()).get("message"))

    await serving.until(holds, "the hold")
    name = first["metadata"]["name"]
    path = f"/api/v1/namespaces/{serving.namespace}/pods/{name}"
    if how == "deleted":
        await serving.client.delete(path)
    else:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": serving.namespace},
        }
        await serving.client.create(f"{path}/eviction", eviction)

    async def is_replaced() -> bool:
        return any(p["metadata"]["name"] != name for p in await serving.canaries())

    await serving.until(is_replaced, "another canary pod")
    second = await admitted(serving, but=first["metadata"]["uid"])
    assert second["metadata"]["labels"][f"{DOMAIN}/active-runner"] == "v2"

    async def holds_anew() -> bool:
        return "anew, for a pod was not ready or was replaced" in str(await serving.status())

    await serving.until(holds_anew, "the hold that begins anew")
    await serving.phase("Succeeded")
    phases = [e["phase"] for e in (await serving.status())["timeline"]]
    assert "RollingBack" not in phases


async def test_a_lost_node_is_no_harm(serving: Serving) -> None:
    """Its pod is replaced on another node; the one that cannot end holds nothing up."""
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.load(15)
    async with own_nodes(serving.client, 2) as pool:
        change = candidate()
        fields = copy.deepcopy(pool.pod_fields)
        fields["tolerations"] += [
            {
                "key": f"node.kubernetes.io/{key}",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 1,
            }
            for key in ("unreachable", "not-ready")
        ]
        change["templatePatch"] = {"spec": fields}
        await serving.upgrade(
            candidate=change,
            strategy=strategy({"replicas": 1, "hold": "8s"}, startDeadline="100s"),
            analysis={**quick_spec()["analysis"], "maxDuration": "200s"},
        )
        first = await admitted(serving)
        await pool.stop(first["spec"]["nodeName"])
        second = await admitted(serving, but=first["metadata"]["uid"])
        assert second["spec"]["nodeName"] != first["spec"]["nodeName"]
        path = f"/api/v1/namespaces/{serving.namespace}/pods/{first['metadata']['name']}"

        async def is_withdrawn() -> bool:
            lost = await serving.client.find(path)
            return lost is not None and "app" not in lost["metadata"]["labels"]

        await serving.until(is_withdrawn, "the lost pod out of the traffic")
        await serving.phase("Succeeded", seconds=200)
        phases = [e["phase"] for e in (await serving.status())["timeline"]]
        assert "RollingBack" not in phases
        # Nobody ends it while its node is lost.
        assert await serving.client.find(path) is not None


async def test_a_pod_that_cannot_end_does_not_hold_up_a_rollback(serving: Serving) -> None:
    """As on a lost node, which takes longer to lose: somebody's finalizer holds it."""
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.load(15)
    await serving.upgrade(strategy=strategy())
    pod = await admitted(serving)
    path = f"/api/v1/namespaces/{serving.namespace}/pods/{pod['metadata']['name']}"
    held = {"metadata": {"finalizers": ["example.com/holds"]}}
    await serving.client.patch(path, held, MERGE)
    await serving.annotate({f"{DOMAIN}/abort": "now"})

    async def says_until_when() -> bool:
        return "waiting for 1 canary pod to end, until" in str(await serving.status())

    await serving.until(says_until_when, "what the rollback waits for")
    await serving.phase("RolledBack")
    assert await serving.client.find(path) is not None
    deployments = f"/apis/apps/v1/namespaces/{serving.namespace}/deployments"
    assert await serving.client.find(f"{deployments}/llm-canary") is None
    # And what comes next is not held up either.
    attempt = (await serving.status())["attempt"]["id"]
    await serving.annotate({f"{DOMAIN}/retry": attempt})
    await admitted(serving, but=pod["metadata"]["uid"])
    await serving.client.patch(path, {"metadata": {"finalizers": None}}, MERGE)


async def test_readiness_that_comes_and_goes_is_no_progress_and_is_ended(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.load(15)
    await serving.upgrade(
        strategy=strategy({"replicas": 1, "hold": "8s"}),
        analysis={**quick_spec()["analysis"], "maxDuration": "12s"},
    )
    pod = await admitted(serving)

    async def is_ready(*, ready: bool) -> bool:
        if (await serving.status())["phase"] != "Canary":
            return True
        (now,) = await serving.canaries()
        return ("Ready", str(ready)) in [(c["type"], c["status"]) for c in conditions(now)]

    while (await serving.status())["phase"] == "Canary":
        await fault(pod, "HEALTH", "0")
        await serving.until(lambda: is_ready(ready=False), "the pod not ready")
        if (await serving.status())["phase"] != "Canary":
            break
        await fault(pod, "HEALTH", "off")
        await serving.until(lambda: is_ready(ready=True), "the pod ready")
        await asyncio.sleep(1)
    reason, message = await result(serving)
    assert reason == "NotSettled", message
    assert "spec.analysis.maxDuration (12s)" in message


@pytest.mark.parametrize("while_", ["paused", "waiting for approval", "halted"])
async def test_harm_wins_whatever_is_waited_for(serving: Serving, while_: str) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    step: dict[str, Any] = {"replicas": 1, "hold": "1s"}
    analysis = dict(quick_spec()["analysis"])
    if while_ == "halted":
        analysis["maxDuration"] = "3s"
    else:
        await serving.load(15)
    if while_ == "waiting for approval":
        step["approval"] = True
    if while_ == "paused":
        step["hold"] = "100s"
    await serving.upgrade(strategy=strategy(step), analysis=analysis)
    pod = await admitted(serving)
    if while_ == "paused":
        await serving.set_spec({"paused": True})

    async def waits() -> bool:
        status = await serving.status()
        reconciling = condition(status, "Reconciling")
        return {
            "paused": "paused by spec.paused" in status["message"],
            "waiting for approval": reconciling == ("True", "WaitingForApproval"),
            "halted": condition(status, "Stalled") == ("True", "Inconclusive"),
        }[while_]

    await serving.until(waits, while_)
    await fault(pod, "EXIT_CODE", "7")
    reason, message = await result_after(serving)
    assert reason == "ContainerExited"
    assert "exit code 7" in message


async def result_after(serving: Serving) -> tuple[str, str]:
    """As `result`, from `Halted` on too."""
    await serving.phase("RolledBack", passing=("Halted",))
    return await result(serving)
