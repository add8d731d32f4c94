"""Two small HTTP servers: health for the kubelet, metrics for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from vllm_upgrade_operator.telemetry.metrics import Telemetry

# An upgrade under way is reconciled every few seconds, and an error waits at most 30.
_SILENCE_SECONDS = 120.0


async def serve(
    telemetry: Telemetry, *, host: str, health_port: int, metrics_port: int
) -> list[web.AppRunner]:
    """Start both servers; the caller cleans the runners up."""

    async def health(_: web.Request) -> web.Response:
        silence = telemetry.silence()
        if silence > _SILENCE_SECONDS:
            return web.Response(
                status=500, text=f"an upgrade was not reconciled for {silence:.0f} s\n"
            )
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(
            body=telemetry.exposition(), content_type="text/plain", charset="utf-8"
        )

    runners = []
    for path, handler, port in (
        ("/healthz", health, health_port),
        ("/metrics", metrics, metrics_port),
    ):
        application = web.Application()
        application.router.add_get(path, handler)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        runners.append(runner)
    return runners
