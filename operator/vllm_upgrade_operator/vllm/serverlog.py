"""What the log of one vLLM server says of it: version, model, start-up times, admission.

The lines are those of 0.28 to 0.33. Only what a process says at the start of a message counts, and
in the API server's lines, where user input is logged too, only with the source file that says it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.logs import log_lines
from vllm_upgrade_operator.vllm.model import ARCHITECTURE, VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.vllm.logs import LogLine


@dataclass(slots=True)
class Phases:
    """How long the parts of a start took, in seconds; the slowest worker's.

    Attributes:
        weights: Reading the weights.
        model: Making the model of them, their reading included; not said by V1 on CPU.
        compile: torch.compile; none with `--enforce-eager`.
        graphs: Capturing CUDA graphs; none with `--enforce-eager` or on CPU.
        engine: Profiling, KV cache and warm-up together, with compiling and capturing.
    """

    weights: float | None = None
    model: float | None = None
    compile: float | None = None
    graphs: float | None = None
    engine: float | None = None


@dataclass(frozen=True, slots=True)
class Activity:
    """What the line that comes every ten seconds says of one engine.

    Attributes:
        running: Requests in the running batch.
        waiting: Requests in the queue.
        kv_usage: Share of the KV cache in use, 0 to 1.
    """

    running: int
    waiting: int
    kv_usage: float


@dataclass(slots=True)
class ServerLog:
    """What a log says.

    Attributes:
        version: Such as `0.32.0`.
        architecture: Of the model.
        draft_architecture: Of the draft model of speculative decoding.
        phases: How long its start took.
        kv_capacity_tokens: By engine process.
        rejections: Requests refused by admission control, by reason; said by 0.29 to 0.31 alone.
        activity: The latest, by engine.
    """

    version: str | None = None
    architecture: str | None = None
    draft_architecture: str | None = None
    phases: Phases = field(default_factory=Phases)
    kv_capacity_tokens: dict[str, int] = field(default_factory=dict)
    rejections: dict[str, int] = field(default_factory=dict)
    activity: dict[str, Activity] = field(default_factory=dict)


# Of the names that the metric of 0.32 has for its reasons.
BY_REQUESTS, BY_TOKENS = "max_num_queued_reqs", "max_num_queued_tokens"

_BANNER = re.compile(r"[ ▀▄█]{4,}version (?P<version>[\w.!+-]{1,64})\s*")


def latest_run(log: str) -> str:
    """Give the part of a log that the latest server in it wrote: from its banner on.

    A saved log may hold several, one after the other.
    """
    start = offset = 0
    for raw in log.split("\n"):
        if "version " in raw:
            lines = list(log_lines(raw))
            if lines and not lines[0].of_engine and _BANNER.fullmatch(lines[0].message):
                start = offset
        offset += len(raw) + 1
    return log[start:]


def read_log(log: str) -> ServerLog:
    """Read the log of one server."""
    found = ServerLog()
    for line in log_lines(log):
        for row in _OF_ENGINE if line.of_engine else _OF_SERVER:
            if row.file is not None and not row.file.fullmatch(line.file):
                continue
            match = row.says.match(line.message)
            if match is not None:
                row.take(found, match, line)
                break
    return found


@dataclass(frozen=True, slots=True)
class _Row:
    """A message, who says it, and what is taken from it."""

    says: re.Pattern[str]
    take: Callable[[ServerLog, re.Match[str], LogLine], None]
    engine: bool | None = None
    file: re.Pattern[str] | None = None


def _version(found: ServerLog, match: re.Match[str], line: LogLine) -> None:
    # The engine's word is better: nothing of a user is in its lines.
    if line.of_engine or found.version is None:
        found.version = match["version"]


def _architecture(found: ServerLog, match: re.Match[str], _: LogLine) -> None:
    # The draft model's comes after the model's (create_engine_config of engine/arg_utils.py).
    if found.architecture is None:
        found.architecture = match["name"]
    elif match["name"] != found.architecture and found.draft_architecture is None:
        found.draft_architecture = match["name"]


def _slowest(phase: str) -> Callable[[ServerLog, re.Match[str], LogLine], None]:
    def take(found: ServerLog, match: re.Match[str], _: LogLine) -> None:
        seconds = float(match["seconds"])
        before: float | None = getattr(found.phases, phase)
        setattr(found.phases, phase, seconds if before is None else max(before, seconds))

    return take


def _capacity(found: ServerLog, match: re.Match[str], line: LogLine) -> None:
    found.kv_capacity_tokens[line.process] = int(match["tokens"].replace(",", ""))


def _rejection(reason: str) -> Callable[[ServerLog, re.Match[str], LogLine], None]:
    def take(found: ServerLog, _: re.Match[str], __: LogLine) -> None:
        found.rejections[reason] = found.rejections.get(reason, 0) + 1

    return take


def _activity(found: ServerLog, match: re.Match[str], _: LogLine) -> None:
    found.activity[match["engine"]] = Activity(
        running=int(match["running"]),
        waiting=int(match["waiting"]),
        kv_usage=float(match["usage"]) / 100,
    )


_SECONDS = r"(?P<seconds>\d{1,9}(?:\.\d{1,9})?)"
# From 0.32 on a tag such as `[backbone]` may come first.
_TAG = r"(?:\[[\w-]+\] )?"

_ROWS: tuple[_Row, ...] = (
    _Row(VERSION, _version, engine=True),
    _Row(_BANNER, _version, engine=False),
    _Row(ARCHITECTURE, _architecture, file=re.compile(r"model\.py")),
    _Row(re.compile(rf"Loading weights took {_SECONDS} seconds"), _slowest("weights"), engine=True),
    _Row(
        re.compile(rf"Model loading took \S+ GiB memory and {_SECONDS} seconds"),
        _slowest("model"),
        engine=True,
    ),
    _Row(
        re.compile(rf"{_TAG}torch\.compile took {_SECONDS} s in total"),
        _slowest("compile"),
        engine=True,
    ),
    _Row(
        re.compile(rf"Graph capturing finished in {_SECONDS} secs"),
        _slowest("graphs"),
        engine=True,
    ),
    _Row(
        re.compile(rf"init engine \([\w ,]+\) took {_SECONDS} s"), _slowest("engine"), engine=True
    ),
    _Row(
        re.compile(r"\S+(?: \+ \S+)? KV cache size: (?P<tokens>\d[\d,]{0,17}) tokens, "),
        _capacity,
        engine=True,
    ),
    _Row(
        re.compile(r"Request queue full - rejecting request "),
        _rejection(BY_REQUESTS),
        engine=False,
        file=re.compile(r"async_llm\.py"),
    ),
    _Row(
        re.compile(r"Max queued tokens reached - rejecting request "),
        _rejection(BY_TOKENS),
        engine=False,
        file=re.compile(r"async_llm\.py"),
    ),
    _Row(
        re.compile(
            r"Engine (?P<engine>\d{1,6}): Avg prompt throughput: .{1,120}, "
            r"Running: (?P<running>\d{1,9}) reqs, Waiting: (?P<waiting>\d{1,9}) reqs, "
            r".{0,80}KV cache usage: (?P<usage>\d{1,3}(?:\.\d{1,6})?)%"
        ),
        _activity,
        engine=False,
        file=re.compile(r"loggers\.py"),
    ),
)
_OF_ENGINE = tuple(row for row in _ROWS if row.engine is not False)
_OF_SERVER = tuple(row for row in _ROWS if row.engine is not True)
