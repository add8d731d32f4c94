from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.judge.traffic import GOOD, demands, run, seeded
from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS, Check
from vllm_upgrade_operator.api.spec import Metric, Mode
from vllm_upgrade_operator.judge.counters import Delta, Histogram
from vllm_upgrade_operator.judge.judge import judge
from vllm_upgrade_operator.judge.model import CheckResult, Look, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

CHECKS = {check.name: check for check in DEFAULT_CHECKS}
INF = float("inf")


def calm(**changes: Any) -> Delta:
    """One look at a pod with ten requests, the same each time."""
    times = Histogram((0.1, 0.5, 1.0, 2.5, INF), (9.0, 10.0, 10.0, 10.0, 10.0), 0.8)
    values: dict[str, Any] = {
        "seconds": 1.0,
        "offered": 10.0,
        "rejected": 0.0,
        "errors": 0.0,
        "client_errors": 0.0,
        "preemptions": 0.0,
        "finished": 10.0,
        "prompt_tokens": 900.0,
        "generation_tokens": 200.0,
        "rejections_approximate": False,
        "running": 1.0,
        "waiting": 0.0,
        "kv_usage": 0.2,
        "kv_capacity_tokens": 1000.0,
        "draft_tokens": None,
        "accepted_tokens": None,
        "models": ("m",),
        "ttft": times,
        "itl": times,
        "e2e": times,
    }
    return Delta(**{**values, **changes})


class Judged:
    """A judge and what it keeps."""

    def __init__(self, *checks: Check, min_requests: int = 100) -> None:
        self.checks = checks
        self.min_requests = min_requests
        self.evidence: dict[str, str] = {}
        self.verdict = Verdict.HOLD

    def look(
        self, canary: Delta | None = None, stable: Delta | None = None, times: int = 1
    ) -> CheckResult:
        """Look so many times; a side that is not given is calm."""
        for _ in range(times):
            seen = Look(at=0.0, canary={"c": canary or calm()}, stable={"s": stable or calm()})
            result = self._judge(seen)
        return result

    def learn(self, stable: Delta | None = None, times: int = 1) -> None:
        """Look so many times while there is no canary."""
        for _ in range(times):
            look = Look(at=0.0, canary={}, stable={"s": stable or calm()})
            judgement = judge(self.checks, look, self.evidence, demands(self.min_requests))
            assert (judgement.verdict, judgement.results) == (Verdict.HOLD, ())
            self.evidence = judgement.evidence

    def bake(self, canary: Delta | None = None, times: int = 1) -> CheckResult:
        """Look so many times without stable pods."""
        for _ in range(times):
            result = self._judge(Look(at=0.0, canary={"c": canary or calm()}, stable={}))
        return result

    def _judge(self, look: Look) -> CheckResult:
        judgement = judge(self.checks, look, self.evidence, demands(self.min_requests))
        self.evidence, self.verdict = judgement.evidence, judgement.verdict
        return judgement.results[0]


def test_too_few_requests_hold() -> None:
    judged = Judged(CHECKS["rejections"])
    result = judged.look(times=3)
    assert result.verdict is Verdict.HOLD
    assert result.requests == 30
    assert "30 of 100 requests" in result.reason


def test_enough_requests_are_not_enough_evidence() -> None:
    """With nothing refused it takes some 480 requests to show that 1 % is not reached."""
    judged = Judged(CHECKS["rejections"])
    result = judged.look(times=40)
    assert result.verdict is Verdict.HOLD
    assert result.reason.endswith("in 400 requests; shown to be safe after some 90 requests more")
    result = judged.look(times=10)
    assert result.verdict is Verdict.PASS
    assert judged.verdict is Verdict.PASS


def test_no_traffic_is_never_a_pass() -> None:
    judged = Judged(*DEFAULT_CHECKS)
    empty = Histogram((1.0, INF), (0.0, 0.0), 0.0)
    quiet = calm(offered=0.0, finished=0.0, ttft=empty, itl=empty, e2e=empty)
    judged.look(quiet, quiet, times=50)
    assert judged.verdict is Verdict.HOLD


def test_traffic_that_stops_holds_again() -> None:
    judged = Judged(CHECKS["rejections"])
    judged.look(times=60)
    assert judged.verdict is Verdict.PASS
    assert judged.look(calm(offered=0.0)).verdict is Verdict.PASS
    result = judged.look(calm(offered=0.0), times=4)
    assert result.verdict is Verdict.HOLD
    assert "no new requests for 5 looks" in result.reason


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("rejections", "rejected"),
        ("errors", "errors"),
        ("queue", "waiting"),
        ("ttft-p99", "ttft"),
        ("itl-p99", "itl"),
        ("e2e-p99", "e2e"),
        ("kv", "kv_usage"),
        ("kv-capacity", "kv_capacity_tokens"),
        ("preemptions", "preemptions"),
    ],
)
def test_a_missing_metric_holds_and_names_metric_side_and_pod(name: str, missing: str) -> None:
    judged = Judged(CHECKS[name])
    judged.look(times=20)
    result = judged.look(calm(**{missing: None}, absent={missing: ("vllm:x",), "other": ("y",)}))
    assert result.verdict is Verdict.HOLD
    assert result.reason == "vllm:x missing on canary pod c"
    assert (result.missing, result.doubtful) == (True, True)
    assert judged.verdict is Verdict.HOLD


def test_a_metric_that_was_not_there_before_is_missing_for_one_look() -> None:
    """There is nothing yet to count from."""
    result = Judged(CHECKS["kv"]).look(calm(kv_usage=None))
    assert result.reason == "what KVCacheUsage is made of missing on canary pod c"


def test_not_all_names_of_pods_are_listed() -> None:
    gone = calm(waiting=None, absent={"waiting": ("vllm:num_requests_waiting",)})
    look = Look(0.0, {"c1": gone, "c2": gone}, {f"s{i}": gone for i in range(5)})
    (result,) = judge((CHECKS["queue"],), look, {}, demands()).results
    assert result.reason == (
        "vllm:num_requests_waiting missing on canary pods c1, c2 and "
        "stable pods s0, s1, s2 and 2 more"
    )


def test_a_metric_that_stable_pods_lack_matters_only_where_they_are_compared() -> None:
    judged = Judged(CHECKS["rejections"], CHECKS["errors"])
    judged.look(times=20)
    result = judged.look(stable=calm(rejected=None, errors=None, absent={"rejected": ("r",)}))
    assert result.reason == "r missing on stable pod s"
    alone = Judged(CHECKS["errors"])
    assert alone.look(stable=calm(errors=None), times=60).verdict is Verdict.PASS


def test_what_is_flagrant_is_harm_at_the_second_look() -> None:
    judged = Judged(CHECKS["errors"])
    assert judged.look(calm(errors=10.0)).verdict is Verdict.HOLD
    result = judged.look(calm(errors=10.0))
    assert result.verdict is Verdict.HARM
    assert result.reason == (
        "failed requests 100%, beyond the limit of 1% (stable 0%), in 20 requests"
    )
    assert (result.canary, result.stable, result.limit) == ("100%", "0%", "1%")


def test_a_single_look_is_never_harm_however_bad() -> None:
    judged = Judged(*DEFAULT_CHECKS)
    judged.look(times=100)
    verdicts = [judged.look(calm(errors=10.0, rejected=10.0, waiting=500.0)).verdict]
    verdicts += [judged.look().verdict for _ in range(60)]
    assert Verdict.HARM not in verdicts


def test_all_requests_bad_on_both_sides_is_no_harm_and_no_pass() -> None:
    judged = Judged(CHECKS["errors"], CHECKS["rejections"])
    bad = calm(errors=10.0, rejected=10.0)
    judged.look(bad, bad, times=400)
    assert judged.verdict is Verdict.HOLD


def test_seventeen_bad_requests_against_none() -> None:
    """Right after each other they may be one burst; when it goes on it is harm."""
    judged = Judged(CHECKS["errors"])
    judged.learn(times=120)
    result = judged.look(calm(errors=1.0), times=17)
    assert result.verdict is Verdict.HOLD
    assert result.reason == (
        "failed requests 10%, not clearly beyond the limit of 1% (stable 0%), in 170 requests; "
        "looks worse, not certain yet"
    )
    assert judged.look(calm(errors=1.0), times=23).verdict is Verdict.HARM


def test_a_check_that_is_observed_or_disabled_does_not_act() -> None:
    observed = Judged(CHECKS["rejections"], replace(CHECKS["errors"], mode=Mode.OBSERVE))
    observed.look(calm(errors=5.0), times=60)
    assert observed.verdict is Verdict.PASS
    last = judge(
        observed.checks,
        Look(0.0, {"c": calm(errors=5.0)}, {"s": calm()}),
        observed.evidence,
        demands(),
    ).results[1]
    assert last.verdict is Verdict.HARM
    assert last.observe_only
    disabled = replace(CHECKS["errors"], mode=Mode.DISABLED)
    look = Look(0.0, {"c": calm()}, {"s": calm()})
    assert judge((disabled,), look, {}, demands(1)).results == ()


def test_without_an_enforced_check_nothing_passes() -> None:
    look = Look(0.0, {"c": calm()}, {"s": calm()})
    assert judge((), look, {}, demands(1)).verdict is Verdict.HOLD


def test_approximate_rejections_are_called_so() -> None:
    approximate = calm(rejections_approximate=True)
    result = Judged(CHECKS["rejections"]).look(approximate)
    assert "(approximate: all 5xx answers, for want of a counter)" in result.reason
    result = Judged(CHECKS["errors"]).look(approximate)
    assert "5xx answers count as rejections" in result.reason
    assert "rejections" not in Judged(CHECKS["errors"]).look().reason
    assert "approximate" not in Judged(CHECKS["queue"]).look(approximate).reason


def test_different_buckets_are_not_compared() -> None:
    other = Histogram((0.2, INF), (10.0, 10.0), 1.0)
    result = Judged(CHECKS["ttft-p99"]).look(calm(ttft=other), times=20)
    assert result.verdict is Verdict.HOLD
    assert "different histogram buckets" in result.reason


def test_a_full_cache_is_no_harm_where_stable_pods_are_as_full() -> None:
    judged = Judged(CHECKS["kv"])
    assert judged.look(calm(kv_usage=1.0), calm(kv_usage=1.0), times=40).verdict is Verdict.HOLD
    assert Judged(CHECKS["kv"]).look(calm(kv_usage=1.0), times=40).verdict is Verdict.HARM


def test_a_queue_that_stable_pods_had_too_is_no_harm() -> None:
    judged = Judged(CHECKS["queue"])
    judged.look(stable=calm(waiting=40.0), times=8)
    assert judged.look(calm(waiting=30.0), times=60).verdict is Verdict.HOLD
    assert judged.look(calm(waiting=50.0), times=30).verdict is Verdict.HARM


def test_a_smaller_cache_is_harm_and_a_larger_one_is_not() -> None:
    smaller = Judged(CHECKS["kv-capacity"]).look(calm(kv_capacity_tokens=800.0), times=30)
    assert smaller.verdict is Verdict.HARM
    assert "the limit of 900 (stable 1000 -10%)" in smaller.reason
    assert "800 (stable 1000: shrunk by 20%), beyond" in smaller.reason
    larger = Judged(CHECKS["kv-capacity"]).look(calm(kv_capacity_tokens=2000.0), times=30)
    assert larger.verdict is Verdict.PASS
    assert "2000 (stable 1000: grown by 100%), within" in larger.reason
    same = Judged(CHECKS["kv-capacity"]).look(times=30)
    assert "1000 (stable 1000), within" in same.reason


def test_drafts_that_are_accepted_less() -> None:
    drafts = CHECKS["draft-acceptance"]
    good = calm(draft_tokens=300.0, accepted_tokens=210.0)
    bad = calm(draft_tokens=300.0, accepted_tokens=60.0)
    assert Judged(drafts).look(good, good, times=30).verdict is Verdict.PASS
    assert Judged(drafts).look(bad, good, times=30).verdict is Verdict.HARM


def test_drafts_where_none_are_made() -> None:
    drafts = CHECKS["draft-acceptance"]
    good = calm(draft_tokens=300.0, accepted_tokens=210.0)
    for canary, stable, sides in (
        (calm(), good, "canary pods"),
        (good, calm(), "stable pods"),
        (calm(), calm(), "canary pods and stable pods"),
    ):
        beside = Judged(CHECKS["kv"], drafts)
        beside.look(canary, stable, times=30)
        assert beside.verdict is Verdict.PASS
        alone = Judged(drafts)
        result = alone.look(canary, stable, times=30)
        assert result.verdict is Verdict.NOT_APPLICABLE
        assert result.reason == f"does not apply: speculative decoding does not run on {sides}"
        assert alone.verdict is Verdict.HOLD


def test_a_queue_is_not_compared_with_that_of_pods_that_nobody_asks() -> None:
    """All the traffic of a fleet on its canary is no finding about the candidate."""
    judged = Judged(CHECKS["queue"])
    idle = calm(offered=0.0, running=0.0)
    result = judged.look(calm(waiting=30.0), idle, times=60)
    assert result.verdict is Verdict.HOLD
    assert "stable pods got no requests to compare with" in result.reason
    busy = Judged(CHECKS["queue"])
    assert busy.look(calm(waiting=30.0), times=60).verdict is Verdict.HARM
    limited = Judged(CHECKS["queue"])
    assert limited.look(calm(waiting=80.0), idle, times=60).verdict is Verdict.HARM


@pytest.mark.parametrize("name", ["rejections", "queue", "ttft-p99", "itl-p99", "preemptions"])
def test_nothing_that_is_compared_passes_beside_pods_that_nobody_asks(name: str) -> None:
    none = Histogram((0.1, 0.5, 1.0, 2.5, INF), (0.0,) * 5, 0.0)
    idle = calm(offered=0.0, running=0.0, finished=0.0, ttft=none, itl=none, e2e=none)
    result = Judged(CHECKS[name]).look(stable=idle, times=60)
    assert result.verdict is Verdict.HOLD
    assert "stable pods got no requests to compare with" in result.reason


def test_a_latency_beyond_its_hard_limit_is_told_beside_that_of_stable_pods() -> None:
    slow = Histogram((0.1, 0.5, 1.0, 2.5, 5.0, INF), (0.0, 0.0, 0.0, 0.0, 10.0, 10.0), 40.0)
    fast = Histogram((0.1, 0.5, 1.0, 2.5, 5.0, INF), (10.0,) * 6, 0.8)
    check = replace(CHECKS["ttft-p99"], max_increase=None)
    result = Judged(check).look(calm(ttft=slow), calm(ttft=fast), times=30)
    assert result.verdict is Verdict.HARM
    assert "beyond the limit of 2s (stable 99ms)" in result.reason


def test_stable_pods_that_are_not_read_for_a_moment_hold() -> None:
    judged = Judged(CHECKS["rejections"])
    judged.look(times=60)
    result = judged.bake()
    assert result.verdict is Verdict.HOLD
    assert "no stable pod to compare with was read" in result.reason


def test_stable_pods_that_were_never_read_are_no_bake() -> None:
    judged = Judged(CHECKS["rejections"])
    assert judged.bake(times=40).verdict is Verdict.HOLD


def test_without_stable_pods_hard_limits_act_alone() -> None:
    judged = Judged(CHECKS["rejections"])
    judged.look(times=60)
    assert judged.bake(times=10).verdict is Verdict.PASS
    assert judged.bake(calm(rejected=3.0), times=10).verdict is Verdict.HARM


def test_what_was_as_bad_beside_stable_pods_is_not_held_against_them_when_they_are_gone() -> None:
    judged = Judged(CHECKS["errors"])
    bad = calm(errors=3.0)
    judged.look(bad, bad, times=100)
    assert judged.bake(times=30).verdict is not Verdict.HARM


def test_without_stable_pods_latencies_are_held_against_the_last_of_theirs() -> None:
    judged = Judged(replace(CHECKS["ttft-p99"], max=None))
    judged.look(times=100)
    result = judged.bake(times=30)
    assert result.verdict is Verdict.PASS
    assert "frozen from stable pods" in result.reason
    slow = Histogram((0.1, 0.5, 1.0, 2.5, INF), (0.0, 0.0, 5.0, 10.0, 10.0), 9.0)
    assert judged.bake(calm(ttft=slow), times=30).verdict is Verdict.HARM


def test_a_check_without_power_says_so() -> None:
    judged = Judged(CHECKS["preemptions"])
    judged.look(times=60)
    result = judged.bake(times=10)
    assert result.verdict is Verdict.PASS
    assert "no limit without stable pods to compare with" in result.reason


def test_a_changed_check_begins_again_and_the_others_go_on() -> None:
    judged = Judged(CHECKS["errors"], CHECKS["queue"])
    judged.look(times=20)
    judged.checks = (replace(CHECKS["errors"], max=0.5), CHECKS["queue"])
    look = Look(0.0, {"c": calm()}, {"s": calm()})
    results = judge(judged.checks, look, judged.evidence, demands()).results
    assert [r.requests for r in results] == [10, 210]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"v": 0}', "null"])
def test_evidence_of_another_format_begins_again(text: str) -> None:
    look = Look(0.0, {"c": calm()}, {"s": calm()})
    judgement = judge((CHECKS["errors"],), look, {"errors": text}, demands())
    assert judgement.results[0].requests == 10


def test_evidence_stays_small_and_is_json() -> None:
    end = run(seeded(1), DEFAULT_CHECKS, canaries=4, stables=40, looks=150)
    for text in end.judgement.evidence.values():
        assert len(text) < 8192
        json.loads(text)


def test_a_verdict_depends_on_nothing_but_its_input() -> None:
    def judge_once() -> Sequence[CheckResult]:
        return run(seeded(7), DEFAULT_CHECKS, canary=replace(GOOD, rejected=0.05)).judgement.results

    assert judge_once() == judge_once()


@pytest.mark.parametrize(("quantile", "increase"), [(0.5, 1.0), (0.5, 0.3), (0.9, 9.0)])
def test_a_median_that_may_be_a_multiple_of_stables(quantile: float, increase: float) -> None:
    check = Check(
        name="own", metric=Metric.TIME_TO_FIRST_TOKEN, quantile=quantile, max_increase=increase
    )
    bounds = (0.02, 0.04, 0.06, 0.1, 0.5, 1.0, 2.5, INF)
    usual = Histogram(bounds, (2.0, 6.0, 9.0, 10.0, 10.0, 10.0, 10.0, 10.0), 0.4)
    slow = Histogram(bounds, (0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 10.0, 10.0), 13.0)
    assert Judged(check).look(calm(ttft=usual), calm(ttft=usual), times=60).verdict is Verdict.PASS
    judged = Judged(check)
    judged.learn(calm(ttft=usual), times=60)
    result = judged.look(calm(ttft=slow), calm(ttft=usual), times=60)
    assert result.verdict is Verdict.HARM
    assert re.search(r"beyond the limit of \S+ \(stable \S+ \+\d+%\): ", result.reason)


def test_a_check_of_ones_own() -> None:
    own = Check(name="p50", metric=Metric.TIME_TO_FIRST_TOKEN, quantile=0.5, max=0.1)
    assert Judged(own).look(times=30).verdict is Verdict.PASS
    slow = Histogram((0.1, 0.5, 1.0, 2.5, INF), (0.0, 10.0, 10.0, 10.0, 10.0), 3.0)
    judged = Judged(own)
    judged.learn(times=180)
    result = judged.look(calm(ttft=slow), times=60)
    assert result.verdict is Verdict.HARM
    assert "time to first token p50" in result.reason
