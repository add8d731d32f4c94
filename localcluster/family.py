"""The children of the cluster's first process, and the orphans that end up with it."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from localcluster.components import Component

_ENDED = ".ended"


class Family:
    """Starts the cluster's processes, notes which of them end, and stops one."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._children: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def start(self, components: Iterable[Component]) -> None:
        """Start processes, with their output in the log of their name."""
        for component in components:
            with (self._state / "logs" / f"{component.name}.log").open("ab") as log:
                child = subprocess.Popen(
                    component.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            self._children[child.pid] = (component.name, child)

    def collect(self) -> None:
        """Collect what has ended: note our own, forget orphans of containers."""
        while (found := _next_ended()) is not None:
            if found not in self._children:
                os.waitpid(found, 0)
                continue
            name, child = self._children.pop(found)
            code = child.wait()
            (self._state / f"{name}{_ENDED}").write_text(_how(code))

    def stop(self, name: str, seconds: float) -> None:
        """Ask a process to end, if it still runs, and give it so long."""
        for found, child in self._children.values():
            if found == name:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(seconds)


def ended(state: Path) -> dict[str, str]:
    """Give the processes of a running cluster that have ended by themselves, and how."""
    return {file.stem: file.read_text() for file in sorted(state.glob(f"*{_ENDED}"))}


def forget_ended(state: Path) -> None:
    """Forget what an earlier cluster noted there."""
    for file in state.glob(f"*{_ENDED}"):
        file.unlink()


def _next_ended() -> int | None:
    """Give a child that has ended, without collecting it; None if there is none."""
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return None if found is None else found.si_pid


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with exit code {code}"
