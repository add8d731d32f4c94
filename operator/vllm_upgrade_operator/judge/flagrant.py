"""What is so bad that neither chance nor a burst explains it, acted on at the second look.

This is no test and needs nothing that was learned: a plain rule for a canary that fails a large
part of its requests, look after look, while stable pods with as much load do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOKS = 6
"""Looks that are remembered."""

AT_LEAST_LOOKS = 2
BAD_EVENTS = 10.0
"""Bad events of the canary that are needed, in so many looks at least."""

SHARE = 0.4
SHARE_IN_NOISE = 0.8
TIMES_ALLOWED = 20.0
"""Bad share of the canary's requests: the larger of this and so many times what is allowed; more
where the stable pods' bad events come in bursts."""

TIMES_STABLE = 4.0
"""How many times the stable pods' share the canary's must be."""

LOAD = 2.0
"""How many times the load of a stable pod a canary pod may have: more explains a full queue."""


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
    least = max(SHARE_IN_NOISE if noisy else SHARE, TIMES_ALLOWED * allowed)
    if least > 1:
        return False
    bad = of = stable_bad = stable_of = 0.0
    for count, look in enumerate(reversed([seen for seen in looks if seen.of > 0]), start=1):
        if look.bad < least * look.of / 2 or (of_load and look.load > LOAD):
            return False
        bad, of = bad + look.bad, of + look.of
        stable_bad, stable_of = stable_bad + look.stable_bad, stable_of + look.stable_of
        if count >= AT_LEAST_LOOKS and bad >= BAD_EVENTS:
            return bad >= least * of and bad * stable_of >= TIMES_STABLE * stable_bad * of
    return False
