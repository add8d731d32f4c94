"""Prefill and decode that are served by two workloads have to move together."""

from __future__ import annotations

import json
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
    text = t.candidate.value("kv-transfer-config")
    if text is None and half is None:
        return not_applicable("the candidate takes its KV cache from no other server")
    role = None if text is None else _role(text)
    if text is not None and role is None:
        return unknown(
            "KVTransferUnread",
            "--kv-transfer-config is there and its kv_role cannot be read: if this is one half of "
            f"a prefill/decode pair, {_SKEW}",
        )
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


def _role(text: str) -> str | None:
    try:
        config = json.loads(text)
    except ValueError:
        return None
    role = config.get("kv_role") if isinstance(config, dict) else None
    return role if isinstance(role, str) else None
