"""What a server plays: version, command line, and the `SIM_*` variables of its environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from localcluster.sim.engine import Limits, Speed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.options import Options

_MAX_MODEL_LEN = 4096
_KV_BLOCKS = 8192
_LOAD_SECONDS = 1.0
_ARCHITECTURE = "LlamaForCausalLM"


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a server needs to know before it starts.

    Attributes:
        version: The version of vLLM that is played.
        options: Its command line.
        architecture: The architecture that it finds in its model.
        load_seconds: How long it loads.
        max_model_len: Most tokens of one request, prompt and output.
        limits: The engine's limits.
        speed: The engine's speed.
        draft_tokens: Tokens of a draft; None without speculative decoding.
        api_keys: Keys that `/v1` asks for; none for no check.
    """

    version: str
    options: Options
    architecture: str
    load_seconds: float
    max_model_len: int
    limits: Limits
    speed: Speed
    draft_tokens: int | None
    api_keys: frozenset[str]


def read(version: str, options: Options, env: Mapping[str, str]) -> Settings:
    """Read the settings.

    Raises:
        ValueError: A variable has a value that it cannot have.
    """
    number = options.number
    default = Limits()
    keys = options.flags.get("api-key") or [env.get("VLLM_API_KEY", "")]
    return Settings(
        version=version,
        options=options,
        architecture=env.get("SIM_ARCHITECTURE", _ARCHITECTURE),
        load_seconds=_number(env, "SIM_LOAD_SECONDS", _LOAD_SECONDS, minimum=0),
        max_model_len=number("max-model-len") or _MAX_MODEL_LEN,
        limits=Limits(
            max_num_seqs=number("max-num-seqs") or default.max_num_seqs,
            max_num_batched_tokens=number("max-num-batched-tokens")
            or default.max_num_batched_tokens,
            max_num_queued_reqs=number("max-num-queued-reqs"),
            max_num_queued_tokens=number("max-num-queued-tokens"),
            kv_blocks=number("num-gpu-blocks-override")
            or int(_number(env, "SIM_KV_BLOCKS", _KV_BLOCKS, minimum=1)),
            block_size=number("block-size") or default.block_size,
        ),
        speed=_speed(env),
        draft_tokens=_draft_tokens(options),
        api_keys=frozenset(key for key in keys if key),
    )


def _draft_tokens(options: Options) -> int | None:
    config = options.config("speculative-config")
    return int(config.get("num_speculative_tokens") or 1) if config else None


def _speed(env: Mapping[str, str]) -> Speed:
    default = Speed()
    return Speed(
        step_seconds=_number(env, "SIM_DECODE_STEP_SECONDS", default.step_seconds, minimum=1e-4),
        sequence_seconds=_number(env, "SIM_SEQUENCE_SECONDS", default.sequence_seconds, minimum=0),
        prefill_tokens_per_second=_number(
            env, "SIM_PREFILL_TOKENS_PER_SECOND", default.prefill_tokens_per_second, minimum=1
        ),
    )


def _number(env: Mapping[str, str], name: str, default: float, *, minimum: float) -> float:
    text = env.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not minimum <= value < float("inf"):
        raise ValueError(f"{name}={text}: write a number that is at least {minimum:g}")
    return value
