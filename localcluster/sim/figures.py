"""What a server counts: the figures that end up in `/metrics`."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Bucket bounds of vLLM 0.28 to 0.33, in seconds (v1/metrics/loggers.py; buckets.py from 0.32).
TTFT_BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_BOUNDS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
REQUEST_BOUNDS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
# In tokens: 1, 2, 5, 10 and so on. A server shows those up to its --max-model-len.
LENGTH_BOUNDS = tuple(float(m * 10**e) for e in range(8) for m in (1, 2, 5))
ITERATION_BOUNDS = (1.0, *(float(2**e) for e in range(3, 15)))
PREEMPTION_BOUNDS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


class Rejection(StrEnum):
    """Why a request is not let in: the `reason` label of the counter that 0.32 has for it."""

    REQUESTS = "max_num_queued_reqs"
    TOKENS = "max_num_queued_tokens"


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram; `counts` are those of the buckets alone, the last one is `+Inf`."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count an observation."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times


def _seconds() -> Histogram:
    return Histogram(REQUEST_BOUNDS)


def _tokens() -> Histogram:
    return Histogram(LENGTH_BOUNDS)


@dataclass(slots=True)
class Figures:
    """Everything that the engine counts, on its own clock.

    The histograms of whole requests count those that finished, as vLLM's do; the ones of tokens
    count each token when it comes.
    """

    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    failed: int = 0
    aborted: int = 0
    rejections: dict[Rejection, int] = field(default_factory=lambda: dict.fromkeys(Rejection, 0))
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    itl: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    tpot: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    e2e: Histogram = field(default_factory=_seconds)
    queue: Histogram = field(default_factory=_seconds)
    inference: Histogram = field(default_factory=_seconds)
    prefill: Histogram = field(default_factory=_seconds)
    decode: Histogram = field(default_factory=_seconds)
    prompt_lengths: Histogram = field(default_factory=_tokens)
    output_lengths: Histogram = field(default_factory=_tokens)
    iterations: Histogram = field(default_factory=lambda: Histogram(ITERATION_BOUNDS))
    preemptions_per_request: Histogram = field(default_factory=lambda: Histogram(PREEMPTION_BOUNDS))
