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

from localcluster.administrator import Administrator, NoAnswerError
from localcluster.components import (
    AUDIT_POLICY,
    NODE_AGENT,
    POD_NETWORK,
    Component,
    components,
)
from localcluster.family import Family

_CHUNK = 65536
_STOP_SECONDS = 8.0
_COLLECT_SECONDS = 0.5
_LOOK_SECONDS = 0.1
# What the others need: the controller manager ends when it waits for it for 10 s in vain.
_FIRST = ("etcd", "kube-apiserver")


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
    rest = _start(options, family)
    server = await asyncio.start_server(
        lambda reader, writer: forward(reader, writer, options.port),
        sock=socket.socket(fileno=options.socket_fd),
    )
    administrator = Administrator(options.state_dir / "pki" / "admin.kubeconfig")
    collector = loop.create_task(_tend(family, rest, administrator))
    stopping = loop.create_task(stop.wait())
    await asyncio.wait({collector, stopping}, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if collector.done():
        collector.result()
    collector.cancel()


def _start(options: argparse.Namespace, family: Family) -> list[Component]:
    """Prepare the network and start what comes first; give the rest."""
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", POD_NETWORK, "dev", "lo"],
    ):
        subprocess.run(command, check=True, timeout=10)
    state: Path = options.state_dir
    (state / "audit-policy.yaml").write_text(AUDIT_POLICY)
    everything = components(
        state=state, binaries=options.binaries, port=options.port, images=options.images
    )
    family.start(c for c in everything if c.name in _FIRST)
    return [c for c in everything if c.name not in _FIRST]


async def _tend(family: Family, rest: list[Component], administrator: Administrator) -> None:
    """Start the rest when the API server is ready, and collect for ever what ends."""
    while True:
        family.collect()
        if rest:
            ready = await asyncio.to_thread(_is_ready, administrator)
            if ready:
                family.start(rest)
                rest = []
        await asyncio.sleep(_LOOK_SECONDS if rest else _COLLECT_SECONDS)


def _is_ready(administrator: Administrator) -> bool:
    try:
        return administrator.read("/readyz") == b"ok"
    except NoAnswerError:
        return False


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
