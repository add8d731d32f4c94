"""What a running cluster leaves in its state directory, so that other commands find it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Running:
    """A cluster that runs.

    Attributes:
        pid: The process that holds the namespaces, as seen from outside.
        started: Its start time in clock ticks since boot: a process id alone may be used again.
        port: The API server's port on 127.0.0.1, inside and outside.
    """

    pid: int
    started: int
    port: int

    def alive(self) -> bool:
        """Whether that very process still lives."""
        return start_time(self.pid) == self.started

    def first_inside(self) -> int | None:
        """The first process inside, the only child of ours; None when it is gone."""
        try:
            children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None


def read(file: Path) -> Running | None:
    """Read a record; None where there is none, or one that was cut off or written by hand."""
    try:
        return Running(**json.loads(file.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def write(file: Path, record: Running) -> None:
    """Write a record so that nobody reads half of it."""
    scratch = file.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(record)))
    scratch.replace(file)


def entrants(inner: int) -> list[int]:
    """Give the processes outside whose children are inside: each has entered with a command."""
    namespace = _namespace(inner, "pid")
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit()
        and namespace is not None
        and _namespace(int(entry.name), "pid_for_children") == namespace
        and _namespace(int(entry.name), "pid") != namespace
    ]


def _namespace(pid: int, kind: str) -> str | None:
    """Name a namespace of a process; None where it is gone, or not ours to see."""
    try:
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    except OSError:
        return None


def start_time(pid: int) -> int | None:
    """Start time of a process in clock ticks since boot; None for one that has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
