"""What the candidate's version makes of what it is told. The stable pods are of 0.28."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from tests.unit.upgrade.preflight.asking import (
    BLOCK,
    PASS,
    UNKNOWN,
    WARN,
    ask,
    ask_of,
    new,
    old,
    seen,
)
from vllm_upgrade_operator.upgrade.surroundings import Node
from vllm_upgrade_operator.upgrade.times import seconds
from vllm_upgrade_operator.vllm.model import Model
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence

GPU = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
V1_OBSERVED = RunnerEvidence(runner=Runner.V1, how="")


def to(version: str | None, **runner: Any) -> dict[str, Any]:
    """A spec whose candidate states this version."""
    candidate = {"image": "x"} | ({} if version is None else {"version": version})
    return {"candidate": candidate, "runner": {"expected": "V2"} | runner}


def told(*args: str, image: str = "sim/vllm:0.29.0", **env: str) -> dict[str, Any]:
    variables = [{"name": n, "value": v} for n, v in env.items()]
    return new(image=image, args=["--model", "m", *args], env=variables, **GPU)


def stable(**parts: Any) -> dict[str, Any]:
    return old(args=["--model", "m"], **GPU, **parts)


def says(name: str, version: str | None, *args: str, **parts: Any) -> tuple[str, str]:
    check = ask(name, stable=stable(), candidate=told(*args), spec=to(version), **parts)
    return str(check.result), check.reason


def test_the_version_is_the_one_that_is_stated() -> None:
    assert says("version", "0.29.1rc1") == (PASS, "Passed")
    assert says("version", "0.34.0") == (WARN, "VersionNotCovered")
    assert says("version", None) == (WARN, "VersionNotStated")


@pytest.mark.parametrize("image", ["x/llm:latest", "x/llm:v0.9", "x/llm", "x/llm:2026-05"])
def test_a_tag_without_a_version_leaves_it_unknown(image: str) -> None:
    candidate = told(image=image)
    for name in (
        "version",
        "flags",
        "runner",
        "runner-possible",
        "admission",
        "speculative-decoding",
    ):
        check = ask(name, stable=stable(), candidate=candidate, spec=to(None))
        assert (check.result, check.reason) == (UNKNOWN, "VersionUnknown"), name


def test_vllms_own_release_is_known_by_its_tag() -> None:
    image = "docker.io/vllm/vllm-openai:v0.29.0-cu129"
    candidate = told("--no-such-flag", image=image)
    check = ask("flags", stable=stable(), candidate=candidate, spec=to(None))
    assert (check.result, check.reason) == (BLOCK, "FlagUnknown")


def test_any_other_tag_only_warns() -> None:
    check = ask("flags", stable=stable(), candidate=told("--no-such-flag"), spec=to(None))
    assert (check.result, check.reason) == (WARN, "FlagUnknown")
    assert check.message.startswith("if it is what the tag of its image says: ")


def test_facts_of_the_nearest_version_only_warn() -> None:
    check = ask("flags", stable=stable(), candidate=told("--no-such-flag"), spec=to("0.40.0"))
    assert (check.result, check.reason) == (WARN, "FlagUnknown")
    assert "by the facts of 0.33" in check.message


def test_the_same_image_has_the_version_that_its_pods_answer() -> None:
    candidate = old(args=["--model", "m", "--max-num-queued-reqs", "8"], **GPU)
    check = ask(
        "flags", stable=stable(), candidate=candidate, spec=to(None), pods={"version": "0.28.0"}
    )
    assert (check.result, check.reason) == (BLOCK, "FlagUnknown")


@pytest.mark.parametrize(
    ("version", "flag", "result", "reason"),
    [
        ("0.28.0", "--max-num-queued-reqs=8", BLOCK, "FlagUnknown"),
        ("0.29.0", "--max-num-queued-reqs=8", PASS, "Passed"),
        ("0.29.0", "--max_num_queued_reqs=8", PASS, "Passed"),
        ("0.29.0", "--max-num-active-seqs=8", BLOCK, "FlagUnknown"),
        ("0.31.0", "--max-num-active-seqs=8", PASS, "Passed"),
        ("0.29.0", "--enable-bf16x3-router-gemm", PASS, "Passed"),
        ("0.30.0", "--enable-bf16x3-router-gemm", BLOCK, "FlagRemoved"),
        ("0.33.0", "--disable-log-requests", BLOCK, "FlagUnknown"),
        ("0.29.0", "--max-num-seq=8", PASS, "Passed"),
        ("0.29.0", "--max-num=8", BLOCK, "FlagAmbiguous"),
    ],
)
def test_flags(version: str, flag: str, result: str, reason: str) -> None:
    assert says("flags", version, flag) == (result, reason)


def test_an_unknown_flag_is_named_with_the_versions_that_have_it_and_without_its_value() -> None:
    check = ask(
        "flags",
        stable=stable(),
        candidate=told("--max-num-active-seqs", "s3cret"),
        spec=to("0.29.0"),
    )
    assert "does not have --max-num-active-seqs (the first with it is 0.31)" in check.message
    assert "s3cret" not in check.message


def test_flags_in_a_script_that_cannot_be_read_are_unknown() -> None:
    script = new(command=["sh", "-c"], args=["vllm serve m $@"], **GPU)
    check = ask("flags", stable=stable(), candidate=script, spec=to("0.29.0"))
    assert (check.result, check.reason) == (UNKNOWN, "FlagsUnread")


@pytest.mark.parametrize(
    ("version", "name", "result", "reason"),
    [
        ("0.29.0", "LlamaForCausalLM", PASS, "Passed"),
        ("0.28.0", "MPTForCausalLM", PASS, "Passed"),
        ("0.29.0", "MPTForCausalLM", BLOCK, "ArchitectureRemoved"),
        ("0.33.0", "MPTForCausalLM", BLOCK, "ArchitectureRemoved"),
        ("0.29.0", "OurOwnForCausalLM", UNKNOWN, "ArchitectureUnknown"),
        ("0.29.0", None, UNKNOWN, "ArchitectureUnknown"),
    ],
)
def test_architectures(version: str, name: str | None, result: str, reason: str) -> None:
    pods = {"model": Model(name), "version": "0.28.0"}
    assert says("architecture", version, pods=pods) == (result, reason)


def test_the_architecture_of_another_model_is_not_known() -> None:
    candidate = new(args=["--model", "other"], **GPU)
    pods = {"model": Model("MPTForCausalLM")}
    check = ask("architecture", stable=stable(), candidate=candidate, spec=to("0.29.0"), pods=pods)
    assert check.reason == "ArchitectureUnknown"


def test_an_architecture_that_the_flags_name_wins() -> None:
    override = ("--hf-overrides", '{"architectures": ["MPTForCausalLM"]}')
    pods = {"model": Model("LlamaForCausalLM"), "version": "0.28.0"}
    assert says("architecture", "0.29.0", *override, pods=pods) == (BLOCK, "ArchitectureRemoved")


NGRAM = ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
MEDUSA = ("--speculative-config", '{"method": "medusa", "num_speculative_tokens": 3}')
FAST_PREFILL = ("--kv-sharing-fast-prefill",)


@pytest.mark.parametrize(
    ("version", "args", "env", "result", "reason"),
    [
        ("0.29.0", FAST_PREFILL, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, BLOCK, "RunnerImpossible"),
        ("0.32.0", FAST_PREFILL, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, PASS, "Passed"),
        ("0.29.0", FAST_PREFILL, {}, PASS, "Passed"),
        ("0.29.0", NGRAM, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, BLOCK, "RunnerImpossible"),
        ("0.33.0", NGRAM, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, PASS, "Passed"),
        (
            "0.29.0",
            ("--prefill-context-parallel-size", "2"),
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
            BLOCK,
            "RunnerImpossible",
        ),
        (
            "0.32.0",
            ("--enable-batch-sharded-sampling",),
            {"VLLM_USE_V2_MODEL_RUNNER": "0"},
            BLOCK,
            "RunnerImpossible",
        ),
    ],
)
def test_a_runner_that_lacks_what_is_asked_of_it(
    version: str, args: tuple[str, ...], env: dict[str, str], result: str, reason: str
) -> None:
    check = ask("runner-possible", stable=stable(), candidate=told(*args, **env), spec=to(version))
    assert (check.result, check.reason) == (result, reason)


DAY = seconds("2026-12-01T12:00:00Z")


def fallback(runner: dict[str, Any], version: str | None = "0.29.0", **env: str) -> tuple[str, str]:
    spec = to(version, **runner)
    check = ask_of(
        "runner",
        seen(stable=stable(), candidate=told(*FAST_PREFILL, **env), spec=spec),
        DAY,
    )
    return str(check.result), check.reason


def excepted(feature: str, until: str) -> dict[str, Any]:
    found = {"feature": feature, "reason": "r", "owner": "o", "retestAfter": until}
    return {"exceptions": [found]}


def test_a_fallback_needs_an_exception_that_holds() -> None:
    name = "KV sharing fast prefill"
    assert fallback({}) == (BLOCK, "FallbackNotExcepted")
    assert fallback({}, version=None) == (WARN, "FallbackNotExcepted")
    assert fallback({"onMismatch": "Allow"}) == (WARN, "Fallback")
    assert fallback({"expected": "V1"}) == (PASS, "Passed")
    assert fallback({"expected": "Any"}) == (PASS, "NotApplicable")
    assert fallback(excepted(name, "2026-12-01")) == (WARN, "FallbackExcepted")
    assert fallback(excepted(name.upper(), "2026-12-14")) == (WARN, "FallbackExcepted")
    assert fallback(excepted(name, "2026-11-30")) == (BLOCK, "FallbackNotExcepted")
    assert fallback(excepted("another", "2026-12-14")) == (BLOCK, "FallbackNotExcepted")


def test_a_runner_that_is_pinned_against_what_is_expected() -> None:
    pinned = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    check = ask("runner", stable=stable(), candidate=told(**pinned), spec=to("0.29.0"))
    assert (check.result, check.reason) == (BLOCK, "RunnerNotExpected")
    assert "VLLM_USE_V2_MODEL_RUNNER=0 forces it" in check.message


def test_a_runner_that_is_not_sure_blocks_nothing() -> None:
    """A ConfigMap that is not read may set the variable that chooses the runner."""
    there = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
    candidate = told(*FAST_PREFILL)
    candidate["spec"]["containers"][0] |= there
    check = ask("runner", stable=stable(), candidate=candidate, spec=to("0.29.0"))
    assert (check.result, check.reason) == (UNKNOWN, "RunnerUncertain")
    assert "VLLM_USE_V2_MODEL_RUNNER may be set" in check.message
    candidate = told(*FAST_PREFILL, "--enable-batch-sharded-sampling", "-tp", "2")
    candidate["spec"]["containers"][0] |= there
    check = ask("runner-possible", stable=stable(), candidate=candidate, spec=to("0.29.0"))
    assert (check.result, check.reason) == (UNKNOWN, "RunnerImpossible")


def test_a_fallback_for_a_feature_is_sure_whether_there_is_a_triton_or_not() -> None:
    args = ["--model", "m", *FAST_PREFILL]
    check = ask("runner", stable=old(args=args), candidate=new(args=args), spec=to("0.29.0"))
    assert (check.result, check.reason) == (BLOCK, "FallbackNotExcepted")


def test_a_fallback_that_cannot_be_told_is_unknown() -> None:
    """Without a GPU it is not known whether there is a Triton that works."""
    check = ask(
        "runner",
        stable=old(args=["--model", "m"]),
        candidate=new(args=["--model", "m"]),
        spec=to("0.29.0"),
    )
    assert (check.result, check.reason) == (UNKNOWN, "RunnerUncertain")
    assert "Triton" in check.message


def exceptions(version: str, runner: dict[str, Any], *args: str) -> tuple[str, str]:
    o = seen(stable=stable(), candidate=told(*args), spec=to(version, **runner))
    check = ask_of("runner-exceptions", o, DAY)
    return str(check.result), check.reason


def test_exceptions_are_looked_after() -> None:
    name = "KV sharing fast prefill"
    assert exceptions("0.29.0", {}) == (PASS, "NotApplicable")
    assert exceptions("0.29.0", excepted(name, "2026-12-14"), *FAST_PREFILL) == (PASS, "Passed")
    old_one = excepted(name, "2026-11-30")
    assert exceptions("0.29.0", old_one, *FAST_PREFILL) == (WARN, "ExceptionExpired")
    idle = excepted(name, "2026-12-14")
    assert exceptions("0.32.0", idle, *FAST_PREFILL) == (WARN, "ExceptionNotNeeded")


def test_what_runs_is_held_against_what_the_rules_say() -> None:
    """0.28 puts a dense model on V2 by itself."""
    dense = {"version": "0.28.0", "model": Model("LlamaForCausalLM")}
    v2 = RunnerEvidence(runner=Runner.V2, how="")
    assert says("runner-observed", "0.29.0", pods={**dense, "runner": v2}) == (PASS, "Passed")
    surprising = says("runner-observed", "0.29.0", pods={**dense, "runner": V1_OBSERVED})
    assert surprising == (WARN, "NotAsPredicted")
    none = says("runner-observed", "0.29.0", pods={**dense, "runner": None})
    assert none == (UNKNOWN, "RunnerNotObserved")


def speculative(**settings: Any) -> tuple[str, str]:
    return "--speculative-config", json.dumps({"num_speculative_tokens": 3} | settings)


def adaptive(method: str = "dspark") -> tuple[str, str]:
    return speculative(method=method, enable_adaptive_verification=True)


@pytest.mark.parametrize(
    ("version", "args", "result", "reason"),
    [
        ("0.33.0", (), PASS, "NotApplicable"),
        ("0.33.0", ("--speculative-config", "$(SPEC)"), UNKNOWN, "SpeculationUnread"),
        ("0.32.0", speculative(method="medusa"), PASS, "Passed"),
        ("0.33.0", speculative(method="medusa"), BLOCK, "VerificationImpossible"),
        ("0.33.0", speculative(method="mlp_speculator"), BLOCK, "VerificationImpossible"),
        ("0.33.0", speculative(method="eagle3"), PASS, "Passed"),
        ("0.29.0", adaptive(), PASS, "Passed"),
        ("0.29.0", adaptive("eagle3"), BLOCK, "VerificationImpossible"),
        ("0.30.0", adaptive("eagle3"), PASS, "Passed"),
        ("0.29.0", (*adaptive(), "--enable-lora"), BLOCK, "VerificationImpossible"),
        ("0.33.0", (*adaptive(), "-pp", "2"), BLOCK, "VerificationImpossible"),
        ("0.29.0", (*adaptive(), "-cc.cudagraph_mode", "PIECEWISE"), PASS, "Passed"),
        (
            "0.30.0",
            (*adaptive(), "-cc.cudagraph_mode", "PIECEWISE"),
            BLOCK,
            "VerificationImpossible",
        ),
    ],
)
def test_speculative_decoding(
    version: str, args: tuple[str, ...], result: str, reason: str
) -> None:
    assert says("speculative-decoding", version, *args) == (result, reason)


FLY = speculative(method="eagle3", rejection_sample_method="fly")


def test_lossy_verification_needs_a_person() -> None:
    assert says("speculative-decoding", "0.32.0", *FLY) == (BLOCK, "VerificationImpossible")
    assert says("lossy-verification", "0.33.0", *FLY) == (BLOCK, "LossyVerification")
    lossless = speculative(method="eagle3", rejection_sample_method="block")
    assert says("lossy-verification", "0.33.0", *lossless) == (PASS, "NotApplicable")
    unread = ("--speculative-config", "$(SPEC)")
    assert says("lossy-verification", "0.33.0", *unread) == (UNKNOWN, "SpeculationUnread")
    steps = {"strategy": {"steps": [{"replicas": 1, "approval": True}]}}
    manual = {"strategy": {"promotion": "Manual"}}
    for strategy in (steps, manual):
        check = ask(
            "lossy-verification",
            stable=stable(),
            candidate=told(*FLY),
            spec={**to("0.33.0"), **strategy},
        )
        assert check.result == PASS
    there = old(args=["--model", "m", *FLY], **GPU)
    there["spec"]["containers"][0]["image"] = "x:v0.33.0"
    check = ask("lossy-verification", stable=there, candidate=told(*FLY), spec=to("0.33.0"))
    assert (check.result, check.reason) == (PASS, "Passed")


REQUESTS, TOKENS = "--max-num-queued-reqs", "--max-num-queued-tokens"


@pytest.mark.parametrize(
    ("version", "args", "result", "reason"),
    [
        ("0.28.0", (), WARN, "NoAdmissionControl"),
        ("0.28.0", (REQUESTS, "8"), WARN, "NoAdmissionControl"),
        ("0.29.0", (), WARN, "QueueUnbounded"),
        ("0.29.0", (REQUESTS, "256"), PASS, "Passed"),
        ("0.29.0", (TOKENS, "4000"), PASS, "Passed"),
        ("0.32.0", (REQUESTS, "0"), BLOCK, "AllRejected"),
        ("0.32.0", (REQUESTS, "16", "--max-num-seqs", "32"), WARN, "LimitBelowBatch"),
        ("0.31.0", (REQUESTS, "256", "--api-server-count", "2"), WARN, "LimitPerServer"),
        ("0.32.0", (REQUESTS, "256", "--api-server-count", "2"), PASS, "Passed"),
        ("0.32.0", (REQUESTS, "$(LIMIT)"), UNKNOWN, "AdmissionUnread"),
    ],
)
def test_admission(version: str, args: tuple[str, ...], result: str, reason: str) -> None:
    assert says("admission", version, *args) == (result, reason)


def test_a_limit_that_the_version_does_not_know_is_said_to_be_ignored() -> None:
    check = ask("admission", stable=stable(), candidate=told(REQUESTS, "8"), spec=to("0.28.0"))
    assert "it does not know --max-num-queued-reqs" in check.message


NOT_CHUNKED = "--no-enable-chunked-prefill"


@pytest.mark.parametrize(
    ("args", "result", "reason"),
    [
        ((), PASS, "NotApplicable"),
        (("--max-num-batched-tokens", "2048"), PASS, "Passed"),
        (("--max-num-batched-tokens", "16", "--max-num-seqs", "32"), BLOCK, "BatchTooSmall"),
        (("--max-num-batched-tokens", "2048", NOT_CHUNKED), UNKNOWN, "ModelLengthUnknown"),
        (
            ("--max-num-batched-tokens", "2048", NOT_CHUNKED, "--max-model-len", "4k"),
            BLOCK,
            "BatchTooSmall",
        ),
        (
            ("--max-num-batched-tokens", "4000", NOT_CHUNKED, "--max-model-len", "4k"),
            PASS,
            "Passed",
        ),
        (("--max-num-batched-tokens", "$(N)"), UNKNOWN, "BatchUnread"),
    ],
)
def test_the_batch(args: tuple[str, ...], result: str, reason: str) -> None:
    assert says("batch", "0.29.0", *args) == (result, reason)


BLOCKS = "--num-gpu-blocks-override"


@pytest.mark.parametrize(
    ("args", "length", "result", "reason"),
    [
        ((), None, PASS, "NotApplicable"),
        ((BLOCKS, "64"), None, UNKNOWN, "ModelLengthUnknown"),
        ((BLOCKS, "64"), 1024, PASS, "Passed"),
        ((BLOCKS, "63"), 1024, WARN, "KVCacheTooSmall"),
        ((BLOCKS, "63", "--max-model-len", "1024"), None, BLOCK, "KVCacheTooSmall"),
        ((BLOCKS, "63", "--max-model-len", "1000"), 1024, PASS, "Passed"),
        ((BLOCKS, "63", "--max-model-len", "1024", "--block-size", "32"), None, PASS, "Passed"),
        (("--kv-cache-memory-bytes", "8G"), None, WARN, "KVCacheFixed"),
    ],
)
def test_the_kv_cache(args: tuple[str, ...], length: int | None, result: str, reason: str) -> None:
    pods = {"model": Model("LlamaForCausalLM", length)}
    assert says("kv-cache", "0.29.0", *args, pods=pods) == (result, reason)


def cuda_node(name: str, version: str, *, new_names: bool = True) -> Node:
    major, minor = version.split(".")
    part = "cuda.runtime-version" if new_names else "cuda.runtime"
    labels = {f"nvidia.com/{part}.major": major, f"nvidia.com/{part}.minor": minor}
    return Node(name=name, labels=labels, unfit=None, free=None)


UNLABELLED = Node(name="bare", labels={}, unfit=None, free=None)


@pytest.mark.parametrize(
    ("image", "nodes", "result", "reason"),
    [
        ("vllm/vllm-openai:v0.29.0", (cuda_node("a", "13.0"),), PASS, "Passed"),
        ("vllm/vllm-openai:v0.29.0", (cuda_node("a", "12.9"),), BLOCK, "DriverTooOld"),
        ("vllm/vllm-openai:v0.29.0-cu129", (cuda_node("a", "12.9"),), PASS, "Passed"),
        ("vllm/vllm-openai:v0.29.0-cu129", (cuda_node("a", "12.4"),), WARN, "DriverTooOld"),
        (
            "vllm/vllm-openai:v0.29.0",
            (cuda_node("a", "12.9", new_names=False), cuda_node("b", "13.0")),
            WARN,
            "DriverTooOld",
        ),
        ("vllm/vllm-openai:v0.29.0", (cuda_node("a", "12.9"), UNLABELLED), WARN, "DriverTooOld"),
        ("vllm/vllm-openai:v0.29.0", (UNLABELLED,), UNKNOWN, "DriverUnknown"),
        ("other/image:v0.29.0", (cuda_node("a", "12.9"),), WARN, "DriverTooOld"),
    ],
)
def test_the_driver(image: str, nodes: tuple[Node, ...], result: str, reason: str) -> None:
    around = {"requests": {"nvidia.com/gpu": Decimal(1)}, "nodes": nodes}
    check = ask(
        "cuda-driver",
        stable=stable(),
        candidate=told(image=image),
        spec=to(None),
        around=around,
    )
    assert (check.result, check.reason) == (result, reason)


def test_without_a_gpu_no_driver_is_asked_for() -> None:
    assert says("cuda-driver", "0.29.0") == (PASS, "NotApplicable")


@pytest.mark.parametrize(
    ("images", "answered", "stated", "says_"),
    [
        (("x:v0.28.0", "x:v0.32.0"), "0.28.0", "0.32.0", None),
        (("x:v0.32.0", "x:v0.33.0"), "0.32.0", "0.33.0", "torch 2.13.0 to 2.14.0"),
        (("x:v0.28.0-cu129", "x:v0.29.0"), "0.28.0", "0.29.0", "CUDA 12.9 to 13.0"),
        (("x:v0.28.0", "x:v0.29.0-cu129"), "0.28.0", "0.29.0", "CUDA 13.0 to 12.9"),
    ],
)
def test_what_it_is_built_on(
    images: tuple[str, str], answered: str, stated: str, says_: str | None
) -> None:
    check = ask(
        "base",
        stable=stable(image=images[0]),
        candidate=told(image=images[1]),
        spec=to(stated),
        pods={"version": answered},
    )
    assert check.result == (PASS if says_ is None else WARN)
    assert says_ is None or says_ in check.message


@pytest.mark.parametrize(
    ("version", "name", "result", "reason"),
    [
        ("0.29.0", "VLLM_TEST_FORCE_FP8_MARLIN", WARN, "RemovedVariable"),
        ("0.28.0", "VLLM_TEST_FORCE_FP8_MARLIN", PASS, "Passed"),
        ("0.29.0", "VLLM_USE_V2_MODEL_RUNNER", PASS, "Passed"),
        ("0.29.0", "HF_TOKEN", PASS, "Passed"),
        ("0.29.0", "VLLM_USE_V3_MODEL_RUNNER", WARN, "UnknownVariable"),
    ],
)
def test_variables(version: str, name: str, result: str, reason: str) -> None:
    candidate = told(**{name: "1"})
    check = ask("environment", stable=stable(), candidate=candidate, spec=to(version))
    assert (check.result, check.reason) == (result, reason)


def test_deprecated_flags_are_named_with_what_replaces_them() -> None:
    assert says("deprecated-flags", "0.29.0") == (PASS, "Passed")
    check = ask(
        "deprecated-flags",
        stable=stable(),
        candidate=told("--disable-cascade-attn"),
        spec=to("0.32.0"),
    )
    assert (check.result, check.reason) == (WARN, "DeprecatedFlag")
    assert "--disable-cascade-attn (until 0.33.0" in check.message


def test_stable_pods_that_answer_several_versions_have_none() -> None:
    o = seen(stable=stable(), candidate=told(), spec=to("0.29.0"), pods={"version": "0.28.0"})
    assert o.target is not None
    first, *others = o.target.pods
    mixed = replace(o.target, pods=(replace(first, version="0.27.0"), *others))
    check = ask_of("tag-version", replace(o, target=mixed))
    assert (check.result, check.reason) == (WARN, "MixedVersions")
