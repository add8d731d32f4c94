"""What the judge's benchmark says of a rule, and holds against what must be reached."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.judge.bounds import interval, wald_seconds
from benchmarks.judge.cases import CASES, Case, Question
from benchmarks.judge.peers import PEERS
from benchmarks.judge.rows import Row, harmed_requests, row
from benchmarks.judge.running import OURS, Size, run
from benchmarks.judge.targets import TARGETS, judged
from benchmarks.judge.traces import LOOKS_PER_MINUTE, Counted, Outcome, Traces
from benchmarks.judge.worlds import REJECTIONS, Harm, World

INF = math.inf
HARMLESS = Case(name="calm", question=Question.NOISE, source=World())
LATE = Case(
    name="late",
    question=Question.HARM,
    source=World(harm=Harm(checks=("rejections",), factor=4, onset_minutes=10)),
)


def of(case: Case, acted: list[float], safe: list[float] | None = None) -> Row:
    outcome = Outcome(acted=np.array(acted), safe=None if safe is None else np.array(safe))
    return row(case, OURS, outcome, np.zeros(len(acted)), 100.0)


def test_every_case_has_its_own_name_and_every_target_is_a_case_of_a_whole_run() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    assert {target.case for target in TARGETS} <= set(names)


def test_the_interval_is_that_of_clopper_and_pearson() -> None:
    assert interval(0, 100) == pytest.approx((0, 0.0362), abs=1e-4)
    assert interval(10, 100) == pytest.approx((0.0490, 0.1762), abs=1e-4)
    assert interval(100, 100) == pytest.approx((0.9638, 1), abs=1e-4)


@pytest.mark.parametrize(("hits", "runs"), [(0, 0), (2, 1), (-1, 5)])
def test_an_interval_of_what_is_no_share_is_refused(hits: int, runs: int) -> None:
    with pytest.raises(ValueError, match=f"{hits} of {runs} runs is no share"):
        interval(hits, runs)


def test_walds_bound_is_the_one_that_was_worked_out_by_hand() -> None:
    # 0.2 and 0.15 bad requests a second, shares 4/7 and 1/3: 0.0415 nats a second.
    assert wald_seconds(World(), REJECTIONS, 4, 0.01 / 7) == pytest.approx(158, abs=1)
    tail = Counted(name="ttft", share=0.05, margin=1.3)
    assert wald_seconds(World(), tail, 2, 0.01 / 7) == pytest.approx(122, abs=1)


def test_there_is_no_bound_for_what_is_no_harm() -> None:
    with pytest.raises(ValueError, match=r"rejections: a factor of 1\.5 is no harm"):
        wald_seconds(World(), REJECTIONS, 1.5, 0.01)
    with pytest.raises(ValueError, match="at a margin of None"):
        wald_seconds(World(), replace(REJECTIONS, margin=None), 4, 0.01)


def test_any_rollback_of_a_harmless_upgrade_is_a_false_one() -> None:
    found = of(HARMLESS, [INF, 100, INF, INF])
    assert found["false_rollback"] == 0.25
    assert found["false_rollback_high"] == pytest.approx(0.806, abs=1e-3)
    assert found["missed"] is None
    assert found["median_s"] is None


def test_a_rollback_before_the_harm_is_false_and_takes_no_part_in_the_times() -> None:
    found = of(LATE, [500, 700, 900, 1100, INF])
    assert found["false_rollback"] == 0.2
    assert found["missed"] == 0.25
    assert found["median_s"] == 300
    assert found["p95_s"] is None
    assert found["bound_ratio"] == pytest.approx(300 / 110, abs=0.01)


def test_where_all_were_rolled_back_too_early_there_are_no_times() -> None:
    found = of(LATE, [100, 200])
    assert found["false_rollback"] == 1
    assert found["median_s"] is None
    assert found["missed"] is None


def test_inconclusive_is_what_is_neither_safe_nor_rolled_back_in_time() -> None:
    found = of(HARMLESS, [INF, INF, INF, 100], [900, 910, INF, INF])
    assert found["inconclusive"] == 0.5
    assert found["inconclusive_1h"] == 0.25
    assert found["safe_median_s"] == 910


def test_harm_that_was_called_safe_is_said() -> None:
    found = of(LATE, [700, 900, INF, 800], [650, INF, 5000, 300])
    assert found["wrongly_safe"] == 0.5


def test_harmed_requests_are_the_canarys_beyond_stables_share_until_the_rollback() -> None:
    looks = 20 * LOOKS_PER_MINUTE
    bad = np.zeros((2, 1, looks, 2), dtype=np.float64)
    bad[..., 0], bad[..., 1] = 5, 1
    traces = Traces(
        checks=(REJECTIONS,), bad=bad, of=np.full(bad.shape, 100.0), canaries=1, learned=0
    )
    # From minute 10 on, 4 more than stable's in each look.
    assert harmed_requests(LATE, traces, np.array([700.0, INF])).tolist() == [40, 240]
    assert harmed_requests(HARMLESS, traces, np.array([700.0, INF])).tolist() == [0, 0]


def test_harm_that_goes_away_asks_for_no_rollback() -> None:
    passing = replace(LATE, source=World(harm=Harm(checks=("ttft",), factor=4, minutes=2)))
    assert LATE.harmful
    assert not passing.harmful


def test_a_target_is_reached_at_its_value_and_not_beyond_or_never() -> None:
    target = next(t for t in TARGETS if t.case == "4x rejections" and t.figure == "median_s")
    assert target.reached({"median_s": 240.0})
    assert not target.reached({"median_s": 250.0})
    assert not target.reached({"median_s": None})


def test_an_upper_end_that_few_runs_cannot_bring_down_is_not_held_against_it() -> None:
    rows = {
        "pods that differ": {"false_rollback": 0.0, "false_rollback_high": 0.07, "runs": 50},
    }
    assert [target.figure for target, _, _ in judged(rows)] == ["false_rollback"]
    rows["pods that differ"]["runs"] = 3000
    assert len(judged(rows)) == 2


class InThisProcess:
    """A pool that is none."""

    imap = staticmethod(map)


def test_a_case_gives_a_row_for_each_rule_and_the_same_each_time() -> None:
    case = Case(
        name="short",
        question=Question.HARM,
        source=World(minutes=10, harm=Harm(checks=("rejections",), factor=10)),
        bound="rejections",
    )
    size = Size(runs=4, peer_runs=2, spells=52)
    (rows,) = run([case], size, InThisProcess())  # type: ignore[arg-type]
    assert [found["rule"] for found in rows] == [OURS, *PEERS]
    assert [found["runs"] for found in rows] == [4, *[4] * len(PEERS)]
    assert rows[0]["missed"] == 0
    assert rows[0]["median_s"] <= 60
    assert rows[0]["harmed_requests"] > 0
    assert [rows] == list(run([case], size, InThisProcess()))  # type: ignore[arg-type]
