"""Promotion and bake on a real control plane: no room, another image, and harm in the end."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.faults import fault
from tests.cluster.kit import condition, quick_spec, target_manifest, wide
from vllm_upgrade_operator.cluster.client import MERGE

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def target(replicas: int = 2, min_ready_seconds: int = 0) -> dict[str, Any]:
    return target_manifest("sim/vllm:0.28.0", replicas, (), PINNED_TO_V1, min_ready_seconds)


def brief(**strategy: Any) -> dict[str, Any]:
    """An upgrade that is promoted as soon as there is any evidence."""
    spec = quick_spec()
    return {
        "strategy": {
            **spec["strategy"],
            "steps": [{"replicas": 1, "hold": "1s"}],
            "bake": "2s",
            **strategy,
        },
        "analysis": {
            **spec["analysis"],
            "warmup": {"duration": "1s", "requests": 1},
            "minRequests": 5,
            # Slow tokens must show beside the wide limits of the others.
            "checks": wide(*({"name": f"{n}-p99", "maxIncrease": "100%"} for n in ("itl", "e2e"))),
        },
    }


def timeline(status: dict[str, Any]) -> list[str]:
    return [entry["reason"] for entry in status["timeline"]]


def told(status: dict[str, Any], reason: str) -> str:
    return next(str(e["message"]) for e in status["timeline"] if e["reason"] == reason)


async def replica_sets(serving: Serving) -> dict[str, int]:
    """The target's ReplicaSets by UID, with their replicas."""
    path = f"/apis/apps/v1/namespaces/{serving.namespace}/replicasets"
    found = (await serving.client.get(path, labelSelector="app=llm"))["items"]
    return {s["metadata"]["uid"]: s["spec"]["replicas"] for s in found}


# Room.


def on_a_port_of_its_node(deployment: dict[str, Any], port: int) -> dict[str, Any]:
    """There are two nodes, so there is room for two such pods."""
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    container["ports"][0]["hostPort"] = port
    return deployment


@pytest.mark.parametrize("limit", ["nodes", "quota"])
async def test_the_canary_makes_room_for_the_promotion(serving: Serving, limit: str) -> None:
    deployment = target(replicas=1)
    if limit == "nodes":
        deployment = on_a_port_of_its_node(deployment, 30717)
    else:
        await serving.client.create(
            f"/api/v1/namespaces/{serving.namespace}/resourcequotas",
            {"metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}},
        )
    await serving.serve(deployment)
    load = await serving.load(10)
    await serving.upgrade(**brief())
    await serving.phase("Promoting")
    (canary,) = await serving.canaries()
    await serving.phase("Succeeded")
    status = await serving.status()
    report = await load.stop()

    reasons = timeline(status)
    assert reasons.index("Promoting") < reasons.index("CanaryReleased")
    assert reasons.index("CanaryReleased") < reasons.index("TargetRolled")
    assert reasons.count("CanaryReleased") == 1
    message = told(status, "CanaryReleased")
    assert canary["metadata"]["name"] in message
    assert ("free ports" if limit == "nodes" else "exceeded quota") in message
    (pod,) = await serving.pods("app=llm")
    assert pod["spec"]["containers"][0]["image"] == "sim/vllm:0.29.0"
    # It was drained before it was deleted.
    outcomes = report["pods"][canary["metadata"]["name"]]["outcomes"]
    assert {k for k, v in outcomes.items() if v} == {"ok"}


async def test_without_room_promotion_ends_at_the_schedule_deadline(serving: Serving) -> None:
    """Somebody else takes the room that the canary has made."""
    await serving.serve(on_a_port_of_its_node(target(replicas=1), 30718))
    before = await replica_sets(serving)
    await serving.load(10)
    await serving.upgrade(**brief(scheduleDeadline="12s"))
    await serving.phase("Promoting")
    greedy = on_a_port_of_its_node(target(replicas=2), 30718)
    greedy["metadata"]["name"] = "greedy"
    greedy["spec"]["selector"] = {"matchLabels": {"app": "greedy"}}
    template = greedy["spec"]["template"]
    template["metadata"]["labels"] = {"app": "greedy"}
    await serving.client.create(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {
            "metadata": {"name": f"{serving.namespace}-greedy"},
            "value": 1000,
            "preemptionPolicy": "Never",
        },
    )
    template["spec"]["priorityClassName"] = f"{serving.namespace}-greedy"
    path = f"/apis/apps/v1/namespaces/{serving.namespace}/deployments"
    await serving.client.create(path, greedy)
    await serving.phase("RolledBack")
    status = await serving.status()
    await serving.client.delete(
        f"/apis/scheduling.k8s.io/v1/priorityclasses/{serving.namespace}-greedy"
    )
    assert condition(status, "RolledBack") == ("True", "NoCapacity")
    assert "cannot be scheduled" in status["message"]
    assert "CanaryReleased" in timeline(status)
    after = await replica_sets(serving)
    assert {uid: n for uid, n in after.items() if n} == before


# What is not begun.


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        (
            {"strategy": {"type": "Recreate"}},
            "StrategyRecreate",
            ("strategy Recreate", "spec.strategy.type: RollingUpdate"),
        ),
        ({"paused": True}, "TargetPaused", ("spec.paused true", "rollout resume deployment/llm")),
    ],
)
async def test_a_target_that_cannot_be_rolled_is_blocked(
    serving: Serving, change: dict[str, Any], reason: str, words: tuple[str, ...]
) -> None:
    await serving.serve(target(replicas=1))
    path = f"/apis/apps/v1/namespaces/{serving.namespace}/deployments/llm"
    # A strategy's other parameters go with its type.
    replaced = {"spec": {"strategy": {"rollingUpdate": None}, **change}}
    if "strategy" in change:
        replaced["spec"]["strategy"] = {"rollingUpdate": None, **change["strategy"]}
    await serving.client.patch(path, replaced, MERGE)
    await serving.upgrade()
    await serving.phase("Blocked")
    status = await serving.status()
    assert timeline(status)[-1] == reason
    assert condition(status, "Finished") == ("True", "Blocked")
    for word in words:
        assert word in status["message"]
    assert await serving.canaries() == []


# Harm.


async def harmed(serving: Serving, phase: str, name: str, value: str) -> dict[str, Any]:
    """Give a promoted pod a fault in that phase; the target must come back as it was."""
    before = (await serving.target())["spec"]
    sets = await replica_sets(serving)
    await serving.phase(phase)

    async def promoted() -> list[dict[str, Any]]:
        pods = await serving.pods("app=llm,vllmupgrade.dev/role=canary,!vllmupgrade.dev/canary")
        return [p for p in pods if _is_ready(p)]

    await serving.until(promoted, "a promoted pod that is ready")
    for pod in [(await promoted())[0], *await serving.canaries()]:
        await fault(pod, name, value)
    await serving.phase("RolledBack")
    after = (await serving.target())["spec"]
    assert after["template"] == before["template"]
    assert after["replicas"] == before["replicas"]
    assert {uid for uid, n in (await replica_sets(serving)).items() if n} == set(sets)
    status = await serving.status()
    pods = await serving.pods("app=llm")
    assert {_digest(p) for p in pods} == set(status["knownGood"]["digests"])
    assert len(pods) == before["replicas"]
    assert await serving.canaries() == []
    return status


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _digest(pod: dict[str, Any]) -> str:
    return str(pod["status"]["containerStatuses"][0]["imageID"].rpartition("@")[2])


HARM = {
    "pod": (("EXIT_CODE", "9"), "ContainerExited", "exit code 9"),
    # vLLM 0.29 does not count rejections, so that any 5xx may be one.
    "hard limit": (
        ("ERROR_FRACTION", "0.5"),
        "CheckFailed",
        r"check (rejections|errors): .* beyond .*the limit of 10%",
    ),
    "comparison": (("DECODE_FACTOR", "6"), "CheckFailed", r"check (ttft|itl|e2e)-p99: .*stable"),
}


# A hard limit that is broken during promotion: tests/cluster/test_main_job.py.
@pytest.mark.parametrize("harm", ["pod", "comparison"])
async def test_harm_during_promotion_puts_known_good_back(serving: Serving, harm: str) -> None:
    given, reason, words = HARM[harm]
    await serving.serve(target(min_ready_seconds=10))
    await serving.load(10)
    await serving.upgrade(**brief())
    status = await harmed(serving, "Promoting", *given)
    assert condition(status, "RolledBack") == ("True", reason)
    assert re.search(words, status["message"])
    assert "TargetRolled" not in timeline(status)


@pytest.mark.parametrize("harm", HARM)
async def test_harm_while_baking_puts_known_good_back(serving: Serving, harm: str) -> None:
    given, reason, words = HARM[harm]
    await serving.serve(target())
    await serving.load(10)
    await serving.upgrade(**brief(bake="60s"))
    status = await harmed(serving, "Baking", *given)
    assert condition(status, "RolledBack") == ("True", reason)
    assert re.search(words, status["message"])
    assert "TargetRolled" in timeline(status)
