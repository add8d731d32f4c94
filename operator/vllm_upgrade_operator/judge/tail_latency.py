"""Checks of a quantile of a latency.

Values are shown as quantiles, interpolated in the buckets; what decides is counts above a bucket
bound, which are exact: a p99 of two hundred requests is otherwise the second slowest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vllm_upgrade_operator.judge.evidence import (
    CANARY_COUNT,
    CANARY_SUM,
    FLAGRANT_BLOCKS,
    FLAGRANT_EVENTS,
)
from vllm_upgrade_operator.judge.finding import Finding
from vllm_upgrade_operator.judge.histograms import above, bucket_of, per_bucket, quantile
from vllm_upgrade_operator.judge.ratio import (
    BAD_EVENTS,
    CHANCE,
    DOUBT,
)
from vllm_upgrade_operator.judge.tails import more_than, upper_tail
from vllm_upgrade_operator.judge.words import over_stable, phrase, plural, relation, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.counters import Histogram
    from vllm_upgrade_operator.judge.evidence import Block, Evidence

CONSISTENT_BLOCKS = 5
"""Blocks in a row, the last ones, that must each be beyond the limit: longer than most queues that
build up by chance."""


_MOST_SHARE = 0.5
"""Share of slower requests up to which `_Increase` can tell: more than all are never slower, so
twice the half that is above a median cannot be reached."""


def block(canary: Sequence[Histogram], stable: Sequence[Histogram], requests: float) -> Block:
    """Write one look down: observations per bucket of either side.

    Args:
        canary: Of the canary pods, all with the same bounds.
        stable: Of the stable pods, with the same bounds too.
        requests: Canary requests that the observations belong to.
    """
    look: Block = {
        "r": requests,
        CANARY_SUM: sum(h.total for h in canary),
        CANARY_COUNT: sum(h.observations for h in canary),
    }
    for side, histograms in (("c", canary), ("s", stable)):
        for histogram in histograms:
            for index, number in enumerate(per_bucket(histogram.counts)):
                if number:
                    key = f"{side}{index}"
                    look[key] = look.get(key, 0.0) + number
    return look


def weigh(check: Check, evidence: Evidence, min_requests: int) -> Finding:
    """Say what the window shows; `evidence.bounds` are the buckets' bounds."""
    if check.quantile is None:
        raise ValueError(f"check {check.name!r} of {check.metric} has no quantile")
    window = _Tail(evidence.window(), evidence.bounds, check.quantile)
    recent = [_Tail(b, evidence.bounds, check.quantile) for b in evidence.recent(CONSISTENT_BLOCKS)]
    enough = (
        len(recent) == CONSISTENT_BLOCKS
        and window.trials >= min_requests / 2
        and evidence.unprecedented(CONSISTENT_BLOCKS)
    )
    limits = _limits(check, window, evidence.reference)
    flagrant = len(recent) >= FLAGRANT_BLOCKS and window.trials >= FLAGRANT_EVENTS
    broken = [
        limit
        for limit in limits
        if limit.harmed(window)
        and (
            (enough and all(limit.beyond(b) for b in recent))
            or (flagrant and all(limit.mostly(b) for b in recent[-FLAGRANT_BLOCKS:]))
        )
    ]
    doubtful = [limit for limit in limits if limit.doubted(window)]
    named = broken or doubtful or limits
    return Finding(
        canary=seconds(window.value),
        stable=seconds(window.stable_value),
        stable_value=window.stable_value,
        broken=bool(broken),
        doubtful=bool(doubtful),
        words=phrase(
            seconds(window.value),
            relation(
                clear=bool(broken or doubtful), beyond=any(limit.beyond(window) for limit in limits)
            ),
            [limit.words for limit in named],
        )
        + f", in {plural(window.requests, 'request')}",
    )


class _Tail:
    """The two sides' observations in a span of looks."""

    def __init__(self, block: Block, bounds: Sequence[float], q: float) -> None:
        self.bounds = bounds
        self.q = q
        self.requests = block.get("r", 0.0)
        self.canary = [block.get(f"c{i}", 0.0) for i in range(len(bounds))]
        self.stable = [block.get(f"s{i}", 0.0) for i in range(len(bounds))]
        self.value = quantile(bounds, self.canary, q)
        self.stable_value = quantile(bounds, self.stable, q)
        # The tokens of one request share its fate: no more than its requests count as trials.
        observed = sum(self.canary)
        self._scale = min(1.0, self.requests / observed) if observed > 0 else 0.0
        self.trials = observed * self._scale

    def canary_above(self, index: int) -> tuple[float, float]:
        """Give the canary's observations above a bound, and all of them, as trials."""
        return above(self.canary, index) * self._scale, self.trials

    def stable_above(self, index: int) -> tuple[float, float]:
        """Give the same of the stable pods."""
        return above(self.stable, index) * self._scale, sum(self.stable) * self._scale


class _Limit(Protocol):
    """One limit of a check."""

    @property
    def words(self) -> str:
        """Name the limit."""

    def beyond(self, tail: _Tail) -> bool:
        """Whether the tail of a block is on the wrong side, chance or not."""

    def mostly(self, tail: _Tail) -> bool:
        """Whether most of a block is on the wrong side, where a small share may be."""

    def harmed(self, tail: _Tail) -> bool:
        """Whether the window is too bad to be chance."""

    def doubted(self, tail: _Tail) -> bool:
        """Whether the window is bad enough not to go on."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A limit in seconds: hard, or taken from stable pods, which may be gone since.

    Observations are counted above the first bucket bound that is not below the limit, so that
    none within the limit is counted.
    """

    limit: float
    words: str

    def beyond(self, tail: _Tail) -> bool:
        slow, of = tail.canary_above(bucket_of(tail.bounds, self.limit))
        return slow > (1 - tail.q) * of

    def mostly(self, tail: _Tail) -> bool:
        slow, of = tail.canary_above(bucket_of(tail.bounds, self.limit))
        return 2 * slow > of

    def harmed(self, tail: _Tail) -> bool:
        index = bucket_of(tail.bounds, self.limit)
        slow, of = tail.canary_above(index)
        stable = tail.stable_above(index)
        if stable[1] > 0 and more_than(slow, of, *stable, 1.0) > CHANCE:
            return False
        return slow - (1 - tail.q) * of >= BAD_EVENTS and (
            upper_tail(slow, of, 1 - tail.q) <= CHANCE
        )

    def doubted(self, tail: _Tail) -> bool:
        slow, of = tail.canary_above(bucket_of(tail.bounds, self.limit))
        return upper_tail(slow, of, 1 - tail.q) <= DOUBT


@dataclass(frozen=True, slots=True)
class _Increase:
    """At most so many times the stable pods' quantile.

    Decided at the two bucket bounds around that quantile: the canary must have more than so many
    times the stable pods' share of slower observations at one of them, and its own quantile must
    be over the limit.
    """

    factor: float
    stable: float

    @property
    def words(self) -> str:
        return over_stable(seconds, self.stable, self.factor)

    def beyond(self, tail: _Tail) -> bool:
        for index in self._bounds(tail):
            slow, of = tail.canary_above(index)
            stable_slow, stable_of = tail.stable_above(index)
            if slow * stable_of > self.factor * stable_slow * of:
                return True
        return False

    def mostly(self, tail: _Tail) -> bool:
        slow, of = tail.canary_above(bucket_of(tail.bounds, self.factor * self.stable))
        return 2 * slow > of

    def harmed(self, tail: _Tail) -> bool:
        return self._over(tail, CHANCE, BAD_EVENTS)

    def doubted(self, tail: _Tail) -> bool:
        return self._over(tail, DOUBT, 0.0)

    def _over(self, tail: _Tail, chance: float, events: float) -> bool:
        if tail.value is None or tail.value <= self.factor * self.stable:
            return False
        indexes = self._bounds(tail)
        for index in indexes:
            slow, of = tail.canary_above(index)
            stable_slow, stable_of = tail.stable_above(index)
            if stable_of <= 0:
                continue
            excess = slow - self.factor * of * stable_slow / stable_of
            unlikely = more_than(slow, of, stable_slow, stable_of, self.factor)
            # Two bounds are tried, so each may only be half as unlikely.
            if excess >= events and unlikely <= chance / len(indexes):
                return True
        return False

    def _bounds(self, tail: _Tail) -> tuple[int, ...]:
        index = bucket_of(tail.bounds, self.stable)
        return (index - 1, index) if index else (index,)


def _limits(check: Check, window: _Tail, reference: float | None) -> list[_Limit]:
    limits: list[_Limit] = []
    stable = window.stable_value
    if check.max is not None:
        beside = "" if stable is None else f" (stable {seconds(stable)})"
        limits.append(_Value(check.max, f"the limit of {seconds(check.max)}{beside}"))
    if check.max_increase is not None:
        factor = 1 + check.max_increase
        if stable is not None and factor * (1 - window.q) <= _MOST_SHARE:
            limits.append(_Increase(factor, stable))
        elif stable is not None:
            limits.append(_Value(factor * stable, over_stable(seconds, stable, factor)))
        elif reference is not None:
            limit = factor * reference
            words = f"the limit, frozen from stable pods, of {seconds(limit)}"
            limits.append(_Value(limit, f"{words} (stable {seconds(reference)})"))
    return limits
