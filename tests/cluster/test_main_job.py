"""The main job on a real control plane: a canary is rolled, judged, and promoted or withdrawn."""

from __future__ import annotations

import asyncio
import copy
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localcluster import build
from tests.cluster.kit import DOMAIN, condition, quick_spec, run
from vllm_upgrade_operator.upgrade.times import seconds

if TYPE_CHECKING:
    from tests.cluster.kit import Serving
    from vllm_upgrade_operator.cluster.client import Client

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def labels(pods: list[dict[str, Any]], key: str) -> list[str | None]:
    return [p["metadata"]["labels"].get(f"{DOMAIN}/{key}") for p in pods]


def uids(pods: list[dict[str, Any]]) -> set[str]:
    return {p["metadata"]["uid"] for p in pods}


def spec_of(target: dict[str, Any]) -> dict[str, Any]:
    """What of a target must come back as it was."""
    return {"template": target["spec"]["template"], "replicas": target["spec"]["replicas"]}


async def test_a_good_canary_is_promoted(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1)
    before = await serving.target()
    load = await serving.load(20)
    steps = [
        {"replicas": 1, "hold": "6s"},
        {"percent": 50, "hold": "4s", "approval": True},
    ]
    await serving.upgrade(strategy={**quick_spec()["strategy"], "steps": steps})

    async def canary_is_labelled() -> bool:
        found = await serving.canaries()
        return bool(found) and labels(found, "active-runner") == ["v2"]

    await serving.until(canary_is_labelled, "the canary labelled with its runner")
    stable = await serving.pods("app=llm,!vllmupgrade.dev/canary")
    assert labels(stable, "active-runner") == ["v1"] * 4
    assert labels(stable, "role") == ["stable"] * 4
    assert labels(await serving.canaries(), "role") == ["canary"]

    async def asks() -> bool:
        found = condition(await serving.status(), "Reconciling")
        return found == ("True", "WaitingForApproval")

    await serving.until(asks, "the second step waiting for approval")
    status = await serving.status()
    assert len(await serving.canaries()) == 2
    assert spec_of(await serving.target()) == spec_of(before)
    token = f"{status['attempt']['id']}.2"
    assert token in status["message"]
    await asyncio.sleep(2)
    assert (await serving.status())["phase"] == "Canary"
    await serving.annotate({f"{DOMAIN}/approve": token, f"{DOMAIN}/approved-by": "admin"})
    await serving.phase("Succeeded")

    report = await load.stop()
    canary_pods = {name for name in report["pods"] if name.startswith("llm-canary")}
    assert canary_pods
    for name in canary_pods:
        pod = report["pods"][name]
        assert pod["first_accepted"] >= seconds_of_timeline(status, "CanaryVerified")
    final = await serving.status()
    held = seconds_of_timeline(final, "StepPassed") - seconds_of_timeline(final, "StepAdmitted")
    assert held >= 6.0
    after = await serving.target()
    expected = copy.deepcopy(before["spec"]["template"])
    container = expected["spec"]["containers"][0]
    container["image"] = "sim/vllm:0.29.0"
    for variable in container["env"]:
        if variable["name"] == "VLLM_USE_V2_MODEL_RUNNER":
            variable["value"] = "1"
    assert after["spec"]["template"] == expected
    assert after["spec"]["replicas"] == 4
    assert await serving.canaries() == []
    pods = await serving.pods("app=llm")
    assert labels(pods, "active-runner") == ["v2"] * 4
    assert labels(pods, "role") == ["stable"] * 4
    assert labels(pods, "version") == ["0.29.0"] * 4
    assert condition(final, "Promoted") == ("True", "Promoted")
    assert condition(final, "Finished") == ("True", "Promoted")
    assert condition(final, "Ready") == ("True", "Promoted")
    assert final["runners"]["fallbackRatio"] == "0%"
    reasons = [reason for reason, _, _ in await serving.events()]
    assert "Promoted" in reasons
    assert reasons.index("CanaryVerified") < reasons.index("Promoting") < reasons.index("Promoted")


async def test_people_and_scripts_can_follow_it_with_kubectl(serving: Serving) -> None:
    """And the target stays helm's: its chart can be upgraded as before."""
    await serving.helm("sim/vllm:0.28.0", {**PINNED_TO_V1, "GOES": "1"})
    await serving.load(20)
    kubectl = build.kubectl()
    at = ("--namespace", serving.namespace)
    await serving.upgrade()
    for condition_type in ("Finished", "Promoted"):
        await run(
            *(kubectl, *at, "wait", f"--for=condition={condition_type}", "vllmupgrade/up"),
            "--timeout=100s",
            seconds=120,
        )
    header, row = (await run(kubectl, *at, "get", "vu")).splitlines()
    assert header.split() == [
        *("NAME", "TARGET", "PHASE", "STEP", "CANARY", "RUNNER", "VERDICT", "MESSAGE", "AGE")
    ]
    assert row.split()[:7] == ["up", "llm", "Succeeded", "1/1", "0/0", "V2", "Pass"]
    events = await run(kubectl, *at, "events", "--for", "vllmupgrade/up")
    for reason in ("KnownGoodRecorded", "CanaryVerified", "Promoting", "Promoted"):
        assert reason in events
    pods = await run(kubectl, *at, "get", "pods", "--label-columns", f"{DOMAIN}/active-runner")
    assert [line.split()[-1] for line in pods.splitlines()[1:]] == ["v2", "v2"]

    await serving.helm("sim/vllm:0.29.0", {"VLLM_USE_V2_MODEL_RUNNER": "1", "COMES": "1"})
    container = (await serving.target())["spec"]["template"]["spec"]["containers"][0]
    names = {variable["name"] for variable in container["env"]}
    assert "COMES" in names
    assert "GOES" not in names
    assert container["image"] == "sim/vllm:0.29.0"


def seconds_of_timeline(status: dict[str, Any], reason: str) -> float:
    return next(seconds(e["time"]) for e in status["timeline"] if e["reason"] == reason)


BREACHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rejections": (
        {"args": [{"flag": "max-num-queued-reqs", "value": "1"}]},
        {"name": "rejections", "max": "5%"},
    ),
    "queue": (
        {"args": [{"flag": "max-num-seqs", "value": "1"}]},
        {"name": "queue", "max": 8},
    ),
    "ttft-p99": (
        {"env": [{"name": "SIM_FAULT_PREFILL_FACTOR", "value": "12"}]},
        {"name": "ttft-p99", "max": "1s", "maxIncrease": "50%"},
    ),
}


@pytest.mark.parametrize(
    ("check", "options"),
    [("rejections", {}), ("queue", {"keep_alive": ""}), ("ttft-p99", {"no_stream": ""})],
)
async def test_a_breach_withdraws_the_canary_and_leaves_stable_alone(
    serving: Serving, check: str, options: dict[str, str]
) -> None:
    change, limit = BREACHES[check]
    await serving.deploy(env=PINNED_TO_V1)
    before = await serving.target()
    stable = uids(await serving.pods("app=llm"))
    late = "keep_alive" in options
    if not late:
        await serving.load(30, **options)
    spec = quick_spec()
    candidate = {**spec["candidate"], **{k: v for k, v in change.items() if k != "env"}}
    candidate["env"] = [*spec["candidate"]["env"], *change.get("env", [])]
    others = [
        {"name": name, "mode": "Disabled"}
        for name in ("rejections", "queue", "ttft-p99", "itl-p99", "e2e-p99", "kv", "preemptions")
        if name != check
    ]
    spec["strategy"]["steps"] = [{"replicas": 1, "hold": "60s"}]
    await serving.upgrade(
        candidate=candidate,
        strategy=spec["strategy"],
        analysis={**spec["analysis"], "checks": [limit, *others]},
    )
    if late:
        # Clients that keep their connections stay where they are: these come after the canary.
        async def admitted() -> bool:
            return bool((await serving.status()).get("canary", {}).get("admitted"))

        await serving.until(admitted, "the canary in the traffic")
        await serving.load(30, **options)
    await serving.phase("RolledBack")
    status = await serving.status()
    report = await serving.loads[0].stop()

    assert condition(status, "RolledBack") == ("True", "CheckFailed")
    message = status["message"]
    assert f"check {check}" in message
    assert re.search(r"check \S+: .+ \d\S*( \(stable \d\S*\))?, beyond .*the limit of \d", message)
    assert re.search(r"in \d+ requests?", message)
    assert uids(await serving.pods("app=llm")) == stable
    assert spec_of(await serving.target()) == spec_of(before)
    assert await serving.canaries() == []
    withdrawn = seconds_of_timeline(status, "CheckFailed")
    ended = seconds_of_timeline(status, "RolledBack")
    for name, pod in report["pods"].items():
        if name.startswith("llm-canary"):
            # Routers learn of it within a second; afterwards only connections that are drained.
            assert pod["last_accepted_new"] <= withdrawn + 2.0
            assert pod["last_accepted"] < ended
    revisions = await serving.client.get(
        f"/apis/apps/v1/namespaces/{serving.namespace}/controllerrevisions"
    )
    assert revisions["items"] == []


@pytest.mark.parametrize(
    ("policy", "end"), [("Halt", "Halted"), ("Rollback", "RolledBack"), ("Allow", "Succeeded")]
)
async def test_a_runner_that_is_not_expected(serving: Serving, policy: str, end: str) -> None:
    """0.29 falls back where Triton is missing; the label says what runs, not what was asked."""
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    load = await serving.load(20)
    candidate = {
        "image": "sim/vllm:0.29.0",
        "env": [{"name": "SIM_TRITON", "value": "0"}],
        "unsetEnv": ["VLLM_USE_V2_MODEL_RUNNER"],
    }
    await serving.upgrade(candidate=candidate, runner={"expected": "V2", "onMismatch": policy})
    await serving.phase(end)
    status = await serving.status()
    report = await load.stop()
    reached = [name for name in report["pods"] if name.startswith("llm-canary")]
    assert bool(reached) == (policy == "Allow")
    assert status["runners"]["fallbackRatio"] == "100%"
    if policy == "Halt":
        assert condition(status, "Stalled") == ("True", "RunnerMismatch")
        assert "triton" in status["message"]
        assert labels(await serving.canaries(), "active-runner") == ["v1"]


async def test_a_decided_exception_goes_on_and_is_counted(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.load(20)
    exception = {
        "feature": "triton",
        "reason": "no Triton on this platform yet",
        "owner": "platform",
        "retestAfter": "2999-01-01",
    }
    await serving.upgrade(
        candidate={
            "image": "sim/vllm:0.29.0",
            "env": [{"name": "SIM_TRITON", "value": "0"}],
            "unsetEnv": ["VLLM_USE_V2_MODEL_RUNNER"],
        },
        runner={"expected": "V2", "onMismatch": "Halt", "exceptions": [exception]},
    )
    await serving.phase("Succeeded")
    status = await serving.status()
    assert status["runners"]["fallbackRatio"] == "100%"
    assert labels(await serving.pods("app=llm"), "active-runner") == ["v1", "v1"]


async def test_a_breach_during_promotion_puts_known_good_back(serving: Serving) -> None:
    """The canary turns bad while the target rolls, which `minReadySeconds` makes last."""
    await serving.deploy(env=PINNED_TO_V1, min_ready_seconds=20)
    before = await serving.target()
    await serving.load(30)
    spec = quick_spec()
    candidate = copy.deepcopy(spec["candidate"])
    candidate["env"].append({"name": "SIM_FAULT_MAX_QUEUED_REQS", "value": "0@30"})
    await serving.upgrade(candidate=candidate, strategy=spec["strategy"])
    await serving.phase("Promoting")
    await serving.phase("RolledBack")
    status = await serving.status()
    phases = [e["phase"] for e in status["timeline"]]
    assert phases.index("Promoting") < phases.index("RollingBack")
    assert "Baking" not in phases
    after = await serving.target()
    assert spec_of(after) == spec_of(before)
    sets = await serving.client.get(
        f"/apis/apps/v1/namespaces/{serving.namespace}/replicasets", labelSelector="app=llm"
    )
    serving_sets = [s for s in sets["items"] if s["spec"]["replicas"] > 0]
    assert [s["spec"]["template"]["spec"]["containers"][0]["image"] for s in serving_sets] == [
        "sim/vllm:0.28.0"
    ]
    pods = await serving.pods("app=llm")
    assert len(pods) == 4
    running = {p["status"]["containerStatuses"][0]["imageID"].rpartition("@")[2] for p in pods}
    assert running == set(status["knownGood"]["digests"])
    assert await serving.canaries() == []


@pytest.mark.parametrize("during", ["Canary", "Promoting"])
async def test_an_operator_that_is_killed_goes_on_where_it_was(
    serving: Serving, during: str
) -> None:
    await serving.deploy(env=PINNED_TO_V1, min_ready_seconds=3)
    await serving.load(20)
    await serving.upgrade()
    await serving.phase(during)
    attempt = (await serving.status())["attempt"]
    canary = await serving.client.get(
        f"/apis/apps/v1/namespaces/{serving.namespace}/deployments/llm-canary"
    )
    await asyncio.sleep(2)
    await kill_the_operator(serving.client)
    await serving.phase("Succeeded")
    status = await serving.status()
    assert status["attempt"] == attempt
    phases = [e["phase"] for e in status["timeline"] if e["reason"] != "StepAdmitted"]
    assert phases.count("Promoting") == 1
    assert "RollingBack" not in phases
    # A second canary would be another object, with another UID in its pods' owners.
    sets = await serving.client.get(f"/apis/apps/v1/namespaces/{serving.namespace}/deployments")
    assert [d["metadata"]["name"] for d in sets["items"]] == ["llm"]
    reasons = [reason for reason, _, _ in await serving.events()]
    assert reasons.count("Promoting") <= 1
    assert canary["metadata"]["ownerReferences"][0]["name"] == "up"


async def kill_the_operator(client: Client) -> None:
    """SIGKILL: the process has no chance to tidy up.

    Its pod goes too, so that its Deployment makes another at once: started again in place it
    would wait longer each time, and all the tests of this cluster with it.
    """
    assert _kill_processes("vllm_upgrade_operator"), "the operator does not run"
    await client.delete(
        "/api/v1/namespaces/vllm-upgrade-system/pods",
        labelSelector="app.kubernetes.io/name=vllm-upgrade-operator",
        gracePeriodSeconds=0,
    )


def _kill_processes(named: str) -> int:
    """SIGKILL every process of the cluster with this in its command line; give their number."""
    found = [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and named.encode() in _command_line(entry)
    ]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


async def test_without_traffic_it_holds_and_is_never_promoted(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    before = await serving.target()
    spec = quick_spec()
    await serving.upgrade(analysis={**spec["analysis"], "maxDuration": "15s"})
    await serving.phase("Halted")
    status = await serving.status()
    assert condition(status, "Stalled") == ("True", "Inconclusive")
    assert condition(status, "Finished") is None
    assert spec_of(await serving.target()) == spec_of(before)


async def test_a_container_that_ends_is_acted_on_at_once(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=2)
    await serving.load(20)
    spec = quick_spec()
    candidate = copy.deepcopy(spec["candidate"])
    candidate["env"].append({"name": "SIM_FAULT_EXIT_CODE", "value": "7@6"})
    spec["strategy"]["steps"] = [{"replicas": 1, "hold": "60s"}]
    await serving.upgrade(candidate=candidate, strategy=spec["strategy"])
    await serving.phase("RolledBack")
    assert "exit code 7" in (await serving.status())["message"]
