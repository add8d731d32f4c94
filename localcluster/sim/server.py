"""The OpenAI-compatible server around the engine.

The engine is driven in small slices of real time while there is work, and not at all without; a
token's time is the engine's, so a busy machine delays what clients get but not what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiohttp import web

from localcluster.sim import exposition, faults
from localcluster.sim.engine import Engine, Limits, Rejection, Request, Speed
from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from localcluster.sim.engine import Token
    from localcluster.sim.options import Options

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Slices of real time in which the engine is driven: what clients see is this coarse.
_SLICE_SECONDS = 0.05
_DEFAULT_TOKENS = 16
_DEFAULT_MODEL_LENGTH = 4096
_CHARACTERS_PER_TOKEN = 4
_WORDS = ("the", "queue", "runs", "token", "model", "cache", "first", "step")

_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
_BACKLOG = (
    "The engine has reached its prefill token backlog limit. Please try again later or on a "
    "different instance."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server plays: the version, its command line and its environment."""

    version: str
    options: Options
    env: Mapping[str, str]

    @property
    def max_model_len(self) -> int:
        """Most tokens of one request."""
        return self.options.number("max-model-len") or _DEFAULT_MODEL_LENGTH

    def limits(self) -> Limits:
        """Give the engine's limits."""
        number = self.options.number
        return Limits(
            max_num_seqs=number("max-num-seqs") or 256,
            max_num_batched_tokens=number("max-num-batched-tokens") or 8192,
            max_num_queued_reqs=number("max-num-queued-reqs"),
            max_num_queued_tokens=number("max-num-queued-tokens"),
            kv_blocks=number("num-gpu-blocks-override")
            or int(self.env.get("SIM_KV_BLOCKS", "8192")),
        )

    def speed(self) -> Speed:
        """Give the engine's speed."""
        env, default = self.env, Speed()
        return Speed(
            step_seconds=float(env.get("SIM_DECODE_STEP_SECONDS", default.step_seconds)),
            sequence_seconds=float(env.get("SIM_SEQUENCE_SECONDS", default.sequence_seconds)),
            prefill_tokens_per_second=float(
                env.get("SIM_PREFILL_TOKENS_PER_SECOND", default.prefill_tokens_per_second)
            ),
        )


class Server:
    """One simulated vLLM server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._model = settings.options.served_names[0]
        self._origin = time.monotonic()
        self._started_at = time.time()
        self._engine = Engine(settings.limits(), settings.speed())
        self._http = exposition.HttpFigures()
        self._queues: dict[Request, asyncio.Queue[list[Token]]] = {}
        self._work = asyncio.Event()
        self._draining = False
        self._api_key = settings.options.values.get("api-key") or settings.env.get("VLLM_API_KEY")
        self._serial = 0

    def application(self) -> web.Application:
        """Give the application with all endpoints."""
        application = web.Application(
            middlewares=[self._middleware()], client_max_size=16 * 1024 * 1024
        )
        routes = application.router
        for path in ("/health", "/ping"):
            routes.add_get(path, self._health)
        routes.add_get("/version", self._version)
        routes.add_get("/load", self._load)
        routes.add_get("/metrics", self._metrics)
        routes.add_get("/v1/models", self._models)
        routes.add_post("/v1/completions", self._completions)
        routes.add_post("/v1/chat/completions", self._chat)
        return application

    async def run_engine(self) -> None:
        """Drive the engine for ever."""
        while True:
            if self._engine.idle:
                self._work.clear()
                await self._work.wait()
            await asyncio.sleep(_SLICE_SECONDS)
            self._advance()

    def _advance(self) -> None:
        """Compute until now, and hand the tokens to those who wait for them."""
        batches: dict[Request, list[Token]] = defaultdict(list)
        for token in self._engine.advance(self._now()):
            batches[token.request].append(token)
        for request, tokens in batches.items():
            queue = self._queues.get(request)
            if queue is not None:
                queue.put_nowait(tokens)

    async def run_faults(self, listed: list[faults.Fault]) -> None:
        """Begin each fault when it is due."""
        ready = time.monotonic()
        for fault in listed:
            await asyncio.sleep(max(0.0, ready + fault.after - time.monotonic()))
            if fault.name == "EXIT_CODE":
                os._exit(int(fault.value))
            self._advance()
            faults.apply(fault, self._engine)

    async def drain(self, seconds: float) -> None:
        """Finish what runs, refusing the rest, for at most so long."""
        self._draining = True
        end = time.monotonic() + seconds
        while self._queues and time.monotonic() < end:
            await asyncio.sleep(_SLICE_SECONDS)

    def _now(self) -> float:
        return time.monotonic() - self._origin

    def _middleware(self) -> Any:  # noqa: ANN401 - aiohttp gives it no name
        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            path = request.path
            if self._api_key and path.startswith("/v1/"):
                given = request.headers.get("Authorization", "")
                if given != f"Bearer {self._api_key}":
                    self._http.add(path, request.method, 401)
                    return web.json_response({"error": "Unauthorized"}, status=401)
            try:
                response = await handler(request)
            except web.HTTPException as error:
                self._http.add("none", request.method, error.status)
                return web.json_response({"detail": error.reason}, status=error.status)
            if path.startswith("/v1/"):
                self._http.add(path, request.method, response.status)
            return response

        return count

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": self._settings.version})

    async def _load(self, _: web.Request) -> web.Response:
        return web.json_response({"server_load": len(self._queues)})

    async def _metrics(self, _: web.Request) -> web.Response:
        self._advance()
        text = exposition.render(
            self._settings.version, self._model, self._engine, self._http, self._started_at
        )
        return web.Response(text=text, content_type="text/plain")

    async def _models(self, _: web.Request) -> web.Response:
        data = [
            {
                "id": name,
                "object": "model",
                "created": int(self._started_at),
                "owned_by": "vllm",
                "root": self._settings.options.model,
                "parent": None,
                "max_model_len": self._settings.max_model_len,
            }
            for name in self._settings.options.served_names
        ]
        return web.json_response({"object": "list", "data": data})

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            body = await request.json()
            prompt = _prompt(body, chat=chat)
            wanted = int(
                body.get("max_completion_tokens") or body.get("max_tokens") or _DEFAULT_TOKENS
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            return _error(400, "BadRequestError", f"malformed request: {error}")
        name = body.get("model", self._model)
        if name not in self._settings.options.served_names:
            return _error(404, "NotFoundError", f"The model `{name}` does not exist.", "model")
        tokens = max(1, len(prompt) // _CHARACTERS_PER_TOKEN)
        longest = min(
            self._settings.max_model_len,
            self._engine.limits.kv_blocks * self._engine.limits.block_size,
        )
        if tokens + wanted > longest:
            return _error(
                400,
                "BadRequestError",
                f"This model's maximum context length is {longest} tokens. However, you requested "
                f"{wanted} output tokens and your prompt contains {tokens} input tokens. Please "
                "reduce the length of the input prompt or the number of requested output tokens.",
                "input_text",
            )
        if self._draining:
            return _error(500, "InternalServerError", "cannot schedule new futures after shutdown")
        self._advance()
        admitted = self._engine.admit(tokens, wanted)
        if isinstance(admitted, Rejection):
            return self._rejected(admitted)
        queue: asyncio.Queue[list[Token]] = asyncio.Queue()
        self._queues[admitted] = queue
        self._work.set()
        self._serial += 1
        answer = _Answer(
            f"{'chatcmpl' if chat else 'cmpl'}-{self._serial:016x}", name, prompt, tokens, chat=chat
        )
        try:
            if body.get("stream"):
                return await self._stream(request, queue, answer)
            while not (await queue.get())[-1].last:
                pass
            return web.json_response(answer.whole(admitted.generated))
        finally:
            del self._queues[admitted]
            self._engine.abort(admitted)

    async def _stream(
        self, request: web.Request, queue: asyncio.Queue[list[Token]], answer: _Answer
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        index, last = 0, False
        with contextlib.suppress(ConnectionError):
            while not last:
                chunks = []
                for token in await queue.get():
                    last = token.last
                    chunks.append(answer.chunk(index, last=last))
                    index += 1
                if last:
                    chunks.append(b"data: [DONE]\n\n")
                await response.write(b"".join(chunks))
            await response.write_eof()
        return response

    def _rejected(self, reason: Rejection) -> web.Response:
        text = _BUSY if reason is Rejection.REQUESTS else _BACKLOG
        if not at_least(self._settings.version, "0.32.0"):
            print(f"Request queue full - rejecting request ({reason}).", flush=True)
        return _error(503, "Service Unavailable", text)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The body of an answer, whole or in chunks. The same prompt gives the same text."""

    identity: str
    model: str
    prompt: str
    prompt_tokens: int
    chat: bool

    def _word(self, index: int) -> str:
        seed = hashlib.sha256(f"{self.prompt}{index}".encode()).digest()[0]
        return (" " if index else "") + _WORDS[seed % len(_WORDS)]

    def whole(self, tokens: int) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        text = "".join(self._word(i) for i in range(tokens))
        content = (
            {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        )
        return {
            "id": self.identity,
            "object": "chat.completion" if self.chat else "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [{"index": 0, **content, "logprobs": None, "finish_reason": "length"}],
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "total_tokens": self.prompt_tokens + tokens,
                "completion_tokens": tokens,
            },
        }

    def chunk(self, index: int, *, last: bool) -> bytes:
        """One event of a stream."""
        word = self._word(index)
        content = {"delta": {"content": word}} if self.chat else {"text": word}
        body = {
            "id": self.identity,
            "object": "chat.completion.chunk" if self.chat else "text_completion",
            "created": int(time.time()),
            "model": self.model,
            "choices": [{"index": 0, **content, "finish_reason": "length" if last else None}],
        }
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def _prompt(body: dict[str, Any], *, chat: bool) -> str:
    if chat:
        return " ".join(str(m.get("content") or "") for m in body["messages"])
    prompt = body["prompt"]
    return prompt if isinstance(prompt, str) else json.dumps(prompt)


def _error(status: int, kind: str, message: str, param: str | None = None) -> web.Response:
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return web.json_response(body, status=status)
