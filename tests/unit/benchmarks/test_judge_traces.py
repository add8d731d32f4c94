"""What the judge's benchmark draws."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.judge.synthetic import draw
from benchmarks.judge.traces import LOOKS_PER_MINUTE, Outcome, Traces, seconds_to_first, together
from benchmarks.judge.worlds import DEFAULTS, SHARES, Bursts, Harm, Spread, World

SHORT = World(checks=SHARES, learn_minutes=2, minutes=20)
LEARNED = 2 * LOOKS_PER_MINUTE


def drawn(world: World, runs: int = 20) -> Traces:
    return draw(world, runs, np.random.default_rng(7))


def share(traces: Traces, check: int, pods: slice) -> float:
    bad = traces.bad[:, check, LEARNED:, pods].sum()
    return float(bad / traces.of[:, check, LEARNED:, pods].sum())


def test_the_same_seed_draws_the_same_counts() -> None:
    assert (drawn(SHORT).bad == drawn(SHORT).bad).all()


def test_the_canary_has_no_traffic_while_stable_pods_are_learned_from() -> None:
    traces = drawn(SHORT)
    assert traces.learned == LEARNED
    assert traces.of[:, :, :LEARNED, 0].sum() == 0
    assert traces.of[:, :, LEARNED:, 0].mean() == pytest.approx(100, rel=0.02)
    assert traces.of[:, :, :, 1:].mean() == pytest.approx(100, rel=0.02)


def test_shares_of_bad_requests_are_those_of_the_checks() -> None:
    traces = drawn(SHORT)
    for number, check in enumerate(SHARES):
        assert share(traces, number, slice(0, None)) == pytest.approx(check.share, rel=0.1)


def test_harm_is_in_its_check_alone_and_in_the_canary_alone() -> None:
    traces = drawn(replace(SHORT, harm=Harm(checks=("ttft",), factor=2)))
    assert share(traces, 1, slice(0, 1)) == pytest.approx(0.1, rel=0.05)
    assert share(traces, 1, slice(1, None)) == pytest.approx(0.05, rel=0.05)
    assert share(traces, 2, slice(0, 1)) == pytest.approx(0.05, rel=0.05)


def test_harm_that_comes_late_and_goes_is_there_in_between() -> None:
    harm = Harm(checks=("ttft",), factor=4, onset_minutes=5, minutes=5)
    bad = drawn(replace(SHORT, harm=harm)).bad[:, 1, LEARNED:, 0].mean(axis=0)
    assert bad[:30].mean() == pytest.approx(5, rel=0.1)
    assert bad[30:60].mean() == pytest.approx(20, rel=0.1)
    assert bad[60:].mean() == pytest.approx(5, rel=0.1)


def test_a_ramp_has_half_of_the_harm_in_its_middle() -> None:
    harm = Harm(checks=("ttft",), factor=5, ramp_minutes=10)
    bad = drawn(replace(SHORT, harm=harm), runs=100).bad[:, 1, LEARNED:, 0].mean(axis=0)
    assert bad[29:32].mean() == pytest.approx(15, rel=0.1)
    assert bad[60:].mean() == pytest.approx(25, rel=0.1)


def test_at_the_margin_the_canary_is_as_bad_as_it_may_be() -> None:
    traces = drawn(replace(SHORT, at_margin=True))
    assert share(traces, 1, slice(0, 1)) == pytest.approx(0.065, rel=0.05)


def test_a_cold_cache_slows_the_canary_for_two_minutes_and_no_longer() -> None:
    traces = drawn(replace(SHORT, cold=True))
    bad = traces.bad[:, 1, LEARNED:, 0].mean(axis=0)
    assert bad[:12].mean() == pytest.approx(20, rel=0.1)
    assert bad[12:].mean() == pytest.approx(5, rel=0.1)
    assert (traces.cold, traces.warmup) == (12, 6)


@pytest.mark.parametrize("cv", [1.0, 2.0])
def test_bursts_have_a_mean_of_one_and_the_variation_that_is_asked_for(cv: float) -> None:
    bad = drawn(replace(SHORT, bursts=Bursts(cv=cv)), runs=200).bad[:, 1, :, 1:].astype(float)
    assert bad.mean() == pytest.approx(5, rel=0.05)
    # Of a mixed binomial: the mean, and the square of the mean times that of the variation. A
    # share is at most 1, and a request is bad once: both take a little off.
    assert bad.var() == pytest.approx(5 + (5 * cv) ** 2, rel=0.12)


def test_shared_bursts_hit_all_pods_and_others_do_not() -> None:
    def correlation(bursts: Bursts) -> float:
        bad = drawn(replace(SHORT, bursts=bursts)).bad[:, 1]
        return float(np.corrcoef(bad[..., 1].ravel(), bad[..., 2].ravel())[0, 1])

    assert correlation(Bursts(cv=2, shared=True)) > 0.8
    assert abs(correlation(Bursts(cv=2))) < 0.1


def test_bursts_that_persist_are_there_in_the_next_look_too() -> None:
    def correlation(bursts: Bursts) -> float:
        bad = drawn(replace(SHORT, bursts=bursts)).bad[:, 1, :, 1]
        return float(np.corrcoef(bad[:, :-1].ravel(), bad[:, 1:].ravel())[0, 1])

    assert correlation(Bursts(cv=1, persistence=0.8)) > 0.5
    assert abs(correlation(Bursts(cv=1))) < 0.1


def test_a_burst_is_one_for_all_checks_unless_each_has_its_own() -> None:
    def correlation(bursts: Bursts) -> float:
        bad = drawn(replace(SHORT, bursts=bursts)).bad
        return float(np.corrcoef(bad[:, 1].ravel(), bad[:, 2].ravel())[0, 1])

    assert correlation(Bursts(cv=2)) > 0.8
    assert abs(correlation(Bursts(cv=2, per_check=True))) < 0.1


def test_pods_differ_by_one_factor_for_all_checks_or_by_one_for_each() -> None:
    def logs(spread: Spread) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        traces = drawn(replace(SHORT, spread=spread, minutes=120), runs=100)
        seen: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = np.log(
            traces.bad[:, 1:3, :, 1].sum(axis=2) / traces.of[:, 1:3, :, 1].sum(axis=2)
        )
        return seen

    one, anew = logs(Spread.PER_POD), logs(Spread.PER_CHECK)
    assert one.std() == pytest.approx(0.3, rel=0.2)
    assert np.corrcoef(one[:, 0], one[:, 1])[0, 1] > 0.95
    assert abs(np.corrcoef(anew[:, 0], anew[:, 1])[0, 1]) < 0.3


def test_a_day_moves_traffic_and_bad_requests_of_all_pods_together() -> None:
    traces = drawn(replace(SHORT, day=True, minutes=120), runs=50)
    by_run = traces.of[:, 1, LEARNED:].sum(axis=(1, 2))
    assert by_run.std() / by_run.mean() > 0.2


def test_silence_is_ten_minutes_without_a_request() -> None:
    traces = drawn(replace(SHORT, silence=True))
    silent = (traces.of[:, 0].sum(axis=2) == 0).sum(axis=1)
    assert (silent == 10 * LOOKS_PER_MINUTE).all()


def test_unequal_shares_keep_the_stable_pods_mean() -> None:
    traces = drawn(replace(SHORT, uneven=True, canary_weight=0.1))
    mean = traces.of[:, 0, LEARNED:].mean(axis=(0, 1))
    assert mean == pytest.approx([10, 50, 100, 150], rel=0.05)


def test_sides_are_summed_over_pods_and_begin_when_the_canary_is_compared() -> None:
    traces = drawn(replace(SHORT, cold=True, canaries=2, checks=DEFAULTS))
    bad1, of1, bad0, of0 = traces.sides()
    start = LEARNED + 6
    assert (bad1 == traces.bad[:, :, start:, :2].sum(axis=3)).all()
    assert (of1 == traces.of[:, :, start:, :2].sum(axis=3)).all()
    assert (bad0 == traces.bad[:, :, start:, 2:].sum(axis=3)).all()
    assert (of0 == traces.of[:, :, start:, 2:].sum(axis=3)).all()


def test_counts_of_another_shape_than_their_events_are_refused() -> None:
    bad = np.zeros((1, 1, 3, 2), dtype=np.float64)
    with pytest.raises(ValueError, match=r"not of the shapes \(1, 1, 3, 2\) and \(1, 1, 2, 2\)"):
        Traces(checks=DEFAULTS[:1], bad=bad, of=bad[:, :, :2], canaries=1, learned=0)


def test_the_first_hit_of_any_check_counts_at_the_end_of_its_span() -> None:
    hit = np.zeros((2, 2, 4), dtype=bool)
    hit[0, 1, 2] = hit[0, 0, 3] = True
    assert seconds_to_first(hit, 60, 30).tolist() == [210, math.inf]


def test_parts_that_say_what_is_safe_are_not_mixed_with_others() -> None:
    one = Outcome(acted=np.array([1.0]), safe=np.array([2.0]))
    both = together([one, one])
    assert both.acted.tolist() == [1, 1]
    assert both.safe is not None
    assert both.safe.tolist() == [2, 2]
    with pytest.raises(ValueError, match="1 of 2 parts say what is safe"):
        together([one, Outcome(acted=np.array([1.0]))])
    with pytest.raises(ValueError, match="0 of 0"):
        together([])
