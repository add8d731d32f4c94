"""A pod's volumes as directories of this machine, and where each container sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.expand import expand
from localcluster.nodeagent.fields import FieldError, field_value
from localcluster.nodeagent.sources import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from localcluster.nodeagent.sources import Sources

_DEFAULT_MODE = 0o644
_FROM_API = ("configMap", "secret", "projected", "downwardAPI")


class VolumeError(Exception):
    """A volume of a kind that this node agent has not, or a mount that cannot be made."""


class Volumes:
    """The volumes of one pod, each a directory below `directory`."""

    def __init__(self, directory: Path, sources: Sources) -> None:
        self._directory = directory
        self._sources = sources

    async def write(self, pod: Mapping[str, Any]) -> None:
        """Make the volumes, or bring those that come out of the API up to date.

        Raises:
            ConfigError: A ConfigMap, Secret or key is missing.
            VolumeError: A volume is of an unknown kind.
            ApiError: The API server did not answer.
        """
        for volume in pod["spec"].get("volumes", []):
            place = self._directory / volume["name"]
            kind = next(key for key in volume if key != "name")
            if kind == "hostPath":
                continue
            if kind != "emptyDir" and kind not in _FROM_API:
                raise VolumeError(
                    f'volume "{volume["name"]}": {kind} is not supported by this node agent; '
                    f"use one of emptyDir, hostPath, {', '.join(_FROM_API)}"
                )
            place.mkdir(parents=True, exist_ok=True)
            if kind in _FROM_API:
                files = await self._files(kind, volume[kind], pod)
                _replace(place, files)

    def mounts(
        self, pod: Mapping[str, Any], container: Mapping[str, Any], env: Mapping[str, str]
    ) -> list[dict[str, Any]]:
        """The mounts of a container, in the words of `launch.py`; outer ones first.

        Raises:
            VolumeError: A sub-path leads out of its volume.
        """
        volumes = {volume["name"]: volume for volume in pod["spec"].get("volumes", [])}
        mounts = []
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                source = Path(volume["hostPath"]["path"])
            else:
                source = self._directory / mount["name"]
            below = mount.get("subPath") or expand(mount.get("subPathExpr", ""), env)
            if below:
                if ".." in below.split("/") or below.startswith("/"):
                    raise VolumeError(f"volumeMounts subPath: {below!r} must stay in the volume")
                source = source / below
            if not source.exists():
                source.mkdir(parents=True)
            mounts.append(
                {
                    "source": str(source),
                    "target": mount["mountPath"],
                    "readOnly": mount.get("readOnly", False),
                }
            )
        return sorted(mounts, key=lambda mount: mount["target"].rstrip("/").count("/"))

    async def _files(
        self, kind: str, source: Mapping[str, Any], pod: Mapping[str, Any]
    ) -> dict[str, tuple[bytes, int]]:
        mode = source.get("defaultMode") or _DEFAULT_MODE
        optional = source.get("optional", False)
        if kind == "configMap":
            data = await self._sources.config_map(source["name"], optional=optional)
            return _items(data, source, mode)
        if kind == "secret":
            name = source.get("secretName") or source["name"]
            data = await self._sources.secret(name, optional=optional)
            return _items(data, source, mode)
        if kind == "downwardAPI":
            return _downward(source.get("items", []), pod, mode)
        if kind == "serviceAccountToken":
            return {source["path"]: (await self._sources.token(pod, source), mode)}
        files: dict[str, tuple[bytes, int]] = {}
        for part in source.get("sources", []):
            (part_kind, content), *_ = part.items()
            if part_kind not in (*_FROM_API, "serviceAccountToken"):
                raise VolumeError(f"projected volume: {part_kind} is not supported")
            files |= await self._files(part_kind, {"defaultMode": mode, **content}, pod)
        return files


def _items(
    data: Mapping[str, bytes], source: Mapping[str, Any], mode: int
) -> dict[str, tuple[bytes, int]]:
    if "items" not in source:
        return {key: (value, mode) for key, value in data.items()}
    files = {}
    for item in source["items"]:
        if item["key"] in data:
            files[item["path"]] = (data[item["key"]], item.get("mode") or mode)
        elif not source.get("optional", False):
            name = source.get("name") or source.get("secretName")
            raise ConfigError(f'references non-existent key: "{item["key"]}" of "{name}"')
    return files


def _downward(
    items: Iterable[Mapping[str, Any]], pod: Mapping[str, Any], mode: int
) -> dict[str, tuple[bytes, int]]:
    files = {}
    for item in items:
        if "fieldRef" not in item:
            raise VolumeError(f"downwardAPI {item['path']}: only fieldRef is supported")
        try:
            value = field_value(pod, item["fieldRef"]["fieldPath"])
        except FieldError as error:
            raise VolumeError(f"downwardAPI {item['path']}: {error}") from error
        files[item["path"]] = (value.encode(), item.get("mode") or mode)
    return files


def _replace(place: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    """Write files so that a reader sees the old or the new content of each, never a part of it."""
    for path, (content, mode) in files.items():
        target = place / path
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f".{target.name}.new")
        fresh.write_bytes(content)
        fresh.chmod(mode)
        fresh.replace(target)
    for target in place.rglob("*"):
        if target.is_file() and str(target.relative_to(place)) not in files:
            target.unlink()
