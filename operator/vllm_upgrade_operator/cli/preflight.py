"""`vllm-upgrade preflight`: may this upgrade start? The operator's own checks, beforehand."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import PreflightCheck, PreflightResult
from vllm_upgrade_operator.cli.command import Command
from vllm_upgrade_operator.cli.connection import (
    add_connection,
    connected,
    namespace_of,
    unanswered,
)
from vllm_upgrade_operator.cli.exits import CommandError, Exit
from vllm_upgrade_operator.cli.manifest import read_spec, read_upgrade
from vllm_upgrade_operator.cli.table import table
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.log_looker import LogLooker
from vllm_upgrade_operator.cluster.rehearsal import RefusedError, rehearse
from vllm_upgrade_operator.upgrade.preflight import chain

if TYPE_CHECKING:
    import argparse

    from vllm_upgrade_operator.upgrade.observation import Observation

_DESCRIPTION = """\
Ask everything that the operator asks before it starts an upgrade, and start nothing. The target
named in the file, its pods' logs, nodes, volumes and budgets are read; the candidate's template is
computed by the API server in a dry run.

It exits with 1 where a check blocks, and with 3 where none does and one could not tell.
"""

# What stands against it first.
_ORDER = (
    PreflightResult.BLOCK,
    PreflightResult.UNKNOWN,
    PreflightResult.WARN,
    PreflightResult.PASS,
)


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-f",
        "--filename",
        required=True,
        metavar="FILE",
        help="file with one VLLMUpgrade; - is standard input",
    )
    parser.add_argument(
        "-n",
        "--namespace",
        metavar="NAME",
        help="namespace, where the file names none; without it that of the context",
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="how to print it"
    )
    add_connection(parser)


def _run(options: argparse.Namespace) -> Exit:
    return asyncio.run(_preflight(options))


async def _preflight(options: argparse.Namespace) -> Exit:
    file = options.filename
    manifest = read_upgrade(file)
    spec = read_spec(file, manifest)
    named = manifest["metadata"].get("namespace")
    if named is not None and options.namespace not in (None, named):
        raise CommandError(
            f"{file} is for namespace {named!r} and --namespace says {options.namespace!r}: "
            "leave one of them out"
        )
    namespace = str(named or namespace_of(options))
    async with connected(options) as client:
        try:
            o = await rehearse(client, LogLooker(client), namespace, manifest, spec)
        except RefusedError as error:
            raise CommandError(f"{file}: the API server would refuse it: {error}") from error
        except ApiError as error:
            raise unanswered(error) from error
    checks = examine(o, time.time())
    print(as_json(o, checks) if options.output == "json" else as_table(checks))
    return exit_of(checks)


def examine(o: Observation, now: float) -> tuple[PreflightCheck, ...]:
    """Give what the operator would find, and whom it would wait for before it looks at all."""
    found = chain.of_target(o) if o.target is None else chain.examine(o, o.target, now)
    if o.conflict is None:
        return found
    waits = PreflightCheck(
        name="conflict",
        result=PreflightResult.WARN,
        reason="TargetInUse",
        message=f"upgrade {o.conflict.name} has the same target and goes first: this one waits "
        "until it has ended",
    )
    return (waits, *found)


def exit_of(checks: tuple[PreflightCheck, ...]) -> Exit:
    """Say what it comes to: one block is enough; what could not be told is no pass."""
    results = {c.result for c in checks}
    if PreflightResult.BLOCK in results:
        return Exit.FOUND
    return Exit.UNKNOWN if PreflightResult.UNKNOWN in results else Exit.OK


def as_table(checks: tuple[PreflightCheck, ...]) -> str:
    """Write what was found for a person, what stands against it first."""
    ordered = sorted(checks, key=lambda c: _ORDER.index(c.result))
    rows = [(str(c.result), c.name, c.message) for c in ordered]
    counts = {r: sum(c.result is r for c in checks) for r in _ORDER}
    said = ", ".join(f"{counts[r]} {r}" for r in _ORDER if counts[r])
    end = "it would not start" if counts[PreflightResult.BLOCK] else "it would start"
    return f"{table(('RESULT', 'CHECK', 'MESSAGE'), rows)}\n\n{said}: {end}"


def as_json(o: Observation, checks: tuple[PreflightCheck, ...]) -> str:
    """Write what was found for a program, in order of severity of the checks."""
    worst = next(r for r in _ORDER if any(c.result is r for c in checks))
    return json.dumps(
        {
            "namespace": o.namespace,
            "upgrade": o.name,
            "target": o.spec.target_ref.name,
            "result": str(worst),
            "wouldStart": worst is not PreflightResult.BLOCK,
            "checks": [c.model_dump(mode="json", by_alias=True) for c in checks],
        },
        indent=2,
    )


COMMAND = Command(
    name="preflight",
    summary="check an upgrade before it is applied",
    description=_DESCRIPTION,
    configure=_configure,
    run=_run,
)
