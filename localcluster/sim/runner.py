"""Which model runner a version of vLLM chooses: its own rules, in its own order.

Source: VllmConfig.use_v2_model_runner (config/vllm.py 0.28:615, 0.29:645, 0.32:703, 0.33:731).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localcluster.sim import features
from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.options import Options

# Architectures that 0.28 puts on V2 whatever they are (config/vllm.py 0.28:69).
_V2_IN_028 = frozenset(
    {
        "DeepseekV2ForCausalLM",
        "DeepseekV4ForCausalLM",
        "GraniteMoeForCausalLM",
        "InklingForCausalLM",
        "InklingForConditionalGeneration",
        "KimiK3ForConditionalGeneration",
        "LongcatFlashNgramForCausalLM",
        "Qwen2MoeForCausalLM",
    }
)
# Mixtures of experts, hybrids and models without attention whose name does not say it. Some of
# the architectures that people run; a real server finds it out from the model's configuration.
_V1_IN_028 = frozenset(
    {
        "DbrxForCausalLM",
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "FalconH1ForCausalLM",
        "GptOssForCausalLM",
        "JambaForCausalLM",
        "Llama4ForConditionalGeneration",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MiniMaxM2ForCausalLM",
        "MixtralForCausalLM",
        "NemotronHForCausalLM",
        "Qwen3NextForCausalLM",
        "Zamba2ForCausalLM",
    }
)
_ROCM_V1_IN_029 = frozenset({"DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"})


class StartError(Exception):
    """vLLM does not start with this configuration; the text is its own.

    Attributes:
        in_worker: It is the worker that finds out, not the API server.
    """

    def __init__(self, text: str, *, in_worker: bool = False) -> None:
        super().__init__(text)
        self.in_worker = in_worker


@dataclass(frozen=True, slots=True)
class Choice:
    """The runner, and the warning that every process logs about it."""

    v2: bool
    warning: str | None = None


def choose(version: str, options: Options, architecture: str, env: Mapping[str, str]) -> Choice:
    """Choose the runner.

    Args:
        version: The version that is played.
        options: Its command line.
        architecture: Architecture of the model.
        env: Environment: vLLM's own VLLM_USE_V2_MODEL_RUNNER, and SIM_TRITON=0 and SIM_ROCM=1 for
            what a real server finds out about its machine.

    Raises:
        StartError: The runner that is forced or chosen cannot be had.
    """
    choice = _choose(version, options, architecture, env)
    if choice.v2:
        return choice
    if at_least(version, "0.29.0"):
        needing = features.unsupported_by_v1(version, options)
        if needing:
            raise StartError(f"Model Runner V1 does not support: {', '.join(needing)}")
    elif features.prefill_context_parallel(options):
        raise StartError(
            "Prefill context parallelism requires Model Runner V2. Remove "
            "VLLM_USE_V2_MODEL_RUNNER=0."
        )
    return choice


def _choose(version: str, options: Options, architecture: str, env: Mapping[str, str]) -> Choice:
    triton = env.get("SIM_TRITON") != "0"
    if at_least(version, "0.32.0") and options.has("watermark-config"):
        return Choice(v2=True)
    forced = env.get("VLLM_USE_V2_MODEL_RUNNER")
    if forced is not None:
        wanted = _boolean(forced)
        if wanted:
            _check_forced(version, options, triton=triton)
        return Choice(v2=wanted)
    if version == "0.28.0":
        if features.needs_v2_in_028(options):
            _check_forced(version, options, triton=triton)
            return Choice(v2=True)
        if not _default_in_028(architecture, rocm=env.get("SIM_ROCM") == "1"):
            return Choice(v2=False)
    if version == "0.29.0" and env.get("SIM_ROCM") == "1" and architecture in _ROCM_V1_IN_029:
        return Choice(
            v2=False,
            warning="Defaulting to V1 model runner on ROCm for model architectures: "
            f"{architecture}",
        )
    if not triton:
        return Choice(
            v2=False,
            warning="Model Runner V2 requires Triton; using the V1 model runner instead.",
        )
    unsupported = features.unsupported_by_v2(version, options, forced=False)
    if unsupported:
        return Choice(
            v2=False,
            warning=f"Model Runner V2 does not yet support {', '.join(unsupported)}; "
            "using the V1 model runner instead.",
        )
    return Choice(v2=True)


def _check_forced(version: str, options: Options, *, triton: bool) -> None:
    if not triton:
        # From 0.33 on it is the worker that asks (v1/worker/gpu_worker.py:208).
        raise StartError("Model Runner V2 requires Triton.", in_worker=at_least(version, "0.33.0"))
    unsupported = features.unsupported_by_v2(version, options, forced=True)
    if unsupported:
        raise StartError(f"Model Runner V2 does not yet support: {', '.join(unsupported)}")


def _default_in_028(architecture: str, *, rocm: bool) -> bool:
    """0.28 keeps most mixtures of experts, hybrids and pooling models on V1, and says nothing."""
    if architecture in _V2_IN_028:
        return not (rocm and architecture == "DeepseekV4ForCausalLM")
    if architecture in _V1_IN_028 or "moe" in architecture.lower():
        return False
    return architecture.endswith(("ForCausalLM", "ForConditionalGeneration"))


def _boolean(text: str) -> bool:
    """Read it as envs.py does, by `bool(int(text))`."""
    try:
        return bool(int(text))
    except ValueError as error:
        raise StartError(str(error)) from None
