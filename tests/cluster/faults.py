"""Turning a simulator's faults on and off while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Mapping


_FATAL = frozenset({"EXIT_CODE", "OOM"})


async def fault(pod: Mapping[str, Any], name: str, value: str) -> None:
    """Begin a fault of `localcluster/sim/faults.py` in one pod; the value `off` ends it."""
    url = f"http://{pod['status']['podIP']}:8000/sim/fault/{name}"
    timeout = aiohttp.ClientTimeout(total=10)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, params={"value": value}) as answer,
        ):
            assert answer.status == 200, await answer.text()
    except aiohttp.ServerDisconnectedError:
        # It may end before it has answered.
        if name not in _FATAL:
            raise
