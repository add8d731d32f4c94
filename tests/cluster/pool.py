"""Nodes of one test alone: what happens to them, other tests do not feel."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from localcluster import power
from localcluster.paths import state_dir

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from vllm_upgrade_operator.cluster.client import Client


class Pool:
    """Some nodes. Made by `own_nodes`."""

    def __init__(self, name: str, nodes: list[str]) -> None:
        self.nodes = nodes
        # For a pod's spec: it runs on these nodes, and on no other.
        self.pod_fields: dict[str, Any] = {
            "nodeSelector": {power.POOL: name},
            "tolerations": [{"key": power.POOL, "value": name, "effect": "NoSchedule"}],
        }

    async def stop(self, node: str) -> None:
        """Lose a node."""
        await asyncio.to_thread(power.stop, state_dir(), node)

    async def start(self, node: str) -> None:
        """Bring a node back."""
        await asyncio.to_thread(power.start, state_dir(), node)


@asynccontextmanager
async def own_nodes(client: Client, number: int = 1) -> AsyncIterator[Pool]:
    """Have nodes for a while; they are taken away with all that runs on them."""
    name = f"pool-{uuid.uuid4().hex[:8]}"
    pool = Pool(name, [f"{name}-{index}" for index in range(number)])
    try:
        for node in pool.nodes:
            await asyncio.to_thread(power.start, state_dir(), node, name)
        yield pool
    finally:
        for node in pool.nodes:
            await pool.stop(node)
            await client.delete(f"/api/v1/nodes/{node}")
            await _forget_pods(client, node)


async def _forget_pods(client: Client, node: str) -> None:
    """Delete the pods of a node that is gone: the control plane would take a minute for it."""
    listed = await client.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
    for pod in listed["items"]:
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        await client.delete(path, {"gracePeriodSeconds": 0})
