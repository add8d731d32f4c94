"""`python -m localcluster.load`: send load to a Service until a signal, or for so long."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from pathlib import Path

from localcluster.load.endpoints import Endpoints
from localcluster.load.generator import LoadGenerator, Profile
from vllm_upgrade_operator.cluster.client import Client

_REPORT_SECONDS = 1.0


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m localcluster.load", description=__doc__)
    parser.add_argument("--service", required=True, help="NAMESPACE/NAME")
    parser.add_argument("--rate", type=float, required=True, help="requests per second")
    parser.add_argument("--duration", type=float, help="seconds; until a signal if left out")
    parser.add_argument("--prompt-tokens", default="64,256", help="lengths, with commas")
    parser.add_argument("--output-tokens", default="8,32", help="lengths, with commas")
    parser.add_argument("--no-stream", action="store_true", help="ask for whole answers")
    parser.add_argument(
        "--clients", type=int, default=0, help="kept connections; 0 opens one for each request"
    )
    parser.add_argument("--model", default="", help="name of the model")
    parser.add_argument("--report", type=Path, required=True, help="file to write results to")
    parser.add_argument("--seed", type=int, default=0)
    asyncio.run(_run(parser.parse_args()))


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.duration is not None:
        loop.call_later(options.duration, stop.set)
    namespace, _, service = options.service.partition("/")
    profile = Profile(
        rate=options.rate,
        prompt_tokens=_numbers(options.prompt_tokens),
        output_tokens=_numbers(options.output_tokens),
        stream=not options.no_stream,
        clients=options.clients,
        model=options.model,
    )
    async with await Client.from_kubeconfig() as client:
        endpoints = Endpoints(client, namespace, service)
        generator = LoadGenerator(profile, lambda: endpoints.ready, seed=options.seed)
        side = [
            asyncio.create_task(endpoints.watch()),
            asyncio.create_task(_write(generator, options.report)),
        ]
        try:
            await generator.run(stop)
        finally:
            for task in side:
                task.cancel()
            generator.report.write(options.report)


async def _write(generator: LoadGenerator, path: Path) -> None:
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        with contextlib.suppress(OSError):
            generator.report.write(path)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


if __name__ == "__main__":
    main()
