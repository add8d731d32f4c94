from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from vllm_upgrade_operator.vllm.facts.advice import (
    UnreadVariable,
    deprecated_flags,
    unread_variables,
)
from vllm_upgrade_operator.vllm.facts.obstacles import Kind, Obstacle, cannot_start
from vllm_upgrade_operator.vllm.facts.setup import Machine, Setup
from vllm_upgrade_operator.vllm.facts.verification import is_lossy
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.options import Options

GPU = Machine(triton=True, rocm=False)


def told(minor: int, *args: str, env: dict[str, str] | None = None) -> Options:
    container = {
        "args": ["m", *args],
        "env": [{"name": n, "value": v} for n, v in (env or {}).items()],
    }
    return read_options(container, Version(0, minor))


def obstacles(
    minor: int, *args: str, env: dict[str, str] | None = None, architecture: str | None = None
) -> tuple[Obstacle, ...]:
    return cannot_start(
        Version(0, minor), told(minor, *args, env=env), architecture=architecture, machine=GPU
    )


def spec(**settings: Any) -> tuple[str, str]:
    return "--speculative-config", json.dumps(settings)


def test_a_plain_server_starts_everywhere() -> None:
    for minor in (28, 29, 30, 31, 32, 33):
        assert obstacles(minor, "--max-num-seqs", "8", architecture="LlamaForCausalLM") == ()


@pytest.mark.parametrize(
    ("minor", "flag", "kind", "says"),
    [
        (28, "--max-num-queued-reqs=8", Kind.FLAG_UNKNOWN, "the first with it is 0.29"),
        (31, "--custom-histogram-buckets={}", Kind.FLAG_UNKNOWN, "the first with it is 0.32"),
        (32, "--watchdog-config={}", Kind.FLAG_UNKNOWN, "the first with it is 0.33"),
        (30, "--enable-bf16x3-router-gemm", Kind.FLAG_REMOVED, "the last with it is 0.29"),
        (
            31,
            "--enable-mamba-fine-grained-prefix-cache",
            Kind.FLAG_REMOVED,
            "the last with it is 0.30",
        ),
        (33, "--disable-log-requests", Kind.FLAG_UNKNOWN, "neither does any version"),
    ],
)
def test_a_flag_that_a_version_does_not_have(minor: int, flag: str, kind: Kind, says: str) -> None:
    (found,) = obstacles(minor, flag)
    assert (found.kind, found.subject) == (kind, flag.removeprefix("--").partition("=")[0])
    assert says in found.sentence
    assert "exit code 2" in found.sentence
    assert found.certain


def test_a_beginning_of_several_flags() -> None:
    (found,) = obstacles(33, "--max-num-queued", "8")
    assert found.kind is Kind.FLAG_AMBIGUOUS
    assert "--max-num-queued-reqs, --max-num-queued-tokens" in found.sentence
    # 0.28 has neither.
    (found,) = obstacles(28, "--max-num-queued", "8")
    assert found.kind is Kind.FLAG_UNKNOWN


@pytest.mark.parametrize(
    ("minor", "architecture", "kind", "certain"),
    [
        (28, "ArcticForCausalLM", None, True),
        (29, "ArcticForCausalLM", Kind.ARCHITECTURE_REMOVED, True),
        (33, "MPTForCausalLM", Kind.ARCHITECTURE_REMOVED, True),
        (32, "MedusaModel", None, True),
        (33, "MedusaModel", Kind.ARCHITECTURE_REMOVED, True),
        (32, "Step5ForCausalLM", Kind.ARCHITECTURE_UNKNOWN, False),
        (33, "MllamaForConditionalGeneration", Kind.ARCHITECTURE_REMOVED, True),
        (33, "OursForCausalLM", Kind.ARCHITECTURE_UNKNOWN, False),
    ],
)
def test_architectures(minor: int, architecture: str, kind: Kind | None, *, certain: bool) -> None:
    found = obstacles(minor, architecture=architecture)
    assert [o.kind for o in found] == ([] if kind is None else [kind])
    assert all(o.certain is certain and architecture in o.sentence for o in found)


def test_a_runner_that_cannot_be_had() -> None:
    force = {"VLLM_USE_V2_MODEL_RUNNER": "1"}
    (found,) = obstacles(29, *spec(method="ngram"), env=force)
    assert found.kind is Kind.RUNNER_IMPOSSIBLE
    assert "does not yet support: ngram/ngram_gpu speculative decoding" in found.sentence
    assert obstacles(32, *spec(method="ngram"), env=force) == ()


@pytest.mark.parametrize(
    ("minor", "settings", "says"),
    [
        (32, {"method": "medusa"}, None),
        (33, {"method": "medusa"}, "no speculative method 'medusa' any more"),
        (33, {"method": "mlp_speculator"}, "0.32 is the last with it"),
        (33, {"method": "made_up"}, "no speculative method 'made_up'"),
        (33, {"method": "qwen3_next_mtp"}, None),
        (33, {"model": "x"}, None),
        (
            32,
            {"method": "eagle", "rejection_sample_method": "fly"},
            "no rejection_sample_method 'fly': 0.33 is the first",
        ),
        (
            33,
            {"method": "eagle", "rejection_sample_method": "fly", "num_speculative_tokens": 1},
            "num_speculative_tokens of 2 or more, it is 1",
        ),
        (
            33,
            {
                "method": "eagle",
                "rejection_sample_method": "fly",
                "num_speculative_tokens": 4,
                "fly_window_size": 4,
            },
            r"fly_window_size (4) below num_speculative_tokens (4)",
        ),
        (
            33,
            {"method": "extract_hidden_states", "rejection_sample_method": "fly"},
            "cannot verify method 'extract_hidden_states'",
        ),
        (33, {"method": "eagle", "rejection_sample_method": "block"}, None),
        (29, {"method": "eagle", "enable_adaptive_verification": True}, "'dspark' only"),
        (30, {"method": "eagle", "enable_adaptive_verification": True}, None),
        (
            30,
            {
                "method": "eagle",
                "enable_adaptive_verification": True,
                "use_local_argmax_reduction": True,
            },
            "use_local_argmax_reduction",
        ),
    ],
)
def test_speculative_decoding(minor: int, settings: dict[str, Any], says: str | None) -> None:
    found = [
        o for o in obstacles(minor, *spec(**settings)) if o.kind is Kind.VERIFICATION_IMPOSSIBLE
    ]
    assert len(found) == (says is not None)
    assert says is None or says in found[0].sentence


ADAPTIVE = spec(method="dspark", enable_adaptive_verification=True)


@pytest.mark.parametrize(
    ("flags", "first"),
    [
        (("--enable-lora",), 29),
        (("--enforce-eager",), 29),
        (("-pp", "2"), 29),
        (("-cc.cudagraph_mode", "NONE"), 29),
        (("-cc.cudagraph_mode", "PIECEWISE"), 30),
    ],
)
def test_what_adaptive_verification_excludes(flags: tuple[str, ...], first: int) -> None:
    for minor in (29, 30, 31, 32, 33):
        found = obstacles(minor, *ADAPTIVE, *flags)
        assert [o.subject for o in found] == ["enable_adaptive_verification"] * (minor >= first)


def test_batch_sharded_sampling() -> None:
    flag = "--enable-batch-sharded-sampling"
    (found,) = obstacles(32, flag)
    assert "--tensor-parallel-size above 1" in found.sentence
    assert obstacles(32, flag, "-tp", "2") == ()
    (found,) = obstacles(32, flag, "-tp", "2", *ADAPTIVE)
    assert "0.33 is the first that can" in found.sentence
    assert obstacles(33, flag, "-tp", "2", *ADAPTIVE) == ()


def test_lossy_verification_is_told() -> None:
    def lossy(*args: str) -> bool | None:
        return is_lossy(Setup(version=Version(0, 33), options=told(33, *args)))

    assert lossy(*spec(method="eagle", rejection_sample_method="fly")) is True
    assert lossy(*spec(method="eagle")) is False
    assert lossy() is False
    assert lossy("--config", "/x.yaml") is None


def test_a_version_that_is_not_known_is_never_certain() -> None:
    assert all(not o.certain for o in obstacles(40, "--made-up", architecture="ArcticForCausalLM"))
    assert len(obstacles(40, "--made-up", architecture="ArcticForCausalLM")) == 2


def test_variables_that_a_version_does_not_read() -> None:
    env = {"VLLM_MM_HASHER_ALGORITHM": "x", "VLLM_MADE_UP": "1", "HF_HOME": "/x", "VLLM_PORT": "1"}
    assert unread_variables(Version(0, 33), told(33, env=env)) == (
        UnreadVariable("VLLM_MADE_UP", None),
        UnreadVariable("VLLM_MM_HASHER_ALGORITHM", Version(0, 29)),
    )
    assert [v.name for v in unread_variables(Version(0, 29), told(29, env=env))] == ["VLLM_MADE_UP"]


def test_a_variable_may_come_back() -> None:
    name = "VLLM_ROCM_USE_AITER_FP4_ASM_GEMM"
    gone = {m for m in range(28, 34) if unread_variables(Version(0, m), told(m, env={name: "1"}))}
    assert gone == {29, 30, 33}


def test_flags_that_will_go() -> None:
    flags = ("--log-config-file", "x", "--ir-op-priority", "{}", "--seed", "1")
    assert [d.flag for d in deprecated_flags(Version(0, 33), told(33, *flags))] == [
        "log-config-file",
        "ir-op-priority",
    ]
    assert deprecated_flags(Version(0, 30), told(30, *flags)) == ()
