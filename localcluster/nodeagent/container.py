"""One container of a pod: pulled, started, probed, restarted, stopped."""

from __future__ import annotations

import asyncio
import secrets
import sys
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.actions import Target
from localcluster.nodeagent.backoff import Backoff
from localcluster.nodeagent.clock import timestamp
from localcluster.nodeagent.commands import SYSTEM_PATH, command_line, fill, write_programs
from localcluster.nodeagent.environment import container_environment
from localcluster.nodeagent.logs import Log
from localcluster.nodeagent.probing import Probing, Unhealthy
from localcluster.nodeagent.processes import Exit, Process, StartError
from localcluster.nodeagent.pulling import Puller
from localcluster.nodeagent.sources import ConfigError
from localcluster.nodeagent.status import ContainerState, Running, Terminated, Waiting
from localcluster.nodeagent.stopping import cancel, terminate
from localcluster.nodeagent.volumes import VolumeError
from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from localcluster.nodeagent.context import Context
    from localcluster.nodeagent.images import Image
    from localcluster.nodeagent.probes import Kind
    from localcluster.nodeagent.sources import Sources
    from localcluster.nodeagent.volumes import Volumes

START_FAILED = 128
OOM_AFTER = "LOCALCLUSTER_OOM_AFTER"
OOM_REQUEST = "LOCALCLUSTER_OOM_REQUEST"


class PodView:
    """What a container needs of its pod: the object as last seen, its address, its volumes."""

    def __init__(self, pod: dict[str, Any], sources: Sources, volumes: Volumes, ip: str) -> None:
        self.pod = pod
        self.sources = sources
        self.volumes = volumes
        self.ip = ip


class Container:
    """Runs one container until it shall not run any more.

    Args:
        spec: The container as in the pod's spec.
        view: Its pod.
        state: Its state, which this object keeps up to date.
        changed: Called after each change of the state.
        context: What all pods share.
        directory: Its own directory.
    """

    def __init__(  # noqa: PLR0913  # each is a different neighbour
        self,
        spec: dict[str, Any],
        view: PodView,
        state: ContainerState,
        changed: Callable[[], None],
        *,
        context: Context,
        directory: Path,
    ) -> None:
        self.spec = spec
        self.state = state
        self.logs: list[Log] = []
        """The logs of the present run and of the one before it; the newest is the last."""
        self.started = asyncio.Event()
        """Set when it has started for the first time: its startup probe, if any, has passed."""
        self._view = view
        self._changed = changed
        self._context = context
        self._directory = directory
        self._backoff = Backoff(context.backoff_base)
        self._puller = Puller(context.image_maps, context.backoff_base, self)
        self._stop = asyncio.Event()
        self._grace = 0.0
        self._process: Process | None = None
        self._oom = False
        self._began = timestamp()
        self._runs = 0

    async def run(self) -> None:
        """Run it, restarting as the policy says, until it has ended for good or was stopped."""
        if self.state.ended is not None:  # in the time of an earlier agent
            if not (self.state.is_init or self._shall_restart()):
                return
            self.state.restarts += 1
        while (prepared := await self._prepare()) is not None:
            await self._run_once(*prepared)
            if self.stopped or not self._shall_restart():
                return
            await self._wait_for_restart()

    def stop(self, grace: float) -> None:
        """Ask it to end within `grace` seconds; `run` returns when it has."""
        self._grace = grace
        self._stop.set()

    def kill(self) -> None:
        """End it at once."""
        self.stop(0)
        if self._process is not None:
            self._process.kill()

    def kill_for_memory(self) -> None:
        """End it as the kernel ends a container that is out of memory."""
        if self._process is not None:
            self._oom = True
            self._process.kill()

    @property
    def stopped(self) -> bool:
        """Whether it has been asked to end."""
        return self._stop.is_set()

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event about it."""
        self._context.events.record(
            self._view.pod, kind, reason, message, container=self.state.name
        )

    def waits(self, reason: str, message: str) -> None:
        """Report that it is waiting."""
        if isinstance(self.state.state, Terminated):
            self.state.last = self.state.state
        self.state.state = Waiting(reason, message)
        self._changed()

    async def pause(self, seconds: float) -> None:
        """Wait, but not for longer than until it is stopped."""
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return

    async def _prepare(self) -> tuple[Image, dict[str, str], list[dict[str, Any]]] | None:
        """Get the image, environment and mounts; None when it was stopped before that."""
        while not self.stopped:
            image = await self._puller.pull(self.spec["image"])
            if image is None:
                return None
            try:
                env = await container_environment(
                    self.spec,
                    self._view.pod,
                    self._view.sources,
                    services=self._context.services,
                    allocatable=self._context.allocatable,
                )
                return image, env, self._view.volumes.mounts(self._view.pod, self.spec, env)
            except (ConfigError, VolumeError, ApiError) as error:
                self.event("Warning", "Failed", f"Error: {error}")
                self.waits("CreateContainerConfigError", str(error))
            await self.pause(self._context.backoff_base)
        return None

    async def _run_once(
        self, image: Image, env: dict[str, str], mounts: list[dict[str, Any]]
    ) -> None:
        state = self.state
        if isinstance(state.state, Terminated):
            state.last = state.state
        state.image_id = image.image_id
        state.container_id = f"local://{secrets.token_hex(32)}"
        self._began = timestamp()
        self._oom = False
        log = self._open_log()
        self.event("Normal", "Created", "Container created")
        try:
            process, target = await self._start(image, env, mounts, log)
        except StartError as error:
            self.event("Warning", "Failed", f"Error: {error}")
            log.close()
            self._ended(Exit(START_FAILED, 0), "StartError", str(error))
            return
        self._process = process
        self.event("Normal", "Started", "Container started")
        state.state = Running(self._began)
        self._changed()
        try:
            end = await self._watch(process, target)
        finally:
            self._process = None
            log.close()
        reason = "OOMKilled" if self._oom else "Completed" if end.code == 0 else "Error"
        self._ended(end, reason)

    async def _start(
        self, image: Image, env: dict[str, str], mounts: list[dict[str, Any]], log: Log
    ) -> tuple[Process, Target]:
        words = {
            "python": sys.executable,
            "root": str(self._context.root),
            "pod_ip": self._view.ip,
        }
        path = SYSTEM_PATH
        if image.is_vllm:
            programs = write_programs(self._context.state_dir / "programs", image, words)
            path = f"{programs}:{path}"
        home = self._directory / "home"
        home.mkdir(parents=True, exist_ok=True)
        image_env = {name: fill(value, words) for name, value in image.env.items()}
        metadata = self._view.pod["metadata"]
        request = self._context.memory_requests / f"{metadata['uid']}.{self.state.name}"
        whole = {
            "PATH": path,
            "HOME": str(home),
            "HOSTNAME": metadata["name"],
            OOM_REQUEST: str(request),
            **image_env,
            **env,
        }
        cwd = self.spec.get("workingDir") or "/"
        process = await Process.start(
            command_line(image, self.spec, env, words),
            whole,
            cwd,
            {"mounts": mounts, "stage": str(self._directory)},
            output=log.feed,
            ledger=self._context.ledger,
        )
        target = Target(self.spec, self._view.ip, process.pid, whole, cwd, self._context.http)
        return process, target

    async def _watch(self, process: Process, target: Target) -> Exit:
        """See the process through to its end; end it when it is stopped or found unhealthy."""
        probing = Probing(target, self._probe_failed)
        ending = asyncio.create_task(process.wait())
        stopping = asyncio.create_task(self._stop.wait())
        health = asyncio.create_task(probing.until_unhealthy(self._has_started))
        readiness = asyncio.create_task(probing.readiness(self._set_ready))
        helpers: list[asyncio.Task[Any]] = [stopping, health, readiness]
        if OOM_AFTER in target.env:
            helpers.append(asyncio.create_task(self._oom_after(float(target.env[OOM_AFTER]))))
        try:
            await asyncio.wait({ending, stopping, health}, return_when="FIRST_COMPLETED")
            if stopping.done():
                health.cancel()
                await self._terminate(process, target, self._grace, "Stopping container {}")
            elif health.done() and not ending.done():
                await self._restart_unhealthy(process, target, health.result())
            return await ending
        finally:
            await cancel(*helpers)
            if not ending.done():
                process.kill()

    async def _restart_unhealthy(self, process: Process, target: Target, found: Unhealthy) -> None:
        grace = found.grace
        if grace is None:
            grace = self._view.pod["spec"].get("terminationGracePeriodSeconds", 30)
        probe = found.kind.value.lower()
        await self._terminate(
            process, target, grace, f"Container {{}} failed {probe} probe, will be restarted"
        )

    async def _terminate(
        self, process: Process, target: Target, grace: float, message: str
    ) -> None:
        self.event("Normal", "Killing", message.format(self.state.name))

        def hook_failed(wrong: str) -> None:
            self.event("Warning", "FailedPreStopHook", f"PreStopHook failed: {wrong}")

        await terminate(process, target, grace, hook_failed)

    async def _oom_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.kill_for_memory()

    def _probe_failed(self, kind: Kind, message: str) -> None:
        self.event("Warning", "Unhealthy", f"{kind.value} probe failed: {message}")

    def _has_started(self) -> None:
        self.state.started = True
        self.started.set()
        self._changed()

    def _set_ready(self, ready: bool) -> None:  # noqa: FBT001  # a callback with one value
        if self.state.ready != ready:
            self.state.ready = ready
            self._changed()

    def _ended(self, end: Exit, reason: str, message: str = "") -> None:
        self.state.state = Terminated(
            exit_code=end.code,
            signal=end.signal,
            reason=reason,
            started_at=self._began,
            finished_at=timestamp(),
            container_id=self.state.container_id,
            message=message,
        )
        self.state.started = False
        is_plain_init = self.state.is_init and not self.state.is_sidecar
        self.state.ready = is_plain_init and end.code == 0
        self._changed()

    def _shall_restart(self) -> bool:
        if self.state.is_sidecar:
            return True
        policy = self._view.pod["spec"].get("restartPolicy", "Always")
        ended = self.state.ended
        failed = ended is None or ended.exit_code != 0
        if self.state.is_init:
            return failed and policy != "Never"
        return policy == "Always" or (policy == "OnFailure" and failed)

    async def _wait_for_restart(self) -> None:
        loop = asyncio.get_running_loop()
        delay = self._backoff.after_exit(loop.time())
        if delay:
            metadata = self._view.pod["metadata"]
            pod = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            self.event(
                "Warning",
                "BackOff",
                f"Back-off restarting failed container {self.state.name} in pod {pod}",
            )
            self.waits(
                "CrashLoopBackOff",
                f"back-off {_go_duration(delay)} restarting failed "
                f"container={self.state.name} pod={pod}",
            )
            await self.pause(delay)
        if not self.stopped:
            self._backoff.started(loop.time())
            self.state.restarts += 1

    def _open_log(self) -> Log:
        while len(self.logs) > 1:
            self.logs.pop(0).delete()
        log = Log(self._directory / f"{self._runs}.log")
        self._runs += 1
        self.logs.append(log)
        return log


def _go_duration(seconds: float) -> str:
    """Seconds in the form that Go prints: 10s, 1m20s."""
    minutes, rest = divmod(seconds, 60)
    return (f"{minutes:.0f}m" if minutes else "") + f"{rest:g}s"
