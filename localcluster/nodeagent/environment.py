"""A container's environment variables, put together in the order that Kubernetes uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.expand import expand
from localcluster.nodeagent.fields import FieldError, field_value, resource_value
from localcluster.nodeagent.sources import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.nodeagent.sources import Sources


async def container_environment(
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    sources: Sources,
    *,
    services: Mapping[str, str],
    allocatable: Mapping[str, str],
) -> dict[str, str]:
    """The variables of a container's `envFrom` and `env`, on top of those for services.

    Args:
        container: The container as in the pod's spec.
        pod: Its pod, with the addresses in `status`.
        sources: Where ConfigMaps and Secrets are read.
        services: The variables that tell where the API server is.
        allocatable: The node's resources.

    Raises:
        ConfigError: Something that is referred to is missing.
        ApiError: The API server did not answer.
    """
    env: dict[str, str] = {}
    for entry in container.get("envFrom", []):
        data: dict[str, bytes] = {}
        if "configMapRef" in entry:
            reference = entry["configMapRef"]
            data = await sources.config_map(
                reference["name"], optional=reference.get("optional", False)
            )
        elif "secretRef" in entry:
            reference = entry["secretRef"]
            data = await sources.secret(
                reference["name"], optional=reference.get("optional", False)
            )
        prefix = entry.get("prefix", "")
        env |= {prefix + key: value.decode(errors="replace") for key, value in data.items()}
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            env[entry["name"]] = expand(entry.get("value", ""), {**services, **env})
            continue
        try:
            value = await _value_from(entry["valueFrom"], container, pod, sources, allocatable)
        except FieldError as error:
            raise ConfigError(f"env {entry['name']}: {error}") from error
        if value is not None:
            env[entry["name"]] = value
    return {**services, **env}


async def _value_from(
    source: Mapping[str, Any],
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    sources: Sources,
    allocatable: Mapping[str, str],
) -> str | None:
    if "fieldRef" in source:
        return field_value(pod, source["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in source:
        reference = source["resourceFieldRef"]
        return resource_value(
            container, reference["resource"], reference.get("divisor", "1"), allocatable
        )
    for field, kind, read in (
        ("configMapKeyRef", "ConfigMap", sources.config_map),
        ("secretKeyRef", "Secret", sources.secret),
    ):
        if field in source:
            reference = source[field]
            optional = reference.get("optional", False)
            data = await read(reference["name"], optional=optional)
            if reference["key"] in data:
                return data[reference["key"]].decode(errors="replace")
            if optional:
                return None
            namespace = pod["metadata"]["namespace"]
            raise ConfigError(
                f"couldn't find key {reference['key']} in {kind} {namespace}/{reference['name']}"
            )
    raise ConfigError(f"valueFrom: {sorted(source)} is not supported by this node agent")
