"""Speculative decoding that a version cannot do: methods, and ways to verify drafts.

Source: config/speculative.py (SpeculativeMethod and RejectionSampleMethod 0.28:80 to 0.33:83;
adaptive verification 0.28:1141, 0.29:1507, 0.30:1564; FLy 0.33:2014) and config/vllm.py
(`_validate_adaptive_verification` 0.29:2646, 0.30:2915, 0.31:3151, 0.32:3001, 0.33:3153,
`_validate_batch_sharded_sampling` 0.29:2676, 0.33:3182).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts.setup import either
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from vllm_upgrade_operator.vllm.facts.setup import Setup

# Those that came or went; `mtp` stands for all kinds of multi-token prediction.
_ALWAYS = frozenset(
    {
        "custom_class",
        "dflash",
        "draft_model",
        "dspark",
        "eagle",
        "eagle3",
        "extract_hidden_states",
        "mtp",
        "ngram",
        "ngram_gpu",
        "suffix",
    }
)
_GONE_IN_033 = frozenset({"medusa", "mlp_speculator"})

LOSSY = "fly"
"""A way to verify drafts that may change what the model answers; since 0.33."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why speculative decoding cannot be had as it is asked for."""

    subject: str
    sentence: str
    advice: str


def is_lossy(setup: Setup) -> bool | None:
    """Whether drafts are verified in a way that may change answers (FLy)."""
    settings = setup.speculative()
    return None if settings is None else settings.get("rejection_sample_method") == LOSSY


def verification(setup: Setup) -> list[Problem]:
    """Say what of a server's speculative decoding its version cannot do."""
    settings = setup.speculative()
    found: list[Problem] = []
    if settings:
        found += _method(setup)
        found += _rejection_sampling(setup, settings)
        found += _adaptive(setup, settings)
    found += _batch_sharded(setup)
    return found


def _name(version: Version) -> str:
    return f"{version.major}.{version.minor}"


def _method(setup: Setup) -> Iterator[Problem]:
    method = setup.method()
    if method is None or method in _ALWAYS:
        return
    if method in _GONE_IN_033 and setup.version < Version(0, 33):
        return
    gone = " any more: 0.32 is the last with it" if method in _GONE_IN_033 else ""
    yield Problem(
        method[:64],
        f"vLLM {_name(setup.version)} has no speculative method {method[:64]!r}{gone}",
        "use another method in --speculative-config, or none",
    )


def _rejection_sampling(setup: Setup, settings: Mapping[str, Any]) -> Iterator[Problem]:
    if settings.get("rejection_sample_method") != LOSSY:
        return
    if setup.version < Version(0, 33):
        yield Problem(
            LOSSY,
            f"vLLM {_name(setup.version)} has no rejection_sample_method 'fly': 0.33 is the first",
            "take rejection_sample_method out of --speculative-config",
        )
        return
    tokens = settings.get("num_speculative_tokens") or setup.options.number("spec-tokens")
    window = settings.get("fly_window_size")
    if isinstance(tokens, int) and tokens < 2:
        yield Problem(
            LOSSY,
            f"FLy needs num_speculative_tokens of 2 or more, it is {tokens}",
            "raise it, or take rejection_sample_method out",
        )
    elif isinstance(tokens, int) and isinstance(window, int) and window >= tokens:
        yield Problem(
            LOSSY,
            f"FLy needs fly_window_size ({window}) below num_speculative_tokens ({tokens})",
            "lower fly_window_size",
        )
    if setup.uses_method("extract_hidden_states"):
        yield Problem(
            LOSSY,
            "FLy cannot verify method 'extract_hidden_states', which drafts nothing",
            "take rejection_sample_method out",
        )


_ADAPTIVE = "enable_adaptive_verification"


def _adaptive(setup: Setup, settings: Mapping[str, Any]) -> Iterator[Problem]:
    if not settings.get(_ADAPTIVE):
        return
    advice = f"do without it, or take {_ADAPTIVE} out of --speculative-config"
    version = setup.version
    if version < Version(0, 30) and setup.uses_method("dspark") is False:
        yield Problem(
            _ADAPTIVE,
            f"adaptive verification of vLLM {_name(version)} is for method 'dspark' only",
            advice,
        )
    if (
        version >= Version(0, 30)
        and setup.uses_method("dspark") is False
        and settings.get("use_local_argmax_reduction")
    ):
        yield Problem(
            _ADAPTIVE,
            "adaptive verification does not go with use_local_argmax_reduction",
            advice,
        )
    if version < Version(0, 29):
        # 0.28 calls the rest features that V2 lacks: `features.py`.
        return
    for excluded, what in _EXCLUDED:
        if excluded(setup):
            yield Problem(_ADAPTIVE, f"adaptive verification does not go with {what}", advice)


def _without_full_graphs(s: Setup) -> bool | None:
    """From 0.30 on only full graphs will do; in 0.29 any."""
    without = either(s.options.is_on("enforce-eager"), s.has_graphs("0", "NONE"))
    piecewise = s.has_graphs("1", "PIECEWISE") if s.version >= Version(0, 30) else False
    return either(without, piecewise)


_EXCLUDED: tuple[tuple[Callable[[Setup], bool | None], str], ...] = (
    (lambda s: s.options.is_on("enable-lora"), "LoRA"),
    (_without_full_graphs, "running without full CUDA graphs"),
    (lambda s: s.more_than_one("pipeline-parallel-size"), "pipeline parallelism"),
)


def _batch_sharded(setup: Setup) -> Iterator[Problem]:
    flag = "enable-batch-sharded-sampling"
    if setup.version < Version(0, 29) or not setup.options.is_on(flag):
        return
    advice = f"take --{flag} out"
    if setup.more_than_one("tensor-parallel-size") is False:
        yield Problem(flag, "batch-sharded sampling needs --tensor-parallel-size above 1", advice)
    if setup.speculative_is_on(_ADAPTIVE) and setup.version < Version(0, 33):
        yield Problem(
            flag,
            f"batch-sharded sampling of vLLM {_name(setup.version)} does not go with adaptive "
            "verification: 0.33 is the first that can",
            advice,
        )
