"""Each row of the tables of what a runner lacks, in every version that is known."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from vllm_upgrade_operator.vllm.facts.choice import Prediction, predict_runner
from vllm_upgrade_operator.vllm.facts.setup import Machine, machine_of
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.versions import Version

LLAMA = "LlamaForCausalLM"
MINORS = (28, 29, 30, 31, 32, 33)
GPU = Machine(triton=True, rocm=False)
AMD = Machine(triton=True, rocm=True)
CPU = Machine(triton=False, rocm=False)


def spec(**settings: Any) -> tuple[str, ...]:
    return "--speculative-config", json.dumps(settings)


def compilation(**settings: Any) -> tuple[str, ...]:
    return "--compilation-config", json.dumps(settings)


def predict(
    minor: int,
    *flags: str,
    forced: str | None = None,
    architecture: str | None = LLAMA,
    draft: str | None = None,
    machine: Machine = GPU,
) -> Prediction:
    env = [] if forced is None else [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": forced}]
    container = {"name": "c", "args": ["--model", "m", *flags], "env": env}
    version = Version(0, minor)
    return predict_runner(
        version,
        read_options(container, version),
        architecture=architecture,
        draft_architecture=draft,
        machine=machine,
    )


PP = ("-pp", "2")
METHOD = "speculative method '{}'"

# Name, the versions whose V2 lacks it, the flags that use it.
V2_LACKS: list[tuple[str, tuple[int, ...], tuple[str, ...]]] = [
    ("stock torch.compile", (28, 29, 30, 31), compilation(mode=1)),
    ("stock torch.compile", (28, 29, 30, 31), ("-cc.mode", "1")),
    (
        "sequence parallelism",
        (28, 29, 30, 31),
        (*compilation(pass_config={"enable_sp": True}), "-tp", "2"),
    ),
    (
        "pipeline parallelism with external_launcher",
        MINORS,
        (*PP, "--distributed-executor-backend", "external_launcher"),
    ),
    ("ngram/ngram_gpu speculative decoding", (28, 29), spec(method="ngram")),
    ("ngram/ngram_gpu speculative decoding", (28, 29), spec(method="ngram_gpu")),
    ("ngram/ngram_gpu speculative decoding", (28, 29), ("--spec-method", "ngram")),
    (METHOD.format("ngram"), (30, 31), spec(method="ngram")),
    (METHOD.format("ngram_gpu"), (30, 31), spec(method="ngram_gpu")),
    (METHOD.format("draft_model"), (28, 29, 30), spec(method="draft_model", model="d")),
    (METHOD.format("suffix"), MINORS, spec(method="suffix")),
    (METHOD.format("custom_class"), MINORS, spec(method="custom_class")),
    (METHOD.format("medusa"), (28, 29, 30, 31, 32), spec(method="medusa")),
    (METHOD.format("mlp_speculator"), (28, 29, 30, 31, 32), spec(method="mlp_speculator")),
    (METHOD.format("extract_hidden_states"), (28,), spec(method="extract_hidden_states")),
    (
        "parallel drafting for EAGLE speculative decoding",
        MINORS,
        spec(method="eagle", parallel_drafting=True),
    ),
    ("EAGLE3 with pipeline parallelism", (28, 29), (*spec(method="eagle3"), *PP)),
    (
        "heterogeneous-vocabulary draft models",
        (32, 33),
        spec(method="draft_model", use_heterogeneous_vocab=True),
    ),
    ("elastic expert parallelism", (28, 29, 30, 31), ("--enable-elastic-ep",)),
    ("custom logits processors", (28, 29, 30), ("--logits-processors", "a.B")),
    ("prompt embeds", (28,), ("--enable-prompt-embeds",)),
    ("KV sharing fast prefill", (28, 29), ("--kv-sharing-fast-prefill",)),
    ("mamba cache mode 'all'", (30, 31), ("--mamba-cache-mode", "all")),
]
ROWS = [(minor, name, minors, flags) for name, minors, flags in V2_LACKS for minor in MINORS]


@pytest.mark.parametrize(("minor", "name", "minors", "flags"), ROWS)
def test_what_v2_lacks_is_fallen_back_for(
    minor: int, name: str, minors: tuple[int, ...], flags: tuple[str, ...]
) -> None:
    found = predict(minor, *flags)
    assert (name in found.features) is (minor in minors)
    if minor in minors:
        assert found.runner is Runner.V1
    if not found.features:
        assert found.runner is Runner.V2
    assert found.refusal is None


@pytest.mark.parametrize(("minor", "name", "minors", "flags"), ROWS)
def test_what_v2_lacks_is_refused_where_v2_is_forced(
    minor: int, name: str, minors: tuple[int, ...], flags: tuple[str, ...]
) -> None:
    found = predict(minor, *flags, forced="1")
    assert found.runner is Runner.V2
    assert found.features == ()
    if minor in minors:
        assert found.refusal is not None
        assert found.refusal.startswith("Model Runner V2 does not yet support: ")
        assert name in found.refusal
    else:
        assert name not in (found.refusal or "")


@pytest.mark.parametrize("minor", MINORS)
def test_dual_batch_overlap(minor: int) -> None:
    assert predict(minor, "--enable-dbo").features == ("dual batch overlap",)
    forced = predict(minor, "--enable-dbo", forced="1").refusal
    assert (forced is None) is (minor >= 30)
    assert (predict(minor, "--ubatch-size", "2").runner is Runner.V1) is (minor >= 30)


@pytest.mark.parametrize("minor", [30, 31, 32, 33])
@pytest.mark.parametrize(
    ("what", "flags", "architecture"),
    [
        ("LoRA", ("--enable-lora",), LLAMA),
        ("speculative decoding", spec(method="eagle"), LLAMA),
        ("pipeline parallelism", PP, LLAMA),
        ("context parallelism", ("-dcp", "2"), LLAMA),
        ("context parallelism", ("-pcp", "2"), LLAMA),
        ("multimodal models", (), "LlavaForConditionalGeneration"),
        ("hybrid models", (), "JambaForCausalLM"),
        ("PIECEWISE CUDA graphs", compilation(cudagraph_mode="PIECEWISE"), LLAMA),
        ("encoder only models", ("--mm-encoder-only",), LLAMA),
    ],
)
def test_what_a_forced_v2_cannot_overlap(
    minor: int, what: str, flags: tuple[str, ...], architecture: str
) -> None:
    found = predict(minor, "--enable-dbo", *flags, forced="1", architecture=architecture)
    assert found.refusal == (
        f"Model Runner V2 does not yet support: dual batch overlap with {what}"
    )


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("--enable-lora",), "LoRA"),
        (("--enforce-eager",), "enforce_eager/cudagraph_mode=none"),
        (compilation(cudagraph_mode="NONE"), "enforce_eager/cudagraph_mode=none"),
        (PP, "pipeline parallelism"),
    ],
)
def test_028_excludes_things_from_adaptive_verification(flags: tuple[str, ...], what: str) -> None:
    settings = spec(method="dspark", enable_adaptive_verification=True)
    found = predict(28, *settings, *flags)
    # dspark takes V2 before all else, so that nothing is fallen back for.
    assert (found.runner, found.features) == (Runner.V2, ())
    assert (
        found.refusal == f"Model Runner V2 does not yet support: adaptive verification with {what}"
    )


class Lack(NamedTuple):
    name: str
    minors: tuple[int, ...]
    flags: tuple[str, ...] = ()
    architecture: str = LLAMA
    draft: str | None = None


SINCE_29, SINCE_31 = (29, 30, 31, 32, 33), (31, 32, 33)
DFLASH = spec(method="dflash")
V1_LACKS = [
    Lack("prefill context parallel", SINCE_29, ("-pcp", "2")),
    Lack("pipeline parallelism with async scheduling", SINCE_31, (*PP, "--async-scheduling")),
    Lack("dspark speculative decoding", SINCE_29, spec(method="dspark")),
    Lack(
        "adaptive draft verification",
        SINCE_29,
        spec(method="eagle", enable_adaptive_verification=True),
    ),
    Lack("dflash2 drafts", (29, 30), DFLASH, draft="DFlash2DraftModel"),
    Lack("DFlash candidate-head drafts", SINCE_31, DFLASH, draft="DFlash2DraftModel"),
    Lack("DFlash candidate-head drafts", SINCE_31, DFLASH, draft="LiLiCorrDraftModel"),
    Lack("diffusion models", SINCE_29, architecture="DiffusionGemmaForBlockDiffusion"),
    Lack("batch-sharded sampling", SINCE_29, ("--enable-batch-sharded-sampling",)),
    Lack("xpress speculative decoding", (33,), DFLASH, draft="Qwen3XPressModel"),
    Lack("xpress speculative decoding", (33,), DFLASH, draft="DFlashQwen3XPressModel"),
    Lack(
        "draft lm_head quantization",
        (33,),
        spec(method="eagle", draft_lm_head_quantization="fp8"),
    ),
    Lack("Parse 3.5 MTP", (33,), spec(method="mtp"), draft="ParseAuxMTPModel"),
    Lack("Step5", (33,), architecture="Step5ForCausalLM"),
    Lack("Step5", (33,), architecture="Step5ForConditionalGeneration"),
]


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("row", V1_LACKS)
def test_what_v1_lacks_is_refused_where_v1_is_forced(minor: int, row: Lack) -> None:
    found = predict(minor, *row.flags, forced="0", architecture=row.architecture, draft=row.draft)
    assert found.runner is Runner.V1
    if minor in row.minors:
        assert found.refusal == f"Model Runner V1 does not support: {row.name}"
    else:
        assert row.name not in (found.refusal or "")


@pytest.mark.parametrize("minor", [29, 30, 31, 32, 33])
def test_a_fallback_to_v1_is_refused_for_what_v1_lacks(minor: int) -> None:
    found = predict(minor, *spec(method="suffix", enable_adaptive_verification=True))
    assert found.runner is Runner.V1
    assert found.refusal == "Model Runner V1 does not support: adaptive draft verification"


@pytest.mark.parametrize("minor", [29, 30, 31, 32, 33])
def test_layers_of_a_dflash_draft_are_not_known(minor: int) -> None:
    found = predict(minor, *spec(method="dflash"), forced="0", draft="DFlashDraftModel")
    assert found.refusal is None
    assert not found.certain
    assert any("mixed sliding/full dflash drafts" in clause for clause in found.unsure)


@pytest.mark.parametrize("minor", MINORS)
def test_a_dense_model(minor: int) -> None:
    found = predict(minor)
    assert (found.runner, found.certain, found.features) == (Runner.V2, True, ())
    assert predict(minor, forced="1").runner is Runner.V2
    assert predict(minor, forced="0").runner is Runner.V1
    assert predict(minor, forced="7").runner is Runner.V2


@pytest.mark.parametrize("minor", MINORS)
@pytest.mark.parametrize("value", ["true", "yes", ""])
def test_the_variable_is_a_number(minor: int, value: str) -> None:
    found = predict(minor, forced=value)
    assert found.runner is Runner.UNKNOWN
    assert found.refusal == f"invalid literal for int() with base 10: {value!r}"


@pytest.mark.parametrize("minor", MINORS)
def test_without_triton(minor: int) -> None:
    found = predict(minor, machine=CPU)
    assert (found.runner, found.features, found.refusal) == (Runner.V1, ("triton",), None)
    assert predict(minor, forced="1", machine=CPU).refusal == "Model Runner V2 requires Triton."
    unknown = predict(minor, machine=Machine())
    assert (unknown.runner, unknown.certain) == (Runner.V2, False)
    assert any("Triton" in clause for clause in unknown.unsure)


@pytest.mark.parametrize(
    ("architecture", "runner", "certain"),
    [
        ("MixtralForCausalLM", Runner.V1, True),
        ("Qwen3MoeForCausalLM", Runner.V1, True),
        ("OlmoeForCausalLM", Runner.V1, True),
        ("JambaForCausalLM", Runner.V1, True),
        ("Mamba2ForCausalLM", Runner.V1, True),
        ("BertModel", Runner.V1, True),
        ("Qwen2MoeForCausalLM", Runner.V2, True),
        ("DeepseekV2ForCausalLM", Runner.V2, True),
        ("LlavaForConditionalGeneration", Runner.V2, False),
        ("Gemma4ForCausalLM", Runner.V1, False),
        ("SomethingElse", Runner.V2, False),
        (None, Runner.V2, False),
    ],
)
def test_028_chooses_by_architecture_and_029_does_not(
    architecture: str | None, runner: Runner, *, certain: bool
) -> None:
    found = predict(28, architecture=architecture)
    assert (found.runner, found.certain, found.features) == (runner, certain, ())
    assert predict(29, architecture=architecture).runner is Runner.V2


def test_028_keeps_pooling_on_v1() -> None:
    assert predict(28, "--runner", "pooling").runner is Runner.V1


@pytest.mark.parametrize(
    "flags", [("-pcp", "2"), spec(method="dspark"), ("--spec-method", "dspark")]
)
def test_028_takes_v2_for_what_its_v1_lacks_even_with_a_mixture_of_experts(
    flags: tuple[str, ...],
) -> None:
    assert predict(28, *flags, architecture="DeepseekV3ForCausalLM").runner is Runner.V2


def test_028_and_the_draft_of_dflash() -> None:
    draft = predict(
        28, *spec(method="dflash"), architecture="JambaForCausalLM", draft="DFlash2DraftModel"
    )
    assert draft.runner is Runner.V2
    assert not predict(28, *spec(method="dflash"), architecture="JambaForCausalLM").certain


def test_028_refuses_context_parallelism_on_v1() -> None:
    assert predict(28, "-pcp", "2", forced="0").refusal == (
        "Prefill context parallelism requires Model Runner V2. Remove VLLM_USE_V2_MODEL_RUNNER=0."
    )


@pytest.mark.parametrize(
    ("minor", "architecture", "runner"),
    [
        (28, "DeepseekV4ForCausalLM", Runner.V1),
        (29, "DeepseekV4ForCausalLM", Runner.V1),
        (29, "DeepseekV32ForCausalLM", Runner.V1),
        (30, "DeepseekV32ForCausalLM", Runner.V1),
        (31, "DeepseekV32ForCausalLM", Runner.V1),
        (32, "DeepseekV32ForCausalLM", Runner.V2),
        (33, "DeepseekV4ForCausalLM", Runner.V2),
        (29, LLAMA, Runner.V2),
    ],
)
def test_the_list_for_amd(minor: int, architecture: str, runner: Runner) -> None:
    found = predict(minor, architecture=architecture, machine=AMD)
    assert (found.runner, found.certain) == (runner, True)
    if runner is Runner.V1 and minor > 28:
        assert found.features == (f"ROCm default for {architecture}",)
    if runner is Runner.V1:
        assert predict(minor, architecture=architecture).runner is Runner.V2 or minor == 28


def test_the_list_for_amd_yields_from_031_on_where_v1_lacks_something() -> None:
    flags, deepseek = spec(method="dspark"), "DeepseekV4ForCausalLM"
    assert predict(30, *flags, architecture=deepseek, machine=AMD).refusal == (
        "Model Runner V1 does not support: dspark speculative decoding"
    )
    assert predict(31, *flags, architecture=deepseek, machine=AMD).runner is Runner.V2


@pytest.mark.parametrize("minor", [30, 31, 32, 33])
def test_what_needs_v2_whatever_is_asked_for(minor: int) -> None:
    assert predict(minor, "--watermark-config", "{}", forced="0").runner is Runner.V2
    hisparse = ("--attention-config", json.dumps({"hisparse_config": {}}))
    assert predict(minor, *hisparse).runner is Runner.V2
    assert predict(minor, *hisparse, forced="0").refusal == (
        "HiSparse requires Model Runner V2; remove VLLM_USE_V2_MODEL_RUNNER=0."
    )


def test_several_features_are_named_in_vllms_order() -> None:
    found = predict(29, "--logits-processors", "a.B", "--enable-dbo", *spec(method="ngram"))
    assert found.features == (
        "ngram/ngram_gpu speculative decoding",
        "dual batch overlap",
        "custom logits processors",
    )


def test_a_newer_version_lowers_certainty() -> None:
    found = predict(40)
    assert (found.runner, found.certain) == (Runner.V2, False)
    assert "the rules of vLLM 0.40 are not known; those of 0.33 are taken" in found.unsure
    assert "those of 0.28 are taken" in predict(27).unsure[0]


@pytest.mark.parametrize("minor", MINORS)
def test_what_cannot_be_read_lowers_certainty(minor: int) -> None:
    script = {"command": ["sh", "-c", "vllm serve m $EXTRA"]}
    secret = {
        "args": ["m"],
        "env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "valueFrom": {"secretKeyRef": {}}}],
    }
    from_secret = {"args": ["m"], "envFrom": [{"secretRef": {"name": "s"}}]}
    version = Version(0, minor)
    for container in (script, secret, from_secret):
        found = predict_runner(
            version, read_options(container, version), architecture=LLAMA, machine=GPU
        )
        assert (found.runner, found.certain) == (Runner.V2, False)


@pytest.mark.parametrize(
    ("resources", "machine"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, GPU),
        ({"limits": {"nvidia.com/mig-1g.10gb": "1"}}, GPU),
        ({"limits": {"amd.com/gpu": "8"}}, AMD),
        ({"limits": {"cpu": "1"}}, Machine()),
        ({}, Machine()),
    ],
)
def test_the_machine(resources: dict[str, Any], machine: Machine) -> None:
    assert machine_of({"resources": resources}) == machine
