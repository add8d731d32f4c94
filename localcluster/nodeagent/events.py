"""Events about pods, counted up where they repeat, as the kubelet makes them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.clock import timestamp
from vllm_upgrade_operator.cluster.client import STRATEGIC, ApiError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.cluster.client import Client

_log = logging.getLogger(__name__)

MAX_QUEUED = 1000
MAX_REMEMBERED = 4000
MESSAGE_LIMIT = 1024

_Key = tuple[str, str, str, str]


class Recorder:
    """Writes events in the background; when more come than can be written, the newest are lost."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_QUEUED)
        self._known: OrderedDict[_Key, tuple[str, int]] = OrderedDict()

    def record(
        self, pod: Mapping[str, Any], kind: str, reason: str, message: str, container: str = ""
    ) -> None:
        """Record an event about a pod.

        Args:
            pod: The pod.
            kind: `Normal` or `Warning`.
            reason: One CamelCase word.
            message: What a person should read.
            container: The container that it is about; none for the whole pod.
        """
        metadata = pod["metadata"]
        now = timestamp()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
                "fieldPath": f"spec.containers{{{container}}}" if container else "",
            },
            "type": kind,
            "reason": reason,
            "message": message[:MESSAGE_LIMIT],
            "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
            "reportingComponent": "kubelet",
            "reportingInstance": pod["spec"]["nodeName"],
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("event lost: %s %s: %s", metadata["name"], reason, message)

    async def run(self) -> None:
        """Write events for ever."""
        while True:
            event = await self._queue.get()
            try:
                await self._write(event)
            except ApiError as error:
                # A namespace that is being deleted takes no events, and nobody waits for them.
                if "is being terminated" not in error.message:
                    _log.warning("event not written: %s: %s", event["reason"], error)

    async def _write(self, event: dict[str, Any]) -> None:
        about = event["involvedObject"]
        key = (about["uid"], about["fieldPath"], event["reason"], event["message"])
        path = f"/api/v1/namespaces/{about['namespace']}/events"
        name, count = self._known.pop(key, ("", 0))
        if name:
            change = {"count": count + 1, "lastTimestamp": event["lastTimestamp"]}
            try:
                await self._client.patch(f"{path}/{name}", change, STRATEGIC)
            except ApiError as error:
                if error.status != 404:
                    raise
                name = ""
        if not name:
            count = 0
            name = f"{about['name'][:200]}.{secrets.token_hex(8)}"
            event["metadata"]["name"] = name
            await self._client.create(path, event)
        self._known[key] = (name, count + 1)
        if len(self._known) > MAX_REMEMBERED:
            self._known.popitem(last=False)
