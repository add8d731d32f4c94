"""The form of managedFields; that an API server takes it is shown in tests/cluster."""

from __future__ import annotations

from typing import Any

from vllm_upgrade_operator.upgrade.ownership import restored

OWN = "vllm-upgrade-operator"


def entry(manager: str, fields: dict[str, Any], **rest: str) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": "Apply",
        "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **rest,
    }


def template(fields: dict[str, Any]) -> dict[str, Any]:
    return {"f:spec": {"f:template": {"f:spec": fields}}}


def containers(fields: dict[str, Any]) -> dict[str, Any]:
    return template({"f:containers": {'k:{"name":"vllm"}': fields}})


def target(*managed: dict[str, Any], **container: Any) -> dict[str, Any]:
    return {
        "metadata": {"managedFields": list(managed)},
        "spec": {"template": {"spec": {"containers": [{"name": "vllm", **container}]}}},
    }


def test_a_field_that_we_took_goes_back() -> None:
    recorded = [entry("helm", containers({".": {}, "f:image": {}, "f:name": {}}))]
    present = target(
        entry("helm", containers({".": {}, "f:name": {}})),
        entry(OWN, containers({"f:image": {}}), operation="Update"),
        image="new",
    )
    assert restored(recorded, present, OWN) == recorded


def test_a_manager_that_we_took_everything_from_is_back() -> None:
    recorded = [entry("patcher", containers({"f:image": {}}))]
    present = target(entry(OWN, containers({"f:image": {}}), operation="Update"), image="new")
    assert restored(recorded, present, OWN) == recorded


def test_what_is_gone_is_nobody_s() -> None:
    one: dict[str, Any] = {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}}
    two: dict[str, Any] = {'k:{"name":"B"}': {".": {}, "f:name": {}, "f:value": {}}}
    recorded = [entry("helm", containers({"f:env": {".": {}, **one, **two}}))]
    present = target(env=[{"name": "A", "value": "1"}])
    assert restored(recorded, present, OWN) == [
        entry("helm", containers({"f:env": {".": {}, **one}}))
    ]


def test_what_only_we_added_stays_ours() -> None:
    theirs = containers({"f:image": {}})
    ours = containers({"f:image": {}, "f:tty": {}})
    present = target(entry(OWN, ours, operation="Update"), image="new", tty=True)
    found = restored([entry("helm", theirs)], present, OWN)
    assert found == [
        entry("helm", theirs),
        entry(OWN, containers({"f:tty": {}}), operation="Update"),
    ]


def test_outside_the_template_the_present_counts() -> None:
    """A manager that gave up the replica count meanwhile does not get it back."""
    recorded = [
        entry("helm", {"f:spec": {"f:replicas": {}, **containers({"f:image": {}})["f:spec"]}})
    ]
    present = target(
        entry("kubectl", {"f:spec": {"f:replicas": {}}}, subresource="scale"),
        entry(OWN, containers({"f:image": {}}), operation="Update"),
        image="new",
    )
    found = restored(recorded, present, OWN)
    assert entry("helm", containers({"f:image": {}})) in found
    assert entry("kubectl", {"f:spec": {"f:replicas": {}}}, subresource="scale") in found
    assert len(found) == 2


def test_who_came_meanwhile_stays() -> None:
    came = entry("labeller", {"f:metadata": {"f:labels": {"f:x": {}}}})
    assert restored([], target(came), OWN) == [came]


def test_a_status_writer_is_left_alone() -> None:
    status = entry("controller", {"f:status": {"f:replicas": {}}}, subresource="status")
    now = entry("controller", {"f:status": {"f:ready": {}}}, subresource="status")
    assert restored([status], target(now), OWN) == [now]


def test_values_and_positions() -> None:
    fields = template({"f:set": {'v:"a"': {}, 'v:"b"': {}}, "f:list": {"i:0": {}, "i:1": {}}})
    present = target()
    present["spec"]["template"]["spec"] |= {"set": ["a"], "list": ["x"]}
    kept = template({"f:set": {'v:"a"': {}}, "f:list": {"i:0": {}}})
    assert restored([entry("helm", fields)], present, OWN) == [entry("helm", kept)]
