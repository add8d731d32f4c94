"""`vllm-upgrade`: the entry point."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from vllm_upgrade_operator.cli import inspect, inventory, preflight
from vllm_upgrade_operator.cli.exits import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.cli.command import Command

COMMANDS: tuple[Command, ...] = (inventory.COMMAND, preflight.COMMAND, inspect.COMMAND)

# As a shell has it for the signals SIGINT and SIGPIPE.
_INTERRUPTED = 130
_PIPE_CLOSED = 141

_PLUGIN = "kubectl-vllm_upgrade"

_DESCRIPTION = """\
Look before you upgrade vLLM on Kubernetes. Everything here only reads: nothing in the cluster is
created or changed, and the operator does not have to be installed.
"""

_EXITS = """\
exit codes:
  0  looked at, nothing stands against it (there may be warnings)
  1  looked at, something stands against it
  2  the command line or a file that it names is wrong
  3  it could not be told: the cluster did not answer, or something could not be read
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; what went wrong is one line on standard error."""
    parser = _parser("kubectl vllm-upgrade" if sys.argv[0].endswith(_PLUGIN) else "vllm-upgrade")
    options = parser.parse_args(arguments)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
    except CommandError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return int(error.code)
    except BrokenPipeError:
        # Whoever read has seen enough, as `head` does; what is left must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description=_DESCRIPTION,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('vllm-upgrade-operator')}"
    )
    found = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = found.add_parser(
            command.name,
            help=command.summary,
            description=command.description,
            epilog=_EXITS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.configure(sub)
        sub.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
