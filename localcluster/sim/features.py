"""What of a command line each model runner does not support, in vLLM's words.

Source: config/vllm.py, for V2 0.28:2369, 0.29:2539, 0.32:2914, 0.33:3053; for V1 0.29:2614,
0.32:2955. What depends on the weights of a draft model cannot be seen here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from localcluster.sim.options import Options

_DRAFTING_ON_V2 = {
    "0.28.0": frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark"}),
    "0.29.0": frozenset({"eagle", "eagle3", "mtp", "dflash", "dspark", "extract_hidden_states"}),
}
_DRAFTING_NOT_ON_V2 = {
    "0.32.0": frozenset({"suffix", "medusa", "mlp_speculator", "custom_class"}),
    "0.33.0": frozenset({"suffix", "custom_class"}),
}
_STOCK_TORCH_COMPILE = 1  # CompilationMode.STOCK_TORCH_COMPILE


def prefill_context_parallel(options: Options) -> bool:
    """Tell whether prefill is spread over several devices."""
    return _count(options, "prefill-context-parallel-size") > 1


def needs_v2_in_028(options: Options) -> bool:
    """Tell whether 0.28 chooses V2 for what the command line asks for, before all else."""
    return prefill_context_parallel(options) or _method(options) == "dspark"


def unsupported_by_v2(version: str, options: Options, *, forced: bool) -> list[str]:
    """Name what V2 of a version does not have."""
    old = not at_least(version, "0.32.0")
    found = _compilation(options) if old else []
    pipelined = _count(options, "pipeline-parallel-size") > 1
    if pipelined and options.text("distributed-executor-backend", "") == "external_launcher":
        found.append("pipeline parallelism with external_launcher")
    found += _drafting(version, options)
    # From 0.32 on a forced V2 takes it, but for combinations.
    if options.has("enable-dbo") and (old or not forced):
        found.append("dual batch overlap")
    if old:
        found += _gone_by_032(version, options)
    return found


def unsupported_by_v1(version: str, options: Options) -> list[str]:
    """Name what V1 of a version, 0.29 or newer, does not have."""
    pipelined = _count(options, "pipeline-parallel-size") > 1
    wanted = {
        "prefill context parallel": prefill_context_parallel(options),
        "pipeline parallelism with async scheduling": at_least(version, "0.32.0")
        and pipelined
        and options.has("async-scheduling"),
        "dspark speculative decoding": _method(options) == "dspark",
        "adaptive draft verification": bool(
            options.config("speculative-config").get("enable_adaptive_verification")
        ),
        "batch-sharded sampling": options.has("enable-batch-sharded-sampling"),
    }
    return [name for name, asked in wanted.items() if asked]


def _compilation(options: Options) -> list[str]:
    config = options.config("compilation-config")
    found = []
    if config.get("mode") == _STOCK_TORCH_COMPILE:
        found.append("stock torch.compile")
    spread = _count(options, "tensor-parallel-size") > 1
    if spread and (config.get("pass_config") or {}).get("enable_sp"):
        found.append("sequence parallelism")
    return found


def _drafting(version: str, options: Options) -> list[str]:
    method = _method(options)
    if method is None:
        return []
    old = _DRAFTING_ON_V2.get(version)
    if old is not None and method in ("ngram", "ngram_gpu"):
        return ["ngram/ngram_gpu speculative decoding"]
    if method in _DRAFTING_NOT_ON_V2.get(version, ()) or (old is not None and method not in old):
        return [f"speculative method '{method}'"]
    found = []
    if method not in ("dflash", "dspark") and options.config("speculative-config").get(
        "parallel_drafting"
    ):
        found.append("parallel drafting for EAGLE speculative decoding")
    if old and method == "eagle3" and _count(options, "pipeline-parallel-size") > 1:
        found.append("EAGLE3 with pipeline parallelism")
    return found


def _gone_by_032(version: str, options: Options) -> list[str]:
    wanted = {
        "elastic expert parallelism": options.has("enable-elastic-ep"),
        "custom logits processors": options.has("logits-processors"),
        "prompt embeds": version == "0.28.0" and options.has("enable-prompt-embeds"),
        "KV sharing fast prefill": options.has("kv-sharing-fast-prefill"),
    }
    return [name for name, asked in wanted.items() if asked]


def _method(options: Options) -> str | None:
    shortcut = options.text("spec-method", "") or None
    method = options.config("speculative-config").get("method", shortcut)
    # All multi-token prediction is one method (config/speculative.py).
    return None if method is None else "mtp" if str(method).endswith("_mtp") else str(method)


def _count(options: Options, flag: str) -> int:
    return options.number(flag) or 1
