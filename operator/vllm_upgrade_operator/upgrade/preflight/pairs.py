"""Prefill and decode that are served by two workloads have to move together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    block,
    not_applicable,
    passed,
    unknown,
    warn,
)

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial

# llm-d labels the two halves so (llm-d-modelservice, templates/decode-deployment.yaml).
_ROLE_LABEL = "llm-d.ai/role"
_HALVES = frozenset({"prefill", "decode"})
# kv_role of --kv-transfer-config (config/kv_transfer.py, 0.28 to 0.33).
_ONE_SIDED = frozenset({"kv_producer", "kv_consumer"})
_SKEW = (
    "a prefill and a decode server of different vLLM versions refuse each other's KV cache "
    "(vllm-project/vllm#29503)"
)


def prefill_decode(t: Trial) -> Answer:
    """One half of a pair on another version cannot talk to the other half."""
    labels = (t.target.template.get("metadata") or {}).get("labels") or {}
    half = labels.get(_ROLE_LABEL) if labels.get(_ROLE_LABEL) in _HALVES else None
    settings = t.candidate.options.settings("kv-transfer-config")
    if settings is None and half is None:
        return unknown(
            "KVTransferUnread",
            "whether --kv-transfer-config is set, and its kv_role, cannot be read: if this is one "
            f"half of a prefill/decode pair, {_SKEW}",
        )
    role = (settings or {}).get("kv_role")
    if role is None and half is None:
        return not_applicable("the candidate takes its KV cache from no other server")
    one_sided = half is not None or role in _ONE_SIDED
    same_image = t.stable.image == t.candidate.image
    what = half or role
    if one_sided and not same_image:
        return block(
            "PrefillDecodePair",
            f"{t.target.name} is one half of a prefill/decode pair ({what}), and {_SKEW}: set up "
            "a second pair of the new version beside this one and move the traffic over",
        )
    if one_sided:
        return warn(
            "PrefillDecodePair",
            f"{t.target.name} is one half of a prefill/decode pair ({what}): flags about the KV "
            "cache have to be the same on both halves",
        )
    return passed(f"--kv-transfer-config has kv_role {role}: no half of a pair")
