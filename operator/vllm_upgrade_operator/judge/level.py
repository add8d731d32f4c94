"""Checks of a gauge: queue depth, KV cache usage, KV cache capacity, accepted draft tokens.

Values of a gauge that follow each other are alike, so their number proves nothing: what counts is
that the canary is beyond the limit in block after block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from vllm_upgrade_operator.api.checks import RATIOS
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge import reading
from vllm_upgrade_operator.judge.events import Missing, key, lacking
from vllm_upgrade_operator.judge.held import CANARY_COUNT, CANARY_SUM, FLAGRANT_BLOCKS
from vllm_upgrade_operator.judge.words import count, over_stable, percent, phrase, relation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.counters import Delta
    from vllm_upgrade_operator.judge.held import Block, Held
    from vllm_upgrade_operator.judge.model import Look

CONSISTENT_BLOCKS = 5
"""Blocks in a row, the last ones, whose means must each be beyond the limit."""

MOST_PODS = 32
"""Stable pods that are followed one by one: this has to fit into a status."""

FLAGRANT_FACTOR = 4.0
"""Times the limit from which on fewer blocks are enough."""


GAUGES = frozenset(
    {Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE, Metric.KV_CAPACITY, Metric.DRAFT_ACCEPTANCE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What the window says.

    Attributes:
        canary: The canary's value, for display.
        stable: The stable pods' value, for display.
        compared: Whether there was a stable value to compare with.
        broken: A limit is broken for as long as it takes.
        doubtful: A limit is broken now: no reason to act, nor to go on.
        words: A clause with the value and the limit it was held against.
    """

    canary: str
    stable: str
    compared: bool
    broken: bool
    doubtful: bool
    words: str


def take(check: Check, look: Look, held: Held) -> Missing | None:
    """Take one look in; say what is missing where it cannot be used."""
    canary, gone = reading.by_pod(look.canary, lambda d: reading.level(check.metric, d))
    stable, gone_too = reading.by_pod(look.stable, lambda d: reading.level(check.metric, d))
    if missing := lacking(check, look, gone, gone_too):
        return missing
    if look.canary:
        held.requests += sum(d.offered or 0.0 for d in look.canary.values())
        held.alone = 0 if look.stable else held.alone + 1
    if check.metric is Metric.DRAFT_ACCEPTANCE:
        # A pod that drafted nothing has no share of it that was accepted.
        canary = {name: v for name, v in canary.items() if look.canary[name].draft_tokens}
        stable = {name: v for name, v in stable.items() if look.stable[name].draft_tokens}
        if look.canary and not canary:
            held.idle += 1
            return None
    held.idle = 0
    if _of_load(check) and not any(map(_works, look.stable.values())):
        # The queue of a pod that nobody asks is empty: that is nothing to be compared with.
        stable = {}
    pods = {key(name): (value, 1.0) for name, value in sorted(stable.items())[:MOST_PODS]}
    held.add(block(list(canary.values()), list(stable.values())) if canary else {}, pods)
    return None


def _of_load(check: Check) -> bool:
    return check.metric in (Metric.QUEUE_DEPTH, Metric.KV_CACHE_USAGE)


def _works(delta: Delta) -> bool:
    """Whether a pod got requests in the look, or has some."""
    return bool(delta.offered or delta.running or delta.waiting)


def block(canary: Sequence[float], stable: Sequence[float]) -> Block:
    """Write one look down: the canary pods' mean, and the stable pods' mean and extremes."""
    look = {CANARY_COUNT: 1.0, CANARY_SUM: sum(canary) / len(canary)}
    if stable:
        look |= {
            "sl": 1.0,
            "s": sum(stable) / len(stable),
            "s-": min(stable),
            "s+": max(stable),
        }
    return look


def weigh(check: Check, held: Held) -> Finding:
    """Say what the last blocks show."""
    show = percent if check.metric in RATIOS else count
    recent = held.recent(CONSISTENT_BLOCKS)
    last = recent[-1] if recent else held.current
    limits = _limits(check)
    over = [limit for limit in limits if limit.beyond(last)]
    broken = (
        len(recent) == CONSISTENT_BLOCKS
        and any(
            all(limit.harmed(b) for b in recent)
            and (limit.downwards or held.unprecedented(CONSISTENT_BLOCKS))
            for limit in limits
        )
    ) or (
        len(recent) >= FLAGRANT_BLOCKS
        and any(
            all(limit.harmed(b) and limit.far_beyond(b) for b in recent[-FLAGRANT_BLOCKS:])
            for limit in limits
        )
    )
    canary, stable = _mean(last, CANARY_SUM), _mean(last, "s")
    beside = "" if stable is None else f" (stable {show(stable)})"
    if check.metric is Metric.KV_CAPACITY and canary is not None and stable:
        beside = f" (stable {show(stable)}{_change(canary / stable - 1)})"
    return Finding(
        canary=show(canary),
        stable=show(stable),
        compared=stable is not None,
        broken=broken,
        doubtful=bool(over),
        words=phrase(
            show(canary) + beside,
            relation(clear=bool(over), beyond=False),
            [limit.words(show, last) for limit in over or limits],
        ),
    )


def _change(by: float) -> str:
    """Say that a capacity is another one: more is good news, and news all the same."""
    if round(by, 3) == 0:
        return ""
    return f": {'grown' if by > 0 else 'shrunk'} by {percent(abs(by))}"


class _Limit(Protocol):
    """One limit of a check."""

    downwards: ClassVar[bool]
    """Whether it is low values that break it."""

    def beyond(self, block: Block) -> bool:
        """Whether the canary's mean in a block is on the wrong side."""

    def far_beyond(self, block: Block) -> bool:
        """Whether it is so far on the wrong side that a burst does not explain it."""

    def harmed(self, block: Block) -> bool:
        """Whether it is, and more so than any stable pod."""

    def words(self, show: Callable[[float | None], str], block: Block) -> str:
        """Name the limit."""


@dataclass(frozen=True, slots=True)
class _Max:
    """A hard limit. Load that hurts stable pods as much is no reason to act on it."""

    limit: float
    downwards: ClassVar[bool] = False

    def beyond(self, block: Block) -> bool:
        return (_mean(block, CANARY_SUM) or 0.0) > self.limit

    def far_beyond(self, block: Block) -> bool:
        return (_mean(block, CANARY_SUM) or 0.0) > FLAGRANT_FACTOR * self.limit

    def harmed(self, block: Block) -> bool:
        worst = _mean(block, "s+")
        return self.beyond(block) and (worst is None or (_mean(block, CANARY_SUM) or 0.0) > worst)

    def words(self, show: Callable[[float | None], str], block: Block) -> str:
        del block
        return f"the limit of {show(self.limit)}"


@dataclass(frozen=True, slots=True)
class _Increase:
    """At most so many times the stable pods' value, where it is above a floor at all."""

    factor: float
    floor: float
    downwards: ClassVar[bool] = False

    def beyond(self, block: Block) -> bool:
        canary, worst = _mean(block, CANARY_SUM), _mean(block, "s+")
        if canary is None or worst is None:
            return False
        return canary > max(self.floor, self.factor * worst)

    def far_beyond(self, block: Block) -> bool:
        canary, worst = _mean(block, CANARY_SUM), _mean(block, "s+")
        if canary is None or worst is None:
            return False
        return canary > FLAGRANT_FACTOR * max(self.floor, self.factor * worst)

    def harmed(self, block: Block) -> bool:
        return self.beyond(block)

    def words(self, show: Callable[[float | None], str], block: Block) -> str:
        worst = _mean(block, "s+")
        if worst is None or self.factor * worst < self.floor:
            return f"the limit of {show(self.floor)} (the floor of this comparison)"
        return over_stable(show, worst, self.factor)


@dataclass(frozen=True, slots=True)
class _Decrease:
    """At least so many times the stable pods' value."""

    factor: float
    downwards: ClassVar[bool] = True

    def beyond(self, block: Block) -> bool:
        canary, worst = _mean(block, CANARY_SUM), _mean(block, "s-")
        return canary is not None and worst is not None and canary < self.factor * worst

    def far_beyond(self, block: Block) -> bool:
        return self.beyond(block)

    def harmed(self, block: Block) -> bool:
        return self.beyond(block)

    def words(self, show: Callable[[float | None], str], block: Block) -> str:
        return over_stable(show, _mean(block, "s-"), self.factor)


def _limits(check: Check) -> list[_Limit]:
    limits: list[_Limit] = []
    if check.max is not None:
        limits.append(_Max(check.max))
    if check.max_increase is not None:
        limits.append(_Increase(1 + check.max_increase, check.floor))
    if check.max_decrease is not None:
        limits.append(_Decrease(1 - check.max_decrease))
    return limits


def _mean(block: Block, key: str) -> float | None:
    """Average over the looks that had it."""
    looks = block.get(CANARY_COUNT if key == CANARY_SUM else "sl", 0.0)
    return block.get(key, 0.0) / looks if looks else None
