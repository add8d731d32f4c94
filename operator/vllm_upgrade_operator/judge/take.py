"""Taking one look into the evidence of one check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge import level, ratio, reading, tail_latency
from vllm_upgrade_operator.judge.limits import compares

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.counters import Delta
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
    """A look cannot be used.

    Attributes:
        why: In a sentence.
        exposed: Whether the pods expose the metric, and it is another thing that is wrong.
    """

    why: str
    exposed: bool = False


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
    values = {name: reading.level(check.metric, d) for name, d in look.stable.items()}
    stable, gone_too = reading.read_all(values)
    if missing := _missing(check, look, gone, gone_too):
        return missing
    requests = sum(d.offered or 0.0 for d in look.canary.values())
    if check.metric is not Metric.KV_CAPACITY and not any(map(_works, look.stable.values())):
        # The queue of a pod that nobody asks is empty: that is nothing to be compared with.
        return Taken(level.block(canary, ()), requests)
    pods = {name: (value, 1.0) for name, value in values.items() if value is not None}
    return Taken(level.block(canary, stable), requests, pods=pods)


def _works(delta: Delta) -> bool:
    """Whether a pod got requests in the look, or has some."""
    return bool(delta.offered or delta.running or delta.waiting)


def _ratio(check: Check, look: Look) -> Taken | Missing:
    canary, gone = reading.read_all(
        {name: reading.share(check.metric, d) for name, d in look.canary.items()}
    )
    stable, gone_too = reading.read_all(
        {name: reading.share(check.metric, d) for name, d in look.stable.items()}
    )
    if missing := _missing(check, look, gone, gone_too):
        return missing
    total = reading.add_shares(canary)
    beside = reading.add_shares(stable) if stable else None
    block = ratio.block(total, beside) if total.of > 0 else None
    return Taken(block, total.requests)


def _latency(check: Check, look: Look) -> Taken | Missing:
    canary, gone = reading.read_all(
        {name: reading.latency(check.metric, d) for name, d in look.canary.items()}
    )
    histograms = {name: reading.latency(check.metric, d) for name, d in look.stable.items()}
    stable, gone_too = reading.read_all(histograms)
    if missing := _missing(check, look, gone, gone_too):
        return missing
    bounds = {h.bounds for h in (*canary, *(stable if compares(check) else ()))}
    if len(bounds) != 1:
        return Missing(
            f"the pods have different histogram buckets of {check.metric}: "
            "values cannot be compared",
            exposed=True,
        )
    observed = sum(h.observations for h in canary)
    requests = observed
    if check.metric is Metric.INTER_TOKEN_LATENCY:
        first = [d.ttft.observations for d in look.canary.values() if d.ttft is not None]
        requests = min(observed, sum(first))
    block = tail_latency.block(canary, stable, requests) if observed > 0 else None
    pods = {n: (h.total, h.observations) for n, h in histograms.items() if h is not None}
    return Taken(block, requests, bounds.pop(), pods)


def _missing(check: Check, look: Look, canary: list[str], stable: list[str]) -> Missing | None:
    """Name metric, side and pods; stable ones only where they are compared with."""
    sides = [("canary", canary, look.canary)]
    if compares(check):
        sides.append(("stable", stable, look.stable))
    gone = [(side, names, pods) for side, names, pods in sides if names]
    if not gone:
        return None
    where = " and ".join(f"{side} {_named(names)}" for side, names, _ in gone)
    deltas = [pods[name] for _, names, pods in gone for name in names]
    what = ", ".join(reading.absent(check.metric, deltas)) or f"what {check.metric} is made of"
    return Missing(f"{what} missing on {where}")


def _named(pods: list[str]) -> str:
    more = f" and {len(pods) - 3} more" if len(pods) > 3 else ""
    return f"{'pod' if len(pods) == 1 else 'pods'} {', '.join(pods[:3])}{more}"
