"""The rules of others, on counts whose answer is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.judge.peers import PEERS, argo, flagger, kayenta, z_each_look
from benchmarks.judge.traces import LOOKS_PER_MINUTE, Counted, Traces

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPARED = Counted(name="rejections", share=0.01, margin=1.5)
LIMITED = Counted(name="errors", share=0.001, maximum=0.01)
UNSEEN = Counted(name="preemptions", share=0.001, margin=2.0)


def by_minute(
    canary: Sequence[float],
    stable: Sequence[float],
    *,
    check: Counted = COMPARED,
    of: float = 1000,
    warmup: int = 0,
) -> Traces:
    """One run with so many bad requests in a minute, of so many requests in every look."""
    looks = len(canary) * LOOKS_PER_MINUTE
    bad = np.zeros((1, 1, looks, 2), dtype=np.float64)
    bad[0, 0, ::LOOKS_PER_MINUTE, 0] = canary
    bad[0, 0, ::LOOKS_PER_MINUTE, 1] = stable
    return Traces(
        checks=(check,),
        bad=bad,
        of=np.full(bad.shape, of, dtype=np.float64),
        canaries=1,
        learned=0,
        warmup=warmup,
    )


def test_argo_fails_at_the_first_rate_above_twice_stables() -> None:
    traces = by_minute([20, 20, 21, 0], [10, 10, 10, 10])
    assert argo(traces, 0).acted.tolist() == [180]


def test_argos_failure_limit_counts_failures_that_are_not_in_a_row() -> None:
    traces = by_minute([30, 0, 30, 0, 30, 0, 30], [10] * 7)
    assert argo(traces, 3).acted.tolist() == [420]
    assert argo(traces, 4).acted.tolist() == [math.inf]


def test_argo_takes_any_rate_for_too_high_beside_none_but_not_none_beside_none() -> None:
    assert argo(by_minute([0, 1], [0, 0]), 0).acted.tolist() == [120]
    assert argo(by_minute([0, 0], [0, 0]), 0).acted.tolist() == [math.inf]


def test_argo_without_traffic_sees_no_failure() -> None:
    assert argo(by_minute([0, 0], [0, 0], of=0), 0).acted.tolist() == [math.inf]


def test_a_check_with_a_hard_limit_alone_is_held_against_that() -> None:
    # 6000 requests a minute: 60 are 1 %.
    traces = by_minute([60, 61], [0, 0], check=LIMITED)
    assert argo(traces, 0).acted.tolist() == [120]


def test_nobody_else_looks_at_preemptions() -> None:
    bad = np.zeros((1, 2, 30, 2), dtype=np.float64)
    bad[0, 1, :, 0] = 500
    of = np.full(bad.shape, 1000, dtype=np.float64)
    traces = Traces(checks=(COMPARED, UNSEEN), bad=bad, of=of, canaries=1, learned=0)
    for rule in PEERS.values():
        assert rule(traces).acted.tolist() == [math.inf]


def test_flagger_acts_a_tick_after_the_last_failure_that_it_needed() -> None:
    traces = by_minute([30, 0, 30, 30, 30, 30, 0, 0], [10] * 8)
    assert flagger(traces, 5).acted.tolist() == [420]
    assert flagger(traces, 1).acted.tolist() == [120]


def test_flagger_counts_a_tick_once_however_many_metrics_failed_in_it() -> None:
    one = by_minute([30, 30, 30], [10] * 3)
    both = Traces(
        checks=(COMPARED, COMPARED),
        bad=np.repeat(one.bad, 2, axis=1),
        of=np.repeat(one.of, 2, axis=1),
        canaries=1,
        learned=0,
    )
    assert flagger(both, 3).acted.tolist() == [240]


def test_looks_of_the_warm_up_are_left_out_and_their_time_is_not() -> None:
    traces = by_minute([99, 30, 0], [10, 10, 10], warmup=LOOKS_PER_MINUTE)
    assert argo(traces, 0).acted.tolist() == [120]
    assert argo(by_minute([99, 0, 0], [10] * 3, warmup=6), 0).acted.tolist() == [math.inf]


def test_kayenta_finds_a_clear_shift_at_its_first_judgement() -> None:
    traces = by_minute([40, 41, 42, 43, 44], [10, 11, 12, 13, 14])
    assert kayenta(traces).acted.tolist() == [300]


def test_kayenta_passes_points_that_are_mixed_or_all_the_same() -> None:
    assert kayenta(by_minute([10, 30, 20, 25, 15], [11, 29, 21, 24, 16])).acted[0] == math.inf
    assert kayenta(by_minute([10] * 5, [10] * 5)).acted[0] == math.inf


def test_kayenta_passes_a_canary_that_is_better() -> None:
    assert kayenta(by_minute([10, 11, 12, 13, 14], [40, 41, 42, 43, 44])).acted[0] == math.inf


def test_kayenta_leaves_out_minutes_without_requests() -> None:
    traces = by_minute([40, 41, 42, 43, 44, 0, 0, 0, 0, 0], [10, 11, 12, 13, 14] * 2)
    of = traces.of.copy()
    of[0, 0, 30:, 0] = 0
    gaps = Traces(checks=traces.checks, bad=traces.bad, of=of, canaries=1, learned=0)
    assert kayenta(gaps).acted.tolist() == [300]


def test_the_z_test_acts_at_the_look_at_which_one_percent_is_passed() -> None:
    # 33 of 1000 beside 10 of 1000 is 3.5 standard errors, 19 beside 10 is 1.7.
    assert z_each_look(by_minute([33], [10])).acted.tolist() == [10]
    assert z_each_look(by_minute([19], [10])).acted.tolist() == [math.inf]


@pytest.mark.parametrize("rule", PEERS)
def test_no_rule_acts_where_nothing_is_bad(rule: str) -> None:
    assert PEERS[rule](by_minute([0] * 10, [0] * 10)).acted.tolist() == [math.inf]
