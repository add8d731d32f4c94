"""Spells of pods: what the simulator's engine counts, look by look, without real time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtr

from benchmarks.judge.traces import LOOK_SECONDS, LOOKS_PER_MINUTE
from localcluster.sim.engine import Engine, Limits, Speed
from localcluster.sim.figures import REQUEST_BOUNDS, TOKEN_BOUNDS, TTFT_BOUNDS

if TYPE_CHECKING:
    from benchmarks.judge.traces import Floats
    from localcluster.sim.engine import Figures

SPELL_LOOKS = 10 * LOOKS_PER_MINUTE
"""Looks of one spell: longer than anything that lasts in a queue of these settings."""

_RUN_IN_LOOKS = 2 * LOOKS_PER_MINUTE
_COLD_SECONDS = 120.0
_COLD_FACTOR = 4.0

_RATE = 10.0
_PROMPT_TOKENS = 200.0
_OUTPUT_TOKENS = 30.0

Spell = npt.NDArray[np.int32]

HISTOGRAMS = {"ttft": TTFT_BOUNDS, "itl": TOKEN_BOUNDS, "e2e": REQUEST_BOUNDS}
COUNTERS = ("offered", "rejections", "preemptions", "finished")


def columns() -> dict[str, slice]:
    """Say where in the last axis of a spell a counter or the buckets of a histogram are.

    Buckets are not cumulative; the last one of each is `+Inf`.
    """
    found = {name: slice(number, number + 1) for number, name in enumerate(COUNTERS)}
    start = len(COUNTERS)
    for name, bounds in HISTOGRAMS.items():
        found[name] = slice(start, start + len(bounds) + 1)
        start += len(bounds) + 1
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """When requests come, at 10 requests/s in the mean.

    Attributes:
        cv: Coefficient of variation of the time between two requests; 1 is Poisson.
        swing: Coefficient of variation of the rate, which is gamma-distributed.
        persistence: Of the rate, from look to look.
    """

    cv: float = 1.0
    swing: float = 0.0
    persistence: float = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """What serves them. At `slowness` 1 it is just about able to serve 10 requests/s.

    Attributes:
        slowness: Factor on all times.
        limit: `--max-num-queued-reqs`.
        cold: Whether prompts take four times as long in the first two minutes, for want of
            cached prefixes.
    """

    slowness: float
    limit: int
    cold: bool = False

    def engine(self) -> Engine:
        """Make one."""
        return Engine(
            Limits(max_num_seqs=32, max_num_queued_reqs=self.limit, kv_blocks=640), self.speed()
        )

    def speed(self, prefill: float = 1.0) -> Speed:
        """Give its speed, with so many times the time for prompts."""
        return Speed(
            step_seconds=0.015 * self.slowness,
            sequence_seconds=0.002 * self.slowness,
            prefill_tokens_per_second=8000.0 / (self.slowness * prefill),
        )


def record(arrivals: Arrivals, server: Server, path: int, replica: int) -> Spell:
    """Run one pod for a spell.

    Args:
        arrivals: The traffic.
        server: The server.
        path: Number of the course that the rate takes; pods with the same have shared bursts.
        replica: Number of the pod with that course.

    Returns:
        Counts by look and column.
    """
    course = np.random.default_rng([1, path])
    random = np.random.default_rng([2, path, replica])
    run_in = 0 if server.cold else _RUN_IN_LOOKS
    looks = run_in + SPELL_LOOKS
    times = _times(arrivals, looks, course, random)
    prompts = np.maximum(1, random.exponential(_PROMPT_TOKENS, times.size).round()).astype(int)
    outputs = np.maximum(1, random.exponential(_OUTPUT_TOKENS, times.size).round()).astype(int)
    pod = _Pod(server, looks)
    for at, prompt, output in zip(times.tolist(), prompts.tolist(), outputs.tolist(), strict=True):
        pod.request(at, prompt, output)
    return pod.end()[run_in:]


def _times(
    arrivals: Arrivals, looks: int, course: np.random.Generator, random: np.random.Generator
) -> Floats:
    """Draw when requests come: a renewal process on a clock that runs as fast as the rate."""
    rates = np.full(looks, _RATE)
    if arrivals.swing:
        normal = course.standard_normal(looks)
        kept = arrivals.persistence
        for look in range(1, looks):
            normal[look] = kept * normal[look - 1] + math.sqrt(1 - kept**2) * normal[look]
        shape = arrivals.swing**-2
        rates = rates * np.asarray(gammaincinv(shape, ndtr(normal))) / shape
    clock = np.concatenate([[0.0], np.cumsum(rates * LOOK_SECONDS)])
    shape = arrivals.cv**-2
    ample = int(clock[-1] * 1.2 + 40 * arrivals.cv * math.sqrt(clock[-1]))
    ticks = np.cumsum(random.gamma(shape, 1 / shape, ample))
    ticks = ticks[ticks < clock[-1]]
    times: Floats = np.interp(ticks, clock, np.arange(looks + 1) * LOOK_SECONDS)
    return times


@dataclass(slots=True)
class _Pod:
    """An engine, and what it had counted at each look."""

    server: Server
    looks: int
    _engine: Engine = field(init=False)
    _counted: list[list[int]] = field(init=False)
    _offered: int = 0

    def __post_init__(self) -> None:
        self._engine = self.server.engine()
        if self.server.cold:
            self._engine.speed = self.server.speed(_COLD_FACTOR)
        self._counted = [self._row()]

    def request(self, at: float, prompt_tokens: int, output_tokens: int) -> None:
        """Offer a request."""
        self._look_until(at)
        self._engine.advance(at)
        self._engine.admit(prompt_tokens, output_tokens)
        self._offered += 1

    def end(self) -> Spell:
        """Give what was counted in each look."""
        self._look_until(math.inf)
        counted = np.array(self._counted, dtype=np.int32)
        return counted[1:] - counted[:-1]

    def _look_until(self, at: float) -> None:
        while len(self._counted) <= self.looks and len(self._counted) * LOOK_SECONDS <= at:
            now = len(self._counted) * LOOK_SECONDS
            self._engine.advance(now)
            if self.server.cold and now >= _COLD_SECONDS:
                self._engine.speed = self.server.speed()
            self._counted.append(self._row())

    def _row(self) -> list[int]:
        figures: Figures = self._engine.figures
        return [
            self._offered,
            sum(figures.rejections.values()),
            figures.preemptions,
            figures.finished,
            *figures.ttft.counts,
            *figures.itl.counts,
            *figures.e2e.counts,
        ]
