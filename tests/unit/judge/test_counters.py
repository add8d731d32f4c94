from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from vllm_upgrade_operator.judge.counters import (
    COUNTERS,
    HISTOGRAMS,
    BreakReason,
    Figures,
    Histogram,
    Sample,
    break_between,
    delta,
    settled,
)

INF = float("inf")
TIMES = Histogram(bounds=(0.1, INF), counts=(1.0, 2.0), total=0.5)
BEFORE = Sample(
    taken_at=100.0,
    offered=10.0,
    rejected=1.0,
    rejected_for_tokens=1.0,
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
    queue=TIMES,
    prefill=None,
    decode=None,
    prompt_lengths=None,
    output_lengths=None,
    prefix_queries=100.0,
    prefix_hits=20.0,
    finished_by_model={"m": 8.0},
    adapters=None,
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
    assert change.queue == Histogram(bounds=(0.1, INF), counts=(0.0, 0.0), total=0.0)
    assert change.prefix_hits == 0.0
    assert change.finished_by_model == {"m": 0.0}


def test_every_figure_is_a_counter_a_histogram_or_taken_as_it_is() -> None:
    as_they_are = {
        *("rejections_approximate", "running", "waiting", "kv_usage", "kv_capacity_tokens"),
        *("models", "adapters", "absent"),
    }
    named = {*COUNTERS, *HISTOGRAMS, *as_they_are, "finished_by_model"}
    assert named == {f.name for f in fields(Figures)}


def test_counters_are_those_that_fall_in_a_restart() -> None:
    for name in COUNTERS:
        more: dict[str, Any] = {name: 7.0}
        less: dict[str, Any] = {name: 6.0}
        fallen = break_between(replace(BEFORE, **more), replace(AFTER, **less))
        assert fallen is not None, name
        assert f"its counts of {name} went down" in fallen.message


def times(*counts: float, total: float) -> Histogram:
    return Histogram(bounds=(0.1, INF), counts=counts, total=total)


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"process_started_at": 105.0}, BreakReason.RESTARTED, "started anew"),
        ({"offered": 9.0}, BreakReason.COUNTER_FELL, "counts of offered went down"),
        ({"errors": 0.0}, BreakReason.COUNTER_FELL, "counts of errors"),
        (
            {"offered": 0.0, "rejected": 0.0, "preemptions": 0.0, "finished": 0.0},
            BreakReason.COUNTER_FELL,
            "counts of offered, rejected, preemptions went down",
        ),
        ({"ttft": times(0.0, 2.0, total=0.5)}, BreakReason.COUNTER_FELL, "counts of ttft"),
        # More in all, and yet less in the second bucket by itself.
        ({"ttft": times(9.0, 9.0, total=0.5)}, BreakReason.COUNTER_FELL, "counts of ttft"),
        ({"finished_by_model": {"m": 7.0}}, BreakReason.COUNTER_FELL, "finished_by_model"),
        ({"finished_by_model": {"n": 9.0}}, BreakReason.COUNTER_FELL, "finished_by_model"),
        ({"taken_at": 100.0}, BreakReason.CLOCK_SET_BACK, "no time has passed"),
        ({"taken_at": 40.0}, BreakReason.CLOCK_SET_BACK, "no time has passed"),
        ({"ttft": times(3.0, 5.0, total=-90.0)}, BreakReason.CLOCK_SET_BACK, "values of ttft"),
        ({"rejections_approximate": True}, BreakReason.READ_OTHERWISE, "its version"),
    ],
)
def test_what_cannot_be_compared_is_a_baseline_only_and_says_why(
    changes: dict[str, Any], reason: BreakReason, words: str
) -> None:
    after = replace(AFTER, **changes)
    assert delta(BEFORE, after) is None
    found = break_between(BEFORE, after)
    assert found is not None
    assert found.reason is reason
    assert words in found.message


def test_after_a_break_counting_goes_on_from_the_new_baseline() -> None:
    restarted = replace(BEFORE, taken_at=110.0, process_started_at=105.0, offered=2.0)
    change = delta(restarted, replace(restarted, taken_at=120.0, offered=7.0))
    assert change is not None
    assert change.offered == 5.0


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


def test_a_model_that_appears_beside_others_began_at_zero() -> None:
    change = delta(BEFORE, replace(AFTER, finished_by_model={"m": 9.0, "n": 4.0}))
    assert change is not None
    assert change.finished_by_model == {"m": 1.0, "n": 4.0}


def test_models_that_were_not_read_are_not_known_to_have_been_idle() -> None:
    change = delta(replace(BEFORE, finished_by_model=None), AFTER)
    assert change is not None
    assert change.finished_by_model is None


def test_an_error_is_counted_once_though_a_rejection_was_under_way() -> None:
    dip = settled(BEFORE, replace(AFTER, errors=0.0))
    first = delta(BEFORE, dip)
    last = settled(dip, replace(AFTER, taken_at=120.0, errors=3.0))
    second = delta(dip, last)
    assert first is not None
    assert second is not None
    assert (first.errors, second.errors) == (0.0, 2.0)


def test_errors_of_a_process_that_is_gone_are_not_carried_over() -> None:
    restarted = replace(AFTER, process_started_at=105.0, errors=0.0)
    assert settled(BEFORE, restarted) is restarted
