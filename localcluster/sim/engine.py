"""Continuous batching as a pure model: no real time, no I/O, stepped by whoever uses it.

One step computes one token for every running request that is through its prefill, and as many
prompt tokens of the others as the batch has room for; its duration is a fixed part plus a part
for each prompt token and each sequence. That is enough for what an operator can see to come out
by itself: queues, time to first token, inter-token latency, KV use, preemptions, rejections.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from localcluster.sim.figures import Figures, Histogram, Rejection

__all__ = ["Engine", "Figures", "Histogram", "Limits", "Rejection", "Request", "Speed"]


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

    @property
    def kv_tokens(self) -> int:
        """Tokens that the KV cache holds: no request can be longer."""
        return self.kv_blocks * self.block_size


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


@dataclass(slots=True, eq=False)
class Request:
    """One request in the engine. Times are the engine's.

    Attributes:
        prompt_tokens: Tokens of the prompt.
        output_tokens: Tokens that will be generated.
        arrived: When it was let in.
        computed: Tokens whose keys and values are in the cache.
        missing: Tokens to compute before the next one can be generated.
        generated: Tokens generated so far.
        blocks: Blocks of the cache that it has.
        running: Whether it is in the batch.
        done: Whether nothing more comes: finished, failed or aborted.
        preemptions: How often it lost its blocks.
        scheduled_at: When it was first put into the batch.
        first_token_at: When its first token came.
        last_token_at: When its newest token came.
    """

    prompt_tokens: int
    output_tokens: int
    arrived: float
    missing: int
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    running: bool = False
    done: bool = False
    preemptions: int = 0
    scheduled_at: float = 0.0
    first_token_at: float | None = None
    last_token_at: float = 0.0

    @property
    def prefilling(self) -> bool:
        """Whether more than the newest token is missing from the cache."""
        return self.missing > (1 if self.generated else 0)


@dataclass(frozen=True, slots=True)
class _Step:
    """The step under way: when it ends, and the tokens that it computes for each request."""

    end: float
    batch: list[tuple[Request, int]]


class Engine:
    """The model. `admit` requests, `advance` to a later time, read `figures`."""

    def __init__(self, limits: Limits, speed: Speed, now: float = 0.0) -> None:
        self.limits = limits
        self.speed = speed
        self.now = now
        self.figures = Figures()
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self._free = limits.kv_blocks
        self._backlog = 0
        self._step: _Step | None = None
        self._hung = False

    @property
    def kv_usage(self) -> float:
        """Share of the KV cache that is in use, 0 to 1."""
        total = self.limits.kv_blocks
        return min(1.0, (total - self._free) / total) if total else 0.0

    @property
    def idle(self) -> bool:
        """Whether nothing is to be computed."""
        return not self.waiting and not self.running

    @property
    def step_end(self) -> float:
        """When the step under way ends: nothing happens before, but for what is admitted."""
        return self.now if self._step is None else self._step.end

    def admit(self, prompt_tokens: int, output_tokens: int) -> Request | Rejection:
        """Let a request in at the present time, or say why not.

        As vLLM's check_admission (v1/engine/async_llm.py 0.29:289): the limit on requests counts
        running ones too, the one on tokens counts prompts that are not prefilled yet.

        Raises:
            ValueError: The request has no tokens, or is longer than the KV cache.
        """
        limits = self.limits
        if prompt_tokens < 1 or output_tokens < 1:
            raise ValueError(
                f"a request has at least 1 prompt and 1 output token, not {prompt_tokens} and "
                f"{output_tokens}"
            )
        if prompt_tokens + output_tokens > limits.kv_tokens:
            raise ValueError(
                f"a request of {prompt_tokens} + {output_tokens} tokens is longer than the KV "
                f"cache, which holds {limits.kv_tokens}"
            )
        inside = len(self.waiting) + len(self.running)
        if limits.max_num_queued_reqs is not None and inside + 1 > limits.max_num_queued_reqs:
            return self._reject(Rejection.REQUESTS)
        if limits.max_num_queued_tokens is not None and (
            self._backlog >= limits.max_num_queued_tokens
        ):
            return self._reject(Rejection.TOKENS)
        request = Request(prompt_tokens, output_tokens, self.now, missing=prompt_tokens)
        self._backlog += prompt_tokens
        self.waiting.append(request)
        return request

    def abort(self, request: Request) -> None:
        """Drop a request, as when its client has gone. One that is done stays as it is."""
        if not request.done:
            self._drop(request)
            self.figures.aborted += 1

    def resize(self, limits: Limits) -> list[Request]:
        """Change the limits under way, as a fault does.

        Returns:
            The requests that failed because the KV cache can never hold them now.
        """
        self._free += limits.kv_blocks - self.limits.kv_blocks
        self.limits = limits
        failed = [
            r
            for r in (*self.running, *self.waiting)
            if r.prompt_tokens + r.output_tokens > limits.kv_tokens
        ]
        for request in failed:
            self.fail(request)
        return failed

    def hang(self) -> None:
        """Compute nothing any more: requests come in and wait, and time goes on."""
        self._hung = True

    def recover(self) -> None:
        """Compute again; the step that hung ends now at the earliest."""
        self._hung = False
        if self._step is not None:
            self._step = replace(self._step, end=max(self._step.end, self.now))

    def fail(self, request: Request) -> None:
        """End a request with an error of the engine's. One that is done stays as it is."""
        if not request.done:
            self._drop(request)
            self.figures.failed += 1

    def advance(self, to: float) -> dict[Request, int]:
        """Compute until `to`.

        Returns:
            How many tokens each request got; those that finished are `done`.
        """
        produced: dict[Request, int] = {}
        if self._hung:
            self.now = max(self.now, to)
            return produced
        while self._step is not None or self._begin_step():
            step = self._step
            if step is None or step.end > to:
                break
            self._step = None
            self.now = step.end
            self._end_step(step.batch, produced)
            self._repeat(to, produced)
        self.now = max(self.now, to)
        return produced

    def _begin_step(self) -> bool:
        """Choose the batch of the next step; False where there is nothing to compute."""
        budget = self.limits.max_num_batched_tokens
        chosen: list[tuple[Request, int]] = []
        preemptions = self.figures.preemptions
        for request in list(self.running):
            count = min(budget, request.missing)
            if count > 0 and request.running and self._reserve(request, count):
                chosen.append((request, count))
                budget -= count
        batch = [(r, n) for r, n in chosen if r.running]
        # As vLLM: a step that had to preempt lets nobody in.
        if self.figures.preemptions == preemptions:
            self._let_in(batch, budget)
        if not batch:
            return False
        speed = self.speed
        prefill = sum(n for r, n in batch if r.prefilling)
        duration = (
            speed.step_seconds
            + speed.sequence_seconds * len(batch)
            + prefill / speed.prefill_tokens_per_second
        )
        self._step = _Step(self.now + duration, batch)
        return True

    def _let_in(self, batch: list[tuple[Request, int]], budget: int) -> None:
        """Put waiting requests into the batch, first come first served."""
        while self.waiting and budget > 0 and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting[0]
            count = min(budget, request.missing)
            if not self._fits(request, count):
                return
            self.waiting.popleft()
            self._take(request, count)
            if not request.preemptions:
                request.scheduled_at = self.now
            request.running = True
            self.running.append(request)
            batch.append((request, count))
            budget -= count

    def _end_step(self, batch: list[tuple[Request, int]], produced: dict[Request, int]) -> None:
        figures, tokens = self.figures, 0
        # Tokens by the time of the one before: most of a step's requests share it.
        gaps: dict[float, int] = {}
        for request, count in batch:
            if not request.running:
                continue
            request.computed += count
            request.missing -= count
            if request.missing:
                continue
            produced[request] = produced.get(request, 0) + 1
            tokens += 1
            if request.first_token_at is None:
                tokens += request.prompt_tokens
                self._begin_output(request)
            else:
                gaps[request.last_token_at] = gaps.get(request.last_token_at, 0) + 1
            request.last_token_at = self.now
            request.generated += 1
            request.missing = 1
            figures.generation_tokens += 1
            if request.generated >= request.output_tokens:
                self._finish(request)
        for before, times in gaps.items():
            figures.itl.add(self.now - before, times)
        if tokens:
            figures.iterations.add(tokens)

    def _repeat(self, to: float, produced: dict[Request, int]) -> None:
        """Take at once the steps that are all alike: the same requests, one token for each.

        It changes nothing but the time that the model takes: a long output would cost a step of
        the interpreter for each of its tokens.
        """
        running, figures = self.running, self.figures
        number = len(running)
        if not running or not self._closed():
            return
        duration = self.speed.step_seconds + self.speed.sequence_seconds * number
        steps = min(r.output_tokens - r.generated for r in running) - 1
        steps = min(steps, int((to - self.now) / duration)) if duration > 0 else steps
        if steps < 2 or any(r.missing != 1 or r.last_token_at != self.now for r in running):
            return
        if sum(self._needed(r, steps) for r in running) > self._free:
            return
        self.now += steps * duration
        for request in running:
            self._take(request, steps)
            request.computed += steps
            request.generated += steps
            request.last_token_at = self.now
            produced[request] = produced.get(request, 0) + steps
        figures.itl.add(duration, steps * number)
        figures.iterations.add(number, steps)
        figures.generation_tokens += steps * number

    def _closed(self) -> bool:
        """Whether no waiting request can come in as long as none of the running ones goes."""
        room = self.limits.max_num_batched_tokens - len(self.running)
        if room < 0:
            return False
        if not self.waiting or room == 0 or len(self.running) >= self.limits.max_num_seqs:
            return True
        head = self.waiting[0]
        return not self._fits(head, min(room, head.missing))

    def _begin_output(self, request: Request) -> None:
        request.first_token_at = self.now
        self.figures.ttft.add(self.now - request.arrived)
        self.figures.prompt_tokens += request.prompt_tokens
        self._backlog -= request.prompt_tokens

    def _finish(self, request: Request) -> None:
        first = self.now if request.first_token_at is None else request.first_token_at
        self._drop(request)
        figures = self.figures
        figures.finished += 1
        figures.e2e.add(self.now - request.arrived)
        figures.queue.add(request.scheduled_at - request.arrived)
        figures.inference.add(self.now - request.scheduled_at)
        figures.prefill.add(first - request.scheduled_at)
        figures.decode.add(self.now - first)
        # vLLM counts 0 for a request of one token.
        figures.tpot.add((self.now - first) / max(1, request.generated - 1))
        figures.prompt_lengths.add(request.prompt_tokens)
        figures.output_lengths.add(request.generated)
        figures.preemptions_per_request.add(request.preemptions)

    def _drop(self, request: Request) -> None:
        if request.running:
            self.running.remove(request)
            self._release(request)
        else:
            self.waiting.remove(request)
        if request.first_token_at is None:
            self._backlog -= request.prompt_tokens
        request.running = False
        request.done = True

    def _needed(self, request: Request, count: int) -> int:
        """Blocks that a request lacks for so many more tokens."""
        size = self.limits.block_size
        lacking = request.computed + count - request.blocks * size
        return -(-lacking // size) if lacking > 0 else 0

    def _fits(self, request: Request, count: int) -> bool:
        return self._needed(request, count) <= self._free

    def _take(self, request: Request, count: int) -> None:
        needed = self._needed(request, count)
        self._free -= needed
        request.blocks += needed

    def _reserve(self, request: Request, count: int) -> bool:
        """Get blocks for a running request; the newest ones lose theirs if there are none."""
        needed = self._needed(request, count)
        while needed > self._free:
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
                return False
        self._free -= needed
        request.blocks += needed
        return True

    def _preempt(self, request: Request) -> None:
        """Put a request back to the head of the queue; it is computed again from the start."""
        self.running.remove(request)
        self._release(request)
        request.running = False
        request.computed = 0
        request.missing = request.prompt_tokens + request.generated
        request.preemptions += 1
        self.figures.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        self._free += request.blocks
        request.blocks = 0

    def _reject(self, reason: Rejection) -> Rejection:
        self.figures.rejections[reason] += 1
        return reason
