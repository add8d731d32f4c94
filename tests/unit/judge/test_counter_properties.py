"""What holds of counters whatever they count: tried on drawn histories of processes."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.judge.test_counters import BEFORE
from vllm_upgrade_operator.api.checks import Check
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge.counters import (
    COUNTERS,
    HISTOGRAMS,
    Delta,
    Histogram,
    Sample,
    delta,
    settled,
)
from vllm_upgrade_operator.judge.events import counted
from vllm_upgrade_operator.judge.model import Look

if TYPE_CHECKING:
    from random import Random

REJECTIONS = Check(name="rejections", metric=Metric.REJECTIONS, max=0.01)
_BOUNDS = (0.1, 1.0, math.inf)
_COUNT = st.integers(min_value=0, max_value=1000)
_GROWTH = st.tuples(*[_COUNT] * len(COUNTERS), *[_COUNT] * 3)


def grown(sample: Sample, by: tuple[int, ...]) -> Sample:
    """Let a process count on: one number per counter, then one per bucket of the histograms."""
    values: dict[str, Any] = {"taken_at": sample.taken_at + 10.0}
    for name, more in zip(COUNTERS, by, strict=False):
        values[name] = getattr(sample, name) + more
    buckets = by[len(COUNTERS) :]
    cumulative = [sum(buckets[: i + 1]) for i in range(3)]
    for name in HISTOGRAMS:
        before = getattr(sample, name)
        values[name] = Histogram(
            _BOUNDS,
            tuple(a + b for a, b in zip(before.counts, cumulative, strict=True)),
            before.total + 0.05 * buckets[0] + 0.5 * buckets[1] + 3.0 * buckets[2],
        )
    return replace(sample, **values)


_EMPTY = Histogram(_BOUNDS, (0.0,) * 3, 0.0)
_NOTHING: dict[str, Any] = {**dict.fromkeys(COUNTERS, 0.0), **dict.fromkeys(HISTOGRAMS, _EMPTY)}
START = replace(BEFORE, **_NOTHING)
_LIFE = st.lists(_GROWTH, min_size=2, max_size=8)


def life(growths: list[tuple[int, ...]], started_at: float | None = 50.0) -> list[Sample]:
    samples = [replace(START, process_started_at=started_at)]
    for by in growths:
        samples.append(grown(samples[-1], by))
    return samples


def numbers(change: Delta) -> list[float]:
    found = [getattr(change, name) for name in COUNTERS]
    for name in HISTOGRAMS:
        histogram = getattr(change, name)
        found += [b - a for a, b in pairwise((0.0, *histogram.counts))]
    return found


@given(_LIFE)
def test_deltas_of_one_process_are_never_negative_and_add_up(
    growths: list[tuple[int, ...]],
) -> None:
    samples = life(growths)
    changes = [delta(a, b) for a, b in pairwise(samples)]
    known = [c for c in changes if c is not None]
    assert len(known) == len(growths)
    sums = [sum(column) for column in zip(*map(numbers, known), strict=True)]
    whole = delta(samples[0], samples[-1])
    assert whole is not None
    assert sums == numbers(whole)
    assert min(min(numbers(c)) for c in known) >= 0


@given(_LIFE, st.data())
def test_looks_may_be_merged(growths: list[tuple[int, ...]], data: st.DataObject) -> None:
    samples = life(growths)
    middle = data.draw(st.integers(1, len(samples) - 2))
    parts = [delta(samples[0], samples[middle]), delta(samples[middle], samples[-1])]
    whole = delta(samples[0], samples[-1])
    assert whole is not None
    for name in COUNTERS:
        assert sum(getattr(p, name) for p in parts) == getattr(whole, name)


@given(first=_LIFE, second=_LIFE, start_is_shown=st.booleans())
def test_over_a_restart_nothing_is_negative_and_nothing_counted_twice(
    first: list[tuple[int, ...]], second: list[tuple[int, ...]], *, start_is_shown: bool
) -> None:
    before = life(first, 50.0 if start_is_shown else None)
    began = before[-1].taken_at
    after = [
        replace(s, taken_at=s.taken_at + began)
        for s in life(second, began + 1.0 if start_is_shown else None)
    ]
    changes = [delta(a, b) for a, b in pairwise([*before, *after])]
    known = [c for c in changes if c is not None]
    assert min(min(numbers(c)) for c in known) >= 0
    truth = sum(by[0] for by in (*first, *second))
    assert sum(c.offered or 0.0 for c in known) <= truth
    if start_is_shown:
        assert changes[len(first)] is None
        assert sum(c.offered or 0.0 for c in known) == truth


@given(st.lists(st.integers(0, 20), min_size=2, max_size=20))
def test_errors_that_waver_add_up_to_the_most_that_was_seen(errors: list[int]) -> None:
    sample = replace(START, errors=0.0)
    total = 0.0
    for number, count in enumerate(errors):
        after = settled(sample, replace(START, taken_at=101.0 + number, errors=float(count)))
        change = delta(sample, after)
        assert change is not None
        assert change.errors is not None
        assert change.errors >= 0
        total += change.errors
        sample = after
    assert total == max(errors)


@given(st.lists(_GROWTH, min_size=2, max_size=6), st.randoms())
def test_the_order_of_the_pods_does_not_matter(
    growths: list[tuple[int, ...]], random: Random
) -> None:
    changes = [delta(START, grown(START, by)) for by in growths]
    pods = [(f"pod-{i}", c) for i, c in enumerate(changes) if c is not None]
    shuffled = random.sample(pods, len(pods))
    sums = [
        counted(REJECTIONS, look)
        for look in (Look(0.0, dict(pods), {}), Look(0.0, dict(shuffled), {}))
    ]
    assert sums[0] == sums[1]
