"""Which model runner a version of vLLM chooses: its own rules, in its own order.

Source: VllmConfig.use_v2_model_runner (config/vllm.py 0.28:615, 0.29:645, 0.32:703, 0.33:731) and
the lists beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.options import Options

# Architectures that 0.28 puts on V2 although they are mixtures of experts (config/vllm.py 0.28:69).
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
_ROCM_V1_IN_029 = frozenset({"DeepseekV32ForCausalLM", "DeepseekV4ForCausalLM"})
_DRAFTING_ON_V2 = frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark", "extract_hidden_states"})
_DRAFTING_NOT_ON_V2 = {
    "0.32.0": frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"}),
    "0.33.0": frozenset({"suffix", "custom_class"}),
}


class StartError(Exception):
    """vLLM does not start with this configuration; the text is its own."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The runner, and the warning that every process logs about it."""

    v2: bool
    warning: str | None = None


def choose(version: str, options: Options, env: Mapping[str, str]) -> Choice:
    """Choose the runner.

    Args:
        version: The version that is played.
        options: Its command line.
        env: Environment: vLLM's own VLLM_USE_V2_MODEL_RUNNER, and SIM_ARCHITECTURE, SIM_TRITON=0,
            SIM_ROCM=1 for what a real server finds out about its model and its machine.

    Raises:
        StartError: A runner is forced that cannot be had.
    """
    architecture = env.get("SIM_ARCHITECTURE", "LlamaForCausalLM")
    forced = env.get("VLLM_USE_V2_MODEL_RUNNER")
    triton = env.get("SIM_TRITON", "1") != "0"
    unsupported = _unsupported(version, options)
    if forced is not None:
        if not _is_true(forced):
            return Choice(v2=False)
        if not triton:
            raise StartError("Model Runner V2 requires Triton.")
        if unsupported:
            raise StartError(f"Model Runner V2 does not yet support: {', '.join(unsupported)}")
        return Choice(v2=True)
    if not at_least(version, "0.29.0") and not _default_in_028(architecture):
        return Choice(v2=False)
    rocm = env.get("SIM_ROCM") == "1"
    if version == "0.29.0" and rocm and architecture in _ROCM_V1_IN_029:
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
    if unsupported:
        return Choice(
            v2=False,
            warning=f"Model Runner V2 does not yet support {', '.join(unsupported)}; "
            "using the V1 model runner instead.",
        )
    return Choice(v2=True)


def _default_in_028(architecture: str) -> bool:
    """0.28 keeps mixtures of experts and pooling models on V1, and says nothing about it."""
    if architecture in _V2_IN_028:
        return True
    return "Moe" not in architecture and architecture.endswith(
        ("ForCausalLM", "ForConditionalGeneration")
    )


def _unsupported(version: str, options: Options) -> list[str]:
    """Features of the command line that V2 of this version does not have, in vLLM's words."""
    found: list[str] = []
    config = json.loads(options.values.get("speculative-config") or "{}")
    method = config.get("method")
    old = not at_least(version, "0.32.0")
    if method in ("ngram", "ngram_gpu") and old:
        found.append("ngram/ngram_gpu speculative decoding")
    elif (method is not None and old and method not in _DRAFTING_ON_V2) or method in _DRAFTING_NOT_ON_V2.get(version, frozenset()):
        found.append(f"speculative method '{method}'")
    if "enable-dbo" in options.values:
        found.append("dual batch overlap")
    if old and "enable-elastic-ep" in options.values:
        found.append("elastic expert parallelism")
    if old and "logits-processors" in options.values:
        found.append("custom logits processors")
    if version == "0.28.0" and "enable-prompt-embeds" in options.values:
        found.append("prompt embeds")
    if old and "kv-sharing-fast-prefill" in options.values:
        found.append("KV sharing fast prefill")
    return found


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on")
