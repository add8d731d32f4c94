from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.vllm.environment import edit_environment
from vllm_upgrade_operator.vllm.errors import TemplateError

SECRET = {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}


def container(*env: dict[str, Any]) -> dict[str, Any]:
    return {"name": "vllm", "env": list(env)}


def test_order_and_references_are_kept() -> None:
    before = container({"name": "A", "value": "1"}, SECRET, {"name": "B", "value": "$(A)"})
    after = edit_environment(
        before, set_=[{"name": "A", "value": "2"}, {"name": "C", "value": "3"}], unset=["B"]
    )
    assert after["env"] == [{"name": "A", "value": "2"}, SECRET, {"name": "C", "value": "3"}]
    assert before["env"][0]["value"] == "1"


def test_a_value_may_replace_a_reference() -> None:
    assert edit_environment(container(SECRET), set_=[{"name": "KEY", "value": "x"}])["env"] == [
        {"name": "KEY", "value": "x"}
    ]


def test_repeated_entries_become_one() -> None:
    before = container({"name": "A", "value": "1"}, SECRET, {"name": "A", "value": "2"})
    after = edit_environment(before, set_=[{"name": "A", "value": "3"}])
    assert after["env"] == [{"name": "A", "value": "3"}, SECRET]


def test_a_container_without_env_gets_none_for_nothing() -> None:
    assert edit_environment({"name": "vllm"}) == {"name": "vllm"}


def test_unsetting_what_is_not_there_is_an_error() -> None:
    with pytest.raises(TemplateError, match=r"'X' is not in the env of container 'vllm'$"):
        edit_environment(container(), unset=["X"])
    with pytest.raises(TemplateError, match="envFrom"):
        edit_environment({**container(), "envFrom": [{}]}, unset=["X"])
