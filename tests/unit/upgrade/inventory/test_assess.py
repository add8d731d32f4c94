"""What stands against a workload on another version, and how it is sorted and added up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.world import V1, V2, World
from tests.unit.vllm import shapes
from vllm_upgrade_operator.upgrade.inventory.assess import assess
from vllm_upgrade_operator.upgrade.inventory.row import (
    Endpoints,
    Row,
    Severity,
    in_order,
    totals,
)
from vllm_upgrade_operator.upgrade.inventory.workload import Workload
from vllm_upgrade_operator.upgrade.preflight.server import Release
from vllm_upgrade_operator.vllm.container import find_container
from vllm_upgrade_operator.vllm.model import Model
from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.versions import parse_version

GPU = {"limits": {"nvidia.com/gpu": "1"}}
LLAMA = Model("LlamaForCausalLM", 4096)
BOUNDED = ("--max-num-queued-reqs", "256")


def release(text: str) -> Release:
    return Release(version=parse_version(text), text=text, certain=True, how="")


def workload(*args: str, env: dict[str, str] | None = None, **parts: Any) -> Workload:
    """Two pods of 0.29 on V2, with a bounded queue; parts of the workload and of its pods."""
    container = {
        "name": "vllm",
        "image": "vllm/vllm-openai:v0.29.0",
        "args": ["--model", "m", *(args or BOUNDED)],
        "env": [{"name": n, "value": v} for n, v in (env or {}).items()],
        "resources": GPU,
    }
    pod = {"version": "0.29.0", "runner": V2, "model": LLAMA} | parts.pop("pod", {})
    base = World(replicas=2).of("llm")
    made: dict[str, Any] = {
        "namespace": "serving",
        "kind": "Deployment",
        "name": "llm",
        "owner": None,
        "pod_spec": {"containers": [container]},
        "container": container,
        "problem": None,
        "pods": tuple(replace(p, **pod) for p in base),
    }
    return Workload(**made | parts)


def reasons(row: Row) -> list[str]:
    return [f.reason for f in row.findings]


def test_a_workload_that_nothing_stands_against() -> None:
    row = assess(workload(), release("0.33.0"))
    assert row.findings == ()
    assert row.severity is Severity.NOTHING
    assert (row.version, row.version_from) == ("0.29.0", "observed")
    assert row.endpoints == Endpoints(v2=2)
    assert (row.predicted, row.predicted_certain) == (Runner.V2, True)
    assert row.architecture == "LlamaForCausalLM"
    assert row.limits == "max-num-queued-reqs=256"
    assert "vllm-upgrade preflight" in row.next_step


@pytest.mark.parametrize(
    ("args", "env", "target", "severity", "reason"),
    [
        (("--disable-log-requests",), {}, "0.29.0", Severity.CANNOT_START, "FlagUnknown"),
        (("--enable-bf16x3-router-gemm",), {}, "0.30.0", Severity.CANNOT_START, "FlagRemoved"),
        (
            ("--kv-sharing-fast-prefill",),
            {"VLLM_USE_V2_MODEL_RUNNER": "1"},
            "0.29.0",
            Severity.CANNOT_START,
            "RunnerImpossible",
        ),
        (
            ("--enable-batch-sharded-sampling", "-tp", "2"),
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
            "0.33.0",
            Severity.CANNOT_START,
            "RunnerImpossible",
        ),
        (
            ("--speculative-config", '{"method": "medusa", "num_speculative_tokens": 2}'),
            {},
            "0.33.0",
            Severity.CANNOT_START,
            "VerificationImpossible",
        ),
        (
            ("--num-gpu-blocks-override", "8", "--max-model-len", "4096"),
            {},
            "0.33.0",
            Severity.CANNOT_START,
            "KVCacheTooSmall",
        ),
        (("--kv-sharing-fast-prefill",), {}, "0.29.0", Severity.FALLS_BACK, "FallsBack"),
        (
            BOUNDED,
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
            "0.33.0",
            Severity.FALLS_BACK,
            "KeptOnV1",
        ),
        (("--seed", "1"), {}, "0.33.0", Severity.ADMISSION, "QueueUnbounded"),
        (("--max-num-queued-reqs", "0"), {}, "0.33.0", Severity.ADMISSION, "AllRejected"),
        (
            (*BOUNDED, "--disable-cascade-attn"),
            {},
            "0.33.0",
            Severity.ADVICE,
            "DeprecatedFlag",
        ),
        (
            (*BOUNDED, "--kv-cache-memory-bytes", "8G"),
            {},
            "0.33.0",
            Severity.ADVICE,
            "KVCacheFixed",
        ),
    ],
)
def test_how_severe_it_is(
    args: tuple[str, ...], env: dict[str, str], target: str, severity: Severity, reason: str
) -> None:
    row = assess(workload(*args, env=env), release(target))
    assert (row.severity, reasons(row)[0]) == (severity, reason)
    assert row.next_step == row.findings[0].message
    assert (row.predicted is Runner.UNKNOWN) == (severity is Severity.CANNOT_START)


def test_an_architecture_that_is_gone_cannot_start() -> None:
    row = assess(workload(pod={"model": Model("MPTForCausalLM")}), release("0.29.0"))
    assert (row.severity, reasons(row)[0]) == (Severity.CANNOT_START, "ArchitectureRemoved")


def test_findings_are_sorted_and_the_features_named() -> None:
    row = assess(
        workload("--kv-sharing-fast-prefill", "--no-such-flag"),
        release("0.29.0"),
    )
    assert [f.severity for f in row.findings] == sorted(
        (f.severity for f in row.findings), key=list(Severity).index
    )
    assert row.severity is Severity.CANNOT_START
    assert row.features == ("KV sharing fast prefill",)


def test_a_version_newer_than_any_known_is_judged_by_the_nearest() -> None:
    row = assess(workload("--no-such-flag"), release("0.40.0"))
    assert row.severity is Severity.CANNOT_START
    assert "by the facts of 0.33" in row.next_step
    assert not row.predicted_certain


def test_where_pods_say_no_version_the_tag_is_a_hint() -> None:
    row = assess(workload(pod={"version": None}), release("0.33.0"))
    assert (row.version, row.version_from) == ("0.29.0", "tag")
    starting = assess(workload(pod={"ready_at": None}), release("0.33.0"))
    assert starting.version_from == "tag"
    assert starting.endpoints == Endpoints()


def test_what_else_somebody_should_know() -> None:
    owned = assess(workload(owner="VLLMRuntime llama"), release("0.33.0"))
    assert reasons(owned) == ["OwnedByController"]
    assert "controlled by VLLMRuntime llama" in owned.next_step
    other = assess(workload(kind="StatefulSet"), release("0.33.0"))
    assert reasons(other) == ["KindNotSupported"]
    surprising = assess(workload(pod={"runner": V1}), release("0.33.0"))
    assert reasons(surprising) == ["NotAsPredicted"]
    assert surprising.endpoints == Endpoints(v1=2)


def test_pods_of_several_versions() -> None:
    found = workload()
    first, second = found.pods
    mixed = replace(found, pods=(first, replace(second, version="0.28.0")))
    row = assess(mixed, release("0.33.0"))
    assert reasons(row) == ["MixedVersions"]
    assert row.version_from == "tag"


def test_a_container_that_cannot_be_told_is_listed_with_why() -> None:
    found = workload(container=None, problem="more than one container runs vLLM (a, b): name one")
    row = assess(found, release("0.33.0"))
    assert (row.severity, reasons(row)) == (Severity.ADVICE, ["NotRecognised"])
    assert "name one" in row.next_step
    assert (row.version, row.architecture) == ("0.29.0", "LlamaForCausalLM")
    assert row.endpoints == Endpoints(v2=2)
    assert row.predicted is Runner.UNKNOWN


def test_what_a_config_map_says_is_read() -> None:
    spec = shapes.EKS_NEURON
    container = find_container(spec)
    blind = workload(pod_spec=spec, container=container)
    assert assess(blind, release("0.33.0")).limits == ""
    assert "FlagsUnread" in reasons(assess(blind, release("0.33.0")))
    told = {"vllm-settings": {"config.yaml": "max-num-queued-reqs: 8\n"}}
    row = assess(replace(blind, config_maps=told), release("0.33.0"))
    assert row.limits == "max-num-queued-reqs=8"
    assert "FlagsUnread" not in reasons(row)


SHAPES = {
    name: spec
    for name, spec in vars(shapes).items()
    if name.isupper() and isinstance(spec, dict) and "containers" in spec
}
REFUSED = {"RAY_SERVE", "DYNAMO", "KAITO"}


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - REFUSED))
def test_every_public_shape_is_assessed(name: str) -> None:
    spec = SHAPES[name]
    try:
        container = find_container(spec)
    except ValueError:
        pytest.fail(f"{name} is not recognised")
    found = workload(pod_spec=spec, container=container, pod={"version": None, "model": None})
    row = assess(found, release("0.33.0"))
    assert row.findings
    assert row.next_step


def test_the_most_severe_comes_first_and_all_are_added_up() -> None:
    gone = replace_name(assess(workload("--no-such-flag"), release("0.33.0")), "a", "z")
    fine = replace_name(assess(workload(), release("0.33.0")), "a", "b")
    slow = replace_name(
        assess(workload("--seed", "1", pod={"runner": V1}), release("0.33.0")), "b", "c"
    )
    blind = replace_name(assess(workload(pod={"runner": None}), release("0.33.0")), "a", "a")
    rows = in_order([fine, blind, slow, gone])
    assert [r.name for r in rows] == ["z", "c", "a", "b"]
    found = totals(rows)
    assert found.workloads == 4
    assert found.endpoints == Endpoints(v1=2, v2=4, unknown=2)
    assert found.endpoints.total == 8
    assert found.endpoints.fallback_ratio == pytest.approx(1 / 3)
    assert found.severities == {
        Severity.CANNOT_START: 1,
        Severity.FALLS_BACK: 0,
        Severity.ADMISSION: 1,
        Severity.ADVICE: 0,
        Severity.NOTHING: 2,
    }


def replace_name(row: Row, namespace: str, name: str) -> Row:
    return replace(row, namespace=namespace, name=name)


def test_without_a_runner_that_was_seen_there_is_no_ratio() -> None:
    assert Endpoints(unknown=3).fallback_ratio is None
    assert totals([]).endpoints.fallback_ratio is None
