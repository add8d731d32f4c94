"""The engine against real time.

It is advanced when a step has ended, at most every 50 ms, and not at all without work. A token's
time is the engine's, so a busy machine delays what clients get but not what is measured.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TYPE_CHECKING, Literal

from localcluster.sim import memory
from localcluster.sim.engine import Engine, Rejection, Request
from localcluster.sim.speculation import USUAL_ACCEPTANCE, Speculation
from localcluster.sim.trouble import Trouble

if TYPE_CHECKING:
    from collections.abc import Iterable

    from localcluster.sim.faults import Fault
    from localcluster.sim.settings import Settings

Ending = Literal["length", "abort", "error"]

# What clients see is this coarse; the engine's own clock is exact.
_SLICE_SECONDS = 0.05


class Output:
    """The tokens of one request as they come."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.ending: Ending | None = None
        self._fresh = 0
        self._news = asyncio.Event()

    async def next(self) -> int:
        """Wait for tokens and give how many; after the last ones `ending` is set."""
        await self._news.wait()
        self._news.clear()
        fresh, self._fresh = self._fresh, 0
        return fresh

    async def all(self) -> int:
        """Wait for the end and give how many tokens there are."""
        while self.ending is None:
            await self.next()
        return self.request.generated

    def add(self, tokens: int) -> None:
        """Hand on tokens."""
        self._fresh += tokens
        self._news.set()

    def end(self, ending: Ending) -> None:
        """Say that nothing more comes."""
        self.ending = ending
        self._news.set()


class Driver:
    """Runs the engine. Everything that needs its present state goes through `catch_up`.

    Attributes:
        engine: The engine.
        trouble: The faults that are on.
        speculation: The counters of speculative decoding; None without it.
        died: Set when the engine has died.
    """

    def __init__(self, settings: Settings) -> None:
        self.engine = Engine(settings.limits, settings.speed)
        self.trouble = Trouble()
        drafted = settings.draft_tokens
        self.speculation = None if drafted is None else Speculation(drafted)
        self.died = asyncio.Event()
        self._settings = settings
        self._origin = time.monotonic()
        self._outputs: dict[Request, Output] = {}
        self._work = asyncio.Event()
        self._answered = asyncio.Event()
        self._answered.set()

    @property
    def in_flight(self) -> int:
        """Requests of which a client waits for the answer."""
        return len(self._outputs)

    def catch_up(self) -> None:
        """Bring the engine to the present and hand on what it generated."""
        produced = self.engine.advance(time.monotonic() - self._origin)
        if self.speculation is not None and produced:
            # The first token of a request is no draft's.
            first = sum(tokens == request.generated for request, tokens in produced.items())
            acceptance = self.trouble.number("DRAFT_ACCEPTANCE", USUAL_ACCEPTANCE)
            self.speculation.decoded(sum(produced.values()) - first, acceptance)
        for request, tokens in produced.items():
            output = self._outputs[request]
            output.add(tokens)
            if request.done:
                self._end(request, "length")

    def admit(self, prompt_tokens: int, output_tokens: int) -> Output | Rejection:
        """Let a request in, or say why not."""
        self.catch_up()
        admitted = self.engine.admit(prompt_tokens, output_tokens)
        if isinstance(admitted, Rejection):
            return admitted
        output = self._outputs[admitted] = Output(admitted)
        self._work.set()
        self._answered.clear()
        return output

    def drop(self, output: Output) -> None:
        """Forget a request whose client is gone; nothing for one that has ended."""
        if output.request in self._outputs:
            self.engine.abort(output.request)
            self._forget(output.request)

    def end_all(self, ending: Ending) -> None:
        """End what is in flight, as when the engine is stopped."""
        for request in list(self._outputs):
            self.engine.abort(request)
            self._end(request, ending)

    async def answered(self) -> None:
        """Wait until nothing is in flight."""
        await self._answered.wait()

    async def run(self) -> None:
        """Drive the engine for ever."""
        while True:
            if self.engine.idle:
                self._work.clear()
                await self._work.wait()
            until = self.engine.step_end + self._origin - time.monotonic()
            await asyncio.sleep(max(_SLICE_SECONDS, until))
            self.catch_up()

    async def run_faults(self, listed: Iterable[Fault]) -> None:
        """Begin each fault when it is due, counted from now."""
        ready = time.monotonic()
        for fault in listed:
            await asyncio.sleep(max(0.0, ready + fault.after - time.monotonic()))
            self.begin(fault)

    def begin(self, fault: Fault) -> None:
        """Have a fault from now on."""
        self.catch_up()
        self.trouble.begin(fault)
        if fault.name == "EXIT_CODE":
            sys.stdout.flush()
            # A crash: nothing is answered and nothing is cleaned up.
            os._exit(int(self.trouble.number("EXIT_CODE", 0)))
        if fault.name == "OOM":
            memory.run_out()
        if fault.name == "ENGINE_DEATH":
            self.engine.hang()
            self.end_all("error")
            self.died.set()
        if fault.name == "HANG":
            self.engine.hang()
        self._apply()

    def end(self, name: str) -> None:
        """Have a fault no more."""
        self.catch_up()
        self.trouble.end(name)
        if name == "HANG" and not self.died.is_set():
            self.engine.recover()
        self._apply()

    def fail(self, output: Output) -> None:
        """Let the engine fail one request."""
        if output.request in self._outputs:
            self.engine.fail(output.request)
            self._end(output.request, "error")

    def _apply(self) -> None:
        """Give the engine the speed and the limits that it has with the faults of now."""
        self.engine.speed = self.trouble.speed(self._settings.speed)
        for request in self.engine.resize(self.trouble.limits(self._settings.limits)):
            self._end(request, "error")

    def _end(self, request: Request, ending: Ending) -> None:
        self._forget(request).end(ending)

    def _forget(self, request: Request) -> Output:
        output = self._outputs.pop(request)
        if not self._outputs:
            self._answered.set()
        return output
