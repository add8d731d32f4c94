"""What a failed probe is said to be wrong with: the kubelet's words."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from localcluster.nodeagent.actions import Target, act

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LATE = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
HERE = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HERE, 0))
        return int(probe.getsockname()[1])


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[int]:
    """A server that gives an answer and closes; with None it says nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        if answer is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), 5)
        else:
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, HERE, 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def probe(action: dict[str, Any]) -> str:
    async with aiohttp.ClientSession() as http:
        return await act(action, Target({}, HERE, 0, {}, "/", http), 0.3)


def get(port: int) -> dict[str, Any]:
    return {"httpGet": {"path": "/health", "port": port}}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""),
        (
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
            "HTTP probe failed with statuscode: 503",
        ),
        (b"", 'Get "http://127.0.0.1:{port}/health": EOF'),
        (
            None,
            'Get "http://127.0.0.1:{port}/health": ' + LATE,
        ),
    ],
)
async def test_http(answer: bytes | None, said: str) -> None:
    async with answering(answer) as port:
        assert await probe(get(port)) == said.replace("{port}", str(port))


async def test_a_port_that_refuses() -> None:
    port = free_port()
    refused = f"dial tcp 127.0.0.1:{port}: connect: connection refused"
    assert await probe(get(port)) == f'Get "http://127.0.0.1:{port}/health": {refused}'
    assert await probe({"tcpSocket": {"port": port}}) == refused


async def test_a_port_that_has_no_such_name() -> None:
    assert "couldn't find port: 'http'" in await probe({"httpGet": {"port": "http"}})
