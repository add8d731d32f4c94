"""A template patch says what no other field says, and what reaches the pods."""

from __future__ import annotations

from typing import Any

import pytest

from vllm_upgrade_operator.api.v1alpha1 import Candidate
from vllm_upgrade_operator.upgrade.template_patch import check_patch
from vllm_upgrade_operator.vllm.errors import TemplateError

FIELD = "spec.candidate.templatePatch"


def check(patch: dict[str, Any], **candidate: Any) -> None:
    check_patch(Candidate.model_validate({"templatePatch": patch, **candidate}), "vllm")


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "proxy"}, {"name": "vllm", **fields}]}}


@pytest.mark.parametrize(
    ("patch", "candidate", "says"),
    [
        ({"replicas": 3}, {}, f"{FIELD}.replicas: a pod template has metadata and spec only"),
        ({"$patch": "replace"}, {}, f"{FIELD}.$patch: a pod template"),
        (
            {"metadata": {"name": "x"}},
            {},
            f"{FIELD}.metadata.name: of a pod template's metadata only labels and annotations",
        ),
        (
            container(image="a"),
            {"image": "b"},
            f"{FIELD}.spec.containers[vllm].image: spec.candidate.image says it too: keep one",
        ),
        (
            container(args=["a"]),
            {"args": [{"flag": "b"}]},
            f"{FIELD}.spec.containers[vllm].args: spec.candidate.args says it too",
        ),
        (
            container(command=["a"]),
            {"unsetArgs": ["b"]},
            f"{FIELD}.spec.containers[vllm].command: spec.candidate.unsetArgs says it too",
        ),
        (
            container(env=[{"name": "A"}]),
            {"env": [{"name": "A"}]},
            f"{FIELD}.spec.containers[vllm].env[A]: spec.candidate.env says it too",
        ),
        (
            container(env=[{"name": "A", "$patch": "delete"}]),
            {"unsetEnv": ["A"]},
            f"{FIELD}.spec.containers[vllm].env[A]: spec.candidate.unsetEnv says it too",
        ),
    ],
)
def test_what_another_field_or_nobody_may_say(
    patch: dict[str, Any], candidate: dict[str, Any], says: str
) -> None:
    with pytest.raises(TemplateError) as error:
        check(patch, **candidate)
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    ("patch", "candidate"),
    [
        ({"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}}, {}),
        (container(env=[{"name": "A"}]), {"env": [{"name": "B"}], "image": "b"}),
        (container(image="a"), {"env": [{"name": "B"}]}),
        ({"spec": {"containers": [{"name": "proxy", "image": "a"}]}}, {"image": "b"}),
        # What has a wrong form is for the API server to refuse.
        ({"metadata": None, "spec": {"containers": "none"}}, {}),
    ],
)
def test_the_rest_is_the_user_s(patch: dict[str, Any], candidate: dict[str, Any]) -> None:
    check(patch, **candidate)
