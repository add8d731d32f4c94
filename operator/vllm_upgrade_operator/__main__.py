"""`vllm-upgrade-operator`: run the operator."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import time
from typing import TYPE_CHECKING

import kopf
import structlog

from vllm_upgrade_operator.api.v1alpha1 import GROUP, VERSION
from vllm_upgrade_operator.cluster.client import ApiError, Client
from vllm_upgrade_operator.cluster.events import Events
from vllm_upgrade_operator.cluster.look import Looker
from vllm_upgrade_operator.cluster.reconcile import Reconciler
from vllm_upgrade_operator.cluster.wake import Loops
from vllm_upgrade_operator.handlers import Handlers, kopf_settings
from vllm_upgrade_operator.telemetry import logs, server
from vllm_upgrade_operator.telemetry.metrics import Telemetry
from vllm_upgrade_operator.vllm.client import VLLMClient

if TYPE_CHECKING:
    from collections.abc import Sequence

_CRD_POLL_SECONDS = 2.0

log = structlog.get_logger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until a signal says to stop."""
    options = _options(arguments)
    logs.configure(form=options.log_format, level=options.log_level)
    asyncio.run(run(options))
    return 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="vllm-upgrade-operator", description=__doc__)
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="namespace to work in; may be repeated; without it, all namespaces",
    )
    parser.add_argument(
        "--host",
        default="0.0.0.0",  # noqa: S104 - a kubelet and a Prometheus come from elsewhere
        help="address that health and metrics are served on",
    )
    parser.add_argument("--health-port", type=int, default=8080, help="port of /healthz, /readyz")
    parser.add_argument("--metrics-port", type=int, default=9090, help="port of /metrics")
    parser.add_argument("--log-format", choices=("json", "console"), default="json")
    parser.add_argument(
        "--log-level", choices=("DEBUG", "INFO", "WARNING", "ERROR"), default="INFO"
    )
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace) -> None:
    """Connect, serve health and metrics, and run kopf."""
    telemetry, loops = Telemetry(), Loops()
    stop, ready = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        await _connect() as client,
        VLLMClient() as vllm,
        server.health(
            host=options.host,
            port=options.health_port,
            problem=lambda: loops.problem(time.monotonic()),
            ready=ready.is_set,
        ),
        server.metrics(host=options.host, port=options.metrics_port, telemetry=telemetry),
    ):
        await _wait_for_api(client, stop)
        if stop.is_set():
            return
        events = Events(client, os.environ.get("POD_NAME") or socket.gethostname())
        handlers = Handlers(
            client=client,
            reconciler=Reconciler(client, Looker(client, vllm, telemetry), events, telemetry),
            events=events,
            telemetry=telemetry,
            loops=loops,
        )
        # From here on kopf takes the signals; a flag of ours would keep its shutdown waiting.
        log.info("watching", namespaces=options.namespace or "all")
        await kopf.operator(
            registry=handlers.registry(),
            settings=kopf_settings(),
            standalone=True,
            clusterwide=not options.namespace,
            namespaces=options.namespace,
            ready_flag=ready,
        )


async def _connect() -> Client:
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return Client.in_cluster()
    return await Client.from_kubeconfig()


async def _wait_for_api(client: Client, stop: asyncio.Event) -> None:
    """Wait for the CustomResourceDefinition: kopf looks for it only once."""
    said = False
    while not stop.is_set():
        try:
            await client.get(f"/apis/{GROUP}/{VERSION}")
        except ApiError as error:
            if not said:
                log.warning("waiting for the API", group=GROUP, version=VERSION, error=str(error))
                said = True
            try:
                await asyncio.wait_for(stop.wait(), _CRD_POLL_SECONDS)
            except TimeoutError:
                continue
        else:
            return


if __name__ == "__main__":
    raise SystemExit(main())
