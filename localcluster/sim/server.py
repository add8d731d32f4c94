"""The OpenAI-compatible HTTP server around the engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

from aiohttp import web

from localcluster.sim import bodies, brokenmetrics, exposition, remote
from localcluster.sim.engine import Rejection
from localcluster.sim.faults import WITHOUT
from localcluster.sim.httpfigures import HttpFigures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from localcluster.sim.driver import Driver, Output
    from localcluster.sim.logs import Log
    from localcluster.sim.settings import Settings

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_MOST_BYTES = 16 * 1024 * 1024
_METRICS_TYPE = "text/plain; version=1.0.0; charset=utf-8"
_REFUSALS = {
    Rejection.REQUESTS: "The engine is currently busy and cannot accept new requests. Please try "
    "again later or on a different instance.",
    Rejection.TOKENS: "The engine has reached its prefill token backlog limit. Please try again "
    "later or on a different instance.",
}
_ENGINE_DEAD = bodies.error(
    500,
    "InternalServerError",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
)


class Server:
    """The endpoints of one simulated vLLM server.

    Attributes:
        draining: The engine takes nothing more: new requests fail with 500, while `/health` goes
            on answering 200, as on a real server that is being stopped with --shutdown-timeout.
        death_told: Set when a client has been told that the engine is dead.
    """

    def __init__(self, settings: Settings, driver: Driver, log: Log) -> None:
        self.draining = False
        self.death_told = asyncio.Event()
        self._failures = 0.0
        self._settings = settings
        self._driver = driver
        self._log = log
        self._started_at = time.time()
        self._http = HttpFigures(self._started_at)
        self._names = settings.options.served_names
        self._logs_access = not settings.options.has("disable-uvicorn-access-log")

    def application(self) -> web.Application:
        """Give the application with all endpoints."""
        application = web.Application(middlewares=[self._observe], client_max_size=_MOST_BYTES)
        routes = application.router
        routes.add_get("/health", self._health, allow_head=False)
        routes.add_get("/ping", self._health, allow_head=False)
        routes.add_post("/ping", self._health)
        routes.add_get("/version", self._version, allow_head=False)
        routes.add_get("/load", self._load, allow_head=False)
        routes.add_get("/metrics", self._metrics, allow_head=False)
        routes.add_post("/tokenize", self._tokenize)
        routes.add_get("/v1/models", self._models, allow_head=False)
        routes.add_post("/v1/completions", self._completions)
        routes.add_post("/v1/chat/completions", self._chat)
        remote.add_to(application, self._driver, self._settings.version)
        return application

    @web.middleware
    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the API key, turn errors into bodies, count and log."""
        if request.path.startswith(remote.PATH):  # a real server has no such thing
            return await handler(request)
        began, path, status, size = time.monotonic(), request.path, 200, 0
        try:
            response = await self._answer(request, handler)
            status = response.status
            if isinstance(response, web.Response):
                size = len(response.body) if isinstance(response.body, bytes) else 0
        except Exception:
            status = 500
            raise
        finally:
            # A request whose client goes away counts as a 200 (seen on 0.32).
            known = request.match_info.http_exception is None
            self._http.add(
                path if known else "none",
                request.method,
                status,
                seconds=time.monotonic() - began,
                request_bytes=request.content_length or 0,
                response_bytes=size,
            )
            if self._logs_access:
                self._log.access(_peer(request), request.method, path, status)
        return response

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        keys = self._settings.api_keys
        if keys and request.path.startswith("/v1"):
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or given not in keys:
                return _json({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except bodies.RequestError as error:
            return _json(error.body, status=error.status)
        except web.HTTPException as error:
            return _json({"detail": error.reason}, status=error.status)

    async def _health(self, _: web.Request) -> web.Response:
        """Say 503 when the engine is dead (entrypoints/serve/instrumentator/health.py)."""
        bad = self._driver.died.is_set() or self._driver.trouble.has("HEALTH")
        return web.Response(status=503 if bad else 200)

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": self._driver.trouble.text("VERSION") or self._settings.version})

    async def _load(self, _: web.Request) -> web.Response:
        tracked = self._settings.options.has("enable-server-load-tracking")
        return _json({"server_load": self._driver.in_flight if tracked else 0})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self._driver.catch_up()
        text = exposition.render(
            exposition.Source(
                version=self._settings.version,
                model=self._names[0],
                max_model_len=self._settings.max_model_len,
                engine=self._driver.engine,
                http=self._http,
                started_at=self._started_at,
                speculation=self._driver.speculation,
            )
        )
        broken = self._driver.trouble.text("METRICS")
        if broken is not None and not broken.startswith(WITHOUT):
            return await brokenmetrics.answer(broken, request, text, _METRICS_TYPE)
        body = brokenmetrics.without(broken, text).encode()
        return web.Response(body=body, headers={"Content-Type": _METRICS_TYPE})

    async def _tokenize(self, request: web.Request) -> web.Response:
        try:
            prompt = str(json.loads(await request.text())["prompt"])
        except (ValueError, KeyError, TypeError) as error:
            raise bodies.RequestError(400, "BadRequestError", f"malformed: {error!r}") from error
        count = bodies.tokens(prompt)
        body = {"count": count, "max_model_len": self._settings.max_model_len}
        return _json({**body, "tokens": list(range(count)), "token_strs": None})

    async def _models(self, _: web.Request) -> web.Response:
        created = int(self._started_at)
        data: list[bodies.Body] = [
            {
                "id": name,
                "object": "model",
                "created": created,
                "owned_by": "vllm",
                "root": self._settings.options.model,
                "parent": None,
                "max_model_len": self._settings.max_model_len,
                "permission": [],
            }
            for name in self._names
        ]
        return _json({"object": "list", "data": data})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        limits = self._driver.engine.limits
        wanted = bodies.read(
            await request.text(),
            chat=chat,
            version=self._settings.version,
            names=self._names,
            longest=min(self._settings.max_model_len, limits.kv_tokens),
        )
        identity = f"{'chatcmpl' if chat else 'cmpl'}-{os.urandom(8).hex()}"
        self._refuse(identity)
        output = self._driver.admit(wanted.prompt_tokens, wanted.output_tokens)
        if isinstance(output, Rejection):
            self._log.rejected(output, identity, self._driver.engine)
            raise bodies.RequestError(503, "Service Unavailable", _REFUSALS[output])
        seed = identity if wanted.varies else ""
        garbage = self._driver.trouble.has("GARBAGE")
        answer = bodies.Answer(
            identity, self._settings.version, wanted, chat, seed, garbage=garbage
        )
        try:
            if self._fails():
                self._driver.fail(output)
                self._log.exception(identity)
                raise bodies.RequestError(500, "InternalServerError", "Internal server error")
            if wanted.stream:
                return await _stream(request, output, answer)
            count = await output.all()
        finally:
            self._driver.drop(output)
        if output.ending is None or output.ending == "error":
            self._log.exception(identity)
            self._tell_death()
            return _json(_ENGINE_DEAD, status=500)
        return _json(answer.whole(count, output.ending))

    def _refuse(self, identity: str) -> None:
        """Refuse a request where the engine takes none.

        Raises:
            bodies.RequestError: It is dead, or has been stopped.
        """
        if self._driver.died.is_set():
            self._log.exception(identity)
            self._tell_death()
            message = str(_ENGINE_DEAD["error"]["message"])
            raise bodies.RequestError(500, "InternalServerError", message)
        if self.draining:
            self._log.exception(identity)
            text = "cannot schedule new futures after shutdown"
            raise bodies.RequestError(500, "InternalServerError", text)

    def _tell_death(self) -> None:
        if self._driver.died.is_set():
            self.death_told.set()

    def _fails(self) -> bool:
        """Tell whether this request is one of the share that fails, spread evenly."""
        self._failures += self._driver.trouble.number("ERROR_FRACTION", 0.0)
        if self._failures < 1:
            return False
        self._failures -= 1
        return True


async def report(driver: Driver, log: Log, every: float) -> None:
    """Log what the engine does, every so many seconds, as long as it does something."""
    figures = driver.engine.figures
    prompt, generation = 0, 0
    while True:
        await asyncio.sleep(every)
        came, went = figures.prompt_tokens - prompt, figures.generation_tokens - generation
        prompt, generation = prompt + came, generation + went
        if came or went or not driver.engine.idle:
            log.activity(came / every, went / every, driver.engine)


async def _stream(
    request: web.Request, output: Output, answer: bodies.Answer
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    # A client that has gone is no error of the server's; whoever called drops its request.
    with contextlib.suppress(ConnectionError):
        await response.prepare(request)
        sent, parts = 0, [answer.opening()]
        while output.ending is None:
            count = await output.next()
            if output.ending == "error":
                parts.append(b"data: " + json.dumps(_ENGINE_DEAD).encode() + b"\n\n")
            else:
                parts.append(answer.chunks(sent, count, output.ending))
            sent += count
            if output.ending is not None:
                parts.append(answer.closing(sent))
            await response.write(b"".join(parts))
            parts = []
        await response.write_eof()
    return response


def _peer(request: web.Request) -> str:
    transport: asyncio.Transport | None = request.transport
    name: Any = None if transport is None else transport.get_extra_info("peername")
    return f"{name[0]}:{name[1]}" if name else "-"


def _json(body: bodies.Body, status: int = 200) -> web.Response:
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    return web.Response(
        body=text.encode(), status=status, headers={"Content-Type": "application/json"}
    )
