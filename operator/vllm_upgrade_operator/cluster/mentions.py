"""Which ConfigMaps, Secrets and claims a pod spec refers to, by name alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Mention(NamedTuple):
    """A reference in a pod spec."""

    kind: str
    name: str
    optional: bool


def claims_of(pod_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the PersistentVolumeClaims that a pod spec mounts."""
    found = [
        str(volume["persistentVolumeClaim"]["claimName"])
        for volume in pod_spec.get("volumes") or ()
        if volume.get("persistentVolumeClaim")
    ]
    return tuple(dict.fromkeys(found))


def mentions_of(pod_spec: Mapping[str, Any]) -> tuple[Mention, ...]:
    """ConfigMaps and Secrets that environment and volumes refer to, sorted.

    What is optional in one place and required in another is required. Secrets for pulling images
    are left out: the kubelet goes on without them.
    """
    found: dict[tuple[str, str], bool] = {}
    for mention in (*_of_environment(pod_spec), *_of_volumes(pod_spec)):
        key = (mention.kind, mention.name)
        found[key] = found.get(key, True) and mention.optional
    return tuple(Mention(kind, name, optional) for (kind, name), optional in sorted(found.items()))


def _of_environment(pod_spec: Mapping[str, Any]) -> Iterator[Mention]:
    for key in ("initContainers", "containers"):
        for container in pod_spec.get(key) or ():
            for source in container.get("envFrom") or ():
                yield from _one("ConfigMap", source.get("configMapRef"), "name")
                yield from _one("Secret", source.get("secretRef"), "name")
            for variable in container.get("env") or ():
                source = variable.get("valueFrom") or {}
                yield from _one("ConfigMap", source.get("configMapKeyRef"), "name")
                yield from _one("Secret", source.get("secretKeyRef"), "name")


def _of_volumes(pod_spec: Mapping[str, Any]) -> Iterator[Mention]:
    for volume in pod_spec.get("volumes") or ():
        yield from _one("ConfigMap", volume.get("configMap"), "name")
        yield from _one("Secret", volume.get("secret"), "secretName")
        for source in (volume.get("projected") or {}).get("sources") or ():
            yield from _one("ConfigMap", source.get("configMap"), "name")
            yield from _one("Secret", source.get("secret"), "name")


def _one(kind: str, source: Mapping[str, Any] | None, key: str) -> Iterator[Mention]:
    if source and source.get(key):
        yield Mention(kind, str(source[key]), bool(source.get("optional", False)))
