"""Watches the pods of the agent's nodes and runs each of them."""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import TYPE_CHECKING, Any

import aiohttp

from localcluster.nodeagent.pod import Pod
from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from localcluster.nodeagent.context import Context

_log = logging.getLogger(__name__)

PODS = "/api/v1/pods"
BOUND = "spec.nodeName!="
RETRY_SECONDS = 1.0
OOM_POLL_SECONDS = 0.5


class Agent:
    """All pods of some nodes."""

    def __init__(self, context: Context, nodes: Sequence[str]) -> None:
        self._context = context
        self._nodes = set(nodes)
        self._pods: dict[str, Pod] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._again = asyncio.Event()

    def find(self, namespace: str, name: str) -> Pod | None:
        """A pod by namespace and name, where one of that name is here."""
        return self._pods.get(self._uids.get((namespace, name), ""))

    async def run(self) -> None:
        """Follow the API server for ever, taking everything up anew whenever it is lost."""
        shutil.rmtree(self._context.state_dir / "pods", ignore_errors=True)
        while True:
            try:
                await self._until_again()
            except (ApiError, aiohttp.ClientError, TimeoutError, ValueError) as error:
                if not (isinstance(error, ApiError) and error.status == 410):
                    _log.warning("watching pods: %s", error)
                    await asyncio.sleep(RETRY_SECONDS)

    def add(self, node: str) -> None:
        """Run the pods of one more node, those too that it has already; nothing for a known one."""
        if node not in self._nodes:
            self._nodes.add(node)
            self._again.set()

    async def lose(self, node: str) -> None:
        """End the processes of a node and tell nobody: its pods stay in the API as they are."""
        self._nodes.discard(node)
        lost = [uid for uid, pod in self._pods.items() if pod.node == node]
        for uid in lost:
            self._gone(uid)
        await asyncio.gather(*self._closing)

    async def watch_memory_requests(self) -> None:
        """End containers for lack of memory when `<state dir>/oom/<pod uid>.<container>` appears.

        Containers find the path of theirs in their environment. Without a container's name all of
        the pod's are ended.
        """
        directory = self._context.memory_requests
        directory.mkdir(parents=True, exist_ok=True)
        while True:
            for request in directory.iterdir():
                uid, _, container = request.name.partition(".")
                pod = self._pods.get(uid)
                if pod is None:
                    _log.warning("out of memory: there is no pod with uid %s", uid)
                else:
                    pod.kill_for_memory(container)
                request.unlink()
            await asyncio.sleep(OOM_POLL_SECONDS)

    async def close(self) -> None:
        """End all pods' processes; the pods stay in the API."""
        await asyncio.gather(*(pod.close() for pod in self._pods.values()), *self._closing)

    async def _until_again(self) -> None:
        """List and follow until that fails, or until a node has come whose pods are not known."""
        self._again.clear()
        following = asyncio.create_task(self._follow(await self._list()))
        waiting = asyncio.create_task(self._again.wait())
        try:
            await asyncio.wait({following, waiting}, return_when="FIRST_COMPLETED")
            if following.done():
                following.result()
        finally:
            for task in (following, waiting):
                task.cancel()
            await asyncio.gather(following, waiting, return_exceptions=True)

    async def _list(self) -> str:
        listed = await self._context.client.get(PODS, fieldSelector=BOUND)
        present = set()
        for pod in listed["items"]:
            present.add(pod["metadata"]["uid"])
            self._seen(pod)
        for uid in set(self._pods) - present:
            self._gone(uid)
        return str(listed["metadata"]["resourceVersion"])

    async def _follow(self, version: str) -> None:
        while True:
            events = self._context.client.watch(
                PODS, fieldSelector=BOUND, resourceVersion=version, allowWatchBookmarks="true"
            )
            async for kind, pod in events:
                version = pod["metadata"]["resourceVersion"]
                if kind == "DELETED":
                    self._gone(pod["metadata"]["uid"])
                elif kind != "BOOKMARK":
                    self._seen(pod)

    def _seen(self, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        if pod["spec"].get("nodeName") not in self._nodes:
            return
        known = self._pods.get(metadata["uid"])
        if known is not None:
            known.update(pod)
            return
        self._pods[metadata["uid"]] = created = Pod(pod, self._context)
        self._uids[metadata["namespace"], metadata["name"]] = metadata["uid"]
        created.start()

    def _gone(self, uid: str) -> None:
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._uids = {key: value for key, value in self._uids.items() if value != uid}
        task = asyncio.create_task(pod.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
