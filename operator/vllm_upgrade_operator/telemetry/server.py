"""Two small HTTP servers: health for the kubelet, metrics for Prometheus."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from vllm_upgrade_operator.telemetry.metrics import Telemetry

    Answer = Callable[[web.Request], Awaitable[web.Response]]


@asynccontextmanager
async def health(
    *, host: str, port: int, problem: Callable[[], str | None], ready: Callable[[], bool]
) -> AsyncIterator[None]:
    """Serve `/healthz` and `/readyz`.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        problem: Why the process should be started anew, or None.
        ready: Whether upgrades are being watched.
    """

    async def healthz(_: web.Request) -> web.Response:
        why = problem()
        return web.Response(text="ok\n") if why is None else web.Response(status=500, text=why)

    async def readyz(_: web.Request) -> web.Response:
        if ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="VLLMUpgrades are not watched yet\n")

    async with _serving(host, port, {"/healthz": healthz, "/readyz": readyz}):
        yield


@asynccontextmanager
async def metrics(*, host: str, port: int, telemetry: Telemetry) -> AsyncIterator[None]:
    """Serve `/metrics`."""

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=telemetry.exposition(), content_type="text/plain", charset="utf-8")

    async with _serving(host, port, {"/metrics": exposition}):
        yield


@asynccontextmanager
async def _serving(host: str, port: int, routes: dict[str, Answer]) -> AsyncIterator[None]:
    application = web.Application()
    for path, answer in routes.items():
        application.router.add_get(path, answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()
