"""Candidates that cannot start: each ends with a reason of its own and what to do about it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.kit import condition, quick_spec, target_manifest

if TYPE_CHECKING:
    from tests.cluster.kit import Serving

pytestmark = pytest.mark.cluster

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}


def candidate(**env: str) -> dict[str, Any]:
    """The quick candidate with these variables."""
    found: dict[str, Any] = copy.deepcopy(quick_spec()["candidate"])
    found["env"] += [{"name": name, "value": value} for name, value in env.items()]
    return found


def strategy(**changes: Any) -> dict[str, Any]:
    return {**quick_spec()["strategy"], **changes}


async def never_in_traffic(serving: Serving) -> None:
    """The target is as it was, and nothing of the canary is left."""
    target = await serving.target()
    container = target["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "sim/vllm:0.28.0"
    assert await serving.canaries() == []
    status = await serving.status()
    assert "CanaryVerified" not in [e["reason"] for e in status["timeline"]]


async def rolled_back(serving: Serving, reason: str, *says: str) -> str:
    """Wait for the end; it must have this reason and say these things."""
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", reason), status["message"]
    for words in says:
        assert words in status["message"]
    assert reason in [r for r, _, _ in await serving.events()]
    return str(status["message"])


@dataclass(frozen=True)
class Case:
    """A candidate, and what must be said of it."""

    candidate: dict[str, Any]
    reason: str
    says: tuple[str, ...]
    spec: dict[str, Any] = field(default_factory=dict)


AT_ONCE: dict[str, Case] = {
    "unknown flag": Case(
        {
            "image": "sim/vllm:0.29.0",
            "args": [{"flag": "max-num-active-seqs", "value": "s3cret"}],
        },
        "UnknownFlag",
        ("does not know --max-num-active-seqs", "exit code 2", "spec.candidate.unsetArgs"),
    ),
    "unsupported architecture": Case(
        candidate(SIM_ARCHITECTURE="NoSuchForCausalLM"),
        "UnsupportedArchitecture",
        ("NoSuchForCausalLM", "use an image that does"),
    ),
    "forced V2 without what it needs": Case(
        # Without a version: preflight would block what it knows of 0.29.
        {
            "image": "sim/vllm:0.29.0",
            "env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}],
            "args": [{"flag": "kv-sharing-fast-prefill"}],
        },
        "RunnerImpossible",
        ("V2 does not yet support: KV sharing fast prefill", "unset VLLM_USE_V2_MODEL_RUNNER"),
    ),
    "forced V2 without Triton": Case(
        candidate(SIM_TRITON="0"), "TritonMissing", ("no Triton", "unset VLLM_USE_V2_MODEL_RUNNER")
    ),
    "image name": Case(
        {"image": "sim/vllm:0.29.0:twice"},
        "InvalidImageName",
        ("cannot be parsed", "correct spec.candidate.image"),
    ),
    "no such image": Case(
        {"image": "sim/missing:1"}, "ImageNotFound", ("sim/missing:1", "push the image")
    ),
    "manifest unknown": Case(
        {"image": "sim/manifest-unknown:1"}, "ImageNotFound", ("manifest unknown",)
    ),
    "out of memory": Case(
        candidate(SIM_OOM_WHILE_LOADING="1"),
        "OutOfMemory",
        ("while loading", "OOMKilled", "exit code 137", "memory limit"),
    ),
    "no room for the KV cache": Case(
        {**candidate(), "args": [{"flag": "num-gpu-blocks-override", "value": "1"}]},
        "KVCacheTooSmall",
        ("tokens)", "lower max-model-len"),
    ),
    "another version": Case(
        candidate(SIM_FAULT_VERSION="0.1.2"),
        "VersionMismatch",
        ("answers version 0.1.2", "says 0.29.0"),
    ),
}


@pytest.mark.parametrize("name", AT_ONCE)
async def test_what_cannot_start_ends_at_once(serving: Serving, name: str) -> None:
    """Not at the deadlines: those are longer here than the test waits."""
    case = AT_ONCE[name]
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    late = strategy(scheduleDeadline="10m", startDeadline="10m")
    await serving.upgrade(candidate=case.candidate, strategy=late)
    message = await rolled_back(serving, case.reason, *case.says)
    assert "s3cret" not in message
    await never_in_traffic(serving)


async def test_a_fallback_is_another_thing_than_a_forced_runner_that_is_impossible(
    serving: Serving,
) -> None:
    """The same feature without the force: it starts, on V1, and that is what is said."""
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.upgrade(
        candidate={
            "image": "sim/vllm:0.29.0",
            "args": [{"flag": "kv-sharing-fast-prefill"}],
            "unsetEnv": ["VLLM_USE_V2_MODEL_RUNNER"],
        },
        runner={"expected": "V2", "onMismatch": "Rollback"},
    )
    await rolled_back(
        serving, "RunnerMismatch", "runs V1, expected V2", "falls back for: KV sharing fast prefill"
    )


async def test_a_pod_without_room_ends_at_the_schedule_deadline(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    found = candidate()
    found["templatePatch"] = {"spec": {"nodeSelector": {"there-is": "no-such-node"}}}
    await serving.upgrade(candidate=found, strategy=strategy(scheduleDeadline="6s"))

    async def said() -> bool:
        status = await serving.status()
        return condition(status, "CapacityAvailable") == ("False", "Unschedulable")

    await serving.until(said, "CapacityAvailable=False")
    message = await rolled_back(
        serving, "NoCapacity", "cannot be scheduled: 0/", "6 s are given", "add nodes"
    )
    assert "node affinity/selector" in message
    await never_in_traffic(serving)


async def test_an_image_that_cannot_be_pulled_now_is_waited_for(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.upgrade(
        candidate={"image": "sim/unreachable:1"}, strategy=strategy(scheduleDeadline="8s")
    )

    async def said() -> bool:
        message = (await serving.status()).get("message") or ""
        return "its image cannot be pulled" in message and "; until " in message

    await serving.until(said, "the pull error in status.message")
    await rolled_back(serving, "ImagePull", "its image cannot be pulled", "8 s are given")
    await never_in_traffic(serving)


async def test_a_quota_is_named_at_once_and_ends_it_at_the_schedule_deadline(
    serving: Serving,
) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.client.create(
        f"/api/v1/namespaces/{serving.namespace}/resourcequotas",
        {"metadata": {"name": "no-more-pods"}, "spec": {"hard": {"pods": "1"}}},
    )

    async def counted() -> bool:
        found = await serving.client.get(
            f"/api/v1/namespaces/{serving.namespace}/resourcequotas/no-more-pods"
        )
        return bool(found.get("status", {}).get("used", {}).get("pods") == "1")

    await serving.until(counted, "the quota to be in force")
    await serving.upgrade(strategy=strategy(scheduleDeadline="8s"))

    async def said() -> bool:
        message = (await serving.status()).get("message") or ""
        return "0 of 1 ready; no more can be created" in message and "no-more-pods" in message

    await serving.until(said, "the quota in status.message")
    assert condition(await serving.status(), "CapacityAvailable") == ("False", "PodsNotCreated")
    await rolled_back(
        serving, "QuotaExceeded", "exceeded quota: no-more-pods", "raise the ResourceQuota"
    )
    await never_in_traffic(serving)


async def test_a_silent_start_ends_at_the_start_deadline(serving: Serving) -> None:
    await serving.deploy(env=PINNED_TO_V1, replicas=1)
    await serving.upgrade(
        candidate=candidate(SIM_LOAD_SECONDS="600"), strategy=strategy(startDeadline="8s")
    )
    await rolled_back(
        serving,
        "StartDeadlineExceeded",
        "starting the engine",
        "8 s are given",
        "raise spec.strategy.startDeadline",
    )
    await never_in_traffic(serving)


async def test_a_start_has_the_time_that_its_own_probes_give_it(serving: Serving) -> None:
    """The deadline is shorter than the start: the startup probe, which is longer, counts."""
    manifest = with_probe({"periodSeconds": 1, "failureThreshold": 60})
    await serving.serve(manifest)
    await serving.load(10)
    await serving.upgrade(
        candidate=candidate(SIM_LOAD_SECONDS="8"), strategy=strategy(startDeadline="3s")
    )
    await serving.phase("Canary")
    reasons = [e["reason"] for e in (await serving.status())["timeline"]]
    assert "CanaryVerified" in reasons
    assert "StartDeadlineExceeded" not in reasons


async def test_a_probe_that_kills_a_slow_start_is_no_crash(serving: Serving) -> None:
    """The kubelet tries again, so it is waited for; at the end it is said what happened."""
    await serving.serve(with_probe({"periodSeconds": 1, "failureThreshold": 60}))
    slow = candidate(SIM_LOAD_SECONDS="600")
    # The candidate's alone: on a busy machine a good start takes longer too.
    hasty = {"name": "vllm", "startupProbe": {"failureThreshold": 3}}
    slow["templatePatch"] = {"spec": {"containers": [hasty]}}
    await serving.upgrade(candidate=slow, strategy=strategy(startDeadline="14s"))

    async def restarted() -> bool:
        status = await serving.status()
        return "killed it for its startup probe" in (status.get("message") or "")

    await serving.until(restarted, "the killed start in status.message")
    assert (await serving.status())["phase"] == "Starting"
    message = await rolled_back(
        serving,
        "StartupTooSlow",
        "while it was still starting",
        "its probes allow 3 s",
        "failureThreshold",
    )
    assert "ended with exit code" not in message
    await never_in_traffic(serving)


def with_probe(probe: dict[str, Any]) -> dict[str, Any]:
    """A target with one pod and a startup probe."""
    manifest = target_manifest("sim/vllm:0.28.0", 1, (), PINNED_TO_V1, 0)
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["startupProbe"] = {"httpGet": {"path": "/health", "port": "http"}, **probe}
    return manifest
