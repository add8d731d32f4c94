"""A check that counts bad events: what it keeps, how a look gets in, and what comes out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.judge import bounds as places
from vllm_upgrade_operator.judge import state as kept
from vllm_upgrade_operator.judge.bounds import Place
from vllm_upgrade_operator.judge.events import Latencies, Missing, counted, latencies
from vllm_upgrade_operator.judge.series import FLOOR, Bet, Series, Terms

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.events import Buckets
    from vllm_upgrade_operator.judge.model import Look

SHOWN_LOOKS = 60
"""Looks over which values are shown: what was long ago fades."""

UNASKED_LOOKS = 5
"""Looks without a request to a stable pod after which there is nothing to compare with."""

_FADE = 1 - 1 / SHOWN_LOOKS

# Stable pods' observations in the tail before a limit is placed there; fewer are enough where the
# canary is waiting for it.
_IN_TAIL = 10.0
_IN_TAIL_AT_LEAST = 5.0


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit of a check, and the evidence for it.

    Attributes:
        terms: What the bet is about.
        series: The events.
        index: Of the bet.
        relative: Whether the limit follows from the stable pods.
    """

    terms: Terms
    series: Series
    index: int
    relative: bool

    def harm(self) -> float:
        """Give the evidence of harm; 1 is none."""
        return self.series.harm(self.index, self.terms)

    def suspicion(self) -> float:
        """Give the evidence of harm whatever pods are like by nature."""
        return self.series.evidence(self.index, self.terms)

    def safe(self) -> bool:
        """Whether the canary was shown to keep it."""
        return self.series.safe(self.index, self.terms)


@dataclass(slots=True)
class Counted:
    """What one check keeps.

    Attributes:
        relative: Events that are held against the stable pods; all there are where both limits are
            about the same events.
        absolute: Events above `max`, of a latency.
        place: Where a latency's limit by the stable pods is.
        bounds: Bucket bounds of a latency.
        learned: Stable pods' observations per bucket, until there is a place.
        shown: Fading observations per bucket of canary and stable pods, or bad events and requests
            of both.
        requests: Canary requests so far.
        idle: Looks in a row in which the canary had none.
        alone: Looks in a row without a stable pod.
        unasked: Looks in a row in which no stable pod had requests.
        asked: Looks in which one had.
    """

    relative: Series | None = None
    absolute: Series | None = None
    place: Place | None = None
    bounds: tuple[float, ...] = ()
    learned: list[float] = field(default_factory=list)
    shown: list[list[float]] = field(default_factory=lambda: [[], []])
    requests: float = 0.0
    idle: int = 0
    alone: int = 0
    unasked: int = 0
    asked: int = 0

    @property
    def has_peers(self) -> bool:
        """Whether there are stable pods that had requests lately."""
        return self.asked > 0 and self.unasked < UNASKED_LOOKS

    def take(self, check: Check, look: Look) -> Missing | None:
        """Take one look in; say what is missing where it cannot be used."""
        if check.metric in LATENCIES:
            read = latencies(check, look)
            if isinstance(read, Missing):
                return read
            self._take_latencies(check, read)
            canary = [b.requests for b in read.canary.values()]
            self._note(canary, [b.requests for b in read.stable.values()])
            return None
        events = counted(check, look)
        if isinstance(events, Missing):
            return events
        if self.relative is None:
            self.relative = Series([Bet() for _ in _terms(check)])
        self.relative.look(_terms(check), events.canary, events.stable)
        self._show([_sum(events.canary.values()), _sum(events.stable.values())])
        canary = [n for _, n in events.canary.values()]
        self._note(canary, [n for _, n in events.stable.values()])
        return None

    def _note(self, canary: list[float], stable: list[float]) -> None:
        """Note the requests of each pod; without a canary pod there is nothing to compare."""
        if sum(stable) > 0:
            self.asked, self.unasked = self.asked + 1, 0
        else:
            self.unasked += 1
        if canary:
            self.requests += sum(canary)
            self.idle = 0 if sum(canary) > 0 else self.idle + 1
            self.alone = 0 if stable else self.alone + 1

    def _take_latencies(self, check: Check, read: Latencies) -> None:
        if read.bounds != self.bounds and read.bounds:
            self.relative = self.absolute = self.place = None
            self.learned, self.shown = [], [[], []]
            self.bounds = read.bounds
        self._show([_added(read.canary.values()), _added(read.stable.values())])
        if not self.bounds or check.quantile is None:
            return
        if check.max is not None:
            place = places.of_limit(self.bounds, check.quantile, check.max)
            self.absolute = self.absolute or Series([Bet()])
            events = read.slower(place.index)
            self.absolute.look([_placed(place)], events.canary, events.stable)
        if check.max_increase is None:
            return
        if self.place is None:
            self._learn(check.quantile, check.max_increase, read)
        if self.place is not None:
            self.relative = self.relative or Series([Bet()])
            events = read.slower(self.place.index)
            self.relative.look([_placed(self.place)], events.canary, events.stable)

    def _learn(self, q: float, increase: float, read: Latencies) -> None:
        """Look for the limit's place until stable pods have shown enough of their tail."""
        seen = _added(read.stable.values())
        if not seen:
            return
        self.learned = [a + b for a, b in zip(self.learned or [0.0] * len(seen), seen, strict=True)]
        in_tail = sum(self.learned) * (1 - q)
        if in_tail >= (_IN_TAIL_AT_LEAST if read.canary else _IN_TAIL):
            self.place = places.of_stable(self.bounds, self.learned, q, increase)
            self.learned = []

    def _show(self, sides: list[list[float]]) -> None:
        for i, more in enumerate(sides):
            if more:
                before = self.shown[i] or [0.0] * len(more)
                self.shown[i] = [b * _FADE + m for b, m in zip(before, more, strict=True)]

    def limits(self, check: Check) -> list[Limit]:
        """Give the limits that there is evidence on."""
        found: list[Limit] = []
        if check.metric in LATENCIES:
            if self.relative is not None and self.place is not None:
                found.append(Limit(_placed(self.place), self.relative, 0, relative=True))
            if self.absolute is not None and check.max is not None and check.quantile is not None:
                place = places.of_limit(self.bounds, check.quantile, check.max)
                found.append(Limit(_placed(place), self.absolute, 0, relative=False))
        elif self.relative is not None:
            found += [
                Limit(terms, self.relative, i, relative=terms.limit is None)
                for i, terms in enumerate(_terms(check))
            ]
        return found

    def dump(self) -> dict[str, Any]:
        """Write it down as plain lists and numbers."""
        place = self.place
        return {
            "r": None if self.relative is None else kept.dump(self.relative),
            "a": None if self.absolute is None else kept.dump(self.absolute),
            "p": place and [place.index, place.allowed, place.margin, place.slack, place.quantile],
            # JSON has no infinity; the last bound always is.
            "le": list(self.bounds[:-1]),
            "l": self.learned,
            "w": self.shown,
            "n": [self.requests, self.idle, self.alone, self.unasked, self.asked],
        }

    @classmethod
    def load(cls, raw: dict[str, Any]) -> Counted:
        """Read what `dump` wrote."""
        bounds = tuple(float(b) for b in raw["le"])
        requests, idle, alone, unasked, asked = raw["n"]
        return cls(
            relative=None if raw["r"] is None else kept.load(raw["r"]),
            absolute=None if raw["a"] is None else kept.load(raw["a"]),
            place=None if raw["p"] is None else Place(*raw["p"]),
            bounds=(*bounds, math.inf) if bounds else (),
            learned=raw["l"],
            shown=raw["w"],
            requests=requests,
            idle=idle,
            alone=alone,
            unasked=unasked,
            asked=asked,
        )


def _terms(check: Check) -> list[Terms]:
    """Give the limits of a check of rejections, errors or preemptions."""
    terms: list[Terms] = []
    if check.max_increase is not None:
        floor = FLOOR if check.max is None else min(0.95, check.max)
        terms.append(Terms(margin=1 + check.max_increase, floor=floor))
    if check.max is not None and check.max < 1:
        terms.append(Terms(margin=1.0, limit=check.max))
    return terms


def _placed(place: Place) -> Terms:
    return Terms(margin=place.margin, limit=place.allowed, slack=place.slack)


def _sum(counts: Iterable[tuple[float, float]]) -> list[float]:
    bad = of = 0.0
    for x, n in counts:
        bad, of = bad + x, of + n
    return [bad, of]


def _added(pods: Iterable[Buckets]) -> list[float]:
    """Add up the observations per bucket."""
    return [sum(column) for column in zip(*(b.counts for b in pods), strict=True)]
