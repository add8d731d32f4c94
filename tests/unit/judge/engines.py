"""Pods that are simulated engines, all under Poisson load, looked at once a second."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localcluster.sim.engine import Engine, Limits, Rejection, Speed
from vllm_upgrade_operator.judge.counters import Delta, Histogram, Sample, delta
from vllm_upgrade_operator.judge.model import Look

if TYPE_CHECKING:
    from random import Random

    from localcluster.sim.engine import Histogram as EngineHistogram


@dataclass
class Pod:
    """One engine and what was last scraped of it."""

    engine: Engine
    offered: int = 0
    before: Sample | None = None

    def load(self, random: Random, rate: float, seconds: float) -> None:
        """Offer requests at so many per second, for so many seconds."""
        end = self.engine.now + seconds
        while (at := self.engine.now + random.expovariate(rate)) < end:
            self.engine.advance(at)
            self.offered += 1
            self.engine.admit(
                max(1, round(random.expovariate(1 / 200))),
                max(1, round(random.expovariate(1 / 30))),
            )
        self.engine.advance(end)

    def look(self) -> Delta | None:
        """Scrape, and give what happened since the last time."""
        sample = self._scrape()
        change = None if self.before is None else delta(self.before, sample)
        self.before = sample
        return change

    def _scrape(self) -> Sample:
        engine, figures = self.engine, self.engine.figures
        return Sample(
            taken_at=engine.now,
            offered=float(self.offered),
            rejected=float(sum(figures.rejections[r] for r in Rejection)),
            errors=0.0,
            client_errors=0.0,
            preemptions=float(figures.preemptions),
            finished=float(figures.finished),
            prompt_tokens=float(figures.prompt_tokens),
            generation_tokens=float(figures.generation_tokens),
            rejections_approximate=False,
            running=float(len(engine.running)),
            waiting=float(len(engine.waiting)),
            kv_usage=engine.kv_usage,
            kv_capacity_tokens=float(engine.limits.kv_blocks * engine.limits.block_size),
            draft_tokens=None,
            accepted_tokens=None,
            ttft=_cumulative(figures.ttft),
            itl=_cumulative(figures.itl),
            e2e=_cumulative(figures.e2e),
            models=("m",),
            process_started_at=0.0,
        )


def _cumulative(histogram: EngineHistogram) -> Histogram:
    counts: list[float] = []
    for count in histogram.counts:
        counts.append(count + (counts[-1] if counts else 0.0))
    return Histogram((*histogram.bounds, math.inf), tuple(counts), histogram.total)


@dataclass
class Fleet:
    """Canary and stable pods with a load that is the same for each."""

    random: Random
    rate: float
    canary: list[Pod]
    stable: list[Pod]
    _started: bool = field(default=False)

    def look(self, seconds: float = 1.0) -> Look:
        """Let time pass and look at every pod."""
        if not self._started:
            self._started = True
            self._pass(10.0)
            self._look()
        self._pass(seconds)
        return self._look()

    def _pass(self, seconds: float) -> None:
        for pod in (*self.canary, *self.stable):
            pod.load(self.random, self.rate, seconds)

    def _look(self) -> Look:
        changes = [[p.look() for p in side] for side in (self.canary, self.stable)]
        canary, stable = (
            {f"pod-{i}": d for i, d in enumerate(side) if d is not None} for side in changes
        )
        return Look(at=self.stable[0].engine.now, canary=canary, stable=stable)


def fleet(  # noqa: PLR0913 - what a case is made of
    random: Random,
    rate: float,
    *,
    limits: Limits,
    canary_limits: Limits | None = None,
    canary_speed: Speed | None = None,
    canaries: int = 1,
    stables: int = 3,
) -> Fleet:
    """Make a fleet; canary pods are like the stable ones but for what is given."""
    return Fleet(
        random,
        rate,
        [Pod(Engine(canary_limits or limits, canary_speed or Speed())) for _ in range(canaries)],
        [Pod(Engine(limits, Speed())) for _ in range(stables)],
    )
