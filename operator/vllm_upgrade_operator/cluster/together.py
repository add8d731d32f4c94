"""Several calls at the same time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

T = TypeVar("T")


async def together(calls: Iterable[Coroutine[object, object, T]]) -> list[T]:
    """Await all, in order; the first error ends the others and is raised as itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
