"""Checks of a ratio of counters: rejections, errors, preemptions, accepted drafts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge.evidence import FLAGRANT_BLOCKS, FLAGRANT_EVENTS
from vllm_upgrade_operator.judge.finding import Finding
from vllm_upgrade_operator.judge.tails import less_than, more_than, upper_tail
from vllm_upgrade_operator.judge.words import over_stable, percent, phrase, plural, relation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.evidence import Block, Evidence
    from vllm_upgrade_operator.judge.reading import Share

CHANCE = 1e-4
"""How unlikely a window must be under a limit that is kept, to be called broken."""
DOUBT = 0.05
"""How unlikely it must be to hold instead of going on."""
BAD_EVENTS = 5.0
"""Events by which the canary must be beyond what the limit allows."""
CONSISTENT_BLOCKS = 2
"""Blocks in a row, the last ones, that must each be beyond the limit: a single burst is not."""
FLAGRANT_FACTOR = 10.0
"""Times the limit from which on fewer blocks are enough."""
FLAGRANT_RATE = 0.2
"""Rate below which nothing is that bad, whatever the limit."""

CONSISTENT_BLOCKS_OF_QUEUES = 5
"""The same for what a full queue or cache causes: it comes in bursts as long as the queue lasts."""

_OF_QUEUES = frozenset({Metric.REJECTIONS, Metric.PREEMPTIONS})


def block(canary: Share, stable: Share | None) -> Block:
    """Write one look down."""
    look = {"cx": canary.events, "cn": canary.of, "cr": canary.requests}
    if stable is not None:
        look |= {"sx": stable.events, "sn": stable.of, "sr": stable.requests}
    return look


def weigh(check: Check, evidence: Evidence) -> Finding:
    """Say what the window shows."""
    window = evidence.window()
    blocks = CONSISTENT_BLOCKS_OF_QUEUES if check.metric in _OF_QUEUES else CONSISTENT_BLOCKS
    recent = evidence.recent(blocks)
    throughout = len(recent) == blocks
    noise = _noise([*evidence.closed, evidence.current])
    limits = _limits(check, window)
    last = evidence.recent(FLAGRANT_BLOCKS)
    flagrant = len(last) == FLAGRANT_BLOCKS and window.get("cx", 0.0) >= FLAGRANT_EVENTS
    broken = [
        limit
        for limit in limits
        if limit.harmed(window, noise)
        and (
            (throughout and all(limit.beyond(b) for b in recent))
            or (flagrant and all(limit.far_beyond(b) for b in last))
        )
    ]
    doubtful = [limit for limit in limits if limit.doubted(window, noise)]
    rate, stable_rate = _rate(window, "c"), _rate(window, "s")
    requests = window.get("cr", 0.0)
    named = broken or doubtful or limits
    return Finding(
        canary=percent(rate),
        stable=percent(stable_rate),
        stable_value=stable_rate,
        broken=bool(broken),
        doubtful=bool(doubtful),
        words=phrase(
            percent(rate),
            relation(
                clear=bool(broken or doubtful), beyond=any(limit.beyond(window) for limit in limits)
            ),
            [limit.words(stable_rate) for limit in named],
        )
        + f", in {plural(requests, 'request')}",
    )


class _Limit(Protocol):
    """One limit of a check."""

    def beyond(self, block: Block) -> bool:
        """Whether the rate in a block is on the wrong side, chance or not."""

    def far_beyond(self, block: Block) -> bool:
        """Whether it is so far on the wrong side that a burst does not explain it."""

    def harmed(self, window: Block, noise: float) -> bool:
        """Whether the window is too bad to be chance."""

    def doubted(self, window: Block, noise: float) -> bool:
        """Whether the window is bad enough not to go on."""

    def words(self, stable: float | None) -> str:
        """Name the limit."""


@dataclass(frozen=True, slots=True)
class _Max:
    """A hard limit. Load that hurts stable pods as much is no reason to act on it."""

    limit: float

    def beyond(self, block: Block) -> bool:
        return (_rate(block, "c") or 0.0) > self.limit

    def far_beyond(self, block: Block) -> bool:
        return (_rate(block, "c") or 0.0) > max(FLAGRANT_RATE, FLAGRANT_FACTOR * self.limit)

    def harmed(self, window: Block, noise: float) -> bool:
        canary, stable = _side(window, "c", noise), _side(window, "s", noise)
        if stable[1] > 0 and more_than(*canary, *stable, 1.0) > CHANCE:
            return False
        excess = canary[0] - canary[1] * self.limit
        return excess >= BAD_EVENTS and upper_tail(*canary, self.limit) <= CHANCE

    def doubted(self, window: Block, noise: float) -> bool:
        return upper_tail(*_side(window, "c", noise), self.limit) <= DOUBT

    def words(self, stable: float | None) -> str:
        beside = "" if stable is None else f" (stable {percent(stable)})"
        return f"the limit of {percent(self.limit)}{beside}"


@dataclass(frozen=True, slots=True)
class _Increase:
    """At most so many times the stable pods' rate."""

    factor: float

    def beyond(self, block: Block) -> bool:
        stable = _rate(block, "s")
        return stable is not None and (_rate(block, "c") or 0.0) > self.factor * stable

    def far_beyond(self, block: Block) -> bool:
        rate, stable = _rate(block, "c") or 0.0, _rate(block, "s")
        if stable is None:
            return False
        return rate > max(FLAGRANT_RATE, FLAGRANT_FACTOR * self.factor * stable)

    def harmed(self, window: Block, noise: float) -> bool:
        canary, stable = _side(window, "c", noise), _side(window, "s", noise)
        if stable[1] <= 0:
            return False
        excess = canary[0] - self.factor * canary[1] * stable[0] / stable[1]
        return excess >= BAD_EVENTS and more_than(*canary, *stable, self.factor) <= CHANCE

    def doubted(self, window: Block, noise: float) -> bool:
        canary, stable = _side(window, "c", noise), _side(window, "s", noise)
        return more_than(*canary, *stable, self.factor) <= DOUBT

    def words(self, stable: float | None) -> str:
        return over_stable(percent, stable, self.factor)


@dataclass(frozen=True, slots=True)
class _Decrease:
    """At least so many times the stable pods' rate."""

    factor: float

    def beyond(self, block: Block) -> bool:
        stable, rate = _rate(block, "s"), _rate(block, "c")
        return stable is not None and rate is not None and rate < self.factor * stable

    def far_beyond(self, block: Block) -> bool:
        stable, rate = _rate(block, "s"), _rate(block, "c")
        return stable is not None and rate is not None and FLAGRANT_FACTOR * rate < stable

    def harmed(self, window: Block, noise: float) -> bool:
        canary, stable = _side(window, "c", noise), _side(window, "s", noise)
        return less_than(*canary, *stable, self.factor) <= CHANCE

    def doubted(self, window: Block, noise: float) -> bool:
        canary, stable = _side(window, "c", noise), _side(window, "s", noise)
        return less_than(*canary, *stable, self.factor) <= DOUBT

    def words(self, stable: float | None) -> str:
        return over_stable(percent, stable, self.factor)


def _limits(check: Check, window: Block) -> list[_Limit]:
    limits: list[_Limit] = []
    if check.max is not None:
        limits.append(_Max(check.max))
    if window.get("sn"):
        if check.max_increase is not None:
            limits.append(_Increase(1 + check.max_increase))
        if check.max_decrease is not None:
            limits.append(_Decrease(1 - check.max_decrease))
    return limits


def _rate(block: Block, side: str) -> float | None:
    of = block.get(side + "n", 0.0)
    return max(0.0, block.get(side + "x", 0.0)) / of if of > 0 else None


def _side(block: Block, side: str, noise: float) -> tuple[float, float]:
    """Give events and trials as if they were independent.

    Tokens of one request share its fate, so no more than its requests count as trials; and
    events that come in bursts count as so many fewer.
    """
    events, of = max(0.0, block.get(side + "x", 0.0)), block.get(side + "n", 0.0)
    if of <= 0:
        return 0.0, 0.0
    scale = min(1.0, block.get(side + "r", 0.0) / of) / noise
    return events * scale, of * scale


def _noise(blocks: Sequence[Block]) -> float:
    """Estimate how many times more than Poisson counts the stable pods' events vary; at least 1.

    From the blocks of the window: the stable pods alone tell what is usual, and a canary that
    gets worse must not hide behind its own change.
    """
    known = [b for b in blocks if b.get("sn", 0.0) > 0]
    events = sum(max(0.0, b.get("sx", 0.0)) for b in known)
    if len(known) < 3 or events <= 0:
        return 1.0
    rate = events / sum(b["sn"] for b in known)
    squares = sum((b.get("sx", 0.0) - rate * b["sn"]) ** 2 / (rate * b["sn"]) for b in known)
    return max(1.0, squares / (len(known) - 1))
