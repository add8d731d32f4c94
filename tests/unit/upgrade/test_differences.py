from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.upgrade.differences import differences


def template(**container: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"containers": [{"name": "vllm", **container}]}}


RESTARTED = {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (template(image="a"), template(image="a"), "nothing"),
        (template(image="a"), template(image="b"), "spec.containers[vllm].image"),
        (template(args=["a"]), template(args=["b"]), "spec.containers[vllm].args"),
        (
            template(env=[{"name": "A", "value": "secret"}]),
            template(env=[{"name": "A", "value": "other"}, {"name": "B"}]),
            "spec.containers[vllm].env[A].value, spec.containers[vllm].env[B]",
        ),
        (
            {"metadata": {"annotations": {}}},
            {"metadata": RESTARTED},
            "metadata.annotations[kubectl.kubernetes.io/restartedAt]",
        ),
        ({"spec": {"volumes": [1]}}, {"spec": {}}, "spec.volumes"),
        (
            {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}},
            {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}},
            "spec.containers",
        ),
        ({}, dict.fromkeys("abcde", 1), "a, b, c, 2 more"),
    ],
)
def test_fields_are_named_and_values_are_not(
    before: dict[str, Any], after: dict[str, Any], words: str
) -> None:
    assert differences(before, after) == words
