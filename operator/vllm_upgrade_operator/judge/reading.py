"""From the pods' counters to the numbers of one metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from vllm_upgrade_operator.api.spec import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from vllm_upgrade_operator.judge.counters import Delta, Histogram


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Share:
    """So many events `of` so many requests."""

    events: float
    of: float


def share(metric: Metric, delta: Delta) -> Share | None:
    """Read a ratio from one pod; None where one of its counters is missing."""
    match metric:
        case Metric.REJECTIONS:
            return _share(delta.rejected, delta.offered)
        case Metric.ERRORS:
            return _share(delta.errors, delta.offered)
        case Metric.PREEMPTIONS:
            return _share(delta.preemptions, delta.finished)
        case _:
            raise ValueError(f"{metric} is no ratio of counters")


def _share(events: float | None, of: float | None) -> Share | None:
    return None if events is None or of is None else Share(events=events, of=of)


def level(metric: Metric, delta: Delta) -> float | None:
    """Read a gauge from one pod."""
    match metric:
        case Metric.QUEUE_DEPTH:
            return delta.waiting
        case Metric.KV_CACHE_USAGE:
            return delta.kv_usage
        case Metric.KV_CAPACITY:
            return delta.kv_capacity_tokens
        case Metric.DRAFT_ACCEPTANCE:
            drafted, accepted = delta.draft_tokens, delta.accepted_tokens
            if drafted is None or accepted is None:
                return None
            return accepted / drafted if drafted > 0 else 0.0
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
    Metric.DRAFT_ACCEPTANCE: ("draft_tokens", "accepted_tokens"),
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


def by_pod(
    pods: Mapping[str, Delta], read: Callable[[Delta], T | None]
) -> tuple[dict[str, T], list[str]]:
    """Part what was read, by pod, from the names of the pods where the metric is missing."""
    values = {name: read(delta) for name, delta in pods.items()}
    return (
        {name: value for name, value in values.items() if value is not None},
        sorted(name for name, value in values.items() if value is None),
    )
