"""The nodes: registered, reported ready, and kept alive by their leases."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.clock import micro_timestamp, timestamp
from localcluster.power import POOL
from vllm_upgrade_operator.cluster.client import STRATEGIC, ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.cluster.client import Client

_log = logging.getLogger(__name__)

LEASE_SECONDS = 40
RENEW_SECONDS = 10.0
REPORT_SECONDS = 60.0
REGISTER_SECONDS = 30.0
RETRY_SECONDS = 0.5
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def resources(gpus: int) -> dict[str, str]:
    """What a node has; more of everything than is ever asked for, but for GPUs."""
    return {
        "cpu": "256",
        "memory": "2Ti",
        "ephemeral-storage": "4Ti",
        "pods": "500",
        "nvidia.com/gpu": str(gpus),
    }


def node_object(name: str, pool: str) -> dict[str, Any]:
    """The node as it is registered; with a pool, only for pods that tolerate its taint."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | ({POOL: pool} if pool else {})},
        "spec": {"taints": [{"key": POOL, "value": pool, "effect": "NoSchedule"}] if pool else []},
    }


def node_status(name: str, port: int, gpus: int) -> dict[str, Any]:
    """The node's status: ready, at this machine, with the log server's port."""
    now = timestamp()
    conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    return {
        # No Hostname: the API server would prefer it, and no resolver knows it.
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "capacity": resources(gpus),
        "allocatable": resources(gpus),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "reported by the node agent",
                "lastHeartbeatTime": now,
            }
            for kind, status, reason in conditions
        ],
        "nodeInfo": {
            "machineID": name,
            "systemUUID": name,
            "bootID": name,
            "kernelVersion": "",
            "osImage": "processes of one machine",
            "containerRuntimeVersion": "local://1",
            "kubeletVersion": "v1.37.2",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


class Nodes:
    """Registers nodes and keeps them ready."""

    def __init__(self, client: Client, names: Sequence[str], port: int, gpus: int) -> None:
        self._client = client
        self._names = list(names)
        self._port = port
        self._gpus = gpus

    async def register(self) -> None:
        """Make the nodes exist and be ready.

        An API server that has just started lacks the leases' namespace for a moment, so what it
        refuses is tried again for a while.

        Raises:
            ApiError: It still refused after half a minute.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + REGISTER_SECONDS
        while True:
            try:
                await self._register()
            except ApiError as error:
                if loop.time() > deadline:
                    raise
                _log.info("nodes not registered yet: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def add(self, name: str, pool: str) -> None:
        """Make one more node exist and be ready, or one that was removed be ready again.

        Raises:
            ApiError: The API server refused it.
        """
        await self._make(name, pool)
        if name not in self._names:
            self._names.append(name)

    def remove(self, name: str) -> None:
        """Report nothing of a node any more, as if it had lost its power."""
        self._names = [other for other in self._names if other != name]

    async def _register(self) -> None:
        for name in self._names:
            await self._make(name, "")

    async def _make(self, name: str, pool: str) -> None:
        if await self._client.find(f"/api/v1/nodes/{name}") is None:
            await self._client.create("/api/v1/nodes", node_object(name, pool))
        await self._renew(name)
        await self._report(name)

    async def run(self) -> None:
        """Keep them ready for ever."""
        loop = asyncio.get_running_loop()
        reported = loop.time()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            report = loop.time() - reported >= REPORT_SECONDS
            try:
                for name in list(self._names):
                    await self._renew(name)
                    if report:
                        await self._report(name)
            except ApiError as error:
                _log.warning("nodes not renewed: %s", error)
                continue
            if report:
                reported = loop.time()

    async def _report(self, name: str) -> None:
        status = node_status(name, self._port, self._gpus)
        await self._client.patch(f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC)

    async def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micro_timestamp(),
        }
        try:
            await self._client.patch(f"{LEASES}/{name}", {"spec": spec})
        except ApiError as error:
            if error.status != 404:
                raise
            lease = {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": "kube-node-lease"},
                "spec": spec,
            }
            await self._client.create(LEASES, lease)
