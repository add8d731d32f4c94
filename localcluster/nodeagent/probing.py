"""Probes one running container."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from localcluster.nodeagent.actions import act
from localcluster.nodeagent.probes import Kind, Tally, Timing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from localcluster.nodeagent.actions import Target


@dataclass(frozen=True)
class Unhealthy:
    """A container has to be restarted.

    Attributes:
        kind: The probe that says so.
        grace: The probe's own grace period in seconds; None for the pod's.
    """

    kind: Kind
    grace: float | None


class Probing:
    """The probes of one run of a container.

    Args:
        target: The container.
        failed: Told of each failed probe and what was wrong.
    """

    def __init__(self, target: Target, failed: Callable[[Kind, str], None]) -> None:
        self._target = target
        self._failed = failed
        self._started = asyncio.Event()

    async def until_unhealthy(self, started: Callable[[], None]) -> Unhealthy:
        """Run the startup probe, call `started`, run the liveness probe; return when one fails."""
        for kind in (Kind.STARTUP, Kind.LIVENESS):
            probe = self._target.container.get(kind.field)
            if probe is not None:
                async for healthy in self._results(kind, probe, healthy=kind is Kind.LIVENESS):
                    if not healthy:
                        return Unhealthy(kind, probe.get("terminationGracePeriodSeconds"))
                    if kind is Kind.STARTUP:
                        break
            if kind is Kind.STARTUP:
                self._started.set()
                started()
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def readiness(self, changed: Callable[[bool], None]) -> None:
        """Report readiness whenever it changes, once the container has started."""
        await self._started.wait()
        probe = self._target.container.get(Kind.READINESS.field)
        if probe is None:
            changed(True)
            return
        async for healthy in self._results(Kind.READINESS, probe, healthy=False):
            changed(healthy)

    async def _results(
        self, kind: Kind, probe: Mapping[str, Any], *, healthy: bool
    ) -> AsyncIterator[bool]:
        """The states that the thresholds lead to, each as often as it is confirmed."""
        timing = Timing.of(probe)
        tally = Tally(timing, healthy=healthy)
        loop = asyncio.get_running_loop()
        due = loop.time() + timing.initial_delay
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            wrong = await act(probe, self._target, timing.timeout)
            if wrong:
                self._failed(kind, wrong)
            if tally.add(success=not wrong):
                yield tally.healthy
            due = max(due + timing.period, loop.time())
