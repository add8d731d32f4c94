"""`vllm-upgrade inventory`: what runs vLLM here, and what will not survive the upgrade."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cli.command import Command
from vllm_upgrade_operator.cli.connection import add_connection, connected, unanswered
from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cli.table import table
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.fleet import read_fleet
from vllm_upgrade_operator.cluster.log_looker import LogLooker
from vllm_upgrade_operator.upgrade.inventory.assess import assess
from vllm_upgrade_operator.upgrade.inventory.row import Severity, in_order, totals
from vllm_upgrade_operator.upgrade.preflight.server import Release
from vllm_upgrade_operator.vllm.facts import known
from vllm_upgrade_operator.vllm.runner import Runner
from vllm_upgrade_operator.vllm.versions import VersionError, parse_version

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from vllm_upgrade_operator.upgrade.inventory.row import Endpoints, Row, Totals

_DESCRIPTION = """\
List every Deployment, StatefulSet, LeaderWorkerSet and bare pod that runs vLLM: its version, the
model runner that its pods really run by their own logs, the runner that it would have on another
version, and what stands against that, the most severe first:

  CannotStart  it would not start on that version
  FallsBack    it would start, on Model Runner V1
  Admission    its queue is unbounded, or its limit does not do what it should
  Advice       all else that somebody should know

It exits with 1 where a workload cannot start on that version, and with 3 where some kind of object
may not be listed: what may be is printed all the same.
"""

_HEAD = (
    "NAMESPACE",
    "WORKLOAD",
    "VERSION",
    "RUNNER",
    "PREDICTED",
    "ARCHITECTURE",
    "FEATURES",
    "ADMISSION",
    "SEVERITY",
    "NEXT STEP",
)
_COLUMNS = (
    "namespace",
    "kind",
    "name",
    "version",
    "versionFrom",
    "endpoints",
    "onV1",
    "onV2",
    "onUnknown",
    "predictedRunner",
    "predictionCertain",
    "architecture",
    "features",
    "admissionLimits",
    "severity",
    "nextStep",
)
_FORMULA = frozenset("=+-@\t\r")


def _configure(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "-n", "--namespace", metavar="NAME", help="look there only; without it, in all namespaces"
    )
    where.add_argument(
        "-A", "--all-namespaces", action="store_true", help="look in all namespaces, as without -n"
    )
    newest = known.versions()[-1]
    parser.add_argument(
        "--target-version",
        metavar="VERSION",
        default=f"{newest.major}.{newest.minor}.0",
        help="version of vLLM to predict for (%(default)s, the newest that is known)",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json", "csv"), default="table", help="how to print it"
    )
    add_connection(parser)


def _run(options: argparse.Namespace) -> Exit:
    return asyncio.run(_inventory(options))


async def _inventory(options: argparse.Namespace) -> Exit:
    target = target_release(options.target_version)
    async with connected(options) as client:
        try:
            fleet = await read_fleet(client, LogLooker(client), options.namespace)
        except ApiError as error:
            raise unanswered(error) from error
    rows = in_order(assess(w, target) for w in fleet.workloads)
    write = {"json": as_json, "csv": as_csv, "table": as_table}[options.output]
    print(write(rows, target.text))
    for sentence in fleet.unread:
        print(f"not looked at: {sentence}", file=sys.stderr)
    if any(r.severity is Severity.CANNOT_START for r in rows):
        return Exit.FOUND
    return Exit.UNKNOWN if fleet.unread else Exit.OK


def target_release(text: str) -> Release:
    """Read the version to predict for. Raises `CommandError`."""
    try:
        version = parse_version(text)
    except VersionError as error:
        raise CommandError(f"--target-version: {error}") from error
    return Release(
        version=version, text=text.removeprefix("v"), certain=True, how="--target-version says it"
    )


def as_table(rows: Sequence[Row], target: str) -> str:
    """Write rows for a person, with totals."""
    if not rows:
        return "no workload that runs vLLM was found"
    head = [f"PREDICTED ({target})" if name == "PREDICTED" else name for name in _HEAD]
    lines = [
        (
            r.namespace,
            f"{r.kind}/{r.name}",
            r.version + ("?" if r.version_from == "tag" else "") or "unknown",
            _runners(r.endpoints),
            _predicted(r),
            r.architecture,
            ", ".join(r.features),
            r.limits,
            str(r.severity),
            r.next_step,
        )
        for r in rows
    ]
    return f"{table(head, lines)}\n\n{_summary(rows)}"


def _summary(rows: Sequence[Row]) -> str:
    namespaces = sorted({r.namespace for r in rows})
    lines = []
    if len(namespaces) > 1:
        lines = [
            f"{name}: {_sentence(totals(r for r in rows if r.namespace == name))}"
            for name in namespaces
        ]
    return "\n".join([*lines, f"in all: {_sentence(totals(rows))}"])


def _sentence(found: Totals) -> str:
    severities = ", ".join(f"{n} {s}" for s, n in found.severities.items() if n)
    ends = found.endpoints
    ratio = ends.fallback_ratio
    shown = "not known" if ratio is None else f"{100 * ratio:.0f}%"
    noun = "workload" if found.workloads == 1 else "workloads"
    return (
        f"{found.workloads} {noun} ({severities}), {ends.total} endpoints: {ends.v1} on V1, "
        f"{ends.v2} on V2, {ends.unknown} unknown; fallback ratio {shown}"
    )


def as_json(rows: Sequence[Row], target: str) -> str:
    """Write rows and totals for a program."""
    names = sorted({r.namespace for r in rows})
    return json.dumps(
        {
            "targetVersion": target,
            "workloads": [_object(r) for r in rows],
            "totals": _totals(totals(rows)),
            "namespaces": {
                name: _totals(totals(r for r in rows if r.namespace == name)) for name in names
            },
        },
        indent=2,
    )


def as_csv(rows: Sequence[Row], target: str) -> str:
    """Write rows for a spreadsheet; the version that was predicted for is in each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*_COLUMNS, "targetVersion"])
    for row in rows:
        found = _object(row)
        cells = [found[name] for name in _COLUMNS]
        writer.writerow([_cell(c) for c in (*cells, target)])
    return out.getvalue().removesuffix("\n")


def _object(row: Row) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "kind": row.kind,
        "name": row.name,
        "version": row.version or None,
        "versionFrom": row.version_from,
        **_endpoints(row.endpoints),
        "predictedRunner": None if row.predicted is Runner.UNKNOWN else str(row.predicted),
        "predictionCertain": row.predicted_certain,
        "architecture": row.architecture or None,
        "features": list(row.features),
        "admissionLimits": row.limits or None,
        "severity": str(row.severity),
        "nextStep": row.next_step,
        "findings": [
            {"severity": str(f.severity), "reason": f.reason, "message": f.message}
            for f in row.findings
        ],
    }


def _endpoints(found: Endpoints) -> dict[str, Any]:
    ratio = found.fallback_ratio
    return {
        "endpoints": found.total,
        "onV1": found.v1,
        "onV2": found.v2,
        "onUnknown": found.unknown,
        "fallbackRatio": None if ratio is None else round(ratio, 4),
    }


def _totals(found: Totals) -> dict[str, Any]:
    return {
        "workloads": found.workloads,
        **_endpoints(found.endpoints),
        "severities": {str(s): n for s, n in found.severities.items()},
    }


def _cell(value: object) -> str:
    """Write a value so that no spreadsheet takes it for a formula."""
    if isinstance(value, list):
        return _cell("; ".join(map(str, value)))
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in _FORMULA else text


def _runners(found: Endpoints) -> str:
    pairs = (("V1", found.v1), ("V2", found.v2), ("unknown", found.unknown))
    return " ".join(f"{name}:{count}" for name, count in pairs if count)


def _predicted(row: Row) -> str:
    if any(f.severity is Severity.CANNOT_START for f in row.findings):
        return "none"
    if row.predicted is Runner.UNKNOWN:
        return "unknown"
    return f"{row.predicted}" + ("" if row.predicted_certain else "?")


COMMAND = Command(
    name="inventory",
    summary="list what runs vLLM, on which runner, and what stands against an upgrade",
    description=_DESCRIPTION,
    configure=_configure,
    run=_run,
)
