"""A series as plain lists and numbers, for the status."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.judge.flagrant import Seen
from vllm_upgrade_operator.judge.noise import Noise, Pairs, State
from vllm_upgrade_operator.judge.ranks import Ranks
from vllm_upgrade_operator.judge.safety import Safety
from vllm_upgrade_operator.judge.series import Bet, Series
from vllm_upgrade_operator.judge.wager import Wager

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.series import Counts


def dump(series: Series) -> dict[str, Any]:
    """Write a series down as plain lists and numbers."""
    noise = series.noise
    return {
        "b": [
            [b.compared.dump(), b.limited.dump(), b.ranks.worth, b.safety.dump()]
            for b in series.bets
        ],
        "n": [noise.looks, noise.pods, noise.blocks, noise.state.value, noise.weight],
        "p": [_pairs(noise.by_look), _pairs(noise.by_block), noise.single, noise.spans],
        "l": [series.looks, series.alone, series.allowance],
        "c": series.canary,
        "s": series.stable,
        "i": series.single,
        "w": series.pods,
        "t": series.totals,
        "r": series.recent,
        "f": series.last,
    }


def load(raw: dict[str, Any]) -> Series:
    """Read what `dump` wrote."""
    looks, pods, blocks, state, weight = raw["n"]
    by_look, by_block, single, spans = raw["p"]
    taken, alone, allowance = raw["l"]
    return Series(
        bets=[
            Bet(Wager.load(c), Wager.load(m), Ranks(list(r)), Safety.load(s))
            for c, m, r, s in raw["b"]
        ],
        noise=Noise(
            looks=looks,
            pods=pods,
            by_look=Pairs(*by_look),
            by_block=Pairs(*by_block),
            blocks=blocks,
            single=single,
            spans=spans,
            state=State(state),
            weight=weight,
        ),
        looks=taken,
        canary=_counts(raw["c"]),
        stable=_counts(raw["s"]),
        single=[(x, n) for x, n in raw["i"]],
        pods=_counts(raw["w"]),
        totals=raw["t"],
        recent=raw["r"],
        last=[Seen(*seen) for seen in raw["f"]],
        alone=alone,
        allowance=math.inf if allowance is None else allowance,
    )


def _pairs(pairs: Pairs) -> list[float]:
    return [pairs.seen, pairs.expected, pairs.variance]


def _counts(raw: dict[str, list[float]]) -> dict[str, Counts]:
    return {name: (x, n) for name, (x, n) in raw.items()}
