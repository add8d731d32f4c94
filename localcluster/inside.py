"""The first process of the cluster's namespaces: starts everything, and forwards the one port.

It is process 1 of a PID namespace, so nothing that the cluster started can outlive it. The
listening socket was made outside and is inherited: a socket stays in the network namespace that
it was made in, so what connects to it outside is passed on to the API server inside.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import socket
import subprocess
from pathlib import Path

from localcluster.components import AUDIT_POLICY, NODE_AGENT, POD_NETWORK, components
from localcluster.family import Family

_CHUNK = 65536
_STOP_SECONDS = 8.0
_COLLECT_SECONDS = 0.5


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--images", type=Path, action="append", required=True)
    options = parser.parse_args()
    family = Family(options.state_dir)
    asyncio.run(_run(options, family))
    # It tells containers to end. The others have nothing to lose, and die with this process: an
    # API server that ends in order takes many seconds for it.
    family.stop(NODE_AGENT, _STOP_SECONDS)


async def _run(options: argparse.Namespace, family: Family) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _start(options, family)
    server = await asyncio.start_server(
        lambda reader, writer: forward(reader, writer, options.port),
        sock=socket.socket(fileno=options.socket_fd),
    )
    collector = loop.create_task(_collect(family))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({collector, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if collector.done():
        collector.result()
    collector.cancel()


def _start(options: argparse.Namespace, family: Family) -> None:
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", POD_NETWORK, "dev", "lo"],
    ):
        subprocess.run(command, check=True, timeout=10)
    state: Path = options.state_dir
    (state / "audit-policy.yaml").write_text(AUDIT_POLICY)
    family.start(
        components(state=state, binaries=options.binaries, port=options.port, images=options.images)
    )


async def _collect(family: Family) -> None:
    while True:
        family.collect()
        await asyncio.sleep(_COLLECT_SECONDS)


async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass one connection on to a port of this network namespace, until both sides have ended."""
    try:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    try:
        await asyncio.gather(_copy(reader, onward_writer), _copy(onward_reader, writer))
    except OSError:
        # One side broke off; the other one shall see that, not a proper end.
        onward_writer.transport.abort()
        writer.transport.abort()
    finally:
        onward_writer.close()
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


if __name__ == "__main__":
    main()
