"""One pod: its containers in order, its status in the API, its end."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.clock import timestamp
from localcluster.nodeagent.container import Container, PodView
from localcluster.nodeagent.sources import ConfigError, Sources
from localcluster.nodeagent.status import (
    ContainerState,
    PodState,
    Terminated,
    Waiting,
    pod_status,
)
from localcluster.nodeagent.volumes import VolumeError, Volumes
from vllm_upgrade_operator.cluster.client import STRATEGIC, ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from localcluster.nodeagent.context import Context

_log = logging.getLogger(__name__)

HOST_IP = "127.0.0.1"
VOLUME_REFRESH_SECONDS = 60.0
RETRY_SECONDS = 1.0
LOST_EXIT_CODE = 255


class Pod:
    """Runs one pod from the moment it is bound to the node until it is gone from the API."""

    def __init__(self, pod: dict[str, Any], context: Context) -> None:
        metadata = pod["metadata"]
        self._context = context
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._uid = metadata["uid"]
        self.node = pod["spec"]["nodeName"]
        self._directory = context.state_dir / "pods" / self._uid
        sources = Sources(context.client, metadata["namespace"])
        ip = context.addresses.take(pod.get("status", {}).get("podIP"))
        self._view = PodView(pod, sources, Volumes(self._directory / "volumes", sources), ip)
        self._start_time = pod.get("status", {}).get("startTime") or timestamp()
        self._has_network = False
        self._stopped = False
        self._stopping = asyncio.Event()
        self._dirty = asyncio.Event()
        # An older status must not arrive after the final one.
        self._writing = asyncio.Lock()
        self._sent_conditions: dict[str, dict[str, Any]] = {}
        self.containers = {
            spec["name"]: self._container(spec, is_init=is_init) for is_init, spec in _specs(pod)
        }
        self._tasks: list[asyncio.Task[None]] = []
        self._observe(pod)

    def start(self) -> None:
        """Begin to run it; a pod that has already ended is only kept until it is deleted."""
        self._tasks = [asyncio.create_task(self._live()), asyncio.create_task(self._report())]

    def update(self, pod: dict[str, Any]) -> None:
        """Take note of a newer version of the object."""
        self._observe(pod)
        self._dirty.set()

    def kill_for_memory(self, container: str) -> None:
        """End one container, or all where none is named, as for lack of memory."""
        for name, running in self.containers.items():
            if container in ("", name):
                running.kill_for_memory()

    async def close(self) -> None:
        """End everything at once and forget the pod: it is gone from the API, or the agent ends."""
        for container in self.containers.values():
            container.kill()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for container in self.containers.values():
            for log in container.logs:
                log.close()
        self._context.addresses.give_back(self._view.ip)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _container(self, spec: dict[str, Any], *, is_init: bool) -> Container:
        state = ContainerState(
            name=spec["name"],
            image=spec["image"],
            is_init=is_init,
            is_sidecar=is_init and spec.get("restartPolicy") == "Always",
        )
        _restore(state, self._view.pod)
        return Container(
            spec,
            self._view,
            state,
            self._dirty.set,
            context=self._context,
            directory=self._directory / "containers" / spec["name"],
        )

    def _observe(self, pod: dict[str, Any]) -> None:
        # Containers are given the pod with its addresses, which the API may not have yet.
        status = {**pod.get("status", {}), "podIP": self._view.ip, "hostIP": HOST_IP}
        self._view.pod = {**pod, "status": status}
        if "deletionTimestamp" in pod["metadata"] and not self._stopping.is_set():
            self._stopping.set()

    async def _live(self) -> None:
        if self._view.pod["status"].get("phase") not in ("Succeeded", "Failed"):
            running = asyncio.create_task(self._run())
            stopping = asyncio.create_task(self._stop_containers())
            try:
                await asyncio.wait({running, stopping}, return_when="FIRST_COMPLETED")
                if stopping.done():
                    await running
                running.result()
            except Exception:  # noqa: BLE001  # one pod's failure must not end the agent
                _log.exception("%s: cannot be run any further", self._path)
            finally:
                for task in (running, stopping):
                    task.cancel()
                await asyncio.gather(running, stopping, return_exceptions=True)
        await self._stopping.wait()
        self._stopped = True
        await self._delete()

    async def _run(self) -> None:
        self._dirty.set()
        if not await self._mount():
            return
        self._has_network = True
        self._dirty.set()
        main = [c for c in self.containers.values() if not c.state.is_init]
        refreshing = asyncio.create_task(self._refresh_volumes())
        sidecars: list[asyncio.Task[None]] = []
        try:
            if await self._initialize(sidecars):
                await asyncio.gather(*(container.run() for container in main))
            for container in reversed(self.containers.values()):
                if container.state.is_sidecar:
                    container.stop(self._grace())
            await asyncio.gather(*sidecars)
        finally:
            refreshing.cancel()
            for task in sidecars:
                task.cancel()
            await asyncio.gather(refreshing, *sidecars, return_exceptions=True)

    async def _initialize(self, sidecars: list[asyncio.Task[None]]) -> bool:
        """Run the init containers; whether the others may start."""
        for container in self.containers.values():
            if not container.state.is_init:
                continue
            if container.state.is_sidecar:
                task = asyncio.create_task(container.run())
                sidecars.append(task)
                starting = asyncio.create_task(container.started.wait())
                stopping = asyncio.create_task(self._stopping.wait())
                await asyncio.wait({task, starting, stopping}, return_when="FIRST_COMPLETED")
                starting.cancel()
                stopping.cancel()
                if not container.started.is_set():
                    return False
                continue
            await container.run()
            ended = container.state.state
            if not isinstance(ended, Terminated) or ended.exit_code != 0:
                return False
        self._initialized()
        return not self._stopping.is_set()

    def _initialized(self) -> None:
        for container in self.containers.values():
            if not container.state.is_init and isinstance(container.state.state, Waiting):
                container.state.state = Waiting("ContainerCreating")
        self._dirty.set()

    def _grace(self) -> float:
        metadata, spec = self._view.pod["metadata"], self._view.pod["spec"]
        grace = metadata.get("deletionGracePeriodSeconds")
        return float(spec.get("terminationGracePeriodSeconds", 30) if grace is None else grace)

    async def _stop_containers(self) -> None:
        """Once the pod is being deleted, stop all but the sidecars, which `_run` stops last."""
        await self._stopping.wait()
        for container in self.containers.values():
            if not container.state.is_sidecar:
                container.stop(self._grace())

    async def _mount(self) -> bool:
        """Make the volumes, trying until it works; False when the pod is deleted before."""
        while not self._stopping.is_set():
            try:
                await self._view.volumes.write(self._view.pod)
            except (ConfigError, VolumeError, ApiError) as error:
                self._event("Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            else:
                return True
            try:
                await asyncio.wait_for(self._stopping.wait(), RETRY_SECONDS)
            except TimeoutError:
                continue
        return False

    async def _refresh_volumes(self) -> None:
        """Keep tokens and configuration fresh. A token lives an hour, so often enough for it."""
        while True:
            await asyncio.sleep(VOLUME_REFRESH_SECONDS)
            try:
                await self._view.volumes.write(self._view.pod)
            except (ConfigError, VolumeError, ApiError) as error:
                self._event("Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")

    async def _report(self) -> None:
        """Write the status whenever it has changed."""
        written = ""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            status = self._status()
            text = json.dumps(status, sort_keys=True)
            if text == written:
                continue
            if await self._write(status):
                written = text
            else:
                await asyncio.sleep(RETRY_SECONDS)
                self._dirty.set()

    def _status(self) -> dict[str, Any]:
        pod = self._view.pod
        conditions = {c["type"]: c for c in pod["status"].get("conditions", [])}
        # What was written last is newer than what the watch may have brought so far.
        conditions |= self._sent_conditions
        pod = {**pod, "status": {**pod["status"], "conditions": list(conditions.values())}}
        state = PodState(
            containers=[c.state for c in self.containers.values()],
            start_time=self._start_time,
            host_ip=HOST_IP,
            pod_ip=self._view.ip if self._has_network else None,
            stopped=self._stopped,
        )
        return pod_status(pod, state, timestamp())

    async def _write(self, status: dict[str, Any]) -> bool:
        """Patch the status; whether there is nothing left to do about it."""
        body = {"metadata": {"uid": self._uid}, "status": status}
        try:
            async with self._writing:
                await self._context.client.patch(f"{self._path}/status", body, STRATEGIC)
        except ApiError as error:
            # Gone, or another pod of the same name: the watch will say so.
            if error.status in (404, 409):
                return True
            _log.warning("status of %s not written: %s", self._path, error)
            return False
        self._sent_conditions = {c["type"]: c for c in status["conditions"]}
        return True

    async def _delete(self) -> None:
        """Write the final status, then take the object away."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        while True:
            if await self._write(self._status()):
                try:
                    await self._context.client.delete(self._path, options)
                except ApiError as error:
                    if error.status == 409:
                        return
                    _log.warning("%s not deleted: %s", self._path, error)
                else:
                    return
            await asyncio.sleep(RETRY_SECONDS)

    def _event(self, kind: str, reason: str, message: str) -> None:
        self._context.events.record(self._view.pod, kind, reason, message)


def _specs(pod: dict[str, Any]) -> Iterable[tuple[bool, dict[str, Any]]]:
    for spec in pod["spec"].get("initContainers", []):
        yield True, spec
    for spec in pod["spec"]["containers"]:
        yield False, spec


def _restore(state: ContainerState, pod: dict[str, Any]) -> None:
    """Take over what an earlier agent reported: its processes have been ended since."""
    status = pod.get("status", {})
    known = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    old = next((entry for entry in known if entry["name"] == state.name), None)
    if old is None or not old.get("containerID"):
        has_init = bool(pod["spec"].get("initContainers"))
        if has_init and not state.is_init:
            state.state = Waiting("PodInitializing")
        return
    state.restarts = old.get("restartCount", 0)
    state.image_id, state.container_id = old.get("imageID", ""), old["containerID"]
    before = old.get("state", {})
    if "running" in before:
        state.state = Terminated(
            exit_code=LOST_EXIT_CODE,
            signal=0,
            reason="Unknown",
            started_at=before["running"].get("startedAt", ""),
            finished_at=timestamp(),
            container_id=old["containerID"],
        )
    elif "terminated" in before:
        state.state = _terminated(before["terminated"], old["containerID"])
    if "terminated" in old.get("lastState", {}):
        state.last = _terminated(old["lastState"]["terminated"], old["containerID"])


def _terminated(detail: dict[str, Any], container_id: str) -> Terminated:
    return Terminated(
        exit_code=detail["exitCode"],
        signal=detail.get("signal", 0),
        reason=detail.get("reason", ""),
        started_at=detail.get("startedAt", ""),
        finished_at=detail.get("finishedAt", ""),
        container_id=detail.get("containerID", container_id),
        message=detail.get("message", ""),
    )
