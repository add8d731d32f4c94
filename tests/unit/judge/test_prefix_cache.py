from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.judge.answered import answered, look
from vllm_upgrade_operator.judge.prefix_cache import Caches, cold, load

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.counters import Delta


def cached(rate: float, queries: float = 20_000.0, seconds: float = 10.0) -> Delta:
    return answered(50.0, seconds=seconds, prefix_queries=queries, prefix_hits=rate * queries)


def taken(*canary: float, stable: float = 0.6, queries: float = 20_000.0) -> Caches:
    """Looks at a canary pod with these hit rates, beside two stable pods."""
    caches = Caches()
    for rate in canary:
        pods = {f"s{i}": cached(stable, queries) for i in range(2)}
        caches.add(look({"c": cached(rate, queries)}, pods))
    return caches


def test_a_cache_that_is_being_filled_is_cold_and_says_until_when() -> None:
    assert cold(taken(0.1, 0.2), "c", 20.0) == (
        "the prefix cache of c is still cold: it finds 15.8% of prompt tokens, stable pods 60%; "
        "latencies are judged once it finds 80% of that, or 5 min after its admission"
    )


@pytest.mark.parametrize(("rate", "is_cold"), [(0.47, True), (0.49, False), (0.9, False)])
def test_four_fifths_of_the_stable_pods_rate_is_warm(rate: float, *, is_cold: bool) -> None:
    assert (cold(taken(rate, rate), "c", 20.0) is not None) is is_cold


def test_after_five_minutes_a_cold_cache_is_the_candidate_s() -> None:
    caches = taken(*[0.1] * 40)
    assert cold(caches, "c", 300.0) is not None
    assert cold(caches, "c", 300.1) is None


def test_what_was_warm_once_is_not_called_cold_again() -> None:
    assert cold(taken(0.1, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1), "c", 70.0) is None


def test_a_cache_gets_warm_within_half_a_minute_of_finding_as_much_as_others() -> None:
    caches = taken(*[0.0] * 12, *[0.6] * 4)
    assert cold(caches, "c", 160.0) is not None
    caches.add(look({"c": cached(0.6)}, {"s": cached(0.6)}))
    caches.add(look({"c": cached(0.6)}, {"s": cached(0.6)}))
    assert cold(caches, "c", 180.0) is None


@pytest.mark.parametrize("stable", [0.0, 0.04])
def test_where_stable_pods_find_nothing_either_a_cold_cache_costs_nothing(stable: float) -> None:
    assert cold(taken(0.0, 0.0, stable=stable), "c", 20.0) is None


def test_a_few_prompts_say_nothing() -> None:
    assert cold(taken(0.0, queries=400.0), "c", 10.0) is None
    assert cold(taken(0.0, 0.0, 0.0, 0.0, 0.0, queries=400.0), "c", 50.0) is not None


def test_each_canary_pod_is_followed_by_itself() -> None:
    caches = Caches()
    for _ in range(3):
        caches.add(look({"a": cached(0.6), "b": cached(0.0)}, {"s": cached(0.6)}))
    assert cold(caches, "a", 30.0) is None
    assert cold(caches, "b", 30.0) is not None
    assert cold(caches, "c", 30.0) is None


def test_pods_without_these_metrics_are_not_called_cold() -> None:
    caches = Caches()
    caches.add(look({"c": answered(50.0)}, {"s": cached(0.6)}))
    assert cold(caches, "c", 10.0) is None
    caches = Caches()
    caches.add(look({"c": cached(0.0)}, {"s": answered(50.0)}))
    assert cold(caches, "c", 10.0) is None


def test_a_look_in_which_the_canary_is_missing_forgets_nothing() -> None:
    caches = taken(0.6, 0.6)
    caches.add(look({}, {"s": cached(0.6)}))
    caches.add(look({"c": cached(0.0)}, {"s": cached(0.6)}))
    assert cold(caches, "c", 40.0) is None


def test_a_restart_of_the_operator_changes_nothing() -> None:
    caches, again = taken(0.1, 0.2), load(taken(0.1, 0.2).dump())
    assert cold(again, "c", 20.0) == cold(caches, "c", 20.0)
    warm = load(taken(0.6).dump())
    warm.add(look({"c": cached(0.0)}, {"s": cached(0.6)}))
    assert cold(warm, "c", 20.0) is None
    assert load("what another version wrote") == Caches()
