import base64
from typing import Any

import pytest

from localcluster.nodeagent.environment import container_environment
from localcluster.nodeagent.fields import FieldError, field_value, resource_value
from localcluster.nodeagent.sources import ConfigError, Sources

POD: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"a/b": "l", "c": "d"},
        "annotations": {"x": "y"},
    },
    "spec": {"nodeName": "node-0", "serviceAccountName": "sa"},
    "status": {"podIP": "10.244.0.2", "hostIP": "127.0.0.1"},
}
OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces/n/configmaps/cm": {"data": {"k": "v", "o": "first"}},
    "/api/v1/namespaces/n/secrets/s": {"data": {"k": base64.b64encode(b"hidden").decode()}},
}


class FakeClient:
    async def find(self, path: str) -> dict[str, Any] | None:
        return OBJECTS.get(path)


async def env_of(**container: Any) -> dict[str, str]:  # parts of a pod's JSON
    return await container_environment(
        container,
        POD,
        Sources(FakeClient(), "n"),  # type: ignore[arg-type]
        services={"KUBERNETES_SERVICE_PORT": "6443"},
        allocatable={"cpu": "4"},
    )


async def test_values_see_only_what_came_before_them() -> None:
    env = await env_of(
        env=[
            {"name": "EARLY", "value": "$(LATE)"},
            {"name": "LATE", "value": "1"},
            {"name": "BOTH", "value": "$(LATE)-$(KUBERNETES_SERVICE_PORT)"},
            {"name": "EMPTY"},
        ]
    )
    assert env["EARLY"] == "$(LATE)"
    assert env["BOTH"] == "1-6443"
    assert env["EMPTY"] == ""


async def test_env_wins_over_env_from() -> None:
    env = await env_of(
        envFrom=[{"configMapRef": {"name": "cm"}}, {"prefix": "S_", "secretRef": {"name": "s"}}],
        env=[{"name": "o", "value": "$(k) second"}],
    )
    assert (env["k"], env["S_k"], env["o"]) == ("v", "hidden", "v second")


async def test_values_come_out_of_keys_and_fields() -> None:
    env = await env_of(
        env=[
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "k"}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {
                "name": "NONE",
                "valueFrom": {"secretKeyRef": {"name": "s", "key": "no", "optional": True}},
            },
        ]
    )
    assert (env["C"], env["S"], env["IP"], env["CPU"]) == ("v", "hidden", "10.244.0.2", "4")
    assert "NONE" not in env


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "no"}}]}, 'configmap "no" not found'),
        ({"envFrom": [{"secretRef": {"name": "no"}}]}, 'secret "no" not found'),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "z"}}}]},
            "couldn't find key z in Secret n/s",
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]},
            "env A: fieldRef.fieldPath: 'spec.x'",
        ),
    ],
)
async def test_what_is_missing_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        await env_of(**container)


async def test_an_optional_source_may_be_missing() -> None:
    env = await env_of(envFrom=[{"configMapRef": {"name": "no", "optional": True}}])
    assert env == {"KUBERNETES_SERVICE_PORT": "6443"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['a/b']", "l"),
        ("metadata.annotations['x']", "y"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'a/b="l"\nc="d"'),
        ("spec.nodeName", "node-0"),
        ("spec.serviceAccountName", "sa"),
        ("status.hostIP", "127.0.0.1"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert field_value(POD, path) == value


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.memory", "1Mi", "1536"),
        ("limits.memory", "1Gi", "2"),
        ("requests.cpu", "1m", "250"),
        ("requests.cpu", "1", "1"),
        ("limits.cpu", "0", "4"),
        ("requests.memory", "1", "0"),
    ],
)
def test_resources_are_rounded_up_in_units_of_the_divisor(
    resource: str, divisor: str, value: str
) -> None:
    container = {"resources": {"limits": {"memory": "1536Mi"}, "requests": {"cpu": "250m"}}}
    assert resource_value(container, resource, divisor, {"cpu": "4"}) == value


def test_an_unreadable_quantity_is_named() -> None:
    with pytest.raises(FieldError, match="'lots' is not a quantity"):
        resource_value({"resources": {"limits": {"cpu": "lots"}}}, "limits.cpu", "1", {})
