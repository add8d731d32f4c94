"""Speculative decoding by version: methods, how drafts are verified, and what excludes what.

Source: config/speculative.py, `SpeculativeMethod` (0.28:69, 0.29:71, 0.30:72, 0.31:74, 0.32:73,
0.33:74), `RejectionSampleMethod` (0.28:80, 0.32:84, 0.33:83) and adaptive verification (0.28:1141,
0.29:1507, 0.30:1564, 0.33:1713); config/vllm.py, `_validate_adaptive_verification` (0.29:2646,
0.30:2915, 0.33:3153) and `_validate_batch_sharded_sampling` (0.29:2700, 0.32:3064, not in 0.33).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.facts.setup import either
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from vllm_upgrade_operator.vllm.facts.setup import Setup

LOSSY = frozenset({"fly"})
"""Verification by which answers get worse; 0.33 warns of it in its log (speculative.py:2036)."""

_ALWAYS = frozenset(
    {
        *("custom_class", "dflash", "draft_model", "dspark", "eagle", "eagle3"),
        *("extract_hidden_states", "ngram", "ngram_gpu", "suffix"),
        # Multi-token prediction of a model; all but the first are old names of it.
        *("mtp", "bailing_hybrid_mtp", "bailing_hybrid_v3_mtp", "deepseek_mtp", "dots3_note_mtp"),
        *("gemma4_mtp", "glm4_moe_lite_mtp", "glm4_moe_mtp", "glm_ocr_mtp", "hy_v3_mtp"),
        *("inkling_mtp", "kimi_k3_mtp", "longcat_flash_mtp", "mimo_mtp", "mimo_v2_mtp"),
        *("minimax_m3_mtp", "nemotron_h_mtp", "qwen3_5_mtp", "qwen3_next_mtp", "step3p5_mtp"),
    }
)
# The first and the last version that has the others.
_SPANS: tuple[tuple[str, Version, Version], ...] = tuple(
    (name, Version(0, since), Version(0, until))
    for name, since, until in (
        ("ernie_mtp", 28, 28),
        ("exaone4_5_mtp", 28, 28),
        ("exaone_moe_mtp", 28, 28),
        ("pangu_ultra_moe_mtp", 28, 28),
        ("medusa", 28, 32),
        ("mlp_speculator", 28, 32),
        ("hy_v4_mtp", 29, 33),
        ("qwen4_exp_mtp", 29, 33),
        ("glm5_next_mtp", 30, 33),
        ("step5_mtp", 33, 33),
    )
)


def methods(version: Version) -> frozenset[str]:
    """Give the methods that a known version has."""
    return _ALWAYS | {name for name, since, until in _SPANS if since <= version <= until}


def rejection_methods(version: Version) -> frozenset[str]:
    """Give the values that `rejection_sample_method` may have in a known version."""
    usual = frozenset({"standard", "synthetic", "block"})
    return usual | LOSSY if version >= Version(0, 33) else usual


def adaptive_excludes(setup: Setup) -> list[str]:
    """Give what of a server's settings does not go with adaptive verification, where it is on.

    Only what is sure; in 0.28 its model runner refuses them (see `features.py`).
    """
    found = []
    s, version = setup.options, setup.version
    method = setup.method()
    if version < Version(0, 30) and method not in (None, "dspark"):
        found.append(f"the method {method!r} (only with dspark)")
    local = setup.speculative_is_on("use_local_argmax_reduction")
    if version >= Version(0, 30) and method != "dspark" and local:
        found.append("use_local_argmax_reduction")
    if version < Version(0, 29):
        return found
    if s.is_on("enable-lora"):
        found.append("--enable-lora")
    if setup.more_than_one("pipeline-parallel-size"):
        found.append("--pipeline-parallel-size above 1")
    # From 0.30 on CUDA graphs have to be full ones; before, there have to be any.
    graphs = ("0", "NONE") if version < Version(0, 30) else ("0", "NONE", "1", "PIECEWISE")
    if either(s.is_on("enforce-eager"), setup.has_graphs(*graphs)):
        found.append("eager execution or piecewise CUDA graphs")
    if version < Version(0, 33) and s.is_on("enable-batch-sharded-sampling"):
        found.append("--enable-batch-sharded-sampling")
    return found
