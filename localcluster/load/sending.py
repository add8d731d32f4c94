"""Send one request and follow its answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import aiohttp

from localcluster.load.connecting import CURRENT, Route
from localcluster.load.tally import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.load.tally import PodTally, Tally

_PREFIX = b"data:"
_DONE = b"[DONE]"
_ERROR = b'{"error"'


async def send(
    session: aiohttp.ClientSession, url: str, body: Mapping[str, object], tally: Tally
) -> None:
    """Send one request and count what came of it; a cancellation is counted and passed on."""
    route = Route()
    CURRENT.set(route)
    exchange = Exchange()
    try:
        await exchange.run(session, url, body)
    except TimeoutError:
        exchange.outcome = Outcome.TIMEOUT
    except aiohttp.ClientError:
        exchange.outcome = Outcome.CUT if exchange.answered else Outcome.REFUSED
    except ValueError:
        exchange.outcome = Outcome.CLIENT_ERROR
    finally:
        if route.pod is None:
            tally.unserved += 1
        else:
            _count(tally.pod(route.pod), route, exchange)


def _count(pod: PodTally, route: Route, exchange: Exchange) -> None:
    pod.outcomes[exchange.outcome] += 1
    if route.connected:
        pod.connected(reused=route.reused)
    if exchange.answered:
        pod.accepted(exchange.sent, reused=route.reused)
    if exchange.outcome is Outcome.OK:
        pod.e2e.observe(exchange.ended - exchange.began)
        if exchange.first is not None:
            pod.ttft.observe(exchange.first - exchange.began)
        for gap in exchange.gaps:
            pod.itl.observe(gap)


class Exchange:
    """One request and its answer.

    Attributes:
        sent: When it was sent, in seconds since 1970.
        answered: Whether anything of an answer came.
        outcome: How it ended; abandoned as long as it has not.
        began: When it was sent, on the monotonic clock, as all that follow.
        first: When the first token came; None without one, or where nothing is streamed.
        ended: When all of it had come.
        gaps: Seconds between tokens.
    """

    def __init__(self) -> None:
        self.sent = time.time()
        self.answered = False
        self.outcome = Outcome.ABANDONED
        self.began = time.monotonic()
        self.first: float | None = None
        self.ended = 0.0
        self.gaps: list[float] = []

    async def run(
        self, session: aiohttp.ClientSession, url: str, body: Mapping[str, object]
    ) -> None:
        """Send it, and read the answer to its end."""
        async with session.post(url, json=body) as response:
            self.answered = True
            if response.status != 200:
                # Read in full: a connection with an unread answer cannot be used again.
                await response.read()
                self.outcome = _of_status(response.status)
            elif response.content_type == "text/event-stream":
                self.outcome = await self._stream(response.content)
            else:
                answer = await response.json()
                whole = isinstance(answer, dict) and "choices" in answer
                self.outcome = Outcome.OK if whole else Outcome.CLIENT_ERROR
            self.ended = time.monotonic()

    async def _stream(self, content: aiohttp.StreamReader) -> Outcome:
        """Read server-sent events; a stream that ends without its closing event was cut."""
        last = 0.0
        rest = b""
        outcome = Outcome.CUT
        async for chunk in content.iter_any():
            now = time.monotonic()
            *events, rest = (rest + chunk).split(b"\n\n")
            for event in events:
                if not event.startswith(_PREFIX):
                    continue
                data = event[len(_PREFIX) :].lstrip()
                if data.startswith(_DONE):
                    outcome = Outcome.OK if outcome is Outcome.CUT else outcome
                elif data.startswith(_ERROR):
                    outcome = Outcome.ERROR
                elif self.first is None:
                    self.first = last = now
                else:
                    self.gaps.append(now - last)
                    last = now
        return outcome


def _of_status(status: int) -> Outcome:
    if status == 503:
        return Outcome.REJECTED
    return Outcome.ERROR if status >= 500 else Outcome.CLIENT_ERROR
