"""Evidence as money won in a fair game against the claim that the canary is no worse.

Whoever bets one unit on "the canary is worse" and the claim is true has, at every moment and
whenever they stop, more than 1/alpha units with a chance of alpha at most (Ville 1939; for counts
Lindon and Malek, arXiv:2011.03567): so it may be looked at after each look, for ever.

Both games have one shape. Of `trials` so many are `bad`, each with chance `null` if the claim is
just true: of all bad events those that were the canary's (`null` follows from the two sides'
requests), or of the canary's requests those that were bad (`null` is the limit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

ODDS = (1.5, 2.5, 6.0)
"""How many times worse than the claim the canary may be: what is bet on, in equal parts."""

LOOK_CAP = 3.28
"""Most that one look adds, as a logarithm: half of ln 700, so that one look never decides."""

_START = 1 / (len(ODDS) + 1)
_MOST = 1e12

# Per look: what goes to sleep and what wakes. A share that sleeps loses nothing while the canary is
# good, so that harm which begins late does not have to make up for hours of losses.
_TO_SLEEP = 1 / 120
_TO_WAKE = 1 / 360


_LOGS = tuple(math.log(odds) for odds in ODDS)


def gain(bad: float, trials: float, null: float, odds: float) -> float:
    """Give the logarithm of the likelihood ratio of `odds` times the odds of `null` to `null`."""
    return bad * math.log(odds) - trials * math.log1p(null * (odds - 1))


@dataclass(slots=True)
class Wager:
    """Bets on three degrees of harm, and a share that sleeps.

    Attributes:
        awake: What the bets are worth, one per entry of `ODDS`, but for what is pending.
        asleep: What is not bet at present.
        pending: Won in the present block where a block counts as a whole: logarithms, one per bet.
        cap: Most that counts of that.
    """

    awake: list[float] = field(default_factory=lambda: [_START] * len(ODDS))
    asleep: float = _START
    pending: list[float] = field(default_factory=lambda: [0.0] * len(ODDS))
    cap: float = 0.0

    @property
    def value(self) -> float:
        """What all is worth; 1 at the beginning."""
        worth = zip(self.awake, self.pending, strict=True)
        return self.asleep + sum(a * math.exp(min(self.cap, p)) for a, p in worth)

    def look(self, bad: float, trials: float, null: float, *, at_once: bool) -> None:
        """Bet on one look, which counts for itself or as part of the block."""
        if trials <= 0:
            return
        for i, odds in enumerate(ODDS):
            won = bad * _LOGS[i] - trials * math.log1p(null * (odds - 1))
            if at_once:
                self.awake[i] *= math.exp(min(LOOK_CAP, won))
            else:
                self.pending[i] += won
        bet, slept = sum(self.awake), self.asleep
        woken = slept * _TO_WAKE / len(ODDS)
        self.awake = [min(_MOST, a * (1 - _TO_SLEEP) + woken) for a in self.awake]
        self.asleep = min(_MOST, slept * (1 - _TO_WAKE) + bet * _TO_SLEEP)

    def close(self, cap: float) -> None:
        """End a block: take in what is pending.

        Args:
            cap: Most that the next block may add where it counts as a whole.
        """
        for i, won in enumerate(self.pending):
            if won:
                self.awake[i] = min(_MOST, self.awake[i] * math.exp(min(self.cap, won)))
        self.pending = [0.0] * len(ODDS)
        self.cap = cap

    def dump(self) -> list[float]:
        """Write it down as plain numbers."""
        return [self.asleep, self.cap, *self.awake, *self.pending]

    @classmethod
    def load(cls, numbers: list[float]) -> Wager:
        """Read what `dump` wrote."""
        asleep, cap, *rest = numbers
        return cls(rest[: len(ODDS)], asleep, rest[len(ODDS) :], cap)
