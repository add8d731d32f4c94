"""What all rules are shown: counts of bad requests of many upgrades."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_SECONDS = 10.0
"""Time between two looks: the default of `spec.analysis.interval`."""

LOOKS_PER_MINUTE = 6

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A check that counts bad events among events.

    Attributes:
        name: Of the check.
        share: Share of a stable pod's requests that is bad where nothing is wrong, 0 to 1.
        margin: Ratio of canary to stable up to which there is no harm; None: not compared.
        maximum: Share up to which there is none whatever the stable pods do; None for none.
        allowed: Share up to which a canary beyond the margin does no harm, as of a latency.
        slack: How many times `allowed` the canary has to be shown to stay below.
    """

    name: str
    share: float
    margin: float | None = None
    maximum: float | None = None
    allowed: float | None = None
    slack: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """Counts by run, check, look and pod; a run is one upgrade.

    Attributes:
        checks: What is counted, in the order of the second axis.
        bad: Bad requests; pods of the canary come first. Of tokens' latencies they need not be
            whole.
        of: The requests that they are among.
        canaries: How many pods are the canary's.
        learned: Looks at the beginning in which the canary has no traffic yet.
        cold: Looks after that in which the canary's prefix cache has fewer hits than stable's.
        warmup: Looks after `learned` that a rule leaves out because the canary is warming up.
    """

    checks: tuple[Counted, ...]
    bad: Floats
    of: Floats
    canaries: int
    learned: int
    cold: int = 0
    warmup: int = 0

    def __post_init__(self) -> None:
        if self.bad.shape != self.of.shape or self.bad.ndim != 4:
            raise ValueError(
                f"bad and of are counts by run, check, look and pod, not of the shapes "
                f"{self.bad.shape} and {self.of.shape}"
            )

    @property
    def runs(self) -> int:
        """How many upgrades these are."""
        return int(self.bad.shape[0])

    @property
    def first(self) -> int:
        """The look from which on a rule compares."""
        return self.learned + self.warmup

    def sides(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Give canary bad, canary events, stable bad, stable events by run, check and look.

        Summed over pods; looks begin when the canary is compared.
        """
        canary, stable = np.s_[..., : self.canaries], np.s_[..., self.canaries :]
        bad, of = self.bad[:, :, self.first :], self.of[:, :, self.first :]
        return (
            bad[canary].sum(axis=-1),
            of[canary].sum(axis=-1),
            bad[stable].sum(axis=-1),
            of[stable].sum(axis=-1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one rule did in each run.

    Attributes:
        acted: Seconds from the canary's first traffic to the rollback; infinite for none.
        safe: Seconds until all checks were found safe; None for rules that do not say so.
    """

    acted: Floats
    safe: Floats | None = None


def together(parts: Sequence[Outcome]) -> Outcome:
    """Put the runs of several parts one after the other.

    Raises:
        ValueError: There is no part, or some say what is safe and some do not.
    """
    safe = [part.safe for part in parts if part.safe is not None]
    if not parts or len(safe) not in {0, len(parts)}:
        raise ValueError(f"{len(safe)} of {len(parts)} parts say what is safe: none or all have to")
    return Outcome(
        acted=np.concatenate([part.acted for part in parts]),
        safe=np.concatenate(safe) if safe else None,
    )


def seconds_to_first(hit: npt.NDArray[np.bool_], seconds: float, before: float) -> Floats:
    """Say when any check hits for the first time.

    Args:
        hit: By run, check and point of time.
        seconds: Between two points.
        before: Seconds that have passed at the beginning of the first point's span.

    Returns:
        By run: the end of the span of the first hit; infinite where there is none.
    """
    any_check = np.logical_or.reduce(hit, axis=1)
    end = before + (any_check.argmax(axis=1) + 1) * seconds
    return np.where(any_check.any(axis=1), end, math.inf)
