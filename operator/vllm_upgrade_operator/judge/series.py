"""Bad events among events, of canary and stable pods, look by look, and the evidence in them.

A series is one kind of bad event: a rejected request, a request above a bucket bound. A `Bet` on
it is one limit that the canary has to keep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge import spread
from vllm_upgrade_operator.judge.flagrant import LOOKS, Seen, flagrant
from vllm_upgrade_operator.judge.noise import Noise, Pairs, State
from vllm_upgrade_operator.judge.ranks import Ranks
from vllm_upgrade_operator.judge.safety import Safety
from vllm_upgrade_operator.judge.wager import Wager

if TYPE_CHECKING:
    from collections.abc import Mapping

BLOCK_LOOKS = 12
"""Looks of a block: two minutes with the default interval, longer than most bursts."""

FAST_PART = 0.8
"""Part of the stake on counts; the rest is on ranks."""

ALONE_LOOKS = 5
"""Looks without a stable pod after which they are taken for gone for good, as in a bake."""

FEW_EVENTS = 5.0
"""Bad events of the canary up to which a ratio says nothing."""

FLOOR = 0.01
"""Share of bad events that a canary has to be shown to stay below, where no limit is given and bad
events are too rare to compare."""

LEAST_MARGIN = 1.5
"""Margin whose square nobody has to be shown to stay below if theirs is less: it takes hours."""

LEAST_SHARE = 0.002
"""Share of bad events below which nobody has to be shown to stay: it takes 2,000 requests."""

MOST_PODS = 64
"""Stable pods, those that have gone too, that are remembered one by one."""

_LEAST_BAD_FOR_GATE = 3.0
_QUARTER = 0.25
_FADE = 1 - 1 / spread.RECENT_LOOKS

Counts = tuple[float, float]
"""Bad events, and of how many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a bet is about.

    Attributes:
        margin: How many times the stable pods' share of bad events the canary's may be.
        limit: Share that is allowed whatever the stable pods have; None where only they count.
            With a limit harm is a canary that is beyond both.
        slack: How many times the limit a canary has to be shown to stay below: to be just at it is
            allowed, and nobody can show to be below just that.
        floor: Share below which bad events are good enough where they are too rare to compare.
    """

    margin: float
    limit: float | None = None
    slack: float = 1.0
    floor: float = FLOOR

    @property
    def must_not(self) -> float:
        """How many times as bad as the stable pods a canary must be shown not to be."""
        return max(self.margin, LEAST_MARGIN) ** 2

    @property
    def must_not_share(self) -> float:
        """The share of bad events that it must be shown not to have."""
        if self.limit is None:
            return self.floor
        return min(0.95, max(LEAST_SHARE, self.limit * self.slack))


@dataclass(slots=True)
class Bet:
    """The evidence for and against one limit."""

    compared: Wager = field(default_factory=Wager)
    limited: Wager = field(default_factory=Wager)
    ranks: Ranks = field(default_factory=Ranks)
    safety: Safety = field(default_factory=Safety)


@dataclass(slots=True)
class Series:
    """What is kept of one kind of bad event.

    Attributes:
        bets: The evidence, one per limit.
        noise: What the stable pods taught.
        looks: Looks taken so far.
        canary: Of the present block, by pod.
        stable: Of the present block, by pod.
        single: Of the present block, by look; only where there is one stable pod.
        pods: Of stable pods since the beginning.
        totals: Canary's and stable pods' since the canary began.
        recent: The same, fading.
        last: The last looks.
        alone: Looks in a row without a stable pod.
        allowance: How many times worse than a stable pod the canary may be by nature.
    """

    bets: list[Bet]
    noise: Noise = field(default_factory=Noise)
    looks: int = 0
    canary: dict[str, Counts] = field(default_factory=dict)
    stable: dict[str, Counts] = field(default_factory=dict)
    single: list[Counts] = field(default_factory=list)
    pods: dict[str, Counts] = field(default_factory=dict)
    totals: list[float] = field(default_factory=lambda: [0.0] * 4)
    recent: list[float] = field(default_factory=lambda: [0.0] * 4)
    last: list[Seen] = field(default_factory=list)
    alone: int = 0
    allowance: float = math.inf

    def look(
        self, terms: list[Terms], canary: Mapping[str, Counts], stable: Mapping[str, Counts]
    ) -> None:
        """Take in one look.

        Args:
            terms: One per bet.
            canary: By pod; empty while the canary does not count yet, and nothing but the noise is
                learned.
            stable: By pod.
        """
        self.noise.look(list(stable.values()))
        _add(self.pods, stable)
        _add(self.stable, stable)
        if len(stable) == 1:
            self.single.extend(stable.values())
        if canary:
            self._count(terms, canary, stable)
        self.looks += 1
        if self.looks % BLOCK_LOOKS == 0:
            self._close(terms)

    def _count(
        self, terms: list[Terms], canary: Mapping[str, Counts], stable: Mapping[str, Counts]
    ) -> None:
        _add(self.canary, canary)
        x1, n1 = _total(canary)
        x0, n0 = _total(stable)
        self.alone = 0 if stable else self.alone + 1
        if self.alone == ALONE_LOOKS:
            # What was won beside stable pods that were as bad is not won against them.
            for bet in self.bets:
                bet.limited = Wager(cap=bet.limited.cap)
        if stable and (self.allowance == math.inf or self.looks % BLOCK_LOOKS == 0):
            total = Pairs()
            total.add(self.pods.values())
            self.allowance = spread.allowance(len(canary), len(stable), total.sure_excess)
        load = n1 / len(canary) / (n0 / len(stable)) if n0 > 0 else 0.0
        self.last = [*self.last, Seen(x1, n1, x0, n0, load)][-LOOKS:]
        for i, value in enumerate((x1, n1, x0, n0)):
            self.totals[i] += value
            self.recent[i] = self.recent[i] * _FADE + value
        state = self.noise.state
        # Without stable pods there is nothing more to learn, and all pods are the candidate's.
        at_once = state is State.QUIET or (self.is_alone and state is not State.LOUD)
        # In a clump of bad events only the first is news.
        w = self.noise.weight
        for bet, term in zip(self.bets, terms, strict=True):
            if n0 > 0 and n1 > 0:
                null = n1 * term.margin / (n1 * term.margin + n0)
                bet.compared.look(w * x1, w * (x1 + x0), null, at_once=at_once)
            if term.limit is not None:
                bet.limited.look(w * x1, w * n1, term.limit, at_once=at_once)
            if state is State.LOUD:
                bet.safety.keep((x1, n1), (x0, n0))
            else:
                bet.safety.look(
                    (w * x1, w * n1), (w * x0, w * n0), term.must_not, term.must_not_share
                )

    def _close(self, terms: list[Terms]) -> None:
        """End a block."""
        self.noise.block(list(self.stable.values()), BLOCK_LOOKS, self.single)
        cap, dispersion = self.noise.block_cap, self.noise.dispersion
        most = max((n for _, n in self.stable.values()), default=0.0)
        canary = [(x, n) for x, n in self.canary.values() if n > 0]
        enough = all(n >= _QUARTER * most for _, n in canary)
        for bet, term in zip(self.bets, terms, strict=True):
            bet.compared.close(cap)
            bet.limited.close(cap)
            bet.safety.close(
                term.must_not,
                term.must_not_share,
                (len(self.canary), len(self.stable)),
                dispersion,
            )
            if enough:
                least = term.limit or 0.0
                bet.ranks.block(
                    [x / n / term.margin if x > least * n else 0.0 for x, n in canary],
                    [x / n for x, n in self.stable.values() if n > 0],
                )
        self.canary, self.stable, self.single = {}, {}, []
        while len(self.pods) > MOST_PODS:
            del self.pods[next(iter(self.pods))]

    def evidence(self, index: int, term: Terms) -> float:
        """Give the evidence that the canary breaks a limit, if pods are alike; 1 is none."""
        bet = self.bets[index]
        loud = self.noise.state is State.LOUD
        if self.is_alone:
            return 0.0 if loud else bet.limited.value
        counts = 0.0 if loud else bet.compared.value
        if term.limit is not None:
            counts = min(counts, bet.limited.value)
        return FAST_PART * counts + (1 - FAST_PART) * bet.ranks.value

    def harm(self, index: int, term: Terms) -> float:
        """Give the evidence that it does, and not for being a pod of its own."""
        evidence = self.evidence(index, term)
        # Less than at the beginning is no evidence, whatever the pods are like.
        return evidence if evidence <= 1 or self.is_alone or self.gate_open(term) else 0.0

    def flagrant(self, term: Terms, *, of_load: bool) -> bool:
        """Whether the last looks are too bad to wait for evidence."""
        allowed = term.limit
        if allowed is None:
            # All that was seen since the beginning: a few looks may be calm by chance.
            bad, of = _total(self.pods)
            allowed = term.margin * bad / of if of > 0 else 0.0
        noisy = self.noise.state is State.LOUD
        return flagrant(self.last, allowed, of_load=of_load, noisy=noisy)

    def gate_open(self, term: Terms) -> bool:
        """Whether the canary is lately worse than pods that differ would be."""
        x1, n1, x0, n0 = self.recent
        if self.totals[0] < _LEAST_BAD_FOR_GATE or n1 <= 0 or n0 <= 0:
            return False
        # Odds, for a share has no room above 1.
        odds, stable_odds = (x1 + 0.5) / (n1 - x1 + 0.5), (x0 + 0.5) / (n0 - x0 + 0.5)
        return odds > term.margin * self.allowance * stable_odds

    def safe(self, index: int, term: Terms) -> bool:
        """Whether the canary was shown to keep a limit, and still looks like it."""
        return (
            self.bets[index].safety.shown
            and not self.beyond(term)
            and not self.beyond_with_stable(term)
        )

    def beyond_with_stable(self, term: Terms) -> bool:
        """Whether it is beyond a limit of its own, as stable pods may be too."""
        x1, n1, _, _ = self.totals
        if term.limit is None or term.margin > 1 or x1 < FEW_EVENTS:
            return False
        return x1 > term.limit * n1

    def beyond(self, term: Terms) -> bool:
        """Whether the canary's share is on the wrong side, chance or not."""
        x1, n1, x0, n0 = self.totals
        if n1 <= 0 or x1 < FEW_EVENTS:
            return False
        over_limit = term.limit is None or x1 > term.limit * n1
        over_stable = n0 <= 0 or x1 * n0 > term.margin * x0 * n1
        return over_limit and over_stable

    @property
    def is_alone(self) -> bool:
        """Whether stable pods are gone for good."""
        return self.alone >= ALONE_LOOKS

    @property
    def share(self) -> float | None:
        """The canary's share of bad events since it began."""
        x1, n1, _, _ = self.totals
        return x1 / n1 if n1 > 0 else None

    @property
    def stable_share(self) -> float:
        """The stable pods' share of bad events over the same time; 0 where it is not known."""
        _, _, x0, n0 = self.totals
        return x0 / n0 if n0 > 0 else 0.0


def _add(sums: dict[str, Counts], more: Mapping[str, Counts]) -> None:
    for name, (x, n) in more.items():
        before = sums.get(name, (0.0, 0.0))
        sums[name] = (before[0] + x, before[1] + n)


def _total(pods: Mapping[str, Counts]) -> Counts:
    return sum(x for x, _ in pods.values()), sum(n for _, n in pods.values())
