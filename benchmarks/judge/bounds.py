"""What chance allows: intervals of a share, and how soon any test could know."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import stats

if TYPE_CHECKING:
    from benchmarks.judge.traces import Counted
    from benchmarks.judge.worlds import World


def interval(hits: int, runs: int) -> tuple[float, float]:
    """Give the exact 95 % interval (Clopper-Pearson) of a share seen `hits` times in `runs`.

    Raises:
        ValueError: There are no runs, or more hits than runs.
    """
    if runs < 1 or not 0 <= hits <= runs:
        raise ValueError(
            f"{hits} of {runs} runs is no share: give 1 run or more, and 0 to all hits"
        )
    found = stats.binomtest(hits, runs).proportion_ci(confidence_level=0.95, method="exact")
    return float(found.low), float(found.high)


def wald_seconds(world: World, check: Counted, factor: float, alpha: float) -> float:
    """Give the mean time that any test of level alpha needs at least, by Wald.

    It is ln(1/alpha) over the information per second: bad events per second of both sides, times
    the Kullback-Leibler divergence of the canary's share in them, at this factor from the margin.

    Raises:
        ValueError: The check is not compared, or the factor is within its margin.
    """
    if check.margin is None or factor <= check.margin:
        raise ValueError(
            f"{check.name}: a factor of {factor:g} is no harm at a margin of {check.margin}"
        )
    canary = world.canaries * world.canary_weight
    events = world.rate * check.share * (canary * factor + world.stables)
    true = canary * factor / (canary * factor + world.stables)
    null = canary * check.margin / (canary * check.margin + world.stables)
    divergence = true * math.log(true / null) + (1 - true) * math.log((1 - true) / (1 - null))
    return math.log(1 / alpha) / (events * divergence)
