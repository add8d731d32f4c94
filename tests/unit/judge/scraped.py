"""A simulated engine whose `/metrics` is read as the operator reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from localcluster.sim.engine import Engine, Limits, Speed
from localcluster.sim.exposition import Source, render
from localcluster.sim.httpfigures import HttpFigures
from vllm_upgrade_operator.judge.counters import Delta, Sample, delta
from vllm_upgrade_operator.vllm.metrics import parse
from vllm_upgrade_operator.vllm.versions import parse_version

if TYPE_CHECKING:
    from random import Random


@dataclass
class Server:
    """One engine; `load` it and `look` at what happened since the last time."""

    limits: Limits
    speed: Speed = field(default_factory=Speed)

    def __post_init__(self) -> None:
        self._engine = Engine(self.limits, self.speed)
        self._before = self._scrape()

    def load(
        self, random: Random, rate: float, seconds: float, *, prompt: float, output: float
    ) -> None:
        """Offer requests of so many tokens on the mean, at so many per second."""
        engine = self._engine
        end = engine.now + seconds
        while (at := engine.now + random.expovariate(rate)) < end:
            engine.advance(at)
            engine.admit(
                1 + round(random.expovariate(1 / prompt)), 1 + round(random.expovariate(1 / output))
            )
        engine.advance(end)

    def look(self) -> Delta:
        """Scrape, and give what happened since the last time."""
        before, self._before = self._before, self._scrape()
        change = delta(before, self._before)
        assert change is not None
        return change

    def _scrape(self) -> Sample:
        engine = self._engine
        text = render(Source("0.32.0", "tiny", 8192, engine, HttpFigures(0.0), 0.0))
        return parse(text, taken_at=engine.now, version=parse_version("0.32.0"))
