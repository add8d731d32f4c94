"""Do the limits of batch and KV cache leave room for the longest text?"""

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
    from vllm_upgrade_operator.upgrade.preflight.subject import Sides

_BATCH, _BLOCKS, _LENGTH = "max-num-batched-tokens", "num-gpu-blocks-override", "max-model-len"
# config/cache.py, DEFAULT_BLOCK_SIZE of 0.28 to 0.33; some attention backends take larger ones.
_BLOCK_TOKENS = 16


def batch(t: Sides) -> Answer:
    """A batch without room for what it has to hold ends the start (config/scheduler.py)."""
    options = t.candidate.options
    if options.is_unread(_BATCH):
        return unknown("BatchUnread", f"the value of --{_BATCH} cannot be read here")
    tokens = options.number(_BATCH)
    if tokens is None:
        return not_applicable(f"--{_BATCH} is not set: vLLM chooses it")
    sequences = options.number("max-num-seqs")
    if sequences is not None and tokens < sequences:
        return block(
            "BatchTooSmall",
            f"--{_BATCH} {tokens} is less than --max-num-seqs {sequences}: it would not start; "
            f"raise it to {sequences} at least",
        )
    whole = options.given.get("enable-chunked-prefill")
    if whole is None or whole.on:
        return passed(f"--{_BATCH} {tokens}: longer prompts are computed in chunks")
    length = t.candidate.model.max_model_len
    if length is None:
        return unknown(
            "ModelLengthUnknown",
            f"--no-enable-chunked-prefill needs --{_BATCH} of at least --{_LENGTH}, which is not "
            "known here",
        )
    if tokens < length:
        return block(
            "BatchTooSmall",
            f"--{_BATCH} {tokens} is less than the model length {length}, and chunked prefill is "
            f"off: it would not start; raise it, lower --{_LENGTH}, or leave "
            "--no-enable-chunked-prefill out",
        )
    return passed(f"--{_BATCH} {tokens} holds the longest prompt, {length}")


def kv_cache(t: Sides) -> Answer:
    """A KV cache of a fixed size has to hold one text of the model's length."""
    options = t.candidate.options
    fixed = [f for f in (_BLOCKS, "kv-cache-memory-bytes") if f in options.given]
    if not fixed:
        return not_applicable("the KV cache has no fixed size: vLLM measures what is free")
    if _BLOCKS not in fixed:
        if t.stable.release.version == t.candidate.release.version:
            return passed("--kv-cache-memory-bytes is set, and the version stays")
        return warn(
            "KVCacheFixed",
            "--kv-cache-memory-bytes is set, and another version may need more for a token: see "
            "that the KV cache of the canary holds as many (check kv-capacity)",
        )
    blocks, length = options.number(_BLOCKS), t.candidate.model.max_model_len
    size = options.number("block-size") or _BLOCK_TOKENS
    if blocks is None or options.is_unread("block-size"):
        return unknown("KVCacheUnread", f"the value of --{_BLOCKS} cannot be read here")
    if length is None:
        return unknown(
            "ModelLengthUnknown",
            f"--{_BLOCKS} {blocks} are {blocks * size} tokens; the model length, which has to fit, "
            "is not known here",
        )
    if blocks * size < length:
        if not _length_is_stated(t):
            return warn(
                "KVCacheTooSmall",
                f"--{_BLOCKS} {blocks} are {blocks * size} tokens, less than the model length "
                f"{length} that the stable pods have: it would not start; raise it, or lower "
                f"--{_LENGTH}",
            )
        return block(
            "KVCacheTooSmall",
            f"--{_BLOCKS} {blocks} are {blocks * size} tokens, less than --{_LENGTH} {length}: it "
            f"would not start; raise it, or lower --{_LENGTH}",
        )
    return passed(
        f"--{_BLOCKS} {blocks} are {blocks * size} tokens, for a model length of {length}"
    )


def _length_is_stated(t: Sides) -> bool:
    return t.candidate.options.number(_LENGTH) is not None
