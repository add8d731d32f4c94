"""`vllm-upgrade inspect`: what saved files of one server say, as the operator would read them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_upgrade_operator.cli.command import Command
from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cli.table import table
from vllm_upgrade_operator.vllm.inspect import inspect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from vllm_upgrade_operator.vllm.inspect import Report

_LIMIT_BYTES = 256 * 1024 * 1024

_DESCRIPTION = """\
Read saved files of one vLLM server, such as a support bundle holds, and print what the operator
would conclude: the model runner that really ran and how that is known, version, architecture,
start-up times, KV cache, queue, rejections, and why it failed if it did. No cluster is asked.

It exits with 1 where the log tells of a failure, and with 3 where nothing of vLLM is recognised or
a metrics file cannot be read.
"""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log",
        metavar="FILE",
        help="log of the vLLM container, from its start; - is standard input",
    )
    parser.add_argument(
        "--metrics",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="what /metrics answered, earlier ones first: two of one process give rates",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="how to print it"
    )


def _run(options: argparse.Namespace) -> Exit:
    if options.log is None and not options.metrics:
        raise CommandError("nothing to read: give --log FILE, --metrics FILE, or both")
    if [options.log, *options.metrics].count("-") > 1:
        raise CommandError("standard input (-) can be only one of the files")
    log = None if options.log is None else _read(options.log)
    report = inspect(log, [_read(file) for file in options.metrics])
    if options.output == "json":
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(as_table(report))
    return exit_of(report)


def exit_of(report: Report) -> Exit:
    """Say what it comes to."""
    if report.failure is not None:
        return Exit.FOUND
    return Exit.OK if report.recognised and not report.problems else Exit.UNKNOWN


def as_table(report: Report) -> str:
    """Write a report for a person."""
    return table(("WHAT", "IS"), _rows(report))


def _rows(report: Report) -> Iterator[tuple[str, str]]:
    yield "runner", f"{report.runner}: {report.evidence.how}"
    if report.evidence.fallback_features:
        yield "falls back for", ", ".join(report.evidence.fallback_features)
    yield "version", report.version or _NOT_SAID
    yield "architecture", report.architecture or _NOT_SAID
    if report.draft_architecture is not None:
        yield "draft architecture", report.draft_architecture
    yield "has come to", report.startup or _NOT_SAID
    yield "start", _phases(report) or _NOT_SAID
    yield "KV cache", _cache(report) or _NOT_SAID
    yield "running, waiting", f"{_number(report.running)}, {_number(report.waiting)}"
    yield "rejections", _rejections(report)
    yield "preemptions", _number(report.preemptions)
    if report.rates is not None:
        yield "between the files", _rates(report)
    yield (
        "failure",
        "none" if report.failure is None else f"{report.failure.reason}: {report.failure.sentence}",
    )
    if report.failure is not None:
        yield "what to do", report.failure.advice
    for problem in report.problems:
        yield "not read", problem


_NOT_SAID = "not said"


def _number(value: float | None) -> str:
    return _NOT_SAID if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"


def _phases(report: Report) -> str:
    p = report.phases
    parts = (
        ("weights", p.weights),
        ("model", p.model),
        ("compile", p.compile),
        ("graphs", p.graphs),
        ("engine", p.engine),
    )
    return ", ".join(f"{name} {seconds:g} s" for name, seconds in parts if seconds is not None)


def _cache(report: Report) -> str:
    parts = []
    if report.kv_capacity_tokens is not None:
        parts.append(f"{report.kv_capacity_tokens:.0f} tokens")
    if report.kv_usage is not None:
        parts.append(f"{report.kv_usage:.1%} in use")
    return ", ".join(parts)


def _rejections(report: Report) -> str:
    if report.rejections is None:
        return _NOT_SAID
    return ", ".join(f"{_number(n)} {reason}" for reason, n in report.rejections.items()) or "none"


def _rates(report: Report) -> str:
    rates = report.rates
    if rates is None:
        return _NOT_SAID
    rejected = "" if rates.rejection_rate is None else f" ({rates.rejection_rate:.1%})"
    return (
        f"{_number(rates.offered)} offered, {_number(rates.rejected)} rejected{rejected}, "
        f"{_number(rates.errors)} failed, {_number(rates.preemptions)} preemptions"
    )


def _read(file: str) -> str:
    """Read a file; what is no text in it is replaced.

    Raises:
        CommandError: It cannot be read, or is larger than any log that makes sense.
    """
    try:
        if file == "-":
            content = sys.stdin.buffer.read(_LIMIT_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                content = opened.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise CommandError(f"cannot read {file}: {error.strerror}") from error
    if len(content) > _LIMIT_BYTES:
        raise CommandError(
            f"{file} is larger than {_LIMIT_BYTES // 1024**2} MiB: cut it to one server's run, "
            "from its start"
        )
    return content.decode("utf-8", errors="replace")


COMMAND = Command(
    name="inspect",
    summary="read saved logs and metrics of one server",
    description=_DESCRIPTION,
    configure=_configure,
    run=_run,
)
