"""Looks at pods that finished requests of given lengths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.judge.counters import Delta, Histogram
from vllm_upgrade_operator.judge.model import Look

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

_LENGTHS = (100.0, 1000.0, math.inf)


def lengths(requests: float, total: float) -> Histogram:
    """Observations of which only number and sum matter."""
    return Histogram(_LENGTHS, (0.0, 0.0, requests), total)


def answered(
    requests: float, *, prompt: float = 400.0, output: float = 100.0, **more: Any
) -> Delta:
    """Give ten seconds of one pod; `prompt` and `output` are means."""
    values: dict[str, Any] = {
        "seconds": 10.0,
        "offered": requests,
        "rejected": 0.0,
        "rejected_for_tokens": 0.0,
        "rejections_approximate": False,
        "errors": 0.0,
        "client_errors": 0.0,
        "preemptions": 0.0,
        "finished": requests,
        "prompt_tokens": requests * prompt,
        "generation_tokens": requests * output,
        "running": 1.0,
        "waiting": 0.0,
        "kv_usage": 0.2,
        "kv_capacity_tokens": 100_000.0,
        "draft_tokens": None,
        "accepted_tokens": None,
        "ttft": None,
        "itl": None,
        "e2e": None,
        "prompt_lengths": lengths(requests, requests * prompt),
        "output_lengths": lengths(requests, requests * output),
        "finished_by_model": {"m": requests},
        "models": ("m",),
    }
    return Delta(**{**values, **more})


def drawn(random: Random, *, prompt: float = 400.0, output: float = 100.0, **more: Any) -> Delta:
    """Draw ten seconds at ten requests per second, of lengths as skewed as real ones are."""
    requests = max(0, round(random.gauss(100, 10)))
    # The mean of a log-normal with sigma 1.2 is exp(0.72) times its median.
    long = [random.lognormvariate(math.log(prompt) - 0.72, 1.2) for _ in range(requests)]
    out = [random.lognormvariate(math.log(output) - 0.72, 1.2) for _ in range(requests)]
    return answered(
        float(requests),
        **{
            "prompt_lengths": lengths(float(requests), sum(long)),
            "output_lengths": lengths(float(requests), sum(out)),
            **more,
        },
    )


def look(canary: Mapping[str, Delta], stable: Mapping[str, Delta]) -> Look:
    """One look at all of them."""
    return Look(at=0.0, canary=canary, stable=stable)
