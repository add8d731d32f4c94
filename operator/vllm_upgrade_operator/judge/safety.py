"""Evidence that the canary is safe, which a promotion needs: the mirror of evidence of harm.

It is bet against the claim that the canary is as bad as must not be: `margin` squared times as bad
as the stable pods, or beyond a limit. Bad events are often too rare to compare two sides; then few
or none of them among many requests are evidence against the limit. The stake is split between the
two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vllm_upgrade_operator.judge.wager import gain

ENOUGH = 20.0
"""Evidence with which a check passes: a bad canary passes it with a chance of 1 in 20."""

_RATIOS = (1.0, 0.7, 1.2)
_STAKES = (0.7, 0.15, 0.15)
_SHARES = (0.1, 0.5)
_MOST = 1e12
_LEAST = 1e-30


@dataclass(slots=True)
class Safety:
    """What the stakes are worth.

    Attributes:
        ratios: Against the stable pods, one per entry of `_RATIOS`.
        shares: Against the limit, one per entry of `_SHARES`.
        shown: Whether there once was enough evidence.
        noisy: Bad events and requests of the canary and of the stable pods in the present block,
            as far as they came while the noise was loud.
    """

    ratios: list[float] = field(default_factory=lambda: list(_STAKES))
    shares: list[float] = field(default_factory=lambda: [0.5] * len(_SHARES))
    shown: bool = False
    noisy: list[float] = field(default_factory=lambda: [0.0] * 4)

    @property
    def value(self) -> float:
        """What all is worth; 1 at the beginning."""
        return (sum(self.ratios) + sum(self.shares)) / 2

    def look(
        self, canary: tuple[float, float], stable: tuple[float, float], bad: float, limit: float
    ) -> None:
        """Take in one look.

        Args:
            canary: Bad events and requests.
            stable: The same.
            bad: How many times as bad as the stable pods the canary must not be.
            limit: Share of bad events that the canary must not reach.
        """
        if self.shown:
            return
        (x1, n1), (x0, n0) = canary, stable
        if n0 > 0 and n1 > 0:
            null = n1 * bad / (n1 * bad + n0)
            for i, ratio in enumerate(_RATIOS):
                self.ratios[i] = _grown(self.ratios[i], gain(x1, x1 + x0, null, ratio / bad))
        for i, share in enumerate(_SHARES):
            odds = share * (1 - limit) / (1 - share * limit)
            self.shares[i] = _grown(self.shares[i], gain(x1, n1, limit, odds))
        self._note()

    def keep(self, canary: tuple[float, float], stable: tuple[float, float]) -> None:
        """Keep one look for the end of the block, because bad events come in bursts."""
        for i, value in enumerate((*canary, *stable)):
            self.noisy[i] += value

    def close(self, bad: float, limit: float, pods: tuple[int, int], dispersion: float) -> None:
        """Take in what was kept, as beta-binomial counts.

        Args:
            bad: As for `look`.
            limit: The same.
            pods: Canary and stable pods.
            dispersion: See `Noise.dispersion`.
        """
        x1, n1, x0, n0 = self.noisy
        self.noisy = [0.0] * 4
        if n1 <= 0 or n0 <= 0 or min(pods) < 1 or self.shown:
            return
        null = n1 * bad / (n1 * bad + n0)
        size = 1 / (null * (1 - null) * dispersion * (1 / pods[0] + 1 / pods[1]))
        before = _beta_binomial(x1, x0, null, size)
        for i, ratio in enumerate(_RATIOS):
            share = n1 * ratio / (n1 * ratio + n0)
            won = _beta_binomial(x1, x0, share, size) - before
            self.ratios[i] = _grown(self.ratios[i], won)
        size = pods[0] / (limit * dispersion)
        before = _beta_binomial(x1, n1 - x1, limit, size)
        for i, share in enumerate(_SHARES):
            won = _beta_binomial(x1, n1 - x1, share * limit, size) - before
            self.shares[i] = _grown(self.shares[i], won)
        self._note()

    def _note(self) -> None:
        self.shown = self.shown or self.value >= ENOUGH

    def dump(self) -> list[float]:
        """Write it down as plain numbers."""
        return [*self.ratios, *self.shares, *self.noisy, float(self.shown)]

    @classmethod
    def load(cls, numbers: list[float]) -> Safety:
        """Read what `dump` wrote."""
        a, b = len(_RATIOS), len(_RATIOS) + len(_SHARES)
        return cls(numbers[:a], numbers[a:b], bool(numbers[-1]), numbers[b:-1])


def _grown(worth: float, won: float) -> float:
    return min(_MOST, max(_LEAST, worth * math.exp(min(30.0, max(-30.0, won)))))


def _beta_binomial(x: float, rest: float, share: float, size: float) -> float:
    """Log-likelihood but for what does not depend on `share`."""
    x, rest = max(0.0, x), max(0.0, rest)
    a, b = size * share, size * (1 - share)
    return math.lgamma(x + a) + math.lgamma(rest + b) - math.lgamma(a) - math.lgamma(b)
