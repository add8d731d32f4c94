"""Who changed which fields of a pod template."""

from __future__ import annotations

import copy
from typing import Any

from vllm_upgrade_operator.upgrade.foreign import describe

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm"}},
    "spec": {
        "containers": [
            {
                "name": "vllm",
                "image": "old",
                "args": ["--model", "m"],
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}],
                "ports": [{"containerPort": 8000, "protocol": "TCP"}],
            }
        ]
    },
}
EARLY, LATE = "2026-11-30T10:00:00Z", "2026-11-30T10:05:00Z"


def changed(**fields: Any) -> dict[str, Any]:
    template = copy.deepcopy(TEMPLATE)
    template["spec"]["containers"][0].update(fields)
    return template


def entry(manager: str, time: str, container: dict[str, Any], **rest: str) -> dict[str, Any]:
    fields = {'k:{"name":"vllm"}': container}
    return {
        "manager": manager,
        "time": time,
        "fieldsV1": {"f:spec": {"f:template": {"f:spec": {"f:containers": fields}}}},
        **rest,
    }


HELM = entry("helm", EARLY, {"f:args": {}, "f:image": {}, 'k:{"containerPort":8000}': {}})


def test_an_image_and_whose_it_is_now() -> None:
    managed = [HELM, entry("kubectl-set", LATE, {"f:image": {}})]
    assert describe([TEMPLATE], changed(image="new"), managed) == (
        f"spec.template.spec.containers[vllm].image changed by kubectl-set at {LATE}"
    )


def test_items_of_lists_are_named_by_their_keys() -> None:
    env = [{"name": "A", "value": "2"}, {"name": "C", "value": "1"}]
    ports = [{"containerPort": 8000, "protocol": "UDP"}]
    key = 'k:{"containerPort":8000,"protocol":"UDP"}'
    managed = [entry("editor", LATE, {"f:env": {}, "f:ports": {key: {"f:protocol": {}}}})]
    found = describe([TEMPLATE], changed(env=env, ports=ports), managed)
    vllm = "spec.template.spec.containers[vllm]"
    assert found == (
        f"{vllm}.env[A].value, {vllm}.env[B], {vllm}.env[C], {vllm}.ports[8000].protocol "
        f"changed by editor at {LATE}"
    )


def test_a_restart_is_recognized() -> None:
    template = copy.deepcopy(TEMPLATE)
    template["metadata"]["annotations"] = {"kubectl.kubernetes.io/restartedAt": "now"}
    before = copy.deepcopy(TEMPLATE)
    before["metadata"]["annotations"] = {"other": "1"}
    template["metadata"]["annotations"]["other"] = "1"
    found = describe([before], template, [HELM])
    assert "spec.template.metadata.annotations[kubectl.kubernetes.io/restartedAt]" in found
    assert "(as `kubectl rollout restart` does)" in found
    assert "(as `kubectl rollout restart` does)" in describe([TEMPLATE], template, [HELM])


def test_what_was_removed_is_nobody_s_so_the_last_writer_is_named() -> None:
    managed = [HELM, entry("editor", LATE, {"f:name": {}})]
    found = describe([TEMPLATE], changed(env=[{"name": "A", "value": "1"}]), managed)
    assert found == f"spec.template.spec.containers[vllm].env[B] changed by editor at {LATE}"


def test_another_order_is_a_change_of_the_list() -> None:
    env = list(reversed(TEMPLATE["spec"]["containers"][0]["env"]))
    found = describe([TEMPLATE], changed(env=env), [])
    assert found == "spec.template.spec.containers[vllm].env changed by an unknown writer"


def test_it_stays_short() -> None:
    long = {"n" * 400: "1", **{f"v{i}": "1" for i in range(50)}}
    template = {**TEMPLATE, "metadata": {"labels": long}}
    found = describe([TEMPLATE], template, [HELM])
    assert len(found) < 1000
    assert "47 more fields changed by helm" in found


def test_a_status_writer_has_changed_nothing() -> None:
    managed = [HELM, entry("controller", LATE, {"f:image": {}}, subresource="status")]
    assert "by helm" in describe([TEMPLATE], changed(image="new"), managed)


def test_the_nearest_of_the_templates_that_might_be_is_compared() -> None:
    other = changed(image="candidate", args=[], env=[])
    found = describe([other, TEMPLATE], changed(image="new"), [HELM])
    assert found == f"spec.template.spec.containers[vllm].image changed by helm at {EARLY}"
