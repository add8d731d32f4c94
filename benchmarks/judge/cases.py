"""The cases, by the question that they answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from benchmarks.judge.library import Setting
from benchmarks.judge.recording import Arrivals, Server
from benchmarks.judge.worlds import DEFAULTS, TAILS, Bursts, Harm, Spread, World


class Question(Enum):
    """What a table and a plot answer."""

    NOISE = "How often is a harmless upgrade rolled back?"
    FLEETS = "And with other numbers of pods and other traffic?"
    HARM = "How soon is harm rolled back?"
    HARM_IN_NOISE = "How soon is harm found that comes late, or within noise?"
    HARM_IN_FLEETS = "How soon with other numbers of pods and other traffic?"
    SAFE = "How soon is a harmless upgrade found safe?"
    ENGINE = "And on traces of the simulated engine?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case.

    Attributes:
        name: Says what is special about it; unique.
        question: Where it is shown.
        source: What it is made of.
        runs: Upgrades in a whole run of the benchmark.
        quick: Whether a quick run has it too.
        bound: The check whose Wald bound its times are held against; None: none is known.
    """

    name: str
    question: Question
    source: World | Setting
    runs: int = 500
    quick: bool = False
    bound: str | None = None

    @property
    def harmful(self) -> bool:
        """Whether a rollback is right. Harm that has gone away is none that asks for one."""
        if isinstance(self.source, World):
            return self.source.harm is not None and self.source.harm.minutes is None
        return self.source.canary != self.source.stable and not self.source.canary.cold

    @property
    def onset_seconds(self) -> float:
        """When harm starts, after the canary's first traffic."""
        if isinstance(self.source, World) and self.source.harm is not None:
            return self.source.harm.onset_minutes * 60
        return 0.0

    @property
    def harmed_checks(self) -> tuple[str, ...]:
        """The checks in which bad requests are counted that a rollback would have spared."""
        if isinstance(self.source, World):
            return () if self.source.harm is None else self.source.harm.checks
        return ("rejections", *TAILS)


_DEFAULT = World(checks=DEFAULTS)
_SHARES = World()


def _rejections(factor: float, **more: float) -> Harm:
    return Harm(checks=("rejections",), factor=factor, **more)


def _tail(factor: float, checks: tuple[str, ...] = ("ttft",)) -> Harm:
    return Harm(checks=checks, factor=factor)


def _noise() -> list[Case]:
    worlds = {
        "Poisson": _SHARES,
        "day curve": replace(_SHARES, day=True),
        "unequal shares": replace(_SHARES, uneven=True, canary_weight=0.6),
        "shared bursts, cv 1": replace(_SHARES, bursts=Bursts(cv=1, shared=True)),
        "shared bursts, cv 2": replace(_SHARES, bursts=Bursts(cv=2, shared=True)),
        "independent bursts, cv 1": replace(_SHARES, bursts=Bursts(cv=1)),
        "independent bursts, cv 2": replace(_SHARES, bursts=Bursts(cv=2)),
        "bursts that persist, cv 1": replace(_SHARES, bursts=Bursts(cv=1, persistence=0.8)),
        "bursts that persist, cv 2": replace(_SHARES, bursts=Bursts(cv=2, persistence=0.8)),
        "bursts that persist, cv 2, anew per check": replace(
            _SHARES, bursts=Bursts(cv=2, persistence=0.8, per_check=True)
        ),
        "pods that differ": replace(_SHARES, spread=Spread.PER_POD),
        "pods that differ, anew per check": replace(_SHARES, spread=Spread.PER_CHECK),
        "default checks, Poisson": _DEFAULT,
        "default checks, bursts that persist, cv 2": replace(
            _DEFAULT, bursts=Bursts(cv=2, persistence=0.8)
        ),
        "default checks, pods that differ": replace(_DEFAULT, spread=Spread.PER_POD),
        "exactly at the margin": replace(_SHARES, at_margin=True),
        "cold cache for 2 min": replace(_SHARES, cold=True),
        "default checks, cold cache for 2 min": replace(_DEFAULT, cold=True),
        "4x rejections for 2 min, then fine": replace(_DEFAULT, harm=_rejections(4, minutes=2)),
        "10 min of silence": replace(_DEFAULT, silence=True),
    }
    # So many that the interval's upper end can be held against a target.
    many = {"bursts that persist, cv 1", "bursts that persist, cv 2", "pods that differ"}
    quick = {"Poisson", "bursts that persist, cv 2", "pods that differ", "cold cache for 2 min"}
    return [
        Case(
            name=name,
            question=Question.NOISE,
            source=world,
            runs=2000 if name in many else 500,
            quick=name in quick,
        )
        for name, world in worlds.items()
    ]


_BURSTS = Bursts(cv=2, persistence=0.8)


def _fleets() -> list[Case]:
    fleets = {
        "1 canary, 1 stable": (replace(_SHARES, stables=1, learn_minutes=30)),
        "1 canary, 2 stable": (replace(_SHARES, stables=2, learn_minutes=20)),
        "1 canary, 16 stable": (replace(_SHARES, stables=16)),
        "2 canary, 3 stable": (replace(_SHARES, canaries=2)),
        "4 canary, 16 stable": (replace(_SHARES, canaries=4, stables=16)),
        "1 request/s": replace(_SHARES, rate=1),
        "3 requests/s": replace(_SHARES, rate=3),
        "50 requests/s": replace(_SHARES, rate=50),
        "canary gets 1 % of the traffic": replace(_SHARES, canary_weight=0.03),
    }
    kinds = {
        "bursts that persist, cv 2": {"bursts": _BURSTS},
        "pods that differ": {"spread": Spread.PER_POD},
    }
    return [
        Case(
            name=f"{fleet}: {kind}",
            question=Question.FLEETS,
            source=replace(world, **changes),  # type: ignore[arg-type]
            runs=200,
        )
        for kind, changes in kinds.items()
        for fleet, world in fleets.items()
    ]


def _harm() -> list[Case]:
    rejections = [
        Case(
            name=f"{factor:g}x rejections",
            question=Question.HARM,
            source=replace(_DEFAULT, harm=_rejections(factor)),
            quick=factor in {4, 10},
            bound="rejections" if factor > 1.5 else None,
            runs=200 if factor < 3 else 1000,
        )
        for factor in (1.5, 2, 3, 4, 10)
    ]
    tails = {
        "5 % tail doubled": (_SHARES, _tail(2)),
        "5 % tail 4x": (_SHARES, _tail(4)),
        "5 % tail doubled in three checks": (_SHARES, _tail(2, TAILS)),
        "p99 tail doubled": (_DEFAULT, _tail(2)),
        "p99 tail 4x": (_DEFAULT, _tail(4)),
        "p99 tail doubled in three checks": (_DEFAULT, _tail(2, TAILS)),
    }
    return rejections + [
        Case(
            name=name,
            question=Question.HARM,
            source=replace(world, harm=harm),
            quick=name == "5 % tail doubled",
            bound="ttft" if len(harm.checks) == 1 else None,
        )
        for name, (world, harm) in tails.items()
    ]


def _late() -> list[Case]:
    worlds = {
        "ramp to 4x rejections over 10 min": replace(
            _DEFAULT, harm=_rejections(4, ramp_minutes=10)
        ),
        "4x rejections from minute 30": replace(_DEFAULT, harm=_rejections(4, onset_minutes=30)),
        "4x rejections from minute 60": replace(_DEFAULT, harm=_rejections(4, onset_minutes=60)),
    }
    noises = {
        "shared bursts, cv 2": Bursts(cv=2, shared=True),
        "independent bursts, cv 1": Bursts(cv=1),
        "independent bursts, cv 2": Bursts(cv=2),
        "bursts that persist, cv 1": Bursts(cv=1, persistence=0.8),
        "bursts that persist, cv 2": _BURSTS,
    }
    worlds |= {
        f"4x rejections, {name}": replace(_DEFAULT, harm=_rejections(4), bursts=bursts)
        for name, bursts in noises.items()
    }
    worlds["4x rejections, pods that differ"] = replace(
        _DEFAULT, harm=_rejections(4), spread=Spread.PER_POD
    )
    worlds["5 % tail doubled, pods that differ"] = replace(
        _SHARES, harm=_tail(2), spread=Spread.PER_POD
    )
    return [
        Case(
            name=name,
            question=Question.HARM_IN_NOISE,
            source=world,
            runs=300,
            quick=name == "4x rejections from minute 60",
        )
        for name, world in worlds.items()
    ]


def _harm_in_fleets() -> list[Case]:
    fleets = {
        "1 canary, 1 stable": {"stables": 1, "learn_minutes": 30},
        "1 canary, 2 stable": {"stables": 2, "learn_minutes": 20},
        "1 canary, 16 stable": {"stables": 16},
        "2 canary, 3 stable": {"canaries": 2},
        "4 canary, 16 stable": {"canaries": 4, "stables": 16},
        "1 request/s": {"rate": 1.0},
        "3 requests/s": {"rate": 3.0},
        "50 requests/s": {"rate": 50.0},
        "canary gets 1 % of the traffic": {"canary_weight": 0.03},
    }
    harms = {
        "4x rejections": (_DEFAULT, _rejections(4)),
        "5 % tail doubled": (_SHARES, _tail(2)),
    }
    return [
        Case(
            name=f"{harm_name}, {fleet}",
            question=Question.HARM_IN_FLEETS,
            source=replace(world, harm=harm, **changes),  # type: ignore[arg-type]
            runs=200,
        )
        for harm_name, (world, harm) in harms.items()
        for fleet, changes in fleets.items()
    ]


def _safe() -> list[Case]:
    hour = replace(_DEFAULT, minutes=60)
    worlds = {
        "safe: Poisson": hour,
        "safe: shared bursts, cv 1": replace(hour, bursts=Bursts(cv=1, shared=True)),
        "safe: shared bursts, cv 2": replace(hour, bursts=Bursts(cv=2, shared=True)),
        "safe: independent bursts, cv 1": replace(hour, bursts=Bursts(cv=1)),
        "safe: independent bursts, cv 2": replace(hour, bursts=Bursts(cv=2)),
        "safe: bursts that persist, cv 2": replace(hour, bursts=_BURSTS),
        "safe: pods that differ": replace(hour, spread=Spread.PER_POD),
        "safe: 1 canary, 1 stable": replace(hour, stables=1, learn_minutes=30),
        "safe: 1 canary, 2 stable": replace(hour, stables=2, learn_minutes=20),
        "safe: 1 canary, 16 stable": replace(hour, stables=16),
        "safe: 2 canary, 3 stable": replace(hour, canaries=2),
        "safe: 4 canary, 16 stable": replace(hour, canaries=4, stables=16),
        "safe: 1 request/s": replace(hour, rate=1),
        "safe: 3 requests/s": replace(hour, rate=3),
        "safe: 50 requests/s": replace(hour, rate=50),
    }
    return [
        Case(
            name=name,
            question=Question.SAFE,
            source=world,
            runs=400,
            quick=name == "safe: Poisson",
        )
        for name, world in worlds.items()
    ]


_POISSON = Arrivals()
_GAMMA = Arrivals(cv=2)
_SWINGING = Arrivals(swing=0.3)

# Limits that refuse about 0.5 % and about 2 % of the requests.
_LOADS = {
    "50 % load": (_POISSON, 0.5, 13, 10),
    "77 % load": (_POISSON, 0.77, 27, 21),
    "90 % load": (_POISSON, 0.9, 41, 31),
    "77 % load, gamma arrivals, cv 2": (_GAMMA, 0.77, 47, 36),
    "50 % load, bursts that persist": (_SWINGING, 0.5, 22, 15),
}


def _engine() -> list[Case]:
    cases: list[Case] = []
    for load, (arrivals, slowness, limit, lower) in _LOADS.items():
        stable = Server(slowness=slowness, limit=limit)
        candidates = {
            "no harm": stable,
            "4x rejections": replace(stable, limit=lower),
        }
        if arrivals is _POISSON:
            candidates["1.3x slower"] = replace(stable, slowness=1.3 * slowness)
        if arrivals is _POISSON and slowness == 0.5:
            candidates["2x slower"] = replace(stable, slowness=2 * slowness)
            candidates["cold cache, refuses 13 % for 2 min"] = replace(stable, cold=True)
        for what, canary in candidates.items():
            setting = Setting(arrivals=arrivals, stable=stable, canary=canary)
            cases.append(_engine_case(f"{load}: {what}", setting))
            if arrivals is _SWINGING:
                cases.append(_engine_case(f"{load}, shared: {what}", replace(setting, shared=True)))
    return cases


def _engine_case(name: str, setting: Setting) -> Case:
    return Case(
        name=f"engine, {name}",
        question=Question.ENGINE,
        source=setting,
        runs=400 if setting.canary == setting.stable else 150,
        quick=name in {"50 % load: no harm", "50 % load: 4x rejections"},
    )


CASES: tuple[Case, ...] = (
    *_noise(),
    *_fleets(),
    *_harm(),
    *_late(),
    *_harm_in_fleets(),
    *_safe(),
    *_engine(),
)
"""All cases, in the order in which they are shown."""
