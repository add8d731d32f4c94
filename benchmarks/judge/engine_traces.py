"""The default checks as counts of upgrades that are put together from recorded spells."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge import library
from benchmarks.judge.recording import HISTOGRAMS, SPELL_LOOKS, Spell, columns
from benchmarks.judge.traces import LOOKS_PER_MINUTE, Counted, Counts, Traces
from benchmarks.judge.worlds import ERRORS, PREEMPTIONS, REJECTIONS, SLOWEST, TAILS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.judge.library import Setting

_QUANTILE_REST = 0.01
_INCREASE = 1.3
_TTFT_MAX_SECONDS = 2.0
_COLD_LOOKS = 2 * LOOKS_PER_MINUTE
_WARMUP_LOOKS = 6


def draw(setting: Setting, spells: int, runs: int, random: np.random.Generator) -> Traces:
    """Draw so many upgrades of a setting."""
    upgrades = library.compose(setting, spells, runs, random)
    learned = library.LEARN_SPELLS * SPELL_LOOKS
    upgrades[:, :learned, :1] = 0
    column = columns()
    offered = upgrades[..., column["offered"]][..., 0]
    finished = upgrades[..., column["finished"]][..., 0]
    rejected = upgrades[..., column["rejections"]][..., 0]
    preempted = upgrades[..., column["preemptions"]][..., 0]
    counted: list[tuple[Counted, Spell, Spell]] = [(REJECTIONS, rejected, offered)]
    for name, bound in frozen(setting, spells).items():
        counted.append((bound[0], *_above(upgrades[..., column[name]], bound[1])))
    slowest = bucket_from(HISTOGRAMS["ttft"], _TTFT_MAX_SECONDS)
    counted += [
        (SLOWEST, *_above(upgrades[..., column["ttft"]], slowest)),
        (ERRORS, np.zeros_like(offered), offered),
        # A request can be preempted more than once.
        (PREEMPTIONS, np.minimum(preempted, finished), finished),
    ]
    bad: Counts = np.stack([b for _, b, _ in counted], axis=1).astype(np.int64)
    of: Counts = np.stack([o for _, _, o in counted], axis=1).astype(np.int64)
    return Traces(
        checks=tuple(check for check, _, _ in counted),
        bad=bad,
        of=of,
        canaries=1,
        learned=learned,
        cold=_COLD_LOOKS if setting.canary.cold else 0,
        warmup=_WARMUP_LOOKS if setting.canary.cold else 0,
    )


@cache
def frozen(setting: Setting, spells: int) -> dict[str, tuple[Counted, int]]:
    """Find the bucket bounds above which a request is slow, from all recorded stable pods.

    An upgrade would freeze them from the ten minutes that it has seen; the bounds are so coarse
    that it is nearly always the same one.

    Returns:
        By latency: the check, and the number of the first bucket that is slow.
    """
    shelf, _ = library.shelves(setting, spells)
    stable = np.load(shelf.file).sum(axis=(0, 1, 2), dtype=np.int64)
    found: dict[str, tuple[Counted, int]] = {}
    for name in TAILS:
        buckets = stable[columns()[name]]
        bounds = HISTOGRAMS[name]
        first = bucket_from(bounds, _INCREASE * quantile(bounds, buckets, 1 - _QUANTILE_REST))
        share = float(buckets[first:].sum() / buckets.sum())
        margin = _QUANTILE_REST / max(share, _QUANTILE_REST / 10)
        found[name] = Counted(name=name, share=share, margin=margin), first
    return found


def quantile(bounds: Sequence[float], buckets: Counts, share: float) -> float:
    """Give the value that this share of the observations is not above, within its bucket evenly."""
    below = np.cumsum(buckets)
    wanted = share * below[-1]
    number = int(np.searchsorted(below, wanted))
    if number >= len(bounds):
        return bounds[-1]
    before = float(below[number - 1]) if number else 0.0
    start = bounds[number - 1] if number else 0.0
    part = (wanted - before) / (float(below[number]) - before)
    return float(start + part * (bounds[number] - start))


def bucket_from(bounds: Sequence[float], value: float) -> int:
    """Give the number of the first bucket in which all observations are above the value."""
    return int(np.searchsorted(bounds, value)) + 1


def _above(buckets: Spell, first: int) -> tuple[Spell, Spell]:
    return buckets[..., first:].sum(axis=-1), buckets.sum(axis=-1)
