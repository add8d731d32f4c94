"""What a pod's counters say at one moment, and what happened between two moments.

A counter that a pod does not expose is None, never zero: a judge that takes silence for health
would promote a server that has stopped reporting.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Two reads of one process's start time may differ in the last digit of the exposition.
_SAME_PROCESS_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram, of seconds or of tokens.

    Attributes:
        bounds: Upper bounds of the buckets, ascending; the last is infinity.
        counts: Cumulative counts, one per bound; the last is the number of observations.
        total: Sum of the observed values.
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
        rejected_for_tokens: Those of them that the limit on queued prompt tokens refused.
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
        queue: Time from arrival in the engine until a request first ran. This and the following
            histograms count whole requests, when they finish.
        prefill: Time from then to the first token.
        decode: Time from the first token to the last; a request that is preempted waits in it.
        prompt_lengths: Tokens of the prompt.
        output_lengths: Tokens generated.
        prefix_queries: Prompt tokens that were looked for in the prefix cache.
        prefix_hits: Those of them that were found there.
        finished_by_model: Parts of `finished` by model name. Requests for a LoRA adapter count for
            the model that it adapts: no metric counts them apart.
        adapters: LoRA adapters that had requests running or waiting when the engine last said so;
            None where it serves none.
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
    rejected_for_tokens: float | None = None
    queue: Histogram | None = None
    prefill: Histogram | None = None
    decode: Histogram | None = None
    prompt_lengths: Histogram | None = None
    output_lengths: Histogram | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    finished_by_model: Mapping[str, float] | None = None
    adapters: tuple[str, ...] | None = None
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Figures):
    """What one scrape of one pod says.

    Attributes:
        taken_at: In seconds, by a clock that is never set.
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


COUNTERS = (
    "offered",
    "rejected",
    "rejected_for_tokens",
    "errors",
    "client_errors",
    "preemptions",
    "finished",
    "prompt_tokens",
    "generation_tokens",
    "draft_tokens",
    "accepted_tokens",
    "prefix_queries",
    "prefix_hits",
)
"""The attributes that only grow in the life of a process."""

HISTOGRAMS = (
    "ttft",
    "itl",
    "e2e",
    "queue",
    "prefill",
    "decode",
    "prompt_lengths",
    "output_lengths",
)
"""Those whose buckets only grow."""


class BreakReason(StrEnum):
    """Why nothing can be said about the time between two scrapes of a pod."""

    RESTARTED = "Restarted"
    COUNTER_FELL = "CounterFell"
    CLOCK_SET_BACK = "ClockSetBack"
    READ_OTHERWISE = "ReadOtherwise"


@dataclass(frozen=True, slots=True)
class Break:
    """Between two scrapes of a pod counters have begun anew: the later one is a baseline only.

    Attributes:
        reason: The kind.
        message: What was seen, in a clause.
    """

    reason: BreakReason
    message: str


def settled(before: Sample, after: Sample) -> Sample:
    """Give `after` as the next scrape must be compared with.

    `errors` is made of counters that are not written at the same instant: a rejection is counted
    before its 5xx answer is, so the difference of the two dips for a moment. It is held at its
    highest, so that no error is counted a second time when the dip is over.
    """
    if before.errors is None or after.errors is None or after.errors >= before.errors:
        return after
    held = replace(after, errors=before.errors)
    return after if break_between(before, held) is not None else held


def break_between(before: Sample, after: Sample) -> Break | None:
    """Say why two scrapes of a pod cannot be compared; None where they can.

    A histogram whose buckets grew while its sum fell has seen a negative time: vLLM takes the
    arrival of a request from the clock of the wall, which somebody has set back.
    """
    if _restarted(before, after):
        return Break(BreakReason.RESTARTED, "its server process was started anew")
    if before.rejections_approximate != after.rejections_approximate:
        return Break(
            BreakReason.READ_OTHERWISE, "its version became known, which says where rejections show"
        )
    fallen = [name for name in COUNTERS if _fell(getattr(before, name), getattr(after, name))]
    fallen += [name for name in HISTOGRAMS if _lost(getattr(before, name), getattr(after, name))]
    known, now = before.finished_by_model or {}, after.finished_by_model or {}
    if now and any(now.get(model, 0.0) < count for model, count in known.items()):
        fallen.append("finished_by_model")
    if fallen:
        return Break(
            BreakReason.COUNTER_FELL,
            f"its counts of {', '.join(fallen[:3])} went down, as when a process starts anew",
        )
    if after.taken_at <= before.taken_at:
        return Break(BreakReason.CLOCK_SET_BACK, "no time has passed since the scrape before")
    negative = [n for n in HISTOGRAMS if _set_back(getattr(before, n), getattr(after, n))]
    if negative:
        return Break(
            BreakReason.CLOCK_SET_BACK,
            f"it has observed negative values of {', '.join(negative[:3])}: its clock was set back",
        )
    return None


def delta(before: Sample, after: Sample) -> Delta | None:
    """Say what happened between two scrapes of one pod; nothing in it is negative.

    Returns:
        None where the two cannot be compared and the later one is a new baseline: see
        `break_between` for the reason.
    """
    if break_between(before, after) is not None:
        return None
    changes: dict[str, Any] = {f.name: getattr(after, f.name) for f in fields(Figures)}
    for name in COUNTERS:
        changes[name] = _difference(getattr(before, name), getattr(after, name))
    for name in HISTOGRAMS:
        changes[name] = _grown(getattr(before, name), getattr(after, name))
    changes["finished_by_model"] = _by_model(before.finished_by_model, after.finished_by_model)
    return Delta(seconds=after.taken_at - before.taken_at, **changes)


def _restarted(before: Sample, after: Sample) -> bool:
    if before.process_started_at is None or after.process_started_at is None:
        return False
    return abs(after.process_started_at - before.process_started_at) > _SAME_PROCESS_SECONDS


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _lost(before: Histogram | None, after: Histogram | None) -> bool:
    """Whether a bucket, taken by itself, holds less than before.

    A new process may have seen more in all and yet less in one of them.
    """
    grown = _grown(before, after)
    return grown is not None and any(b < a for a, b in pairwise((0.0, *grown.counts)))


def _set_back(before: Histogram | None, after: Histogram | None) -> bool:
    grown = _grown(before, after)
    return grown is not None and grown.total < 0


def _difference(before: float | None, after: float | None) -> float | None:
    """Subtract; a counter that was not there before is not known to have been zero."""
    return None if before is None or after is None else after - before


def _by_model(
    before: Mapping[str, float] | None, after: Mapping[str, float] | None
) -> Mapping[str, float] | None:
    """Subtract by name. A series that is new beside others of its metric began at zero."""
    if before is None or after is None:
        return None
    return {model: count - before.get(model, 0.0) for model, count in after.items()}


def _grown(before: Histogram | None, after: Histogram | None) -> Histogram | None:
    if before is None or after is None or before.bounds != after.bounds:
        return None
    return Histogram(
        bounds=after.bounds,
        counts=tuple(a - b for a, b in zip(after.counts, before.counts, strict=True)),
        total=after.total - before.total,
    )
