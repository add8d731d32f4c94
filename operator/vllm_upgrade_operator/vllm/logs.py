"""Lines of vLLM's log format, taken apart.

`(Worker_TP0 pid=27261) INFO 11-30 20:39:11 [cpu_worker.py:162] Using V2 Model Runner`

The same in 0.28 to 0.33; with VLLM_LOGGING_PREFIX a word comes before the level, and Ray adds the
address of another node (`(RayWorkerWrapper pid=7, ip=10.0.0.2)`). The process part matters: user
input reaches the log through the API server's lines only (request logging), so what other processes
say can be believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(
    r"\((?P<process>[\w.-]+) pid=(?P<pid>[0-9]{1,10})(?:, ip=[\w.:]+)?\) (?:\S+ ?)??"
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? "
    r"\[(?:[^\]\s]*/)?(?P<file>[\w.]+):\d+\] (?P<message>.*)"
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a vLLM process logged.

    Attributes:
        process: Such as `APIServer`, `EngineCore`, `EngineCore_DP0`, `Worker`, `Worker_TP0`.
        pid: Of that process, in its own namespace.
        file: Name of the source file, without its folder.
        message: The rest of the line.
    """

    process: str
    pid: int
    file: str
    message: str

    @property
    def of_engine(self) -> bool:
        """Whether the line comes from a process that no user input is logged by."""
        return not self.process.startswith("ApiServer") and not self.process.startswith("APIServer")


# An exception's line in a traceback, or pydantic's line of it.
_EXCEPTION = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception): (?:Value error, )?|Value error, )")
_PROCESS = re.compile(r"\([\w.-]+ pid=\d+\) ")


def lines(text: str) -> Iterator[str]:
    """Give the lines of a log, without colours and spaces at their end.

    Only a line feed ends a line, as for the container runtime. `splitlines()` would end one at
    characters too that a user can get into the server's lines (a request's id may hold U+0085), and
    what follows would look like a line of its own.
    """
    for raw in text.split("\n"):
        yield (_COLOUR.sub("", raw) if "\x1b" in raw else raw).rstrip()


def messages(text: str) -> Iterator[str]:
    """Give what each line says, without vLLM's prefix and without indentation.

    Lines of every form are given, tracebacks too; empty ones are left out. What is looked for at
    the start of a message cannot be said by a request that is logged somewhere in it.
    """
    for line in lines(text):
        match = _LINE.fullmatch(line) if line.startswith("(") else None
        message = (match["message"] if match else _without(_PROCESS, line)).strip()
        if message:
            yield message


def said(text: str) -> Iterator[str]:
    """Give the messages of a log, without an exception's class in front."""
    for message in messages(text):
        yield _without(_EXCEPTION, message)


def _without(beginning: re.Pattern[str], text: str) -> str:
    """Take a beginning off. Looked for at the start alone: a search takes time by the square."""
    match = beginning.match(text)
    return text if match is None else text[match.end() :]


def log_lines(text: str) -> Iterator[LogLine]:
    """Give the lines that have vLLM's format; others (progress bars, tracebacks) are left out."""
    for line in lines(text):
        if not line.startswith("("):
            continue
        match = _LINE.fullmatch(line)
        if match is not None:
            process, pid, file, message = match.group("process", "pid", "file", "message")
            yield LogLine(process, int(pid), file, message)
