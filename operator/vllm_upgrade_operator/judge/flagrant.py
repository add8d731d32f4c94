"""What is so bad that neither chance nor a burst explains it, acted on at the second look.

This is no test and needs nothing that was learned: a plain rule for a canary that fails a large
part of its requests, look after look, while stable pods with as much load do not.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOKS = 6
"""Looks that are remembered."""

AT_LEAST_LOOKS = 2
BAD_EVENTS = 10.0
"""Bad events of the canary that are needed, in so many looks at least."""

SHARE = 0.4
"""Part of the canary's requests beyond the allowed share that is bad, at least."""

SHARE_IN_NOISE = 0.8
TIMES_ALLOWED_IN_NOISE = 20.0
"""The same, and in multiples of what is allowed, where stable pods have bursts."""

SURPRISE = 14.0
"""Evidence against chance, as a logarithm: one in a million."""

TIMES_STABLE = 2.0
"""How many times the stable pods' share the canary's must be."""

LOAD = 2.0
"""How many times the load of a stable pod a canary pod may have: more explains a full queue."""


_LEAST_ALLOWED = 0.001


class Seen(NamedTuple):
    """One look: bad events and requests of the canary and of the stable pods, and the pods."""

    bad: float
    of: float
    stable_bad: float
    stable_of: float
    load: float
    """Requests of a canary pod for each of a stable pod; 0 where there is nothing to compare."""


def flagrant(looks: Sequence[Seen], allowed: float, *, of_load: bool, noisy: bool) -> bool:
    """Whether the last looks, at least two, are too bad to wait.

    Args:
        looks: The last ones, oldest first.
        allowed: The share of bad events that the check allows.
        of_load: Whether more load than stable pods have would explain it.
        noisy: Whether stable pods have bursts.
    """
    if noisy:
        least = max(SHARE_IN_NOISE, TIMES_ALLOWED_IN_NOISE * allowed)
    else:
        least = SHARE + (1 - SHARE) * allowed
    if least > 1:
        return False
    bad = of = stable_bad = stable_of = 0.0
    for count, look in enumerate(reversed([seen for seen in looks if seen.of > 0]), start=1):
        if look.bad < least * look.of / 2 or (of_load and look.load > LOAD):
            return False
        bad, of = bad + look.bad, of + look.of
        stable_bad, stable_of = stable_bad + look.stable_bad, stable_of + look.stable_of
        if count >= AT_LEAST_LOOKS and bad >= BAD_EVENTS:
            shared = bad * stable_of < TIMES_STABLE * stable_bad * of
            if bad < least * of or shared:
                return False
            if _surprise(bad / of, allowed) * of >= SURPRISE:
                return True
    return False


def _surprise(share: float, allowed: float) -> float:
    """Evidence of one request of which so large a share is bad where so much is allowed."""
    allowed = max(allowed, _LEAST_ALLOWED)
    if share <= allowed:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - allowed)) if share < 1 else 0.0
    return share * math.log(share / allowed) + rest
