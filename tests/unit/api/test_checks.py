from __future__ import annotations

import pytest

from tests.specs import EVERYTHING
from vllm_upgrade_operator.api.checks import (
    DEFAULT_CHECKS,
    LATENCIES,
    QUEUE_FLOOR,
    Check,
    resolve_checks,
)
from vllm_upgrade_operator.api.v1alpha1 import CheckSpec, Metric, Mode, VLLMUpgradeSpec


def resolved(*given: dict[str, object]) -> dict[str, Check]:
    checks = resolve_checks([CheckSpec.model_validate(each) for each in given])
    return {check.name: check for check in checks}


def default(name: str) -> Check:
    return next(check for check in DEFAULT_CHECKS if check.name == name)


def test_without_checks_the_defaults_hold() -> None:
    assert resolve_checks([]) == DEFAULT_CHECKS


def test_every_metric_has_a_default_check_and_every_check_a_limit() -> None:
    assert {check.metric for check in DEFAULT_CHECKS} == set(Metric)
    for check in DEFAULT_CHECKS:
        assert (check.max, check.max_increase, check.max_decrease) != (None, None, None)
        assert (check.quantile is not None) == (check.metric in LATENCIES)


def test_what_is_given_replaces_only_that_of_the_default() -> None:
    found = resolved({"name": "ttft-p99", "max": "750ms"}, {"name": "queue", "mode": "Observe"})
    ttft, queue = found["ttft-p99"], found["queue"]
    assert ttft.max == pytest.approx(0.75)
    assert (ttft.quantile, ttft.max_increase) == (0.99, 0.3)
    assert queue.mode is Mode.OBSERVE
    assert (queue.max, queue.floor) == (64.0, QUEUE_FLOOR)
    others = [name for name in found if name not in ("ttft-p99", "queue")]
    assert [found[name] for name in others] == [default(name) for name in others]


def test_limits_are_read_in_the_unit_of_their_metric() -> None:
    found = resolved(
        {"name": "rejections", "max": "0.5%", "maxIncrease": "25%"},
        {"name": "queue", "max": 12},
        {"name": "e2e-p99", "max": "1m30s", "quantile": "p95"},
        {"name": "kv-capacity", "maxDecrease": "2.5%"},
        {"name": "preemptions", "max": 0},
    )
    assert found["rejections"].max == pytest.approx(0.005)
    assert found["rejections"].max_increase == pytest.approx(0.25)
    assert found["queue"].max == 12.0
    assert (found["e2e-p99"].max, found["e2e-p99"].quantile) == (90.0, 0.95)
    assert found["kv-capacity"].max_decrease == pytest.approx(0.025)
    assert found["preemptions"].max == 0.0


def test_a_check_of_ones_own_comes_after_the_defaults() -> None:
    spec = VLLMUpgradeSpec.model_validate(EVERYTHING)
    checks = resolve_checks(spec.analysis.checks)
    assert [c.name for c in checks] == [*(c.name for c in DEFAULT_CHECKS), "e2e-p50"]
    assert checks[-1] == Check(
        name="e2e-p50", metric=Metric.END_TO_END_LATENCY, quantile=0.5, max=90.0
    )


def test_a_latency_of_ones_own_is_its_p99_and_a_queue_has_the_floor() -> None:
    found = resolved(
        {"name": "my-ttft", "metric": "TimeToFirstToken", "max": "1s"},
        {"name": "my-queue", "metric": "QueueDepth", "maxIncrease": "10%"},
    )
    assert found["my-ttft"].quantile == 0.99
    assert found["my-queue"].floor == QUEUE_FLOOR
    assert found["my-queue"].max is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"name": "mine", "max": "2s"}, "check 'mine' .* has no metric: give one of Rejections"),
        ({"name": "queue", "max": "2s"}, "queue.max: .*'2s'"),
        ({"name": "ttft-p99", "max": 2}, "ttft-p99.max is 2, .* a duration such as 2s"),
        ({"name": "ttft-p99", "max": "2%"}, "ttft-p99.max: '2%' is no duration"),
        ({"name": "rejections", "max": 1}, "rejections.max is 1, .* a percentage such as 1%"),
        ({"name": "rejections", "max": "1s"}, "rejections.max: '1s' is no percentage"),
    ],
)
def test_a_wrong_unit_is_named(given: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolved(given)
