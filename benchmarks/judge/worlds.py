"""What traffic and servers are like in a synthetic case."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from benchmarks.judge.traces import Counted

ERRORS = Counted(name="errors", share=0.001, maximum=0.01)
PREEMPTIONS = Counted(name="preemptions", share=0.002, margin=2.0)
REJECTIONS = Counted(name="rejections", share=0.005, margin=1.5, maximum=0.01)
# At most 1 % above 2 s: another bucket than that of the comparison.
SLOWEST = Counted(name="ttft-max", share=0.001, maximum=0.01)


def _p99(name: str) -> Counted:
    """At most 1 % above 1.3 times stable's p99, above which stable has 0.7 %."""
    return Counted(name=name, share=0.007, margin=0.01 / 0.007, allowed=0.01, slack=1.3)


DEFAULTS: tuple[Counted, ...] = (
    REJECTIONS,
    _p99("ttft"),
    _p99("itl"),
    _p99("e2e"),
    SLOWEST,
    ERRORS,
    PREEMPTIONS,
)
"""The default checks, as counts."""

SHARES: tuple[Counted, ...] = (
    REJECTIONS,
    Counted(name="ttft", share=0.05, margin=1.3),
    Counted(name="itl", share=0.05, margin=1.3),
    Counted(name="e2e", share=0.05, margin=1.3),
    SLOWEST,
    ERRORS,
    PREEMPTIONS,
)
"""The same with latency checks on the share above stable's p95: more events, so both more power
and more that noise can do."""

TAILS = ("ttft", "itl", "e2e")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """A gamma-distributed factor on the share of bad requests in a look, of mean 1.

    Attributes:
        cv: Its coefficient of variation.
        shared: Whether all pods have the same.
        persistence: Correlation between looks that follow each other, before the normal
            distribution is made a gamma distribution.
        per_check: Whether each check has its own.
    """

    cv: float
    shared: bool = False
    persistence: float = 0.0
    per_check: bool = False


class Spread(Enum):
    """Pods that differ all the time: a log-normal factor on the share of bad requests."""

    NONE = "none"
    PER_POD = "one factor per pod"
    PER_CHECK = "one factor per pod and check"


SPREAD_LOG_SD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Harm:
    """What the candidate does to the share of bad requests.

    Attributes:
        checks: Where it shows.
        factor: By how much.
        onset_minutes: After the canary's first traffic.
        ramp_minutes: From the onset to the whole of it, growing evenly.
        minutes: How long it lasts; None: to the end.
    """

    checks: tuple[str, ...]
    factor: float
    onset_minutes: float = 0.0
    ramp_minutes: float = 0.0
    minutes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A case.

    Attributes:
        checks: What is counted.
        canaries: Pods of the canary.
        stables: Stable pods.
        rate: Requests per second and pod.
        learn_minutes: Minutes that stable pods are seen before the canary has traffic.
        minutes: Minutes that the canary is seen.
        canary_weight: Requests of a canary pod for each one of the mean stable pod.
        uneven: Whether stable pods get unequal shares: half, three quarters, and so on, of the
            mean.
        day: Whether traffic follows a day, and the share of bad requests follows traffic.
        silence: Whether there is no traffic at all for ten minutes in the middle.
        bursts: Noise by look; None for none.
        spread: Pods that differ.
        harm: What is wrong with the canary; None for nothing.
        at_margin: Whether the canary is as bad as its margins allow, in all checks: no harm yet.
        cold: Whether the canary's tails are four times as heavy in the first two minutes.
    """

    checks: tuple[Counted, ...] = SHARES
    canaries: int = 1
    stables: int = 3
    rate: float = 10.0
    learn_minutes: float = 10.0
    minutes: float = 120.0
    canary_weight: float = 1.0
    uneven: bool = False
    day: bool = False
    silence: bool = False
    bursts: Bursts | None = None
    spread: Spread = Spread.NONE
    harm: Harm | None = None
    at_margin: bool = False
    cold: bool = False
