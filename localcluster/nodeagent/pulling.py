"""Finding a container's image, again and again where it is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from localcluster.nodeagent.backoff import Backoff
from localcluster.nodeagent.images import (
    Image,
    ImageMap,
    ImageMapError,
    InvalidImageNameError,
    PullError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOK_AGAIN_SECONDS = 1.0


class Owner(Protocol):
    """The container that an image is wanted for."""

    @property
    def stopped(self) -> bool:
        """Whether it is not wanted any more."""

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event about the container."""

    def waits(self, reason: str, message: str) -> None:
        """Report that the container is waiting."""

    async def pause(self, seconds: float) -> None:
        """Wait, but not for longer than until it is stopped."""


class Puller:
    """Pulls the image of one container, as the kubelet does, out of the image map.

    Args:
        image_maps: The map files, read again for each try.
        backoff_base: Seconds before the second try; doubles after that.
        owner: The container.
    """

    def __init__(self, image_maps: Sequence[Path], backoff_base: float, owner: Owner) -> None:
        self._image_maps = image_maps
        self._base = backoff_base
        self._backoff = Backoff(backoff_base)
        self._owner = owner

    async def pull(self, name: str) -> Image | None:
        """Get an image, however long it takes; None when the container was stopped before."""
        owner = self._owner
        while not owner.stopped:
            try:
                image = ImageMap.load(self._image_maps).find(name)
            except InvalidImageNameError as error:
                owner.event("Warning", "InspectFailed", str(error))
                owner.event("Warning", "Failed", "Error: InvalidImageName")
                owner.waits("InvalidImageName", str(error))
                await owner.pause(self._base)
            except (PullError, ImageMapError) as error:
                await self._back_off(name, str(error))
            else:
                present = f'Container image "{name}" already present on machine'
                owner.event("Normal", "Pulled", present)
                return image
        return None

    async def _back_off(self, name: str, message: str) -> None:
        owner = self._owner
        now = asyncio.get_running_loop().time()
        owner.event("Normal", "Pulling", f'Pulling image "{name}"')
        owner.event("Warning", "Failed", f'Failed to pull image "{name}": {message}')
        owner.event("Warning", "Failed", "Error: ErrImagePull")
        owner.waits("ErrImagePull", message)
        self._backoff.started(now)
        # The kubelet looks again soon, and only then says that it is backing off.
        await owner.pause(min(LOOK_AGAIN_SECONDS, self._base))
        backing_off = f'Back-off pulling image "{name}"'
        owner.event("Normal", "BackOff", backing_off)
        owner.event("Warning", "Failed", "Error: ImagePullBackOff")
        owner.waits("ImagePullBackOff", f"{backing_off}: ErrImagePull: {message}")
        await owner.pause(self._backoff.after_exit(now))
