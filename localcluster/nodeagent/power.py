"""Carries out requests to stop and start nodes: see `localcluster/power.py`."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp

from localcluster import power
from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from pathlib import Path

    from localcluster.nodeagent.agent import Agent
    from localcluster.nodeagent.node import Nodes

_log = logging.getLogger(__name__)

POLL_SECONDS = 0.2


class Power:
    """Switches nodes.

    Args:
        agent: Runs the nodes' pods.
        nodes: Keeps the nodes ready.
        state_dir: The agent's directory.
    """

    def __init__(self, agent: Agent, nodes: Nodes, state_dir: Path) -> None:
        self._agent = agent
        self._nodes = nodes
        self._requests = power.requests(state_dir)
        self._requests.mkdir(parents=True, exist_ok=True)

    async def run(self) -> None:
        """Carry out requests for ever; one that fails is tried again."""
        while True:
            for request in self._requests.glob("[!.]*"):
                try:
                    await self._carry_out(request.name, request.read_text(encoding="utf-8"))
                except (ApiError, aiohttp.ClientError, TimeoutError) as error:
                    _log.warning("node %s not switched: %s", request.name, error)
                    continue
                request.unlink(missing_ok=True)
            await asyncio.sleep(POLL_SECONDS)

    async def _carry_out(self, name: str, request: str) -> None:
        what, _, pool = request.partition(" ")
        if what == "on":
            await self._nodes.add(name, pool)
            self._agent.add(name)
        else:
            # First the silence: what becomes of its pods must not be heard.
            self._nodes.remove(name)
            await self._agent.lose(name)
        _log.info("node %s is %s", name, what)
