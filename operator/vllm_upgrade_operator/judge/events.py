"""From one look at the pods to the bad events of one check, pod by pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from zlib import crc32

from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge import reading
from vllm_upgrade_operator.judge.histograms import above, per_bucket
from vllm_upgrade_operator.judge.limits import compares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.counters import Delta, Histogram
    from vllm_upgrade_operator.judge.model import Look
    from vllm_upgrade_operator.judge.series import Counts

PODS = 32
"""Stable pods that are told apart: of more, some count as one."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A look cannot be used.

    Attributes:
        why: In a sentence.
        exposed: Whether the pods expose the metric, and it is another thing that is wrong.
    """

    why: str
    exposed: bool = False


@dataclass(frozen=True, slots=True)
class Buckets:
    """One pod's latencies in one look.

    Attributes:
        counts: Observations per bucket.
        requests: Requests that they belong to: tokens of one request share its fate.
    """

    counts: list[float]
    requests: float

    def slower(self, index: int) -> Counts:
        """Count the requests above a bound, and all."""
        observed = sum(self.counts)
        if observed <= 0:
            return 0.0, 0.0
        return above(self.counts, index) * self.requests / observed, self.requests


@dataclass(frozen=True, slots=True)
class Events:
    """What one look says of a check that counts, by pod.

    Attributes:
        canary: Bad events, and of how many.
        stable: The same.
    """

    canary: Mapping[str, Counts]
    stable: Mapping[str, Counts]


@dataclass(frozen=True, slots=True)
class Latencies:
    """What one look says of a latency, by pod.

    Attributes:
        bounds: Upper bounds of the buckets in seconds; the last is infinity. Empty where no pod has
            any.
        canary: Observations of the canary pods.
        stable: Of the stable pods.
    """

    bounds: tuple[float, ...]
    canary: Mapping[str, Buckets] = field(default_factory=dict)
    stable: Mapping[str, Buckets] = field(default_factory=dict)

    def slower(self, index: int) -> Events:
        """Count what lies above a bound."""
        return Events(
            {name: b.slower(index) for name, b in self.canary.items()},
            summed((name, b.slower(index)) for name, b in self.stable.items()),
        )


def summed(pods: Iterable[tuple[str, Counts]]) -> dict[str, Counts]:
    """Add up the counts of pods of one key."""
    result: dict[str, Counts] = {}
    for name, (x, n) in pods:
        before = result.get(name, (0.0, 0.0))
        result[name] = (before[0] + x, before[1] + n)
    return result


def counted(check: Check, look: Look) -> Events | Missing:
    """Read rejections, errors or preemptions from all pods."""
    canary, gone = reading.by_pod(look.canary, lambda d: reading.share(check.metric, d))
    stable, gone_too = reading.by_pod(look.stable, lambda d: reading.share(check.metric, d))
    if missing := lacking(check, look, gone, gone_too):
        return missing
    # Errors are made of two counters that are not written at one instant: they may fall for once.
    return Events(
        {key(name): _of(s) for name, s in canary.items()},
        summed((key(name, among=len(stable)), _of(s)) for name, s in stable.items()),
    )


def _of(share: reading.Share) -> Counts:
    """A request that is preempted again is as bad as one that was preempted."""
    return min(share.of, max(0.0, share.events)), share.of


def latencies(check: Check, look: Look) -> Latencies | Missing:
    """Read a latency from all pods."""
    canary, gone = reading.by_pod(look.canary, lambda d: reading.latency(check.metric, d))
    stable, gone_too = reading.by_pod(look.stable, lambda d: reading.latency(check.metric, d))
    if missing := lacking(check, look, gone, gone_too):
        return missing
    beside = stable if compares(check) or not canary else {}
    bounds = {h.bounds for h in (*canary.values(), *beside.values())}
    if len(bounds) > 1:
        return Missing(
            f"the pods have different histogram buckets of {check.metric}: "
            "values cannot be compared",
            exposed=True,
        )
    same = next(iter(bounds), ())
    return Latencies(
        same,
        {key(name): _buckets(check, h, look.canary[name]) for name, h in canary.items()},
        _merged(
            (key(name, among=len(stable)), _buckets(check, h, look.stable[name]))
            for name, h in stable.items()
            if h.bounds == same
        ),
    )


def key(pod: str, among: int = 1) -> str:
    """Give a short name for a pod; among many, several share one."""
    number = crc32(pod.encode())
    return f"{number:x}" if among <= PODS else f"{number % PODS:x}"


def _buckets(check: Check, histogram: Histogram, delta: Delta) -> Buckets:
    requests = histogram.observations
    if check.metric is Metric.INTER_TOKEN_LATENCY and delta.ttft is not None:
        requests = min(requests, delta.ttft.observations)
    return Buckets(per_bucket(histogram.counts), requests)


def _merged(pods: Iterable[tuple[str, Buckets]]) -> dict[str, Buckets]:
    result: dict[str, Buckets] = {}
    for name, more in pods:
        before = result.get(name)
        result[name] = (
            more
            if before is None
            else Buckets(
                [a + b for a, b in zip(before.counts, more.counts, strict=True)],
                before.requests + more.requests,
            )
        )
    return result


def lacking(check: Check, look: Look, canary: list[str], stable: list[str]) -> Missing | None:
    """Name metric, side and pods that lack it; stable ones only where they are compared with."""
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
