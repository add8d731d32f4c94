"""Spells that are recorded once, and upgrades that are put together from them.

An engine's queue forgets within a minute or two, so an upgrade of two hours is put together from
spells of ten minutes, each drawn at random: a few hours of recording give many upgrades. Where
bursts are shared, the pods' spells of one stretch come from one course of the traffic.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge import recording
from benchmarks.judge.recording import SPELL_LOOKS, Arrivals, Server, Spell, record
from localcluster.sim import engine, figures

if TYPE_CHECKING:
    from multiprocessing.pool import Pool

FOLDER = Path(__file__).parents[1] / ".recorded"

CANARY_SPELLS = 12
LEARN_SPELLS = 1

_STABLES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """An upgrade with simulated engines: one canary pod and three stable ones.

    Attributes:
        arrivals: Traffic of every pod.
        stable: What serves it.
        canary: What the candidate is; the same as `stable` where nothing is wrong.
        shared: Whether all pods have their bursts at the same time.
    """

    arrivals: Arrivals
    stable: Server
    canary: Server
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Shelf:
    """The spells of one kind of pod, by course and replica."""

    arrivals: Arrivals
    server: Server
    courses: int
    replicas: int

    @property
    def file(self) -> Path:
        """Where it is kept; another engine or another recording has another name."""
        sources = "".join(inspect.getsource(module) for module in (engine, figures, recording))
        name = hashlib.sha256(f"{self!r}{sources}".encode()).hexdigest()[:16]
        return FOLDER / f"{name}.npy"


def shelves(setting: Setting, spells: int) -> tuple[Shelf, Shelf]:
    """Name what has to be recorded: of stable pods, and of the canary's.

    Args:
        setting: The upgrade.
        spells: How many of stable pods; of a canary that differs there are half as many.
    """
    replicas = _STABLES + 1 if setting.shared else 1
    stable = Shelf(setting.arrivals, setting.stable, spells // replicas, replicas)
    if setting.canary == setting.stable:
        return stable, stable
    canary_courses = stable.courses if setting.shared else spells // 2
    return stable, Shelf(setting.arrivals, setting.canary, canary_courses, 1)


def fill(wanted: list[Shelf], pool: Pool) -> None:
    """Record what is not there yet."""
    FOLDER.mkdir(exist_ok=True)
    missing = [shelf for shelf in dict.fromkeys(wanted) if not shelf.file.exists()]
    jobs = [
        (shelf, course, replica)
        for shelf in missing
        for course in range(shelf.courses)
        for replica in range(shelf.replicas)
    ]
    spells = pool.imap(_record, jobs)
    for shelf in missing:
        recorded = np.stack([next(spells) for _ in range(shelf.courses * shelf.replicas)])
        # Under another name first: an interrupted run must not leave half a file behind.
        scratch = shelf.file.with_suffix(".new.npy")
        np.save(scratch, recorded.reshape(shelf.courses, shelf.replicas, *recorded.shape[1:]))
        scratch.replace(shelf.file)


def _record(job: tuple[Shelf, int, int]) -> Spell:
    shelf, course, replica = job
    return record(shelf.arrivals, shelf.server, course, replica)


def compose(setting: Setting, spells: int, runs: int, random: np.random.Generator) -> Spell:
    """Put upgrades together.

    Returns:
        Counts by run, look, pod and column of a recording; the canary's pod comes first.
    """
    stable_shelf, canary_shelf = shelves(setting, spells)
    stable = np.load(stable_shelf.file)
    canary = stable if canary_shelf is stable_shelf else np.load(canary_shelf.file)
    stretches, pods = LEARN_SPELLS + CANARY_SPELLS, _STABLES + 1
    courses, replicas = stable.shape[:2]
    size = (runs, stretches, pods)
    if setting.shared:
        course = np.repeat(_distinct(random, runs, stretches, courses)[:, :, None], pods, axis=2)
        replica = random.permuted(np.broadcast_to(np.arange(replicas), size), axis=2)
    else:
        course = _distinct(random, runs, stretches * pods, courses).reshape(size)
        replica = np.zeros(size, dtype=np.int64)
    chosen = stable[course, replica]
    if canary is not stable:
        own = course[:, :, 0]
        if not setting.shared:
            own = _distinct(random, runs, stretches, canary.shape[0])
        # A cache is cold once.
        last = LEARN_SPELLS + 1 if setting.canary.cold else stretches
        chosen[:, :last, 0] = canary[own[:, :last], 0]
    upgrades: Spell = np.moveaxis(chosen, 2, 3).reshape(runs, stretches * SPELL_LOOKS, pods, -1)
    return upgrades


def _distinct(random: np.random.Generator, runs: int, count: int, of: int) -> Spell:
    """Draw numbers below `of` by run, none of them twice in a run."""
    if count > of:
        raise ValueError(f"an upgrade takes {count} spells, and {of} are recorded: record more")
    numbers = np.broadcast_to(np.arange(of, dtype=np.int32), (runs, of))
    return random.permuted(numbers, axis=1)[:, :count]
