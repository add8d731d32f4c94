"""What `GET /metrics` answers instead of the metrics, by the value of the fault `METRICS`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

from aiohttp import web

from localcluster.sim.faults import WITHOUT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_HUGE_BYTES = 11 * 1024 * 1024
_SLOW_SECONDS = 0.5
_OTHER = """\
# HELP go_goroutines Number of goroutines that currently exist.
# TYPE go_goroutines gauge
go_goroutines 8
# HELP node_load1 1m load average.
# TYPE node_load1 gauge
node_load1 0.21
# HELP promhttp_metric_handler_requests_total Total number of scrapes by HTTP status code.
# TYPE promhttp_metric_handler_requests_total counter
promhttp_metric_handler_requests_total{code="200"} 1
"""


async def answer(mode: str, request: web.Request, text: str, kind: str) -> web.StreamResponse:
    """Answer a scrape in a broken way.

    Args:
        mode: A value of the fault, except `without:`.
        request: The scrape.
        text: What a healthy server would say.
        kind: Its content type.
    """
    return await _ANSWERS[mode](request, text, {"Content-Type": kind})


def without(mode: str | None, text: str) -> str:
    """Take away the families that the fault names; all of the text where it names none."""
    if mode is None or not mode.startswith(WITHOUT):
        return text
    beginning = mode.removeprefix(WITHOUT)
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not _name(line).startswith(beginning))


def _name(line: str) -> str:
    """Give the metric that a line is about."""
    words = line.split()
    return words[2] if line.startswith("#") and len(words) > 2 else line


_Headers = dict[str, str]


async def _missing(_: web.Request, __: str, ___: _Headers) -> web.StreamResponse:
    return web.json_response({"detail": "Not Found"}, status=404)


async def _huge(_: web.Request, text: str, headers: _Headers) -> web.StreamResponse:
    # Few long lines: to make many short ones takes a busy machine so long that the server is not
    # ready any more, which is another fault.
    line = 'vllm:padding{{series="{:016384d}"}} 1.0\n'
    count = _HUGE_BYTES // len(line.format(0))
    body = text + "".join(line.format(number) for number in range(count))
    return web.Response(body=body.encode(), headers=headers)


async def _slow(request: web.Request, text: str, headers: _Headers) -> web.StreamResponse:
    """Send one line after the other, and never come to the end."""
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    lines = text.splitlines(keepends=True)
    while True:
        await response.write(lines[0].encode())
        lines = [*lines[1:], lines[0]]
        await asyncio.sleep(_SLOW_SECONDS)


async def _malformed(_: web.Request, text: str, headers: _Headers) -> web.StreamResponse:
    """Send labels without their closing brace."""
    return web.Response(body=text.replace("} ", " ").encode(), headers=headers)


async def _binary(_: web.Request, __: str, headers: _Headers) -> web.StreamResponse:
    # No beginning of a text in UTF-8, whatever the rest is.
    return web.Response(body=b"\xff\xfe\x00" + os.urandom(4096), headers=headers)


async def _truncated(request: web.Request, text: str, headers: _Headers) -> web.StreamResponse:
    body = text.encode()
    response = web.StreamResponse(headers={**headers, "Content-Length": str(len(body))})
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    return _close(request, response)


async def _redirect(_: web.Request, __: str, ___: _Headers) -> web.StreamResponse:
    return web.Response(status=302, headers={"Location": "/elsewhere"})


async def _closed(request: web.Request, _: str, __: _Headers) -> web.StreamResponse:
    return _close(request, web.Response())


async def _other(_: web.Request, __: str, headers: _Headers) -> web.StreamResponse:
    return web.Response(body=_OTHER.encode(), headers=headers)


def _close(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.close()
    return response


_ANSWERS: dict[str, Callable[[web.Request, str, _Headers], Awaitable[web.StreamResponse]]] = {
    "missing": _missing,
    "huge": _huge,
    "slow": _slow,
    "malformed": _malformed,
    "binary": _binary,
    "truncated": _truncated,
    "redirect": _redirect,
    "closed": _closed,
    "other": _other,
}
