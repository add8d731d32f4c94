"""Lines of vLLM's log format, taken apart.

`(Worker_TP0 pid=27261) INFO 11-30 20:39:11 [cpu_worker.py:162] Using V2 Model Runner`

The same in 0.28 to 0.33; with VLLM_LOGGING_PREFIX a word comes before the level. The process part
matters: user input reaches the log through the API server's lines only (request logging), so what
other processes say can be believed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(
    r"\((?P<process>[\w.-]+) pid=(?P<pid>\d+)\) (?:\S+ ?)??"
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


def said(text: str) -> Iterator[str]:
    """Give what each line says: without vLLM's prefix and without an exception's class.

    Lines of every form are given, tracebacks too. Since a text is only looked for at the start of
    what is said, a request that is logged with it inside proves nothing.
    """
    for raw in text.splitlines():
        line = _COLOUR.sub("", raw).rstrip()
        match = _LINE.fullmatch(line)
        message = match["message"] if match else _PROCESS.sub("", line, count=1)
        yield _EXCEPTION.sub("", message.strip(), count=1)


def log_lines(text: str) -> Iterator[LogLine]:
    """Give the lines that have vLLM's format; others (progress bars, tracebacks) are left out."""
    for raw in text.splitlines():
        match = _LINE.fullmatch(_COLOUR.sub("", raw).rstrip())
        if match is not None:
            yield LogLine(
                process=match["process"],
                pid=int(match["pid"]),
                file=match["file"],
                message=match["message"],
            )
