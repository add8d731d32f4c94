"""A bad way to the API server: what an operator asks of it is refused, lost, held up or cut off.

It stands between one operator and the API server, and passes on who asks. The API server itself
is shared by all tests and stays whole.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import yaml
from aiohttp import web
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_PASSED_ON = ("Authorization", "Accept", "Content-Type", "User-Agent")
_PASSED_BACK = ("Content-Type", "Retry-After", "Audit-Id")
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_REASONS = {
    403: "Forbidden",
    409: "Conflict",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
}


@dataclass(slots=True)
class Call:
    """One request of the operator."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    answered: int | None = None
    """The API server's status; None where it was not asked, or has not answered yet."""

    @property
    def succeeded(self) -> bool:
        return self.answered is not None and self.answered < 400

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"

    @property
    def is_write(self) -> bool:
        """Whether it changes something that is kept; a dry run and a look-up do not."""
        about_us = self.path.startswith("/apis/authorization.k8s.io/")
        return self.method in _WRITES and "dryRun" not in self.query and not about_us

    @property
    def resource(self) -> str:
        """The plural, and the subresource after a slash; empty for what is none."""
        parts = self.path.strip("/").split("/")
        if "namespaces" not in parts:
            return ""
        rest = parts[parts.index("namespaces") + 2 :]
        return "/".join(rest[0:1] + rest[2:3])

    @property
    def name(self) -> str | None:
        """The object's name; None where the path is a collection."""
        parts = self.path.strip("/").split("/")
        rest = parts[parts.index("namespaces") + 2 :] if "namespaces" in parts else []
        return rest[1] if len(rest) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a call."""

    status: int | None = None
    """Refuse it with this, unheard."""
    words: str = "injected by the test"
    lost: bool = False
    """Let the API server do it, but lose the answer: the connection is closed."""
    then: Callable[[], None] | None = None
    """Call this once the API server has done it, before the operator gets the answer."""


@dataclass(slots=True)
class Watches:
    """What happens to watches."""

    cut_after: float | None = None
    """Break the connection off after so many seconds."""
    mute: bool = False
    """Keep the connection and say nothing."""
    gone_every: int | None = None
    """Answer every so manyeth watch that its resourceVersion is too old."""


@dataclass(slots=True)
class FaultProxy:
    """Serves on a port of the loopback address; use `open_proxy`."""

    upstream: str
    context: ssl.SSLContext
    fault: Callable[[Call], Fault | None] = lambda _: None
    watches: Watches = field(default_factory=Watches)
    calls: list[Call] = field(default_factory=list)
    """All calls so far but for reads of objects and lists."""
    port: int = 0
    _answering: asyncio.Event = field(default_factory=asyncio.Event)
    _session: aiohttp.ClientSession | None = None
    _runner: web.AppRunner | None = None
    _watched: int = 0

    async def __aenter__(self) -> Self:
        self._answering.set()
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.context, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        application = web.Application(client_max_size=16 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answering.set()
        assert self._runner is not None
        assert self._session is not None
        await self._session.close()
        await self._runner.cleanup()

    def stop(self) -> None:
        """Be like an API server whose process is stopped: connections stand, nothing is said."""
        self._answering.clear()

    def go_on(self) -> None:
        """Answer again what was asked meanwhile, too."""
        self._answering.set()

    def writes(self) -> Iterator[Call]:
        """The writes that the API server has done, in order."""
        return (c for c in self.calls if c.is_write and c.succeeded)

    def count(self, resource: str) -> int:
        """How often this was written."""
        return sum(c.resource == resource for c in self.writes())

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        call = Call(request.method, request.path, dict(request.query), _parsed(raw))
        await self._answering.wait()
        if call.is_write or call.is_watch:
            self.calls.append(call)
        fault = self.fault(call) or Fault()
        if fault.status is not None:
            return _refusal(fault.status, fault.words)
        if call.is_watch:
            return await self._watch(request, call)
        assert self._session is not None
        async with self._session.request(
            request.method, self._url(request), data=raw or None, headers=_headers(request)
        ) as answer:
            body = await answer.read()
            call.answered = answer.status
        await self._answering.wait()
        if fault.then is not None:
            fault.then()
        if fault.lost:
            return _broken(request)
        headers = {k: answer.headers[k] for k in _PASSED_BACK if k in answer.headers}
        return web.Response(status=answer.status, body=body, headers=headers)

    async def _watch(self, request: web.Request, call: Call) -> web.StreamResponse:
        self._watched += 1
        every = self.watches.gone_every
        if every is not None and self._watched % every == 0:
            return _gone()
        assert self._session is not None
        async with self._session.get(self._url(request), headers=_headers(request)) as answer:
            call.answered = answer.status
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": "application/json"}
            )
            await response.prepare(request)
            try:
                async with asyncio.timeout(self.watches.cut_after):
                    async for chunk in answer.content.iter_any():
                        await self._answering.wait()
                        if not self.watches.mute:
                            await response.write(chunk)
            except TimeoutError:
                return _broken(request)
            except ConnectionResetError:
                # The operator was killed.
                return response
        return response

    def _url(self, request: web.Request) -> URL:
        return URL(self.upstream + request.raw_path, encoded=True)


def _headers(request: web.Request) -> dict[str, str]:
    return {k: request.headers[k] for k in _PASSED_ON if k in request.headers}


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None


def _refusal(status: int, words: str) -> web.Response:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": _REASONS.get(status, ""),
        "message": words,
        "code": status,
    }
    headers = {"Retry-After": "1"} if status == 429 else {}
    return web.json_response(body, status=status, headers=headers)


def _gone() -> web.Response:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return web.json_response(
        {"type": "ERROR", "object": status}, dumps=lambda o: json.dumps(o) + "\n"
    )


def _broken(request: web.Request) -> web.Response:
    """Close the connection under the request."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def open_proxy() -> FaultProxy:
    """Make a proxy before the API server that `KUBECONFIG` names."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    return FaultProxy(cluster["server"].rstrip("/"), ssl.create_default_context(cadata=authority))
