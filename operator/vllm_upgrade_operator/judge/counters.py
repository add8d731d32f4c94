"""What a pod's counters say at one moment, and what happened between two moments.

A counter that a pod does not expose is None, never zero: a judge that takes silence for health
would promote a server that has stopped reporting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Two reads of one process's start time may differ in the last digit of the exposition.
_SAME_PROCESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram of seconds.

    Attributes:
        bounds: Upper bounds of the buckets, ascending; the last is infinity.
        counts: Cumulative counts, one per bound; the last is the number of observations.
        total: Sum of the observed values, in seconds.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    total: float

    @property
    def observations(self) -> float:
        """How many values were observed."""
        return self.counts[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is known of one pod, summed over its `engine` series.

    Attributes:
        offered: Requests on the generation handlers, whatever their answer.
        rejected: Requests refused by admission control.
        errors: Server errors that are not rejections, and requests that ended in an engine error.
        client_errors: 4xx answers on the generation handlers.
        preemptions: Requests that lost their place in the running batch.
        finished: Requests that the engine finished for any reason but an error.
        prompt_tokens: Tokens of prompts that were processed.
        generation_tokens: Tokens generated.
        rejections_approximate: `rejected` is the 5xx answers, for want of a counter of its own.
        running: Requests in the running batch now.
        waiting: Requests that wait in the queue now.
        kv_usage: Share of the KV cache in use now, 0 to 1; the fullest engine's.
        kv_capacity_tokens: Tokens that the KV cache holds.
        draft_tokens: Tokens that speculative decoding proposed.
        accepted_tokens: Proposed tokens that were accepted.
        ttft: Time to first token.
        itl: Inter-token latency.
        e2e: Time from arrival to the last token.
        models: The model names that the series carry.
        absent: By attribute that is None: the metrics that it is read from and that the pod does
            not expose.
    """

    offered: float | None
    rejected: float | None
    errors: float | None
    client_errors: float | None
    preemptions: float | None
    finished: float | None
    prompt_tokens: float | None
    generation_tokens: float | None
    rejections_approximate: bool
    running: float | None
    waiting: float | None
    kv_usage: float | None
    kv_capacity_tokens: float | None
    draft_tokens: float | None
    accepted_tokens: float | None
    ttft: Histogram | None
    itl: Histogram | None
    e2e: Histogram | None
    models: tuple[str, ...]
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Figures):
    """What one scrape of one pod says.

    Attributes:
        taken_at: Seconds since the Unix epoch.
        process_started_at: When the server process started, seconds since the Unix epoch.
    """

    taken_at: float
    process_started_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta(Figures):
    """What happened in one pod in a span of time.

    Counters and histograms are differences over `seconds`; gauges (`running`, `waiting`,
    `kv_usage`, `kv_capacity_tokens`) are what they were at its end.
    """

    seconds: float


# What only ever grows in one process. `errors` is left out: it is computed from two counters that
# are not written at the same instant, so it may fall by what was still under way.
_GROWING = (
    "offered",
    "rejected",
    "client_errors",
    "preemptions",
    "finished",
    "prompt_tokens",
    "generation_tokens",
    "draft_tokens",
    "accepted_tokens",
)


def delta(before: Sample, after: Sample) -> Delta | None:
    """Say what happened between two scrapes of one pod.

    Returns:
        None where the two cannot be compared and the later one is a new baseline: the process
        was restarted in between, a counter went down, or no time has passed.
    """
    seconds = after.taken_at - before.taken_at
    if seconds <= 0 or _restarted(before, after):
        return None
    if any(_fell(getattr(before, name), getattr(after, name)) for name in _GROWING):
        return None
    ttft, itl, e2e = (
        _grown(before.ttft, after.ttft),
        _grown(before.itl, after.itl),
        _grown(before.e2e, after.e2e),
    )
    if any(h is not None and min(h.counts) < 0 for h in (ttft, itl, e2e)):
        return None
    return Delta(
        seconds=seconds,
        offered=_difference(before.offered, after.offered),
        rejected=_difference(before.rejected, after.rejected),
        errors=_difference(before.errors, after.errors),
        client_errors=_difference(before.client_errors, after.client_errors),
        preemptions=_difference(before.preemptions, after.preemptions),
        finished=_difference(before.finished, after.finished),
        prompt_tokens=_difference(before.prompt_tokens, after.prompt_tokens),
        generation_tokens=_difference(before.generation_tokens, after.generation_tokens),
        rejections_approximate=after.rejections_approximate,
        running=after.running,
        waiting=after.waiting,
        kv_usage=after.kv_usage,
        kv_capacity_tokens=after.kv_capacity_tokens,
        draft_tokens=_difference(before.draft_tokens, after.draft_tokens),
        accepted_tokens=_difference(before.accepted_tokens, after.accepted_tokens),
        ttft=ttft,
        itl=itl,
        e2e=e2e,
        models=after.models,
        absent=after.absent,
    )


def _restarted(before: Sample, after: Sample) -> bool:
    if before.process_started_at is None or after.process_started_at is None:
        return False
    return abs(after.process_started_at - before.process_started_at) > _SAME_PROCESS_SECONDS


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _difference(before: float | None, after: float | None) -> float | None:
    """Subtract; a counter that was not there before is not known to have been zero."""
    return None if before is None or after is None else after - before


def _grown(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    if before is None or after is None or before.bounds != after.bounds:
        return None
    return Histogram(
        bounds=after.bounds,
        counts=tuple(a - b for a, b in zip(after.counts, before.counts, strict=True)),
        total=after.total - before.total,
    )
