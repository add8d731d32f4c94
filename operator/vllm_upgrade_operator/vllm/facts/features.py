"""What a model runner of a version lacks, in vLLM's words and order: one row per feature.

Source: config/vllm.py,

* `_get_v2_model_runner_unsupported_features`: 0.28:2369, 0.29:2539, 0.30:2815, 0.31:3051,
  0.32:2914, 0.33:3053
* `_get_v1_model_runner_unsupported_features`: 0.29:2614, 0.30:2883, 0.31:3105, 0.32:2955, 0.33:3089
* `_get_dbo_unsupported_features`: 0.30:2999, 0.31:3235, 0.32:3085, 0.33:3222
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts.known import Trait
from vllm_upgrade_operator.vllm.facts.setup import both, either
from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.vllm.facts.setup import Setup


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that a runner lacks in some versions.

    Attributes:
        name: In vLLM's words, as in its log and in `spec.runner.exceptions`.
        lacking: The runner that lacks it.
        since: The first known version in which it does.
        until: The last one.
        is_used: Whether a server would use it; None where that cannot be told.
    """

    name: str
    lacking: Runner
    since: Version
    until: Version
    is_used: Callable[[Setup], bool | None]


@dataclass(frozen=True, slots=True)
class InUse:
    """A feature of a server, or one that it may have.

    Attributes:
        name: As in `Feature`.
        lacking: The runner that lacks it in the server's version.
        certain: False where it could not be told whether it is used.
    """

    name: str
    lacking: Runner
    certain: bool


def lacking(runner: Runner, setup: Setup) -> list[InUse]:
    """Give what a server would use that a runner of its version lacks, in vLLM's order.

    What may or may not be used is given too, marked.
    """
    return [
        InUse(feature.name, runner, certain=used is True)
        for feature in _FEATURES
        if feature.lacking is runner
        and feature.since <= setup.version <= feature.until
        and (used := feature.is_used(setup)) is not False
    ]


def features_in_use(setup: Setup) -> list[InUse]:
    """Give what a server would use that either runner of its version lacks."""
    return [*lacking(Runner.V2, setup), *lacking(Runner.V1, setup)]


def _flag(name: str) -> Callable[[Setup], bool | None]:
    return lambda s: s.options.is_on(name)


def _more_than_one(flag: str) -> Callable[[Setup], bool | None]:
    return lambda s: s.more_than_one(flag)


def _uses(*methods: str) -> Callable[[Setup], bool | None]:
    return lambda s: s.uses_method(*methods)


def _speculative(key: str) -> Callable[[Setup], bool | None]:
    return lambda s: s.speculative_is_on(key)


_pipelined = _more_than_one("pipeline-parallel-size")


def _stock_compile(s: Setup) -> bool | None:
    # CompilationMode.STOCK_TORCH_COMPILE is 1.
    if s.compilation_is_unread():
        return None
    return str(s.compilation("mode")).upper() in ("1", "STOCK_TORCH_COMPILE")


def _sequence_parallel(s: Setup) -> bool | None:
    if s.compilation_is_unread():
        return None
    enabled = s.compilation("pass_config", "enable_sp") is True
    return both(enabled, s.more_than_one("tensor-parallel-size"))


def _external_launcher(s: Setup) -> bool | None:
    if s.options.is_unread("distributed-executor-backend"):
        return None
    external = s.options.text("distributed-executor-backend") == "external_launcher"
    return both(external, _pipelined(s))


def _parallel_drafting(s: Setup) -> bool | None:
    native = s.uses_method("dflash", "dspark", "")
    return both(None if native is None else not native, s.speculative_is_on("parallel_drafting"))


def _eagle3_pipelined(s: Setup) -> bool | None:
    return both(s.uses_method("eagle3"), _pipelined(s))


def _adaptive(s: Setup) -> bool | None:
    return s.speculative_is_on("enable_adaptive_verification")


def _no_graphs(s: Setup) -> bool | None:
    return either(s.options.is_on("enforce-eager"), s.has_graphs("0", "NONE"))


def _prefill_parallel_without_mla(s: Setup) -> bool | None:
    # Whether a model has multi-head latent attention is in its configuration; DeepSeek's have it.
    latent = s.architecture is not None and s.architecture.startswith("Deepseek")
    return both(s.more_than_one("prefill-context-parallel-size"), False if latent else None)


def _microbatches(s: Setup) -> bool | None:
    # `use_ubatching` of config/parallel.py.
    return either(s.options.is_on("enable-dbo"), s.more_than_one("ubatch-size"))


def _unforced_microbatches(s: Setup) -> bool | None:
    is_set, value = s.forced()
    unset = None if is_set and value is None else not is_set
    return both(_microbatches(s), unset)


def _forced_microbatches_with(
    other: Callable[[Setup], bool | None],
) -> Callable[[Setup], bool | None]:
    def is_used(s: Setup) -> bool | None:
        is_set, value = s.forced()
        forced = None if is_set and value is None else is_set
        return both(both(_microbatches(s), forced), other(s))

    return is_used


def _context_parallel(s: Setup) -> bool | None:
    return either(
        s.more_than_one("decode-context-parallel-size"),
        s.more_than_one("prefill-context-parallel-size"),
    )


def _piecewise(s: Setup) -> bool | None:
    return s.has_graphs("1", "PIECEWISE")


def _speculates(s: Setup) -> bool | None:
    settings = s.speculative()
    return None if settings is None else bool(settings)


def _hybrid(s: Setup) -> bool | None:
    return s.has_trait(Trait.HYBRID)


def _logits_processors(s: Setup) -> bool | None:
    # A package in the image may bring one too (entry point vllm.logits_processors).
    return s.options.is_on("logits-processors")


def _mamba_all(s: Setup) -> bool | None:
    if s.options.is_unread("mamba-cache-mode"):
        return None
    return s.options.text("mamba-cache-mode") == "all"


def _async_pipelined(s: Setup) -> bool | None:
    # Where it is not asked for, vLLM turns it off itself.
    return both(s.options.is_on("async-scheduling"), _pipelined(s))


def _mixed_draft(s: Setup) -> bool | None:
    # Its kinds of layers are in the draft model's configuration.
    return both(s.uses_method("dflash"), None)


def _draft(method: str, *architectures: str) -> Callable[[Setup], bool | None]:
    def is_used(s: Setup) -> bool | None:
        draft = s.draft_architecture
        return both(s.uses_method(method), None if draft is None else draft in architectures)

    return is_used


def _diffusion(s: Setup) -> bool | None:
    # `canvas_length` of the model's configuration; what it belongs to is named so.
    named = s.architecture is not None and "Diffusion" in s.architecture
    return named or s.options.is_on("diffusion-config")


def _step5(s: Setup) -> bool:
    return s.architecture in ("Step5ForCausalLM", "Step5ForConditionalGeneration")


def _head_quantization(s: Setup) -> bool | None:
    return s.speculative_is_on("draft_lm_head_quantization")


def _row(
    name: str,
    runner: Runner,
    since: int,
    until: int,
    is_used: Callable[[Setup], bool | None],
) -> Feature:
    return Feature(name, runner, Version(0, since), Version(0, until), is_used)


_V1, _V2 = Runner.V1, Runner.V2
_OVERLAP = "dual batch overlap"

# In the order in which vLLM lists them; until 33 is until the newest that is known.
_FEATURES: tuple[Feature, ...] = (
    _row("prefill context parallelism", _V2, 28, 28, _prefill_parallel_without_mla),
    _row("stock torch.compile", _V2, 28, 31, _stock_compile),
    _row("sequence parallelism", _V2, 28, 31, _sequence_parallel),
    _row("pipeline parallelism with external_launcher", _V2, 28, 33, _external_launcher),
    _row("ngram/ngram_gpu speculative decoding", _V2, 28, 29, _uses("ngram", "ngram_gpu")),
    _row("speculative method 'ngram'", _V2, 30, 31, _uses("ngram")),
    _row("speculative method 'ngram_gpu'", _V2, 30, 31, _uses("ngram_gpu")),
    _row("speculative method 'draft_model'", _V2, 28, 30, _uses("draft_model")),
    _row("speculative method 'suffix'", _V2, 28, 33, _uses("suffix")),
    _row("speculative method 'medusa'", _V2, 28, 32, _uses("medusa")),
    _row("speculative method 'mlp_speculator'", _V2, 28, 32, _uses("mlp_speculator")),
    _row("speculative method 'custom_class'", _V2, 28, 33, _uses("custom_class")),
    _row("speculative method 'extract_hidden_states'", _V2, 28, 28, _uses("extract_hidden_states")),
    _row("parallel drafting for EAGLE speculative decoding", _V2, 28, 33, _parallel_drafting),
    _row("EAGLE3 with pipeline parallelism", _V2, 28, 29, _eagle3_pipelined),
    _row(
        "heterogeneous-vocabulary draft models",
        _V2,
        32,
        33,
        _speculative("use_heterogeneous_vocab"),
    ),
    _row(
        "adaptive verification with LoRA",
        _V2,
        28,
        28,
        lambda s: both(_adaptive(s), s.options.is_on("enable-lora")),
    ),
    _row(
        "adaptive verification with enforce_eager/cudagraph_mode=none",
        _V2,
        28,
        28,
        lambda s: both(_adaptive(s), _no_graphs(s)),
    ),
    _row(
        "adaptive verification with pipeline parallelism",
        _V2,
        28,
        28,
        lambda s: both(_adaptive(s), _pipelined(s)),
    ),
    _row(_OVERLAP, _V2, 28, 29, _flag("enable-dbo")),
    _row(_OVERLAP, _V2, 30, 33, _unforced_microbatches),
    *(
        _row(f"{_OVERLAP} with {what}", _V2, 30, 33, _forced_microbatches_with(other))
        for what, other in (
            ("LoRA", _flag("enable-lora")),
            ("speculative decoding", _speculates),
            ("pipeline parallelism", _pipelined),
            ("context parallelism", _context_parallel),
            ("multimodal models", lambda s: s.has_trait(Trait.MULTIMODAL)),
            ("hybrid models", _hybrid),
            ("PIECEWISE CUDA graphs", _piecewise),
            ("encoder only models", _flag("mm-encoder-only")),
        )
    ),
    _row("elastic expert parallelism", _V2, 28, 31, _flag("enable-elastic-ep")),
    _row("custom logits processors", _V2, 28, 30, _logits_processors),
    _row("prompt embeds", _V2, 28, 28, _flag("enable-prompt-embeds")),
    _row("KV sharing fast prefill", _V2, 28, 29, _flag("kv-sharing-fast-prefill")),
    _row("mamba cache mode 'all'", _V2, 30, 31, _mamba_all),
    _row(
        "prefill context parallel",
        _V1,
        29,
        33,
        _more_than_one("prefill-context-parallel-size"),
    ),
    _row("pipeline parallelism with async scheduling", _V1, 31, 33, _async_pipelined),
    _row("dspark speculative decoding", _V1, 29, 33, _uses("dspark")),
    _row(
        "xpress speculative decoding",
        _V1,
        33,
        33,
        # A refiner of dflash, and no method (is_xpress, config/speculative.py 0.33:2131).
        _draft("dflash", "Qwen3XPressModel", "DFlashQwen3XPressModel"),
    ),
    _row("adaptive draft verification", _V1, 29, 33, _adaptive),
    _row("draft lm_head quantization", _V1, 33, 33, _head_quantization),
    _row("Parse 3.5 MTP", _V1, 33, 33, _draft("mtp", "ParseAuxMTPModel")),
    _row("mixed sliding/full dflash drafts", _V1, 29, 33, _mixed_draft),
    _row("dflash2 drafts", _V1, 29, 30, _draft("dflash", "DFlash2DraftModel")),
    _row(
        "DFlash candidate-head drafts",
        _V1,
        31,
        33,
        _draft("dflash", "DFlash2DraftModel", "LiLiCorrDraftModel"),
    ),
    _row("diffusion models", _V1, 29, 33, _diffusion),
    _row("batch-sharded sampling", _V1, 29, 33, _flag("enable-batch-sharded-sampling")),
    _row("Step5", _V1, 33, 33, _step5),
)
