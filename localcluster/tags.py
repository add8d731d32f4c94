"""Image maps of a cluster, and moving tags in the one that is its own."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from localcluster.errors import ClusterError
from localcluster.nodeagent.images import ImageMap, ImageMapError
from localcluster.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping


def path(directory: Path) -> Path:
    """Give the image map that belongs to the cluster in a directory."""
    return directory / "images.yaml"


def image_maps(directory: Path) -> list[Path]:
    """Give the image maps of a cluster; a later one wins."""
    further = os.environ.get("LOCALCLUSTER_IMAGES")
    maps = [ROOT / "localcluster" / "images.yaml"]
    return [*maps, *([Path(further).resolve()] if further else []), path(directory)]


def move(directory: Path, reference: str, to: str) -> None:
    """Let a reference mean from now on what another one means now: containers that start see it.

    Others may move other tags at the same time.

    Args:
        directory: The cluster's directory.
        reference: The tag to move or to make, as `name:tag`.
        to: The image that it shall be.

    Raises:
        ClusterError: No cluster was started there, or there is no image `to`.
    """
    entries = ImageMap.read(image_maps(directory)) if path(directory).exists() else {}
    if to not in entries:
        raise ClusterError(f"{to} is in no image map of the cluster in {directory}")
    set_entry(directory, reference, entries[to])


def set_entry(directory: Path, reference: str, entry: Mapping[str, Any]) -> None:
    """Write an entry of the cluster's own image map, as `images.yaml` describes them.

    Raises:
        ClusterError: No cluster was started there, or the entry is not right.
    """
    own = path(directory)
    with (directory / "images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = own.with_suffix(".new")
        try:
            content = yaml.safe_load(own.read_text(encoding="utf-8")) or {}
            fresh.write_text(yaml.safe_dump({**content, reference: dict(entry)}), encoding="utf-8")
            ImageMap.read([fresh])
        except (OSError, ImageMapError) as error:
            raise ClusterError(f"{reference} cannot be written: {error}") from error
        fresh.replace(own)
