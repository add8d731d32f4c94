from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_upgrade_operator.judge.counters import Histogram, Sample, delta

INF = float("inf")
TIMES = Histogram(bounds=(0.1, INF), counts=(1.0, 2.0), total=0.5)
BEFORE = Sample(
    taken_at=100.0,
    offered=10.0,
    rejected=1.0,
    errors=1.0,
    client_errors=0.0,
    preemptions=2.0,
    finished=8.0,
    prompt_tokens=100.0,
    generation_tokens=50.0,
    rejections_approximate=False,
    running=3.0,
    waiting=4.0,
    kv_usage=0.5,
    kv_capacity_tokens=1000.0,
    draft_tokens=None,
    accepted_tokens=None,
    ttft=TIMES,
    itl=None,
    e2e=TIMES,
    models=("m",),
    process_started_at=50.0,
)
AFTER = replace(
    BEFORE,
    taken_at=110.0,
    offered=15.0,
    rejected=2.0,
    waiting=9.0,
    ttft=Histogram(bounds=(0.1, INF), counts=(3.0, 5.0), total=1.5),
)


def test_counters_are_differences_and_gauges_are_as_at_the_end() -> None:
    change = delta(BEFORE, AFTER)
    assert change is not None
    assert change.seconds == 10.0
    assert change.offered == 5.0
    assert change.rejected == 1.0
    assert change.preemptions == 0.0
    assert change.waiting == 9.0
    assert change.draft_tokens is None
    assert change.ttft == Histogram(bounds=(0.1, INF), counts=(2.0, 3.0), total=1.0)
    assert change.itl is None


@pytest.mark.parametrize(
    "changes",
    [
        {"process_started_at": 105.0},
        {"offered": 9.0},
        {"preemptions": 0.0},
        {"ttft": Histogram(bounds=(0.1, INF), counts=(0.0, 2.0), total=0.5)},
        {"taken_at": 100.0},
    ],
)
def test_what_cannot_be_compared_is_a_baseline_only(changes: dict[str, object]) -> None:
    assert delta(BEFORE, replace(AFTER, **changes)) is None  # type: ignore[arg-type] # the cases above


def test_a_restart_is_seen_where_the_start_time_is_not_exposed() -> None:
    after = replace(AFTER, process_started_at=None, offered=3.0)
    assert delta(replace(BEFORE, process_started_at=None), after) is None


def test_a_counter_that_appears_was_not_zero_before() -> None:
    change = delta(replace(BEFORE, rejected=None), AFTER)
    assert change is not None
    assert change.rejected is None


def test_a_histogram_with_other_buckets_is_missing() -> None:
    other = Histogram(bounds=(0.2, INF), counts=(3.0, 5.0), total=1.5)
    change = delta(BEFORE, replace(AFTER, ttft=other))
    assert change is not None
    assert change.ttft is None


def test_errors_may_fall_by_what_was_under_way() -> None:
    change = delta(BEFORE, replace(AFTER, errors=0.0))
    assert change is not None
    assert change.errors == -1.0
