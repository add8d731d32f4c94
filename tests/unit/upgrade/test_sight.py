"""Upgrades that cannot see what the pods do: nothing is concluded, and the reason is told."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.world import SPEC, START, World, calm
from vllm_upgrade_operator.api.v1alpha1 import Condition, Phase, VLLMUpgradeStatus
from vllm_upgrade_operator.judge.counters import Break, BreakReason, Histogram
from vllm_upgrade_operator.upgrade import conditions
from vllm_upgrade_operator.upgrade.judging import look, look_is_due
from vllm_upgrade_operator.upgrade.times import seconds

_NONE = Histogram((0.1, 0.25, 0.5, 1.0, float("inf")), (0.0,) * 5, 0.0)
IDLE = calm(0.0, running=0.0, ttft=_NONE, itl=_NONE, e2e=_NONE)
NO_KV = calm(kv_usage=None, absent={"kv_usage": ("vllm:kv_cache_usage_perc",)})
NO_QUEUE = calm(waiting=None, absent={"waiting": ("vllm:num_requests_waiting",)})


def world(policy: str = "Hold", checks: list[dict[str, Any]] | None = None, **parts: Any) -> World:
    spec = copy.deepcopy(SPEC)
    spec["strategy"]["steps"] = [{"replicas": 1, "hold": "5s"}]
    spec["analysis"] |= {"maxDuration": "20s", "onInconclusive": policy, "checks": checks or []}
    return World(spec=spec, **parts)


def available(status: VLLMUpgradeStatus) -> Condition:
    return next(c for c in status.conditions if c.type == conditions.METRICS_AVAILABLE)


BLIND: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "no traffic": (
        {"candidate_delta": IDLE, "stable_delta": IDLE},
        "NoTraffic",
        ("no request has reached canary pod canary-canary-5 since", "nor stable pods llm-old-1"),
    ),
    "traffic on stable alone": (
        {"candidate_delta": IDLE},
        "NoTraffic",
        ("no request has reached canary pod canary-canary-5", "while stable pods get some"),
    ),
    "traffic on the canary alone": (
        {"stable_delta": IDLE},
        "NoTraffic",
        ("no request has reached stable pods llm-old-1, llm-old-2, llm-old-3 and 1 more since",),
    ),
    "the canary cannot be read": (
        {"mute": frozenset({"canary-canary-5"})},
        "ScrapeRefused",
        ("metrics are missing: canary pod canary-canary-5: 10.0.0.1:8000/metrics: cannot connect",),
    ),
    "no stable pod can be read": (
        {"mute": frozenset(f"llm-old-{i}" for i in range(1, 5))},
        "ScrapeRefused",
        ("metrics are missing: stable pod llm-old-1: 10.0", "llm-old-3: 10", "and 1 more pods"),
    ),
    "a metric is missing on the canary": (
        {"candidate_delta": NO_KV},
        "MetricsMissing",
        ("vllm:kv_cache_usage_perc missing on canary pod canary-canary-5 (check kv). To do",),
    ),
    "a metric is missing on stable pods": (
        {"stable_delta": NO_QUEUE},
        "MetricsMissing",
        ("vllm:num_requests_waiting missing on stable pods llm-old-1, llm-old-2", "(check queue)"),
    ),
}


@pytest.mark.parametrize("policy", ["Hold", "Rollback"])
@pytest.mark.parametrize("case", BLIND)
def test_what_is_not_seen_is_neither_good_nor_bad_and_ends_by_policy(
    case: str, policy: str
) -> None:
    parts, reason, words = BLIND[case]
    w = world(policy, **parts)
    w.run_until("Halted" if policy == "Hold" else "RollingBack")
    assert "Promoting" not in w.phases
    assert (w.status.progress.halt_reason or w.status.progress.result_reason) == "Inconclusive"
    assert "no verdict after 20s" in (w.status.message or "")
    condition = available(w.status)
    assert (condition.status, condition.reason) == ("False", reason)
    for part in words:
        assert part in (w.status.message or "")
    assert "To do: " in condition.message


def test_what_was_missing_comes_and_it_goes_on() -> None:
    w = world(candidate_delta=IDLE, stable_delta=IDLE)
    w.run_until("Halted")
    assert "it goes on when the evidence arrives" in (w.status.message or "")
    w.candidate_delta = w.stable_delta = calm()
    w.run_until("Succeeded")
    assert available(w.status).reason == "Scraped"


def test_a_few_looks_without_a_request_are_not_told() -> None:
    w = world()
    w.run_until("Canary")
    w.run(3)
    w.candidate_delta = w.stable_delta = IDLE
    w.run(3)
    assert available(w.status).status == "True"
    w.run(4)
    assert available(w.status).reason == "NoTraffic"


def test_requests_that_wait_are_traffic() -> None:
    """A server that hangs answers none; that is another finding."""
    w = world(candidate_delta=IDLE)
    w.run_until("Canary")
    busy = replace(w.observe(look=True), looked_at=w.now)
    assert busy.canary is not None
    pods = tuple(replace(p, in_flight=3.0) for p in busy.canary.pods)
    busy = replace(busy, canary=replace(busy.canary, pods=pods))
    w.run(3)
    status, _ = look(busy, w.status, w.now + 10)
    assert available(status).reason == "Scraped"


def test_a_look_that_is_lost_to_a_restart_is_told() -> None:
    w = world()
    w.run_until("Canary")
    lost = Break(BreakReason.COUNTER_FELL, "its counts of offered went down")
    seen = w.observe(look=True)
    assert seen.target is not None
    first, *others = seen.target.pods
    pods = (replace(first, delta=None, lost=lost), *others)
    seen = replace(seen, target=replace(seen.target, pods=pods))
    status, _ = look(seen, w.status, w.now + 10)
    assert available(status).status == "True"
    assert available(status).message == (
        "metrics of 5 pods read; what happened since the look before is not known of llm-old-1: "
        "its counts of offered went down"
    )


def test_a_metric_that_only_an_observed_check_needs_holds_nothing() -> None:
    w = world(checks=[{"name": "kv", "mode": "Observe"}], candidate_delta=NO_KV)
    w.run_until("Succeeded")
    assert available(w.status).status == "True"
    (kv,) = [c for c in w.status.checks if c.name == "kv"]
    assert kv.reason.startswith("vllm:kv_cache_usage_perc missing on canary pods llm-new-")


def test_one_stable_pod_that_cannot_be_read_is_named_and_the_others_are_enough() -> None:
    w = world(mute=frozenset({"llm-old-2"}))
    w.run_until("Promoting")
    condition = available(w.status)
    assert (condition.status, condition.reason) == ("False", "ScrapeRefused")
    assert condition.message.startswith("stable pod llm-old-2: ")


def test_one_canary_pod_that_cannot_be_read_holds_the_step() -> None:
    w = world(mute=frozenset({"canary-canary-6"}))
    w.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "5s"}]
    w.run_until("Halted")
    assert "canary pod canary-canary-6: " in (w.status.message or "")


def test_a_bake_without_traffic_says_so() -> None:
    w = world()
    w.run_until("Baking")
    w.candidate_delta = IDLE
    w.run(8)
    assert "no request has reached promoted pods llm-new-" in (w.status.message or "")
    w.run_until("Succeeded")
    assert "no request was seen on them during the bake" in (w.status.message or "")


def test_a_bake_with_traffic_does_not() -> None:
    w = world()
    w.run_until("Succeeded")
    assert "no request" not in (w.status.message or "")


def test_a_bake_in_which_a_metric_goes_does_not_end_well() -> None:
    w = world()
    w.run_until("Baking")
    w.candidate_delta = NO_KV
    w.run_until("Halted")
    assert "vllm:kv_cache_usage_perc missing on canary pods llm-new-" in (w.status.message or "")


def test_observed_checks_are_not_what_is_waited_for() -> None:
    w = world(checks=[{"name": "errors", "mode": "Observe"}], candidate_delta=calm(errors=5.0))
    w.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "20s"}]
    w.run_until("Promoting")
    (errors,) = [c for c in w.status.checks if c.name == "errors"]
    assert errors.verdict == "Harm"
    assert errors.reason.startswith("only observed: failed requests 50%, beyond the limit of 1%")


def test_a_look_that_takes_long_does_not_put_off_the_next_one() -> None:
    w = world()
    w.run_until("Canary")
    began, ended = START + 1000.0, START + 1000.8
    seen = replace(w.observe(look=True), looked_at=began)
    status, _ = look(seen, w.status, ended)
    assert seconds(status.progress.look_at or "") == pytest.approx(began, abs=0.01)
    assert look_is_due(seen.spec, status, began + 1.0)
    assert status.phase == Phase.CANARY


def test_a_check_that_does_not_apply_is_not_waited_for() -> None:
    w = world()
    w.run_until("Promoting")
    (drafts,) = [c for c in w.status.checks if c.name == "draft-acceptance"]
    assert drafts.verdict == "NotApplicable"
