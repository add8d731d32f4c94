"""The client's errors, from a server that misbehaves. What a real one does: tests/cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import Configuration

from vllm_upgrade_operator.cluster.client import ApiError, Client

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler


async def begins_and_hangs(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"first line\n")
    await asyncio.sleep(60)
    return response


async def begins_and_breaks(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b"first line\n")
    if request.transport is not None:
        request.transport.close()
    return response


@pytest.mark.parametrize("log", [begins_and_hangs, begins_and_breaks])
async def test_a_log_that_stops_in_the_middle_is_an_error_of_the_api(log: Handler) -> None:
    application = web.Application()
    application.router.add_get("/log", log)
    async with (
        TestServer(application) as server,
        Client(Configuration(host=str(server.make_url("")))) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.text("/log", limit_bytes=1000, seconds=0.5)
    assert (caught.value.status, caught.value.reason) == (0, "Unreachable")
