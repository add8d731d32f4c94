from __future__ import annotations

import pytest

from vllm_upgrade_operator.upgrade.selection import Expression, Operator, Selector, traffic_keys

LABELS = {"app": "llm", "team": "a", "tier": "gpu"}
TARGET = Selector(owner="Deployment llm", labels={"app": "llm"})


def service(**labels: str) -> Selector:
    return Selector(owner="Service s", labels=labels)


def test_the_target_s_keys_are_among_them() -> None:
    assert traffic_keys(LABELS, [TARGET], []) == {"app"}


def test_those_of_expressions_too() -> None:
    expressions = (
        Expression(key="tier", operator="In", values=("gpu", "tpu")),
        Expression(key="old", operator="DoesNotExist"),
    )
    target = Selector(owner="Deployment llm", labels={"app": "llm"}, expressions=expressions)
    assert traffic_keys(LABELS, [target], []) == {"app", "tier", "old"}


def test_a_service_that_selects_the_pods_adds_its_keys() -> None:
    keys = traffic_keys(LABELS, [TARGET, service(team="a", tier="gpu")], [])
    assert keys == {"app", "team", "tier"}


def test_a_service_that_selects_other_pods_adds_none() -> None:
    others = [service(team="b"), service(app="llm", missing="x")]
    assert traffic_keys(LABELS, [TARGET, *others], []) == {"app"}


def test_the_user_may_name_more() -> None:
    assert traffic_keys(LABELS, [TARGET], ["routed"]) == {"app", "routed"}


@pytest.mark.parametrize(
    ("operator", "values", "with_key", "without"),
    [
        ("In", ("a",), True, False),
        ("In", ("b",), False, False),
        ("NotIn", ("a",), False, True),
        ("NotIn", ("b",), True, True),
        ("Exists", (), True, False),
        ("DoesNotExist", (), False, True),
    ],
)
def test_expressions_are_those_of_kubernetes(
    operator: Operator, values: tuple[str, ...], *, with_key: bool, without: bool
) -> None:
    expression = Expression(key="team", operator=operator, values=values)
    assert expression.matches({"team": "a"}) is with_key
    assert expression.matches({}) is without
