"""The load generator: arrivals by chance, which do not wait for answers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from localcluster.load.connecting import CURRENT, Connector, Route
from localcluster.load.endpoints import Endpoints
from localcluster.load.sending import send
from localcluster.load.tally import Tally

if TYPE_CHECKING:
    from pathlib import Path

    from localcluster.load.options import Mix, Options
    from vllm_upgrade_operator.cluster.client import Client

_AGAIN_SECONDS = 0.5
_ASK_SECONDS = 5.0
# Token numbers that are ordinary text in every vocabulary, however small.
_TOKENS = range(100, 250)


class LoadGenerator:
    """One run of load on one Service.

    Args:
        options: What to send.
        client: Where EndpointSlices are watched; without one, `endpoints` stay as they are.
        endpoints: The endpoints to begin with.
    """

    def __init__(
        self, options: Options, client: Client | None = None, endpoints: Endpoints | None = None
    ) -> None:
        self._options = options
        self._client = client
        self._endpoints = endpoints or Endpoints()
        # Two sources: when a connection is opened must not change what is sent next.
        self._random = random.Random(options.seed)  # noqa: S311 - no secret: the same load again
        self._choices = random.Random(options.seed)  # noqa: S311 - the same
        self._stop = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._started = time.time()
        self._model: str | None = None
        self._running = True
        self.tally = Tally()

    def stop(self) -> None:
        """Send no further request; `run` ends when those under way have ended."""
        self._stop.set()

    def report(self) -> dict[str, Any]:
        """What came of it so far, as JSON values. Times are seconds since 1970."""
        return {
            "service": f"{self._options.namespace}/{self._options.service}",
            "model": self._model,
            "running": self._running,
            "started": self._started,
            "updated": time.time(),
            "in_flight": len(self._under_way),
            "endpoints": [e.pod for e in self._endpoints.ready],
            **self.tally.report(),
        }

    async def run(self) -> None:
        """Send load until the duration is over or `stop` is called.

        Raises:
            EndpointError: An endpoint is none that load may go to.
        """
        async with aiohttp.ClientSession(
            connector=Connector(self._endpoints, self._choices, self._options),
            timeout=aiohttp.ClientTimeout(total=self._options.timeout),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        ) as session:
            watch = asyncio.create_task(self._watch())
            arrive = asyncio.create_task(self._arrive(session))
            try:
                await asyncio.wait((watch, arrive), return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    await watch
                await arrive
                await self._drain()
            finally:
                for task in (watch, arrive, *self._under_way):
                    task.cancel()
                await asyncio.gather(watch, arrive, *self._under_way, return_exceptions=True)
                self._running = False

    async def _watch(self) -> None:
        """Follow the endpoints; ends only by an error, or by being cancelled."""
        if self._client is None:
            await asyncio.Event().wait()
        else:
            await self._endpoints.watch(
                self._client, self._options.namespace, self._options.service
            )

    async def _arrive(self, session: aiohttp.ClientSession) -> None:
        options = self._options
        host = f"http://{options.service}.{options.namespace}.svc"
        end = time.monotonic() + options.duration
        while self._model is None and not self._stop.is_set() and time.monotonic() < end:
            await self._ask_for_model(session, host)
        due = time.monotonic()
        while due < end and not await self._stopped_within(due - time.monotonic()):
            self.tally.arrivals += 1
            if len(self._under_way) >= options.in_flight:
                self.tally.dropped += 1
            else:
                task = asyncio.create_task(
                    send(session, f"{host}/v1/completions", self._body(), self.tally)
                )
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
            due += self._random.expovariate(options.rate)

    async def _ask_for_model(self, session: aiohttp.ClientSession, host: str) -> None:
        """Learn which model is served; a moment's pause where nobody answers yet."""
        CURRENT.set(Route())
        try:
            async with session.get(
                f"{host}/v1/models", timeout=aiohttp.ClientTimeout(total=_ASK_SECONDS)
            ) as response:
                response.raise_for_status()
                self._model = str((await response.json())["data"][0]["id"])
        except (aiohttp.ClientError, TimeoutError):
            await self._stopped_within(_AGAIN_SECONDS)

    async def _stopped_within(self, seconds: float) -> bool:
        """Wait; True at once when the load is to stop. Without a delay others still may run."""
        try:
            async with asyncio.timeout(max(seconds, 0)):
                await self._stop.wait()
        except TimeoutError:
            return False
        return True

    def _body(self) -> dict[str, Any]:
        """A request of the mix. Random tokens: no prefix cache makes one cheaper than another."""
        prompt = self._random.choices(_TOKENS, k=self._length(self._options.prompt_tokens))
        return {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": self._length(self._options.output_tokens),
            "ignore_eos": True,
            "stream": self._options.stream,
        }

    def _length(self, mix: Mix) -> int:
        return self._random.choices(mix.lengths, mix.weights)[0]

    async def _drain(self) -> None:
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=self._options.drain)


def write(report: dict[str, Any], path: Path) -> None:
    """Write a report so that a reader sees the old one or the new one, never a part."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(report))
    scratch.replace(path)
