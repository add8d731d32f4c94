"""Looks at pods under Poisson traffic, drawn by their counts: no engine, so very cheap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge.counters import Delta, Histogram
from vllm_upgrade_operator.judge.judge import Demands, judge
from vllm_upgrade_operator.judge.model import Look, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.model import Judgement

BOUNDS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, math.inf),
)


def demands(min_requests: int = 100) -> Demands:
    """Give what a verdict needs by default."""
    return Demands(min_requests=min_requests, confidence=0.99)


def seeded(seed: int) -> Random:
    """Give a source of draws that are the same in every run."""
    return Random(seed)  # noqa: S311 - no secrets here


def poisson(random: Random, mean: float) -> int:
    """Draw a Poisson count."""
    if mean > 50:
        return max(0, round(random.gauss(mean, math.sqrt(mean))))
    count, product, floor = 0, random.random(), math.exp(-mean)
    while product > floor:
        count += 1
        product *= random.random()
    return count


@dataclass(frozen=True)
class Behaviour:
    """How a pod answers.

    Attributes:
        rate: Requests per look.
        rejected: Share that is refused.
        errors: Share that fails.
        latency: Median of the latencies, in seconds; they are log-normal with sigma 0.5.
        waiting: Mean queue.
    """

    rate: float = 10.0
    rejected: float = 0.005
    errors: float = 0.001
    latency: float = 0.15
    waiting: float = 0.5

    def draw(self, random: Random) -> Delta:
        """Draw one look at one pod."""
        rejected = poisson(random, self.rate * self.rejected)
        accepted = self.rate * (1 - self.rejected)
        shares = _shares(self.latency)
        counts: list[float] = []
        below = 0.0
        for share in shares:
            more = poisson(random, accepted * (share - below)) if share - below > 1e-6 else 0
            counts.append(more + (counts[-1] if counts else 0.0))
            below = share
        finished = counts[-1]
        times = Histogram(BOUNDS, tuple(counts), finished * self.latency)
        return Delta(
            seconds=1.0,
            offered=finished + rejected,
            rejected=float(rejected),
            rejections_approximate=False,
            errors=float(poisson(random, self.rate * self.errors)),
            client_errors=0.0,
            preemptions=0.0,
            finished=finished,
            prompt_tokens=finished * 100,
            generation_tokens=finished * 20,
            running=2.0,
            waiting=float(poisson(random, self.waiting)),
            kv_usage=0.3,
            kv_capacity_tokens=100_000.0,
            draft_tokens=None,
            accepted_tokens=None,
            ttft=times,
            itl=times,
            e2e=times,
            models=("m",),
        )


@cache
def _shares(median: float) -> tuple[float, ...]:
    """Give the share of latencies up to each bound."""
    return tuple(_below(bound / median) for bound in BOUNDS)


def _below(ratio: float) -> float:
    return 0.5 * (1 + math.erf(math.log(ratio) / (0.5 * math.sqrt(2)))) if ratio < math.inf else 1.0


GOOD = Behaviour()


@dataclass
class Run:
    """A judged upgrade: what was said last, when it was harm, and when it first passed."""

    judgement: Judgement
    harm_at: int | None
    pass_at: int | None


def run(  # noqa: PLR0913 - what a case is made of
    random: Random,
    checks: Sequence[Check],
    *,
    canary: Behaviour | Callable[[int], Behaviour] = GOOD,
    stable: Behaviour | Callable[[int, int], Behaviour] = GOOD,
    canaries: int = 1,
    stables: int = 3,
    looks: int = 120,
    min_requests: int = 100,
    learning: int = 60,
) -> Run:
    """Judge look after look, until harm is found; stable pods are looked at before."""
    evidence: dict[str, str] = {}
    pass_at: int | None = None
    for number in range(1 - learning, looks + 1):
        behaviour = canary if isinstance(canary, Behaviour) else canary(number)
        pods = canaries if number > 0 else 0
        look = Look(
            at=float(number),
            canary={f"c{i}": behaviour.draw(random) for i in range(pods)},
            stable={
                f"s{i}": (stable if isinstance(stable, Behaviour) else stable(number, i)).draw(
                    random
                )
                for i in range(stables)
            },
        )
        judgement = judge(checks, look, evidence, demands(min_requests))
        evidence = judgement.evidence
        if judgement.verdict is Verdict.HARM:
            return Run(judgement, number, pass_at)
        if judgement.verdict is Verdict.PASS and pass_at is None:
            pass_at = number
    return Run(judgement, None, pass_at)
