"""The first process inside: its children, and the forwarder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import build
from localcluster.components import Component, components
from localcluster.family import ended, forget_ended
from localcluster.inside import forward
from localcluster.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    import pytest

_SECONDS = 20.0

# Runs apart: it collects every child of its process.
_FAMILY = """
import os, sys, time
from pathlib import Path
from localcluster.components import Component
from localcluster.family import Family, ended

state = Path(sys.argv[1])
family = Family(state)
family.start([
    Component("fails", ("sh", "-c", "echo why; exit 3")),
    Component("killed", ("sh", "-c", "kill -9 $$")),
    Component("stays", ("sh", "-c", "trap 'echo told; exit' TERM; echo up; sleep 60 & wait")),
])
orphan = os.fork()
if orphan == 0:
    os._exit(0)
end = time.monotonic() + 20
while time.monotonic() < end:
    family.collect()
    if len(ended(state)) == 2 and not Path(f"/proc/{orphan}").exists():
        break
    time.sleep(0.01)
print(*(f"{name} {how}" for name, how in ended(state).items()), sep=", ")
print("orphan is left:", Path(f"/proc/{orphan}").exists())
while "up" not in (state / "logs" / "stays.log").read_text() and time.monotonic() < end:
    time.sleep(0.01)
family.stop("stays", 20)
family.stop("fails", 20)
"""


def test_ends_are_noted_orphans_collected_and_one_told_to_stop(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    done = subprocess.run(  # noqa: S603 - our own text and path
        [sys.executable, "-c", _FAMILY, str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.splitlines() == [
        "fails with exit code 3, killed by signal 9",
        "orphan is left: False",
    ]
    assert (tmp_path / "logs" / "fails.log").read_text() == "why\n"
    assert (tmp_path / "logs" / "stays.log").read_text() == "up\ntold\n"
    forget_ended(tmp_path)
    assert ended(tmp_path) == {}


def _components(*images: str) -> dict[str, Component]:
    found = components(
        state=Path("/state"), binaries=Path("/bin"), port=4321, images=[Path(i) for i in images]
    )
    return {component.name: component for component in found}


def test_every_program_of_the_control_plane_is_one_that_is_built() -> None:
    programs = {c.command[0] for c in _components("/a.yaml").values()} - {sys.executable}
    assert programs == {f"/bin/{p.name}" for p in build.PROGRAMS if p.name != "helm"}


def test_a_further_image_map_comes_last_so_that_it_wins() -> None:
    agent = _components("/ours.yaml", "/theirs.yaml")["node-agent"].command
    assert agent[-4:] == ("--images", "/ours.yaml", "--images", "/theirs.yaml")


async def _served(
    handler: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    async with server:
        yield int(server.sockets[0].getsockname()[1])


async def _forwarded(port: int) -> tuple[asyncio.Server, int]:
    server = await asyncio.start_server(lambda r, w: forward(r, w, port), "127.0.0.1", 0)
    return server, int(server.sockets[0].getsockname()[1])


async def test_bytes_and_ends_are_passed_on_both_ways() -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Answers only after the client has ended its side: that end must have been passed on.
        content = await reader.read()
        writer.write(content.upper())
        writer.close()

    async for upstream in _served(shout):
        server, port = await _forwarded(upstream)
        async with server, asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x" * 300_000)
            writer.write_eof()
            assert await reader.read() == b"X" * 300_000
            writer.close()


async def test_a_connection_that_breaks_off_is_broken_off_on_the_other_side() -> None:
    seen: asyncio.Queue[BaseException | bytes] = asyncio.Queue()

    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                writer.write(b"x" * 65536)
                await writer.drain()
                await asyncio.sleep(0)
        except OSError as error:
            seen.put_nowait(error)
        writer.transport.abort()

    async for upstream in _served(talk):
        server, port = await _forwarded(upstream)
        async with server, asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.readexactly(10)
            writer.transport.abort()
            assert isinstance(await seen.get(), OSError)


async def test_a_port_where_nobody_listens_ends_the_connection(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    server, port = await _forwarded(unused_tcp_port)
    async with server, asyncio.timeout(_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
    assert caplog.text == ""
