"""Runs of all cases on several processes."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge import engine_traces, library, ours, synthetic
from benchmarks.judge.bounds import wald_seconds
from benchmarks.judge.cases import Question
from benchmarks.judge.library import Setting
from benchmarks.judge.peers import PEERS
from benchmarks.judge.rows import Row, harmed_requests, row
from benchmarks.judge.traces import Outcome, together
from benchmarks.judge.worlds import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.pool import Pool

    from benchmarks.judge.cases import Case
    from benchmarks.judge.traces import Floats, Traces

OURS = "ours"

_CHUNK = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is run.

    Attributes:
        runs: Most upgrades of a case.
        peer_runs: Most upgrades of a case that the others' rules are shown.
        spells: Recorded spells of each kind of pod.
    """

    runs: int
    peer_runs: int
    spells: int


WHOLE = Size(runs=100_000, peer_runs=200, spells=104)
QUICK = Size(runs=40, peer_runs=40, spells=52)


@dataclass(frozen=True, slots=True)
class _Chunk:
    case: Case
    number: int
    runs: int
    peers: bool
    spells: int


_Results = dict[str, tuple[Outcome, "Floats"]]


def run(cases: Sequence[Case], size: Size, pool: Pool) -> Iterator[list[Row]]:
    """Run the cases; gives the rows of one after the other, our rule first."""
    _record(cases, size, pool)
    chunks = [chunk for case in cases for chunk in _chunks(case, size)]
    results = pool.imap(_run_chunk, chunks)
    for case in cases:
        parts = [next(results) for _ in _chunks(case, size)]
        yield _rows(case, parts)


def traces(case: Case, number: int, runs: int, spells: int) -> Traces:
    """Draw one part of a case's upgrades; the same part is always the same."""
    random = np.random.default_rng([zlib.crc32(case.name.encode()), number])
    if isinstance(case.source, World):
        return synthetic.draw(case.source, runs, random)
    return engine_traces.draw(case.source, spells, runs, random)


def _record(cases: Sequence[Case], size: Size, pool: Pool) -> None:
    settings = [case.source for case in cases if isinstance(case.source, Setting)]
    wanted = [shelf for setting in settings for shelf in library.shelves(setting, size.spells)]
    began = time.monotonic()
    library.fill(wanted, pool)
    if wanted:
        print(f"engine's spells at hand after {time.monotonic() - began:.0f} s", flush=True)


def _chunks(case: Case, size: Size) -> list[_Chunk]:
    runs = min(case.runs, size.runs)
    # Nobody else says what is safe.
    shown_to_peers = 0 if case.question is Question.SAFE else size.peer_runs
    return [
        _Chunk(case, number, min(_CHUNK, runs - start), start < shown_to_peers, size.spells)
        for number, start in enumerate(range(0, runs, _CHUNK))
    ]


def _run_chunk(chunk: _Chunk) -> _Results:
    shown = traces(chunk.case, chunk.number, chunk.runs, chunk.spells)
    outcomes = {OURS: ours.outcome(shown)}
    if chunk.peers:
        outcomes |= {name: rule(shown) for name, rule in PEERS.items()}
    return {
        name: (outcome, harmed_requests(chunk.case, shown, outcome.acted))
        for name, outcome in outcomes.items()
    }


def _rows(case: Case, parts: Sequence[_Results]) -> list[Row]:
    rows: list[Row] = []
    for rule in (OURS, *PEERS):
        results = [part[rule] for part in parts if rule in part]
        if not results:
            continue
        outcome = together([outcome for outcome, _ in results])
        harmed = np.concatenate([harmed for _, harmed in results])
        rows.append(row(case, rule, outcome, harmed, _wald(case)))
    return rows


def _wald(case: Case) -> float | None:
    world = case.source
    if case.bound is None or not isinstance(world, World) or world.harm is None:
        return None
    check = next(check for check in world.checks if check.name == case.bound)
    return wald_seconds(world, check, world.harm.factor, ours.alpha(world.checks))
