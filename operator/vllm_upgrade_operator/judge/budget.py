"""One error budget for all checks, all looks and steps of an upgrade together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def enough(evidence: Sequence[float], confidence: float) -> bool:
    """Whether the evidence of all limits together is harm.

    The mean of bets in fair games is a bet in a fair game: several limits that are each somewhat
    broken add up, and none needs more than its part of the budget.

    Args:
        evidence: Of each limit that is acted on; 1 is none.
        confidence: Chance that a harmless canary is not rolled back, below 1.
    """
    return bool(evidence) and sum(evidence) / len(evidence) >= 1 / (1 - confidence)
