"""The image map: what an image reference means on this machine.

The format is described at the head of `localcluster/images.yaml`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_KNOWN = {"command", "env", "digest", "hostFlag", "vllm", "pullError"}
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_REFERENCE = re.compile(
    r"""
    (?P<name>(?:[A-Za-z0-9.-]+(?::[0-9]+)?/)?              # registry
        [a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*              # path
        (?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*)
    (?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?
    (?:@(?P<digest>sha256:[0-9a-f]{64}))?
    """,
    re.VERBOSE,
)


class ImageMapError(Exception):
    """An image map file says something that it must not."""


class InvalidImageNameError(Exception):
    """A reference that no registry could have."""


class PullError(Exception):
    """An image that cannot be had: the map does not know it, or says that its registry fails."""


@dataclass(frozen=True)
class Image:
    """What an image is on this machine.

    Attributes:
        repository: The reference without tag and digest.
        command: The entrypoint.
        env: Environment variables that the image brings.
        digest: `sha256:` and 64 hex digits.
        host_flag: The flag that tells the program which address to listen on, or nothing.
        is_vllm: Whether the programs `vllm` and `python3 -m vllm.entrypoints.openai.api_server`
            inside the image lead to its entrypoint.
    """

    repository: str
    command: tuple[str, ...]
    digest: str
    env: Mapping[str, str] = field(default_factory=dict)
    host_flag: str | None = None
    is_vllm: bool = False

    @property
    def image_id(self) -> str:
        """The value of `imageID` in a container's status."""
        return f"{self.repository}@{self.digest}"


@dataclass(frozen=True)
class Reference:
    """An image reference in its parts; without tag and digest the tag is `latest`."""

    name: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> Reference:
        """Take a reference apart.

        Raises:
            InvalidImageNameError: It is not of the form `name[:tag][@digest]`.
        """
        match = _REFERENCE.fullmatch(text)
        if match is None:
            raise InvalidImageNameError(
                f'Failed to apply default image tag "{text}": couldn\'t parse image name '
                f'"{text}": invalid reference format'
            )
        tag = match["tag"]
        if tag is None and match["digest"] is None:
            tag = "latest"
        return cls(match["name"], tag, match["digest"])


class ImageMap:
    """The entries of one or more map files; a later file wins."""

    def __init__(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self._entries = dict(entries)

    @classmethod
    def load(cls, paths: Sequence[Path]) -> ImageMap:
        """Read map files.

        Raises:
            ImageMapError: A file cannot be read, or an entry is not as the format says.
        """
        return cls(cls.read(paths))

    @staticmethod
    def read(paths: Sequence[Path]) -> dict[str, Mapping[str, Any]]:
        """Read the entries of map files as they stand there.

        Raises:
            ImageMapError: A file cannot be read, or an entry is not as the format says.
        """
        entries: dict[str, Mapping[str, Any]] = {}
        for path in paths:
            try:
                content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
            except (OSError, yaml.YAMLError) as error:
                raise ImageMapError(f"{path}: cannot be read: {error}") from error
            if not isinstance(content, dict):
                raise ImageMapError(f"{path}: must be a mapping of image references to entries")
            for pattern, entry in content.items():
                _check(path, str(pattern), entry)
                entries[str(pattern)] = entry
        return entries

    def find(self, text: str) -> Image:
        """Look an image reference up.

        Raises:
            InvalidImageNameError: The reference is malformed.
            PullError: The map has no such image, or an error for it.
        """
        reference = Reference.parse(text)
        entry = self._entry(reference)
        if entry is None:
            # The words of kubelet and containerd, which is where most pods run.
            raise PullError(
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{text}": '
                f'failed to resolve reference "{text}": {text}: not found'
            )
        if "pullError" in entry:
            raise PullError(entry["pullError"].replace("{image}", text))
        return Image(
            repository=reference.name,
            command=tuple(str(word) for word in entry["command"]),
            digest=entry["digest"],
            env={name: str(value) for name, value in entry.get("env", {}).items()},
            host_flag=entry.get("hostFlag"),
            is_vllm=entry.get("vllm", False),
        )

    def _entry(self, reference: Reference) -> Mapping[str, Any] | None:
        if reference.digest is not None:
            # A digest decides alone: a tag beside it is ignored, as container runtimes do.
            for pattern, entry in self._entries.items():
                name = pattern.rpartition(":")[0] if ":" in pattern else pattern
                if entry.get("digest") == reference.digest and fnmatchcase(reference.name, name):
                    return entry
            return None
        wanted = f"{reference.name}:{reference.tag}"
        if wanted in self._entries:
            return self._entries[wanted]
        patterns = [p for p in self._entries if "*" in p and fnmatchcase(wanted, p)]
        if not patterns:
            return None
        return self._entries[max(patterns, key=lambda p: len(p.replace("*", "")))]


def _check(path: Path, pattern: str, entry: object) -> None:
    where = f"{path}: {pattern}"
    if not isinstance(entry, dict):
        raise ImageMapError(f"{where}: must be a mapping with command and digest")
    unknown = sorted(set(entry) - _KNOWN)
    if unknown:
        raise ImageMapError(f"{where}: unknown field {unknown[0]}; known are {sorted(_KNOWN)}")
    if "pullError" in entry:
        if len(entry) > 1 or not isinstance(entry["pullError"], str):
            raise ImageMapError(f"{where}: pullError must be a text, and the only field")
        return
    command = entry.get("command")
    if not isinstance(command, list) or not command:
        raise ImageMapError(f"{where}.command: {command!r} must be a list with at least one word")
    digest = entry.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise ImageMapError(f"{where}.digest: {digest!r} must be sha256: and 64 hex digits")
    if not isinstance(entry.get("env", {}), dict):
        raise ImageMapError(f"{where}.env: {entry['env']!r} must be a mapping of names to values")
    if not isinstance(entry.get("hostFlag", ""), str):
        raise ImageMapError(f"{where}.hostFlag: {entry['hostFlag']!r} must be a flag like --host")
    if not isinstance(entry.get("vllm", False), bool):
        raise ImageMapError(f"{where}.vllm: {entry['vllm']!r} must be true or false")
