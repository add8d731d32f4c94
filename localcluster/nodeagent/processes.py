"""Processes of containers: started in a session of their own, watched, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LAUNCH = str(Path(__file__).with_name("launch.py"))
_DRAIN_SECONDS = 2.0
_START_SECONDS = 30.0
_CHUNK = 65536


class StartError(Exception):
    """The program could not be started."""


@dataclass(frozen=True)
class Exit:
    """How a process ended: its exit code as a container runtime reports it (128 + signal)."""

    code: int
    signal: int


class Ledger:
    """The sessions that run now, on disk, so that the next agent can end what this one left."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def add(self, pid: int) -> None:
        """Record a session by its leader."""
        (self._directory / str(pid)).write_text(_start_time(pid) or "")

    def remove(self, pid: int) -> None:
        """Forget a session that has ended."""
        (self._directory / str(pid)).unlink(missing_ok=True)

    def end_all(self) -> int:
        """Kill every recorded session that is still the recorded one; how many there were."""
        ended = 0
        for path in self._directory.iterdir():
            pid = int(path.name)
            # A session's id is not used again while it has members, so only a leader that lives
            # and started at another time is somebody else's process.
            if _start_time(pid) in (None, path.read_text()):
                ended += bool(kill_session(pid))
            path.unlink()
        return ended


class Process:
    """A running program with its session. Made by `start`."""

    def __init__(self, child: subprocess.Popen[bytes], ledger: Ledger | None) -> None:
        self.pid = child.pid
        self.killed = False
        """Whether the whole session was killed by this agent."""
        self._child = child
        self._ledger = ledger
        self._exited = asyncio.get_running_loop().create_future()
        self._open_outputs: dict[int, IO[bytes]] = {}
        self._drained = asyncio.Event()
        self._pidfd = os.pidfd_open(child.pid)
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_exit)

    @classmethod
    async def start(  # noqa: PLR0913  # each is a part of one process
        cls,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: str,
        place: Mapping[str, Any],
        *,
        output: Callable[[str, bytes], None],
        ledger: Ledger | None = None,
    ) -> Self:
        """Start a program.

        Args:
            argv: The program and its arguments.
            env: Its whole environment.
            cwd: Its working directory.
            place: Where it runs, in the words of `launch.py`: `mounts` and `stage`, or `enter`.
            output: Gets the stream's name (`stdout`, `stderr`) and bytes, as they come.
            ledger: Where to record it, for a process that must not outlive the agent.

        Raises:
            StartError: It could not be started; says why.
        """
        orders = {"argv": list(argv), "env": dict(env), "cwd": cwd, **place}
        orders_fd = os.memfd_create("orders")
        report, report_end = os.pipe()
        try:
            os.write(orders_fd, json.dumps(orders).encode())
            os.lseek(orders_fd, 0, os.SEEK_SET)
            child = subprocess.Popen(  # noqa: ASYNC220  # returns as soon as the launcher is up
                [sys.executable, "-I", "-S", _LAUNCH, str(orders_fd), str(report_end)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(orders_fd, report_end),
                start_new_session=True,
                env={},
            )
        except OSError as error:
            os.close(report)
            raise StartError(str(error)) from error
        finally:
            os.close(orders_fd)
            os.close(report_end)
        process = cls(child, ledger)
        if ledger is not None:
            ledger.add(child.pid)
        for name, stream in (("stdout", child.stdout), ("stderr", child.stderr)):
            if stream is not None:
                process._read(name, stream, output)
        try:
            failure = await _read_report(report)
        except asyncio.CancelledError:
            process.kill()
            raise
        if failure:
            process.kill()
            await process.wait()
            raise StartError(failure)
        return process

    async def wait(self) -> Exit:
        """Wait for the end. What is left of the session is killed, and all output has been read."""
        code: int = await asyncio.shield(self._exited)
        if self._open_outputs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), _DRAIN_SECONDS)
        self._close_outputs()
        return Exit(code=128 - code, signal=-code) if code < 0 else Exit(code=code, signal=0)

    def terminate(self) -> None:
        """Send SIGTERM to the leader, as container runtimes do."""
        if self._child.returncode is None:
            self._child.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the whole session."""
        if self._child.returncode is None:
            self.killed = True
            kill_session(self.pid)

    def _on_exit(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        os.close(self._pidfd)
        kill_session(self.pid)
        code = self._child.wait()
        if self._ledger is not None:
            self._ledger.remove(self.pid)
        if not self._exited.done():
            self._exited.set_result(code)

    def _read(self, name: str, stream: IO[bytes], output: Callable[[str, bytes], None]) -> None:
        descriptor = stream.fileno()
        os.set_blocking(descriptor, False)
        self._open_outputs[descriptor] = stream

        def readable() -> None:
            try:
                data = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return
            output(name, data)
            if not data:
                self._close_output(descriptor)

        asyncio.get_running_loop().add_reader(descriptor, readable)

    def _close_output(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        self._open_outputs.pop(descriptor).close()
        if not self._open_outputs:
            self._drained.set()

    def _close_outputs(self) -> None:
        for descriptor in list(self._open_outputs):
            self._close_output(descriptor)


def kill_session(session: int) -> list[int]:
    """Kill every process of a session; the processes that were killed."""
    killed: list[int] = []
    # A process may fork while the list is read: look until nobody is left who has not been killed.
    while members := [pid for pid in _members(session) if pid not in killed]:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed += members
    return killed


def _members(session: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208  # hot: no Path per process
        if not name.isdigit():
            continue
        fields = _stat(int(name))
        if fields is not None and fields[3] == str(session) and fields[0] != "Z":
            found.append(int(name))
    return found


def _start_time(pid: int) -> str | None:
    fields = _stat(pid)
    return None if fields is None else fields[19]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from `state` on: 0 state, 3 session, 19 start time."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


async def _read_report(descriptor: int) -> str:
    """What the launcher has to report; empty when the program has been started."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await asyncio.wait_for(ready.wait(), _START_SECONDS)
        return os.read(descriptor, _CHUNK).decode(errors="replace")
    except TimeoutError:
        return f"the program did not start within {_START_SECONDS:.0f} s"
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
