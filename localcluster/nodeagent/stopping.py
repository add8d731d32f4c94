"""Ending a container's process in the kubelet's way."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.actions import act

if TYPE_CHECKING:
    from collections.abc import Callable

    from localcluster.nodeagent.actions import Target
    from localcluster.nodeagent.processes import Process

_log = logging.getLogger(__name__)

LEAST_GRACE = 2.0


async def terminate(
    process: Process, target: Target, grace: float, hook_failed: Callable[[str], None]
) -> None:
    """Run the preStop hook, send SIGTERM, and kill the whole session when the time is up.

    Args:
        process: What is to be ended; it has ended when this returns.
        target: The same, for the hook.
        grace: Seconds for all of it; after SIGTERM there are at least two.
        hook_failed: Told what was wrong with the hook.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace
    hook = target.container.get("lifecycle", {}).get("preStop")
    ending = asyncio.create_task(process.wait())
    if hook is not None and grace > 0:
        hooking = asyncio.create_task(act(hook, target, grace))
        await asyncio.wait({hooking, ending}, return_when="FIRST_COMPLETED")
        if not hooking.done():
            await cancel(hooking)
        elif wrong := hooking.result():
            hook_failed(wrong)
    process.terminate()
    left = max(deadline - loop.time(), LEAST_GRACE)
    done, _ = await asyncio.wait({ending}, timeout=left)
    if not done:
        process.kill()
    await ending


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait for their end; an error that one ended with is logged."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            _log.error("a probe or hook ended with an error", exc_info=result)
