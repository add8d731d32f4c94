"""`python -m benchmarks.mix`: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vllm_upgrade_operator.judge.counters import Delta, Histogram
from vllm_upgrade_operator.judge.mix import Mix, compare
from vllm_upgrade_operator.judge.model import Look

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOKS = 60
_SECONDS = 10.0
_MEDIAN_TOKENS = 400.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """Traffic to draw.

    Attributes:
        name: In words.
        differs: Whether the canary's prompts are longer or shorter by more than the threshold.
        rate: Requests per second of each pod.
        ratio: Of the canary's prompt lengths to the stable pods'.
        canaries: Canary pods.
        stables: Stable pods.
        sigma: Standard deviation of the logarithm of a prompt's length.
        bursts: Coefficient of variation of the requests per look, beyond Poisson.
        pods: Standard deviation of the logarithm of a pod's mean length.
        sticky: The same of a pod's mean length as it wanders, correlated 0.9 from look to look.
    """

    name: str
    differs: bool = False
    rate: float = 10.0
    ratio: float = 1.0
    canaries: int = 1
    stables: int = 3
    sigma: float = 1.2
    bursts: float = 0.0
    pods: float = 0.0
    sticky: float = 0.0


CASES = (
    Case(name="the same"),
    Case(name="the same, 1 request/s", rate=1.0),
    Case(name="the same, heavy tail (sigma 2)", sigma=2.0),
    Case(name="the same, heavy tail, 1 request/s", sigma=2.0, rate=1.0),
    Case(name="the same, bursts (cv 2)", bursts=2.0),
    Case(name="the same, 1 stable pod", stables=1),
    Case(name="the same, 4 canary and 16 stable pods", canaries=4, stables=16),
    Case(name="pods differ by 0.1", pods=0.1),
    Case(name="pods differ by 0.3", pods=0.3),
    Case(name="sessions stick to pods (0.3)", sticky=0.3),
    Case(name="1.5 times as long", differs=True, ratio=1.5),
    Case(name="1.5 times, heavy tail", differs=True, ratio=1.5, sigma=2.0),
    Case(name="2 times", differs=True, ratio=2.0),
    Case(name="2 times, 1 request/s", differs=True, ratio=2.0, rate=1.0),
    Case(name="2 times, 1 stable pod", differs=True, ratio=2.0, stables=1),
    Case(name="2 times, pods differ by 0.1", differs=True, ratio=2.0, pods=0.1),
    Case(name="2 times, sessions stick (0.3)", differs=True, ratio=2.0, sticky=0.3),
    Case(name="half as long", differs=True, ratio=0.5),
)


def main() -> None:
    """Draw, and write the figures down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mix", description=__doc__)
    parser.add_argument("--runs", type=int, default=300, help="runs of each case")
    parser.add_argument("--results", type=Path, required=True, help="JSON file to write")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least 1 is needed")
    rows = [_measure(case, options.runs) for case in CASES]
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(rows, indent=2) + "\n")
    for row in rows:
        first = "-" if row["median_s"] is None else f"{row['median_s']:.0f} s"
        print(f"{row['case']:40} ever {row['ever']:6.1%}  at the end {row['end']:6.1%}  {first}")
    print(f"written to {options.results}")


def _measure(case: Case, runs: int) -> dict[str, Any]:
    random = np.random.default_rng(1)
    firsts: list[float] = []
    ends = 0
    for _ in range(runs):
        first, end = _run(random, case)
        ends += end
        if first is not None:
            firsts.append(first)
    return {
        "case": case.name,
        **{name: value for name, value in asdict(case).items() if name != "name"},
        "runs": runs,
        "ever": len(firsts) / runs,
        "end": ends / runs,
        "median_s": statistics.median(firsts) if firsts else None,
    }


def _run(random: np.random.Generator, case: Case) -> tuple[float | None, bool]:
    """Give when the mix was first called different, and whether it was at the end."""
    count = case.canaries + case.stables
    means = np.exp(case.pods * random.standard_normal(count))
    means[: case.canaries] *= case.ratio
    wander = random.standard_normal(count)
    mix, first, found = Mix(), None, False
    for number in range(1, _LOOKS + 1):
        wander = 0.9 * wander + math.sqrt(1 - 0.81) * random.standard_normal(count)
        factors = means * np.exp(case.sticky * wander)
        deltas = [_drawn(random, case, factor) for factor in factors]
        mix.add(
            Look(
                at=number * _SECONDS,
                canary=_named("c", deltas[: case.canaries]),
                stable=_named("s", deltas[case.canaries :]),
            )
        )
        found = compare(mix) is not None
        if found and first is None:
            first = number * _SECONDS
    return first, found


def _drawn(random: np.random.Generator, case: Case, factor: float) -> Delta:
    mean = case.rate * _SECONDS
    if case.bursts:
        mean *= random.gamma(1 / case.bursts**2, case.bursts**2)
    requests = int(random.poisson(mean))
    lengths = np.exp(math.log(_MEDIAN_TOKENS) + case.sigma * random.standard_normal(requests))
    total = float(lengths.sum() * factor)
    return Delta(
        seconds=_SECONDS,
        offered=requests,
        rejected=0.0,
        errors=0.0,
        client_errors=0.0,
        preemptions=0.0,
        finished=requests,
        prompt_tokens=total,
        generation_tokens=None,
        rejections_approximate=False,
        running=None,
        waiting=None,
        kv_usage=None,
        kv_capacity_tokens=None,
        draft_tokens=None,
        accepted_tokens=None,
        ttft=None,
        itl=None,
        e2e=None,
        models=(),
        prompt_lengths=Histogram((math.inf,), (float(requests),), total),
    )


def _named(prefix: str, deltas: list[Delta]) -> Mapping[str, Delta]:
    return {f"{prefix}{i}": delta for i, delta in enumerate(deltas)}


if __name__ == "__main__":
    main()
