from __future__ import annotations

from vllm_upgrade_operator.cluster.selectors import (
    deployment_selector,
    pool_selector,
    service_selector,
)
from vllm_upgrade_operator.upgrade.selection import Expression, Selector

NAMED = {"metadata": {"name": "llm"}}


def test_where_a_selector_stands() -> None:
    wanted = {"a": "b"}
    assert service_selector({**NAMED, "spec": {"selector": wanted}}) == Selector(
        owner="Service llm", labels=wanted
    )
    assert pool_selector({**NAMED, "spec": {"selector": {"matchLabels": wanted}}}) == Selector(
        owner="InferencePool llm", labels=wanted
    )
    expressions = [
        {"key": "x", "operator": "In", "values": ["1", "2"]},
        {"key": "y", "operator": "Exists"},
    ]
    assert deployment_selector(
        {**NAMED, "spec": {"selector": {"matchLabels": wanted, "matchExpressions": expressions}}}
    ) == Selector(
        owner="Deployment llm",
        labels=wanted,
        expressions=(
            Expression(key="x", operator="In", values=("1", "2")),
            Expression(key="y", operator="Exists"),
        ),
    )


def test_what_selects_nothing_is_no_selector() -> None:
    assert service_selector({**NAMED, "spec": {}}) is None
    assert service_selector({**NAMED, "spec": {"selector": {}}}) is None
    assert pool_selector({**NAMED, "spec": {}}) is None
