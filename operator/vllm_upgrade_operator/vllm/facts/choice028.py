"""How 0.28 chooses where nothing is forced; later versions take V2 for all models.

Source: config/vllm.py 0.28:615 to 0.28:715. Most mixtures of experts, hybrids and pooling models
stay on V1, and nothing is logged about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.facts.known import Trait
from vllm_upgrade_operator.vllm.runner import Runner

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.facts.rules import Choice, Rules
    from vllm_upgrade_operator.vllm.facts.setup import Setup


# DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES, config/vllm.py 0.28:69.
_V2 = frozenset(
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
# Architectures whose every model is a mixture of experts, though the name does not say it.
_EXPERTS_ALWAYS = frozenset(
    {
        "DbrxForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "GptOssForCausalLM",
        "Llama4ForConditionalGeneration",
        "MiniMaxM2ForCausalLM",
        "MixtralForCausalLM",
    }
)


def needs_v2(rules: Rules) -> Choice | None:
    """Choose V2 for what V1 of 0.28 does not have."""
    s = rules.setup
    for answer, what in (
        (s.more_than_one("prefill-context-parallel-size"), "prefill context parallelism is used"),
        (s.uses_method("dspark"), "dspark speculative decoding is used"),
        (_dflash_needs_v2(s), "the dflash draft model needs V2"),
    ):
        if rules.asks(answer, what):
            return rules.decided(Runner.V2, what)
    if s.architecture is not None and "Diffusion" in s.architecture:
        return rules.decided(Runner.V2, "diffusion models need V2")
    return None


def _dflash_needs_v2(s: Setup) -> bool | None:
    if s.draft_architecture == "DFlash2DraftModel":
        return s.uses_method("dflash")
    return None if s.uses_method("dflash") is not False else False


def default_model(rules: Rules) -> Choice | None:
    """Choose V1 for the models that 0.28 keeps on it."""
    s = rules.setup
    if s.options.text("runner") == "pooling":
        return rules.decided(Runner.V1, "0.28 keeps pooling models on V1")
    if s.architecture is None:
        rules.note_unknown("the model's architecture is not known, by which 0.28 chooses")
        return None
    rocm = s.machine.rocm
    if s.architecture == "DeepseekV4ForCausalLM" and rules.asks(rocm, "it runs on an AMD GPU"):
        return rules.decided(Runner.V1, "0.28 keeps DeepSeek V4 on V1 on AMD GPUs")
    if s.architecture in _V2:
        return None
    return _by_traits(rules, s.architecture)


def _by_traits(rules: Rules, architecture: str) -> Choice | None:
    found = known.traits(architecture)
    if found is None:
        rules.note_unknown(f"architecture {architecture} is not known")
        return None
    for trait, kind in (
        (Trait.POOLING, "pooling models"),
        (Trait.HYBRID, "hybrid models"),
        (Trait.ATTENTION_FREE, "models without attention"),
    ):
        if trait in found:
            return rules.decided(Runner.V1, f"0.28 keeps {kind} on V1")
    named = "moe" in architecture.lower()
    if named or Trait.EXPERTS in found:
        if not named and architecture not in _EXPERTS_ALWAYS:
            rules.note_unknown("whether the model is a mixture of experts is not known")
        return rules.decided(Runner.V1, "0.28 keeps mixtures of experts on V1")
    if Trait.MULTIMODAL in found:
        rules.note_unknown("whether its language model is a mixture of experts is not known")
    return None
