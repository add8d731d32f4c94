"""How far a pod may be from the others by its nature, and no fault of the candidate's.

Nodes, GPUs and what is in a cache make pods differ for as long as they live. One canary pod that
is somewhat worse than the mean of the stable pods proves nothing, however many requests say so.
"""

from __future__ import annotations

import math

LEAST_SPREAD = 0.15
"""Standard deviation of the logarithm of pods' rates that is assumed at least."""

LEAST_SPREAD_ALONE = 0.30
"""The same where there is one stable pod, from which nothing can be learned about it."""

STANDARD_ERRORS = 3.75
"""How many standard errors the canary must be away."""

RECENT_LOOKS = 60
"""Looks over which the canary's rate is weighed for this: harm that begins late must show soon."""


def allowance(canary_pods: int, stable_pods: int, excess: float) -> float:
    """Give the factor by which canary pods may be worse because pods differ.

    Args:
        canary_pods: How many.
        stable_pods: How many.
        excess: Pairs of bad events of the same pod over all time, as a fraction above chance, as
            far as it is sure: the square of the pods' spread.
    """
    if canary_pods < 1 or stable_pods < 1:
        return 1.0
    least = LEAST_SPREAD if stable_pods > 1 else LEAST_SPREAD_ALONE
    # The assumed spread counts as much as two pods, the seen one as much as those that show it.
    square = (2 * least**2 + (stable_pods - 1) * max(0.0, excess)) / (stable_pods + 1)
    return math.exp(STANDARD_ERRORS * math.sqrt(square * (1 / canary_pods + 1 / stable_pods)))
