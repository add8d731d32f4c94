"""From the pods' counters to the numbers of one metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vllm_upgrade_operator.api.spec import Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.judge.counters import Delta, Histogram


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """So many events `of` so many, in so many requests."""

    events: float
    of: float
    requests: float


def share(metric: Metric, delta: Delta) -> Share | None:
    """Read a ratio from one pod; None where one of its counters is missing."""
    match metric:
        case Metric.REJECTIONS:
            return _share(delta.rejected, delta.offered, delta.offered)
        case Metric.ERRORS:
            return _share(delta.errors, delta.offered, delta.offered)
        case Metric.PREEMPTIONS:
            return _share(delta.preemptions, delta.finished, delta.finished)
        case Metric.DRAFT_ACCEPTANCE:
            return _share(delta.accepted_tokens, delta.draft_tokens, delta.offered)
        case _:
            raise ValueError(f"{metric} is no ratio of counters")


def _share(events: float | None, of: float | None, requests: float | None) -> Share | None:
    if events is None or of is None or requests is None:
        return None
    return Share(events=events, of=of, requests=requests)


def level(metric: Metric, delta: Delta) -> float | None:
    """Read a gauge from one pod."""
    match metric:
        case Metric.QUEUE_DEPTH:
            return delta.waiting
        case Metric.KV_CACHE_USAGE:
            return delta.kv_usage
        case Metric.KV_CAPACITY:
            return delta.kv_capacity_tokens
        case _:
            raise ValueError(f"{metric} is no gauge")


def latency(metric: Metric, delta: Delta) -> Histogram | None:
    """Read a latency from one pod."""
    match metric:
        case Metric.TIME_TO_FIRST_TOKEN:
            return delta.ttft
        case Metric.INTER_TOKEN_LATENCY:
            return delta.itl
        case Metric.END_TO_END_LATENCY:
            return delta.e2e
        case _:
            raise ValueError(f"{metric} is no latency")


FIGURES = {
    Metric.REJECTIONS: ("rejected", "offered"),
    Metric.ERRORS: ("errors", "offered"),
    Metric.PREEMPTIONS: ("preemptions", "finished"),
    Metric.DRAFT_ACCEPTANCE: ("draft_tokens", "accepted_tokens", "offered"),
    Metric.QUEUE_DEPTH: ("waiting",),
    Metric.KV_CACHE_USAGE: ("kv_usage",),
    Metric.KV_CAPACITY: ("kv_capacity_tokens",),
    Metric.TIME_TO_FIRST_TOKEN: ("ttft",),
    Metric.INTER_TOKEN_LATENCY: ("itl",),
    Metric.END_TO_END_LATENCY: ("e2e",),
}
"""The attributes of a `Delta` that a metric is read from."""


def absent(metric: Metric, pods: Iterable[Delta]) -> list[str]:
    """Name what pods would have to expose for a metric and do not."""
    return sorted(
        {
            name
            for delta in pods
            for figure in FIGURES[metric]
            for name in delta.absent.get(figure, ())
        }
    )


def read_all(pods: Mapping[str, T | None]) -> tuple[list[T], list[str]]:
    """Part what was read from the names of the pods where the metric is missing."""
    return (
        [value for value in pods.values() if value is not None],
        sorted(name for name, value in pods.items() if value is None),
    )


def add_shares(shares: Iterable[Share]) -> Share:
    """Add up over pods."""
    events = of = requests = 0.0
    for one in shares:
        events += one.events
        of += one.of
        requests += one.requests
    return Share(events, of, requests)
