"""Evidence that needs no model of the counts: the canary's place among the stable pods.

Requests that are refused come in bursts, and a burst that lasts longer than a look makes any test
of counts cry harm. Here a block of looks counts once, however bad it was: if the canary is no
worse than a stable pod, each of the pods is as likely to be the one with the worst block.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# The share of all bad events that is the canary's, sharpened by a power, and how much is staked.
_STAKES = ((1.0, 0.5), (1.0, 0.95), (2.0, 0.7), (4.0, 0.9))
_MOST = 1e12


@dataclass(slots=True)
class Ranks:
    """What the stakes are worth, one per entry of `_STAKES`; each begins with 1."""

    worth: list[float] = field(default_factory=lambda: [1.0] * len(_STAKES))

    @property
    def value(self) -> float:
        """Their mean."""
        return sum(self.worth) / len(self.worth)

    def block(self, canary: Sequence[float], stable: Sequence[float]) -> None:
        """Take in one block.

        Args:
            canary: Rates of bad events of the canary pods, divided by what they may be worse.
            stable: Rates of the stable pods.

        If pods are exchangeable within a block and the canary is no worse, the factor has a mean
        of at most 1 whatever the distribution. Blocks without a bad event say nothing.
        """
        if not canary or not stable:
            return
        pods = len(stable) + 1
        for i, (power, stake) in enumerate(_STAKES):
            rest = sum(v**power for v in stable)
            factors = []
            for rate in canary:
                own = rate**power
                share = own / (own + rest) if own + rest > 0 else 1 / pods
                factors.append(1 - stake + stake * pods * share)
            self.worth[i] = min(_MOST, self.worth[i] * sum(factors) / len(factors))
