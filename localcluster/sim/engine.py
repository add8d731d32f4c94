"""Continuous batching as a pure model: no real time, no I/O, stepped by whoever uses it.

One step computes one token for every running request that is through its prefill, and as many
prompt tokens of the others as the batch has room for; its duration is a fixed part plus a part
for each prompt token and each sequence. That is enough for what an operator can see to come out
by itself: queues, time to first token, inter-token latency, KV use, preemptions, rejections.
"""

from __future__ import annotations

import bisect
from collections import deque
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


class Rejection(StrEnum):
    """Why a request is not let in: the `reason` label of the counter that 0.32 has for it."""

    REQUESTS = "max_num_queued_reqs"
    TOKENS = "max_num_queued_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a server is started with.

    Attributes:
        max_num_seqs: Most requests in the running batch.
        max_num_batched_tokens: Most tokens computed in one step.
        max_num_queued_reqs: Most requests in the server, running ones too; None for no limit.
        max_num_queued_tokens: Prompt tokens not yet prefilled from which on nothing is let in.
        kv_blocks: Blocks of the KV cache.
        block_size: Tokens of one block.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None
    kv_blocks: int = 8192
    block_size: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast the model is.

    Attributes:
        step_seconds: Duration of a step that computes nothing.
        sequence_seconds: For each request in the step.
        prefill_tokens_per_second: Prompt tokens.
    """

    step_seconds: float = 0.015
    sequence_seconds: float = 0.0003
    prefill_tokens_per_second: float = 20_000.0


@dataclass(slots=True)
class Histogram:
    """A Prometheus histogram."""

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float, times: int = 1) -> None:
        """Count an observation."""
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.total += value * times


@dataclass(slots=True)
class Figures:
    """Everything that the engine counts, on its own clock."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: int = 0
    aborted: int = 0
    iterations: int = 0
    iteration_tokens: int = 0
    rejections: dict[Rejection, int] = field(default_factory=lambda: dict.fromkeys(Rejection, 0))
    ttft: Histogram = field(default_factory=lambda: Histogram(TTFT_BOUNDS))
    itl: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    tpot: Histogram = field(default_factory=lambda: Histogram(TOKEN_BOUNDS))
    e2e: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    queue: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    inference: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    prefill: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))
    decode: Histogram = field(default_factory=lambda: Histogram(REQUEST_BOUNDS))


@dataclass(slots=True, eq=False)
class Request:
    """One request in the engine. Times are the engine's."""

    prompt_tokens: int
    output_tokens: int
    arrived: float
    computed: int = 0
    """Tokens whose keys and values are in the cache."""
    generated: int = 0
    blocks: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float = 0.0
    preemptions: int = 0

    @property
    def to_compute(self) -> int:
        """Tokens that have to be in the cache before the next one can be generated."""
        return self.prompt_tokens + self.generated

    @property
    def prefilling(self) -> bool:
        """Whether more than the newest token is missing from the cache."""
        return self.computed < self.to_compute - (1 if self.generated else 0)


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was generated; the request's last one if `last`."""

    at: float
    request: Request
    last: bool


class Engine:
    """The model. `submit` requests, then `advance` to a later time."""

    def __init__(self, limits: Limits, speed: Speed, now: float = 0.0) -> None:
        self.limits = limits
        self.speed = speed
        self.now = now
        self.figures = Figures()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._free = limits.kv_blocks
        self._step: tuple[float, list[tuple[Request, int]]] | None = None

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that is in use, 0 to 1."""
        total = self.limits.kv_blocks
        return min(1.0, (total - self._free) / total) if total else 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is to be computed."""
        return not self.waiting and not self.running

    def admit(self, prompt_tokens: int, output_tokens: int) -> Request | Rejection:
        """Let a request in at the present time, or say why not.

        As vLLM's check_admission (v1/engine/async_llm.py 0.29:289): the limit on requests counts
        running ones too, the one on tokens counts prompts that are not prefilled yet.
        """
        limits = self.limits
        inside = len(self.waiting) + len(self.running)
        if limits.max_num_queued_reqs is not None and inside + 1 > limits.max_num_queued_reqs:
            return self._reject(Rejection.REQUESTS)
        if limits.max_num_queued_tokens is not None:
            backlog = sum(r.prompt_tokens for r in self.waiting)
            backlog += sum(r.prompt_tokens for r in self.running if r.prefilling)
            if backlog >= limits.max_num_queued_tokens:
                return self._reject(Rejection.TOKENS)
        request = Request(max(1, prompt_tokens), max(1, output_tokens), self.now)
        self.waiting.append(request)
        return request

    def abort(self, request: Request) -> None:
        """Drop a request, as when its client has gone."""
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.running:
            self.running.remove(request)
            self._release(request)
        else:
            return
        self.figures.aborted += 1

    def resize(self, limits: Limits) -> None:
        """Change the limits under way, as a fault does."""
        self._free += limits.kv_blocks - self.limits.kv_blocks
        self.limits = limits

    def advance(self, to: float) -> list[Token]:
        """Compute until `to`; give the tokens generated, in order."""
        tokens: list[Token] = []
        while True:
            if self._step is None and not self._begin_step():
                break
            if self._step is None or self._step[0] > to:
                break
            end, batch = self._step
            self._step = None
            self.now = end
            tokens.extend(self._end_step(batch))
        self.now = max(self.now, to)
        return tokens

    def _begin_step(self) -> bool:
        """Choose the batch of the next step; False where there is nothing to compute."""
        budget = self.limits.max_num_batched_tokens
        batch: list[tuple[Request, int]] = []
        for request in list(self.running):
            if request not in self.running:
                continue
            count = min(budget, request.to_compute - request.computed)
            if count <= 0 or not self._reserve(request, count):
                continue
            batch.append((request, count))
            budget -= count
        batch = [(r, n) for r, n in batch if r in self.running]
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            count = min(budget, request.to_compute - request.computed)
            if not self._fits(request, count):
                break
            self.waiting.popleft()
            self._take(request, count)
            if request.scheduled_at is None:
                request.scheduled_at = self.now
                self.figures.queue.add(self.now - request.arrived)
            self.running.append(request)
            batch.append((request, count))
            budget -= count
        if not batch:
            return False
        speed = self.speed
        prefill = sum(n for r, n in batch if r.prefilling)
        duration = (
            speed.step_seconds
            + speed.sequence_seconds * len(batch)
            + prefill / speed.prefill_tokens_per_second
        )
        self._step = (self.now + duration, batch)
        return True

    def _end_step(self, batch: list[tuple[Request, int]]) -> list[Token]:
        figures = self.figures
        figures.iterations += 1
        tokens: list[Token] = []
        for request, count in batch:
            if request not in self.running:
                continue
            figures.iteration_tokens += count
            request.computed += count
            if request.computed < request.to_compute:
                continue
            tokens.append(self._generate(request))
        return tokens

    def _generate(self, request: Request) -> Token:
        figures = self.figures
        if request.first_token_at is None:
            request.first_token_at = self.now
            figures.ttft.add(self.now - request.arrived)
            figures.prompt_tokens += request.prompt_tokens
        else:
            figures.itl.add(self.now - request.last_token_at)
        request.last_token_at = self.now
        request.generated += 1
        figures.generation_tokens += 1
        last = request.generated >= request.output_tokens
        if last:
            self._finish(request)
        return Token(self.now, request, last)

    def _finish(self, request: Request) -> None:
        self.running.remove(request)
        self._release(request)
        figures = self.figures
        first = request.first_token_at or self.now
        scheduled = request.scheduled_at or request.arrived
        figures.finished += 1
        figures.e2e.add(self.now - request.arrived)
        figures.inference.add(self.now - scheduled)
        figures.prefill.add(first - scheduled)
        figures.decode.add(self.now - first)
        if request.generated > 1:
            figures.tpot.add((self.now - first) / (request.generated - 1))

    def _needed(self, request: Request, count: int) -> int:
        """Blocks that a request lacks for so many more tokens."""
        size = self.limits.block_size
        return max(0, -(-(request.computed + count) // size) - request.blocks)

    def _fits(self, request: Request, count: int) -> bool:
        return self._needed(request, count) <= self._free

    def _take(self, request: Request, count: int) -> None:
        needed = self._needed(request, count)
        self._free -= needed
        request.blocks += needed

    def _reserve(self, request: Request, count: int) -> bool:
        """Get blocks for a running request; the newest ones lose theirs if there are none."""
        while not self._fits(request, count):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        self._take(request, count)
        return True

    def _preempt(self, request: Request) -> None:
        """Put a request back to the head of the queue; it is computed again from the start."""
        self.running.remove(request)
        self._release(request)
        request.computed = 0
        request.preemptions += 1
        self.figures.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self._free += request.blocks
        request.blocks = 0

    def _reject(self, reason: Rejection) -> Rejection:
        self.figures.rejections[reason] += 1
        return reason
