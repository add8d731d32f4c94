"""The client's errors, from a server that misbehaves. What a real one does: tests/cluster."""

from __future__ import annotations

import asyncio
import json
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


async def test_an_object_in_an_error_is_left_out_and_a_value_is_not() -> None:
    """The API server quotes the whole object where a JSON patch cannot be decoded."""
    quoted = json.dumps(json.dumps({"env": [{"name": "KEY", "value": 'hid"den'}] * 9}))
    small = '"": is invalid: spec.replicas: Invalid value: "-1": must not be negative'
    large = f'"" is invalid: patch: Invalid value: {quoted}: unknown field "spec.x"'

    async def refuses(_request: web.Request) -> web.Response:
        return web.json_response({"reason": "Invalid", "message": f"{small}; {large}"}, status=422)

    application = web.Application()
    application.router.add_get("/x", refuses)
    async with (
        TestServer(application) as server,
        Client(Configuration(host=str(server.make_url("")))) as client,
    ):
        with pytest.raises(ApiError) as caught:
            await client.get("/x")
    assert caught.value.message == f'{small}; "" is invalid: patch: unknown field "spec.x"'
