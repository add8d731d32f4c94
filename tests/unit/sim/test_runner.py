from __future__ import annotations

import pytest

from localcluster.sim.options import parse
from localcluster.sim.runner import Choice, StartError, choose
from vllm_upgrade_operator.vllm.facts.choice import predict_runner
from vllm_upgrade_operator.vllm.facts.setup import Machine
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.versions import parse_version

LLAMA = "LlamaForCausalLM"
MIXTRAL = "MixtralForCausalLM"
FORCE_V2 = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
FORCE_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
NO_TRITON = {"SIM_TRITON": "0"}
NGRAM = ("--speculative-config", '{"method": "ngram"}')
SUFFIX = ("--speculative-config", '{"method": "suffix"}')
MEDUSA = ("--speculative-config", '{"method": "medusa"}')
DSPARK = ("--speculative-config", '{"method": "dspark"}')


def choice(
    version: str, env: dict[str, str], flags: tuple[str, ...] = (), architecture: str = LLAMA
) -> Choice:
    return choose(version, parse(version, ["m", *flags]), architecture, env)


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0", "0.32.0", "0.33.0"])
def test_a_dense_model_gets_v2_and_a_forced_runner_is_had(version: str) -> None:
    assert choice(version, {}) == Choice(v2=True)
    assert choice(version, FORCE_V2) == Choice(v2=True)
    assert choice(version, FORCE_V1) == Choice(v2=False)
    assert choice(version, FORCE_V2, architecture=MIXTRAL) == Choice(v2=True)


@pytest.mark.parametrize(
    ("architecture", "v2"),
    [
        (MIXTRAL, False),
        ("Qwen3MoeForCausalLM", False),
        ("OlmoeForCausalLM", False),
        ("JambaForCausalLM", False),
        ("BertModel", False),
        ("Qwen2MoeForCausalLM", True),
        ("DeepseekV2ForCausalLM", True),
    ],
)
def test_028_keeps_some_architectures_on_v1_and_says_nothing(
    architecture: str, *, v2: bool
) -> None:
    assert choice("0.28.0", {}, architecture=architecture) == Choice(v2=v2)
    assert choice("0.29.0", {}, architecture=architecture) == Choice(v2=True)


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0", "0.32.0", "0.33.0"])
def test_without_triton_it_falls_back_and_says_so(version: str) -> None:
    assert choice(version, NO_TRITON) == Choice(
        v2=False, warning="Model Runner V2 requires Triton; using the V1 model runner instead."
    )


@pytest.mark.parametrize(
    ("version", "in_worker"),
    [("0.28.0", False), ("0.29.0", False), ("0.32.0", False), ("0.33.0", True)],
)
def test_v2_cannot_be_forced_without_triton(version: str, *, in_worker: bool) -> None:
    with pytest.raises(StartError, match=r"^Model Runner V2 requires Triton\.$") as refused:
        choice(version, NO_TRITON | FORCE_V2)
    assert refused.value.in_worker is in_worker


@pytest.mark.parametrize(
    ("version", "flags", "features"),
    [
        ("0.28.0", NGRAM, "ngram/ngram_gpu speculative decoding"),
        ("0.29.0", NGRAM, "ngram/ngram_gpu speculative decoding"),
        ("0.32.0", NGRAM, None),
        ("0.29.0", SUFFIX, "speculative method 'suffix'"),
        ("0.32.0", SUFFIX, "speculative method 'suffix'"),
        ("0.33.0", SUFFIX, "speculative method 'suffix'"),
        ("0.32.0", MEDUSA, "speculative method 'medusa'"),
        ("0.33.0", MEDUSA, None),
        ("0.29.0", ("--logits-processors", "a.B"), "custom logits processors"),
        ("0.32.0", ("--logits-processors", "a.B"), None),
        ("0.28.0", ("--enable-prompt-embeds",), "prompt embeds"),
        ("0.29.0", ("--enable-prompt-embeds",), None),
        ("0.29.0", ("--kv-sharing-fast-prefill",), "KV sharing fast prefill"),
        ("0.29.0", ("--enable-dbo",), "dual batch overlap"),
        ("0.29.0", ("--enable-elastic-ep",), "elastic expert parallelism"),
        ("0.29.0", ("-cc", '{"mode": 1}'), "stock torch.compile"),
        (
            "0.29.0",
            ("--logits-processors", "a.B", *NGRAM),
            "ngram/ngram_gpu speculative decoding, custom logits processors",
        ),
    ],
)
def test_a_feature_that_v2_lacks(
    version: str, flags: tuple[str, ...], features: str | None
) -> None:
    if features is None:
        assert choice(version, {}, flags) == Choice(v2=True)
        assert choice(version, FORCE_V2, flags) == Choice(v2=True)
        return
    assert choice(version, {}, flags) == Choice(
        v2=False,
        warning=f"Model Runner V2 does not yet support {features}; "
        "using the V1 model runner instead.",
    )
    with pytest.raises(StartError) as refused:
        choice(version, FORCE_V2, flags)
    assert str(refused.value) == f"Model Runner V2 does not yet support: {features}"


def test_from_032_on_dual_batch_overlap_may_be_forced() -> None:
    assert choice("0.32.0", {}, ("--enable-dbo",)).v2 is False
    assert choice("0.32.0", FORCE_V2, ("--enable-dbo",)).v2 is True


@pytest.mark.parametrize(
    ("version", "flags", "feature"),
    [
        ("0.29.0", DSPARK, "dspark speculative decoding"),
        ("0.32.0", ("--prefill-context-parallel-size", "2"), "prefill context parallel"),
        ("0.29.0", ("--enable-batch-sharded-sampling",), "batch-sharded sampling"),
    ],
)
def test_a_feature_that_v1_lacks(version: str, flags: tuple[str, ...], feature: str) -> None:
    assert choice(version, {}, flags) == Choice(v2=True)
    with pytest.raises(StartError) as refused:
        choice(version, FORCE_V1, flags)
    assert str(refused.value) == f"Model Runner V1 does not support: {feature}"


def test_028_wants_v2_for_dspark_and_context_parallelism_even_with_a_mixture() -> None:
    assert choice("0.28.0", {}, DSPARK, MIXTRAL).v2
    parallel = ("--prefill-context-parallel-size", "2")
    assert choice("0.28.0", {}, parallel, MIXTRAL).v2
    with pytest.raises(StartError, match="Prefill context parallelism requires Model Runner V2"):
        choice("0.28.0", FORCE_V1, parallel)


def test_rocm_has_a_list_of_its_own_in_029_alone() -> None:
    rocm = {"SIM_ROCM": "1"}
    found = choice("0.29.0", rocm, architecture="DeepseekV32ForCausalLM")
    assert found.warning == (
        "Defaulting to V1 model runner on ROCm for model architectures: DeepseekV32ForCausalLM"
    )
    assert choice("0.32.0", rocm, architecture="DeepseekV32ForCausalLM") == Choice(v2=True)
    assert choice("0.28.0", rocm, architecture="DeepseekV4ForCausalLM") == Choice(v2=False)


def test_watermarks_bring_v2_even_where_v1_is_asked_for() -> None:
    assert choice("0.32.0", FORCE_V1, ("--watermark-config", "{}")) == Choice(v2=True)


@pytest.mark.parametrize("value", ["true", "yes", ""])
def test_the_variable_is_a_number(value: str) -> None:
    with pytest.raises(StartError, match=r"invalid literal for int\(\)"):
        choice("0.32.0", {"VLLM_USE_V2_MODEL_RUNNER": value})
    assert choice("0.32.0", {"VLLM_USE_V2_MODEL_RUNNER": "2"}).v2


FLAGS: tuple[tuple[str, ...], ...] = (
    (),
    NGRAM,
    SUFFIX,
    DSPARK,
    ("--spec-method", "ngram"),
    ("--speculative-config", '{"method": "draft_model"}'),
    ("--speculative-config", '{"method": "extract_hidden_states"}'),
    ("--speculative-config", '{"method": "deepseek_mtp"}'),
    ("--speculative-config", '{"method": "mtp", "parallel_drafting": true}'),
    ("--speculative-config", '{"method": "eagle3"}', "-pp", "2"),
    ("--speculative-config", '{"method": "eagle", "enable_adaptive_verification": true}'),
    ("-cc", '{"mode": 1}'),
    ("-cc", '{"pass_config": {"enable_sp": true}}', "-tp", "2"),
    ("-pp", "2", "--distributed-executor-backend", "external_launcher"),
    ("-pp", "2", "--async-scheduling"),
    ("--prefill-context-parallel-size", "2"),
    ("--logits-processors", "a.B"),
    ("--enable-prompt-embeds",),
    ("--kv-sharing-fast-prefill",),
    ("--enable-elastic-ep",),
    ("--enable-dbo",),
)


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("forced", [None, "0", "1"])
@pytest.mark.parametrize("triton", [True, False])
@pytest.mark.parametrize("architecture", [LLAMA, MIXTRAL, "DeepseekV2ForCausalLM"])
def test_it_plays_what_the_operator_predicts(
    version: str,
    flags: tuple[str, ...],
    forced: str | None,
    triton: bool,  # noqa: FBT001 - a table
    architecture: str,
) -> None:
    """Both were written from the sources of vLLM, apart from each other."""
    env = {} if forced is None else {"VLLM_USE_V2_MODEL_RUNNER": forced}
    container = {
        "args": ["m", *flags],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    number = parse_version(version)
    predicted = predict_runner(
        number,
        read_options(container, number),
        architecture=architecture,
        machine=Machine(triton=triton, rocm=False),
    )
    played: Choice | StartError
    try:
        played = choice(version, {**env, "SIM_TRITON": str(int(triton))}, flags, architecture)
    except StartError as refused:
        played = refused
    if isinstance(played, StartError):
        assert predicted.refusal == str(played)
        return
    assert predicted.refusal is None
    assert (predicted.runner == "V2") is played.v2
    # What it is fallen back for is what the warning names.
    assert (played.warning is None) is (predicted.features == ())
    if played.warning is not None and predicted.features != ("triton",):
        assert f" support {', '.join(predicted.features)}; " in played.warning
