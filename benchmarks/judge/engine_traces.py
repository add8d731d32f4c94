"""The default checks as counts of upgrades that are put together from recorded spells."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge import library
from benchmarks.judge.recording import HISTOGRAMS, SPELL_LOOKS, columns
from benchmarks.judge.traces import LOOKS_PER_MINUTE, Counted, Floats, Traces
from benchmarks.judge.worlds import ERRORS, PREEMPTIONS, REJECTIONS, SLOWEST, TAILS
from vllm_upgrade_operator.judge import bounds

if TYPE_CHECKING:
    from benchmarks.judge.library import Setting
    from benchmarks.judge.recording import Spell

_QUANTILE = 0.99
_INCREASE = 0.3
_TTFT_MAX_SECONDS = 2.0
_COLD_LOOKS = 2 * LOOKS_PER_MINUTE
_WARMUP_LOOKS = 6


def draw(setting: Setting, spells: int, runs: int, random: np.random.Generator) -> Traces:
    """Draw so many upgrades of a setting."""
    upgrades = library.compose(setting, spells, runs, random)
    learned = library.LEARN_SPELLS * SPELL_LOOKS
    upgrades[:, :learned, :1] = 0
    counted = _counted(setting, spells, upgrades)
    return Traces(
        checks=tuple(check for check, _, _ in counted),
        bad=np.stack([bad for _, bad, _ in counted], axis=1),
        of=np.stack([of for _, _, of in counted], axis=1),
        canaries=1,
        learned=learned,
        cold=_COLD_LOOKS if setting.canary.cold else 0,
        warmup=_WARMUP_LOOKS if setting.canary.cold else 0,
    )


def _counted(
    setting: Setting, spells: int, upgrades: Spell
) -> list[tuple[Counted, Floats, Floats]]:
    """Give each check with its bad requests and all requests, by run, look and pod."""
    column = columns()

    def counter(name: str) -> Floats:
        return upgrades[..., column[name]][..., 0].astype(float)

    offered, finished = counter("offered"), counter("finished")
    first_tokens = upgrades[..., column["ttft"]].sum(axis=-1).astype(float)
    found = [(REJECTIONS, counter("rejections"), offered)]
    for name, (check, index) in frozen(setting, spells).items():
        slow, of = _above(upgrades[..., column[name]], index)
        # Tokens of one request share its fate: they are as many events as there are requests.
        requests = np.minimum(of, first_tokens) if name == "itl" else of
        share = np.divide(slow, of, out=np.zeros_like(slow), where=of > 0)
        found.append((check, share * requests, requests))
    slowest = bounds.of_limit((*HISTOGRAMS["ttft"], math.inf), _QUANTILE, _TTFT_MAX_SECONDS)
    return [
        *found,
        (SLOWEST, *_above(upgrades[..., column["ttft"]], slowest.index)),
        (ERRORS, np.zeros_like(offered), offered),
        # A request that is preempted again is as bad as one that was preempted.
        (PREEMPTIONS, np.minimum(counter("preemptions"), finished), finished),
    ]


@cache
def frozen(setting: Setting, spells: int) -> dict[str, tuple[Counted, int]]:
    """Find the bucket bounds above which a request is slow, from all recorded stable pods.

    An upgrade would freeze them from what it has seen in its first minutes; the bounds are so
    coarse that it is nearly always the same one.

    Returns:
        By latency: the check, and the number of the bound.

    Raises:
        ValueError: A latency was never seen.
    """
    shelf, _ = library.shelves(setting, spells)
    stable = np.load(shelf.file).sum(axis=(0, 1, 2), dtype=np.int64)
    found: dict[str, tuple[Counted, int]] = {}
    for name in TAILS:
        counts = stable[columns()[name]].tolist()
        place = bounds.of_stable((*HISTOGRAMS[name], math.inf), counts, _QUANTILE, _INCREASE)
        if place is None:
            raise ValueError(f"{name} was never seen on the stable pods of {setting}")
        check = Counted(
            name=name,
            share=sum(counts[place.index + 1 :]) / sum(counts),
            margin=place.margin,
            allowed=place.allowed,
            slack=place.slack,
        )
        found[name] = check, place.index
    return found


def _above(buckets: Spell, index: int) -> tuple[Floats, Floats]:
    """Count what lies above a bound, and all."""
    slow, of = buckets[..., index + 1 :].sum(axis=-1), buckets.sum(axis=-1)
    return slow.astype(float), of.astype(float)
