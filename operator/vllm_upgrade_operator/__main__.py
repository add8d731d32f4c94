"""`vllm-upgrade-operator`: run the operator."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket

import kopf
import structlog

from vllm_upgrade_operator.cluster.client import Client
from vllm_upgrade_operator.cluster.probe import Prober
from vllm_upgrade_operator.handlers import Wiring
from vllm_upgrade_operator.telemetry import logs, server
from vllm_upgrade_operator.telemetry.metrics import Telemetry
from vllm_upgrade_operator.vllm.client import VLLMClient

_log = structlog.get_logger(__name__)


def main() -> None:
    """Read the command line and run until a signal ends it."""
    parser = argparse.ArgumentParser(prog="vllm-upgrade-operator", description=__doc__)
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="a namespace to watch; may be given again; all namespaces if left out",
    )
    parser.add_argument("--host", default="0.0.0.0", help="address of the two servers")  # noqa: S104 - in a pod
    parser.add_argument("--health-port", type=int, default=8080, help="port of /healthz")
    parser.add_argument("--metrics-port", type=int, default=9090, help="port of /metrics")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    parser.add_argument(
        "--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO"
    )
    options = parser.parse_args()
    logs.configure(form=options.log_format, level=options.log_level)
    asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> None:
    telemetry = Telemetry()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runners = await server.serve(
        telemetry,
        host=options.host,
        health_port=options.health_port,
        metrics_port=options.metrics_port,
    )
    try:
        async with await _connect() as client, VLLMClient() as vllm:
            wiring = Wiring(
                client,
                Prober(client, vllm),
                telemetry,
                instance=os.environ.get("POD_NAME", socket.gethostname()),
            )
            _log.info("starting", namespaces=options.namespace or "all")
            await kopf.operator(
                registry=wiring.registry(),
                clusterwide=not options.namespace,
                namespaces=options.namespace,
                standalone=True,
                stop_flag=stop,
            )
    finally:
        for runner in runners:
            await runner.cleanup()


async def _connect() -> Client:
    """In a pod as its ServiceAccount, elsewhere as kubectl would."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return Client.in_cluster()
    return await Client.from_kubeconfig()


if __name__ == "__main__":
    main()
