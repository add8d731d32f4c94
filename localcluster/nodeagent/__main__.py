"""The node agent's command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import resource
import signal
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import yaml

from localcluster.nodeagent.agent import Agent
from localcluster.nodeagent.context import Context
from localcluster.nodeagent.events import Recorder
from localcluster.nodeagent.images import ImageMap
from localcluster.nodeagent.node import Nodes, resources
from localcluster.nodeagent.power import Power
from localcluster.nodeagent.processes import Ledger
from localcluster.nodeagent.server import LogServer
from vllm_upgrade_operator.cluster.client import Client

if TYPE_CHECKING:
    from collections.abc import Coroutine

_log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m localcluster.nodeagent", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="the API server to join")
    parser.add_argument(
        "--images",
        type=Path,
        required=True,
        action="append",
        help="an image map; may be given again, the last one wins",
    )
    parser.add_argument("--state-dir", type=Path, required=True, help="a directory for this agent")
    parser.add_argument("--port", type=int, default=10250, help="where logs are served")
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes to be")
    parser.add_argument("--gpus-per-node", type=int, default=8, help="nvidia.com/gpu of each node")
    parser.add_argument(
        "--backoff-base",
        type=float,
        default=10.0,
        help="seconds before the second restart of a container; doubles after that",
    )
    return parser.parse_args()


def _services(kubeconfig: Path) -> dict[str, str]:
    """The variables that tell containers where the API server is."""
    content = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    server = urlsplit(content["clusters"][0]["cluster"]["server"])
    host, port = str(server.hostname), str(server.port or 443)
    return {
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
        "KUBERNETES_SERVICE_PORT_HTTPS": port,
    }


async def _run(arguments: argparse.Namespace) -> None:
    ImageMap.load(arguments.images)  # a broken map is told at once, not at the first pod
    state_dir = arguments.state_dir.resolve()
    state_dir.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(state_dir / "processes")
    left = ledger.end_all()
    if left:
        _log.warning("ended %d containers that an earlier agent left", left)
    names = [f"node-{number}" for number in range(arguments.nodes)]
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with (
        await Client.from_kubeconfig(arguments.kubeconfig) as client,
        aiohttp.ClientSession(connector=connector) as http,
    ):
        recorder = Recorder(client)
        context = Context(
            client=client,
            events=recorder,
            http=http,
            ledger=ledger,
            image_maps=arguments.images,
            state_dir=state_dir,
            root=ROOT,
            services=_services(arguments.kubeconfig),
            allocatable=resources(arguments.gpus_per_node),
            backoff_base=arguments.backoff_base,
        )
        agent = Agent(context, names)
        nodes = Nodes(client, names, arguments.port, arguments.gpus_per_node)
        power = Power(agent, nodes, state_dir)
        server = await LogServer(agent.find).start(arguments.port, state_dir)
        try:
            await nodes.register()
            _log.info("%d nodes are ready", len(names))
            await _until(
                stop,
                agent.run(),
                agent.watch_memory_requests(),
                recorder.run(),
                nodes.run(),
                power.run(),
            )
        finally:
            await agent.close()
            await server.cleanup()


async def _until(stop: asyncio.Event, *loops: Coroutine[None, None, None]) -> None:
    """Run loops that never end until asked to stop; the first one that fails ends all."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop) for loop in loops]
        await stop.wait()
        for task in tasks:
            task.cancel()


def _allow_many_files() -> None:
    """A container takes five descriptors, so the usual soft limit would end at 200 of them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> None:
    """Run the node agent until it is told to stop."""
    arguments = _arguments()
    _allow_many_files()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asyncio.run(_run(arguments))


if __name__ == "__main__":
    main()
