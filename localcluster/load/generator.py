"""Poisson arrivals, sent whether or not the earlier ones have been answered."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from localcluster.load.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable

    from localcluster.load.endpoints import Endpoint
    from localcluster.load.report import PodReport

_MAX_IN_FLIGHT = 2000
_REQUEST_SECONDS = 120.0
_OK, _BAD, _ERROR, _UNAVAILABLE = 200, 400, 500, 503
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is sent.

    Attributes:
        rate: Requests per second.
        prompt_tokens: Prompt lengths; each request takes one at random.
        output_tokens: Answer lengths.
        stream: Whether answers are streamed.
        clients: Kept connections, each to the endpoint that it was opened to, as a client behind
            kube-proxy keeps it; 0 opens a connection for each request.
        model: Name of the model; the server's first if empty.
        path: Path of the endpoint.
    """

    rate: float
    prompt_tokens: tuple[int, ...] = (64, 256)
    output_tokens: tuple[int, ...] = (8, 32)
    stream: bool = True
    clients: int = 0
    model: str = ""
    path: str = "/v1/completions"


class LoadGenerator:
    """Sends load until it is told to stop."""

    def __init__(
        self, profile: Profile, ready: Callable[[], list[Endpoint]], *, seed: int = 0
    ) -> None:
        self.report = Report()
        self._profile = profile
        self._ready = ready
        self._chance = random.Random(seed)  # noqa: S311 - arrivals, nothing secret
        self._idle: list[tuple[Endpoint, aiohttp.ClientSession]] = []
        self._flying: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Send until `stop` is set, then wait for what is in flight, at most its time limit."""
        due = time.monotonic()
        try:
            while not stop.is_set():
                due += self._chance.expovariate(self._profile.rate)
                pause = due - time.monotonic()
                if pause > 0:
                    await _wait(stop, pause)
                self._arrive()
            if self._flying:
                await asyncio.wait(self._flying, timeout=10)
        finally:
            for task in self._flying:
                task.cancel()
            for _, session in self._idle:
                await session.close()

    def _arrive(self) -> None:
        endpoints = self._ready()
        if not endpoints:
            self.report.no_endpoint += 1
            return
        if len(self._flying) >= _MAX_IN_FLIGHT:
            self.report.dropped += 1
            return
        self.report.sent += 1
        task = asyncio.create_task(self._send(endpoints))
        self._flying.add(task)
        task.add_done_callback(self._flying.discard)

    async def _send(self, endpoints: list[Endpoint]) -> None:
        profile = self._profile
        body = {
            "prompt": "w " * (self._chance.choice(profile.prompt_tokens) * 2),
            "max_tokens": self._chance.choice(profile.output_tokens),
            "temperature": 0,
            "ignore_eos": True,
            "stream": profile.stream,
        }
        if profile.model:
            body["model"] = profile.model
        endpoint, session, new = self._connection(endpoints)
        healthy = False
        try:
            healthy = await self._request(endpoint, session, body, new=new)
        finally:
            if profile.clients and healthy and len(self._idle) < profile.clients:
                self._idle.append((endpoint, session))
            else:
                await session.close()

    def _connection(
        self, endpoints: list[Endpoint]
    ) -> tuple[Endpoint, aiohttp.ClientSession, bool]:
        """Take a kept connection, wherever it goes, or open one to an endpoint of the moment."""
        if self._profile.clients and self._idle:
            endpoint, session = self._idle.pop(self._chance.randrange(len(self._idle)))
            return endpoint, session, False
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=1, force_close=not self._profile.clients),
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
            trust_env=False,
        )
        return self._chance.choice(endpoints), session, True

    async def _request(
        self, endpoint: Endpoint, session: aiohttp.ClientSession, body: dict[str, Any], *, new: bool
    ) -> bool:
        """Send one request and note what came of it; True if the connection may be kept."""
        pod = self.report.pod(endpoint.pod)
        at, began = time.time(), time.monotonic()
        answered = False
        try:
            async with session.post(endpoint.url + self._profile.path, json=body) as response:
                answered = True
                pod.accepted(at, new_connection=new)
                return await self._read(response, pod, began)
        except TimeoutError:
            pod.outcomes["timeout"] += 1
        except aiohttp.ClientConnectorError:
            pod.outcomes["refused"] += 1
        except aiohttp.ClientError:
            pod.outcomes["cut" if answered or not new else "refused"] += 1
        return False

    async def _read(self, response: aiohttp.ClientResponse, pod: PodReport, began: float) -> bool:
        if response.status >= _BAD:
            await response.read()
            kind = "rejected" if response.status == _UNAVAILABLE else "error"
            pod.outcomes["client_error" if response.status < _ERROR else kind] += 1
            return True
        first: float | None = None
        tail = b""
        async for chunk in response.content.iter_any():
            if first is None:
                first = time.monotonic()
            tail = (tail + chunk)[-64:]
        end = time.monotonic()
        if self._profile.stream and b"[DONE]" not in tail:
            pod.outcomes["cut"] += 1
            return False
        pod.outcomes["ok"] += 1
        pod.timed((first or end) - began, end - began)
        return True


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
