"""Taking one look into the evidence of one check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge import level, ratio, reading, tail_latency
from vllm_upgrade_operator.judge.limits import compares
from vllm_upgrade_operator.judge.words import plural

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.evidence import Block
    from vllm_upgrade_operator.judge.model import Look

LEVELS = frozenset({Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE, Metric.KV_CAPACITY})


@dataclass(frozen=True, slots=True)
class Taken:
    """What one look says of one metric.

    Attributes:
        block: The look's numbers; None where the canary did nothing that the metric counts.
        requests: Canary requests in the look.
        bounds: Bucket bounds of a latency.
        pods: Sum and number of single stable pods, where their means are followed.
    """

    block: Block | None
    requests: float
    bounds: tuple[float, ...] = ()
    pods: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Missing:
    """A look cannot be used, and why."""

    why: str


def take(check: Check, look: Look) -> Taken | Missing:
    """Read a check's metric from all pods of a look."""
    if check.metric in LEVELS:
        return _level(check, look)
    if check.metric in LATENCIES:
        return _latency(check, look)
    return _ratio(check, look)


def _level(check: Check, look: Look) -> Taken | Missing:
    canary, gone = reading.read_all(
        {name: reading.level(check.metric, d) for name, d in look.canary.items()}
    )
    stable, gone_too = reading.read_all(
        {name: reading.level(check.metric, d) for name, d in look.stable.items()}
    )
    if missing := _missing(check, gone, gone_too):
        return missing
    requests = sum(d.offered or 0.0 for d in look.canary.values())
    values = {name: reading.level(check.metric, d) for name, d in look.stable.items()}
    pods = {name: (value, 1.0) for name, value in values.items() if value is not None}
    return Taken(level.block(canary, stable), requests, pods=pods)


def _ratio(check: Check, look: Look) -> Taken | Missing:
    canary, gone = reading.read_all(
        {name: reading.share(check.metric, d) for name, d in look.canary.items()}
    )
    stable, gone_too = reading.read_all(
        {name: reading.share(check.metric, d) for name, d in look.stable.items()}
    )
    if missing := _missing(check, gone, gone_too):
        return missing
    total = reading.add_shares(canary)
    beside = reading.add_shares(stable) if stable else None
    block = ratio.block(total, beside) if total.of > 0 else None
    return Taken(block, total.requests)


def _latency(check: Check, look: Look) -> Taken | Missing:
    canary, gone = reading.read_all(
        {name: reading.latency(check.metric, d) for name, d in look.canary.items()}
    )
    stable, gone_too = reading.read_all(
        {name: reading.latency(check.metric, d) for name, d in look.stable.items()}
    )
    if missing := _missing(check, gone, gone_too):
        return missing
    bounds = {h.bounds for h in (*canary, *(stable if compares(check) else ()))}
    if len(bounds) != 1:
        return Missing(
            f"the pods have different histogram buckets of {check.metric}: "
            "values cannot be compared"
        )
    observed = sum(h.observations for h in canary)
    requests = observed
    if check.metric is Metric.INTER_TOKEN_LATENCY:
        first = [d.ttft.observations for d in look.canary.values() if d.ttft is not None]
        requests = min(observed, sum(first))
    block = tail_latency.block(canary, stable, requests) if observed > 0 else None
    histograms = {name: reading.latency(check.metric, d) for name, d in look.stable.items()}
    pods = {n: (h.total, h.observations) for n, h in histograms.items() if h is not None}
    return Taken(block, requests, bounds.pop(), pods)


def _missing(check: Check, canary: list[str], stable: list[str]) -> Missing | None:
    """Name the pods without the metric; stable ones only where they are compared with."""
    names = [*canary, *(stable if compares(check) else ())]
    if not names:
        return None
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return Missing(
        f"metric {check.metric} missing on {plural(len(names), 'pod')}: "
        f"{', '.join(names[:3])}{more}"
    )
