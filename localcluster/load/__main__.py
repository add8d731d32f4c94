"""`python -m localcluster.load`: send open-loop load to a Service of a local cluster."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster.load.endpoints import EndpointError
from localcluster.load.generator import LoadGenerator, write
from localcluster.load.options import Mix, OptionError, Options
from vllm_upgrade_operator.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

_REPORT_SECONDS = 1.0


def main() -> int:
    """Send load; the exit code is 0 also where requests failed: the report says what came of it."""
    try:
        options, report = parse(sys.argv[1:])
    except OptionError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(options, report))
    except EndpointError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def parse(arguments: Sequence[str]) -> tuple[Options, Path | None]:
    """Read the command line: what to send, and where the report goes."""
    parser = argparse.ArgumentParser(
        prog="python -m localcluster.load",
        description=f"{__doc__} Ends at SIGTERM, SIGINT or after --duration.",
    )
    add = parser.add_argument
    add("--service", required=True, metavar="NAMESPACE/NAME")
    add("--rate", type=float, required=True, help="arrivals per second")
    add("--duration", type=float, default=3600.0, help="seconds (default: an hour)")
    add("--prompt-tokens", default="128:3,512:1", help="lengths, as in 128,512 or 128:3,512:1")
    add("--output-tokens", default="16,64", help="the same, of answers")
    add("--stream", action=argparse.BooleanOptionalAction, default=True)
    add("--keep-alive", action=argparse.BooleanOptionalAction, default=False)
    add("--connections", type=int, default=64, help="at most so many that are kept alive")
    add("--in-flight", type=int, default=512, help="drop what arrives beyond so many")
    add("--timeout", type=float, default=120.0, help="seconds until a request is given up")
    add("--seed", type=int, default=0)
    add("--report", type=Path, help="file for the report, as JSON, written every second")
    given = parser.parse_args(arguments)
    namespace, _, service = given.service.partition("/")
    if not (namespace and service) or "/" in service:
        raise OptionError(f"service is {given.service!r}: give it as NAMESPACE/NAME")
    options = Options(
        namespace=namespace,
        service=service,
        rate=given.rate,
        duration=given.duration,
        prompt_tokens=Mix.parse("prompt-tokens", given.prompt_tokens),
        output_tokens=Mix.parse("output-tokens", given.output_tokens),
        stream=given.stream,
        keep_alive=given.keep_alive,
        connections=given.connections,
        in_flight=given.in_flight,
        timeout=given.timeout,
        seed=given.seed,
    )
    return options, given.report


async def _run(options: Options, path: Path | None) -> None:
    async with await Client.from_kubeconfig() as client:
        generator = LoadGenerator(options, client)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, generator.stop)
        reporting = asyncio.create_task(_report(generator, path))
        try:
            await generator.run()
        finally:
            reporting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reporting
        if path is None:
            print(json.dumps(generator.report(), indent=2))
        else:
            write(generator.report(), path)


async def _report(generator: LoadGenerator, path: Path | None) -> None:
    while path is not None:
        write(generator.report(), path)
        await asyncio.sleep(_REPORT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
