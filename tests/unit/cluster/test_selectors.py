from __future__ import annotations

from vllm_upgrade_operator.cluster.selectors import pool_selector, service_selector, traffic_keys

LABELS = {"app": "llm", "team": "a", "tier": "gpu"}


def test_the_target_s_keys_are_always_among_them() -> None:
    assert traffic_keys(LABELS, {"app": "llm"}, [], []) == {"app"}


def test_a_service_that_selects_the_pods_adds_its_keys() -> None:
    assert traffic_keys(LABELS, {"app": "llm"}, [{"team": "a", "tier": "gpu"}], []) == {
        "app",
        "team",
        "tier",
    }


def test_a_service_that_selects_other_pods_adds_none() -> None:
    selectors = [{"team": "b"}, {"app": "llm", "missing": "x"}]
    assert traffic_keys(LABELS, {"app": "llm"}, selectors, []) == {"app"}


def test_the_user_may_name_more() -> None:
    assert traffic_keys(LABELS, {"app": "llm"}, [], ["routed"]) == {"app", "routed"}


def test_where_a_selector_stands() -> None:
    assert service_selector({"spec": {}}) == {}
    assert service_selector({"spec": {"selector": {"a": "b"}}}) == {"a": "b"}
    assert pool_selector({"spec": {"selector": {"matchLabels": {"a": "b"}}}}) == {"a": "b"}
