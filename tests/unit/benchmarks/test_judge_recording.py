"""What the judge's benchmark records of the simulator's engine, and makes upgrades of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.judge import engine_traces, library
from benchmarks.judge.library import Setting, Shelf, compose, shelves
from benchmarks.judge.recording import SPELL_LOOKS, Arrivals, Server, columns, record

if TYPE_CHECKING:
    from pathlib import Path

POISSON = Arrivals()
STEADY = Server(slowness=0.5, limit=13)
SETTING = Setting(arrivals=POISSON, stable=STEADY, canary=replace(STEADY, limit=5))
STRETCHES = library.LEARN_SPELLS + library.CANARY_SPELLS


@pytest.fixture
def _numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spells whose every count is the number of their course: no engine has to run."""
    monkeypatch.setattr(library, "FOLDER", tmp_path)
    for setting in (SETTING, replace(SETTING, shared=True)):
        for shelf, offset in zip(shelves(setting, 208), (0, 1000), strict=True):
            width = columns()["e2e"].stop
            spells = np.zeros((shelf.courses, shelf.replicas, SPELL_LOOKS, width), dtype=np.int32)
            spells += offset + np.arange(shelf.courses, dtype=np.int32)[:, None, None, None]
            np.save(shelf.file, spells)


def test_a_spell_is_the_same_every_time() -> None:
    server = Server(slowness=0.3, limit=3)
    assert (record(POISSON, server, 3, 0) == record(POISSON, server, 3, 0)).all()


def test_a_spell_has_ten_requests_a_second_and_all_of_them_end() -> None:
    spell = record(POISSON, STEADY, 1, 0)
    column = columns()
    offered = int(spell[:, column["offered"]].sum())
    rejected = int(spell[:, column["rejections"]].sum())
    finished = int(spell[:, column["finished"]].sum())
    assert len(spell) == SPELL_LOOKS
    assert offered == pytest.approx(6000, rel=0.05)
    assert 0 < rejected < 0.02 * offered
    # Those in flight at the ends of the spell are counted on one side alone.
    assert finished == pytest.approx(offered - rejected, abs=STEADY.limit)
    assert int(spell[:, column["e2e"]].sum()) == finished
    assert int(spell[:, column["ttft"]].sum()) == pytest.approx(finished, abs=STEADY.limit)


def test_a_slower_server_has_longer_times_and_a_lower_limit_has_more_rejections() -> None:
    column = columns()
    usual = record(POISSON, STEADY, 1, 0)
    slower = record(POISSON, replace(STEADY, slowness=0.65), 1, 0)
    strict = record(POISSON, replace(STEADY, limit=10), 1, 0)
    slow = np.s_[:, column["e2e"].start + 5 : column["e2e"].stop]
    assert slower[slow].sum() > 1.5 * usual[slow].sum()
    assert strict[:, column["rejections"]].sum() > 2 * usual[:, column["rejections"]].sum()


def test_a_cold_cache_slows_prompts_for_two_minutes() -> None:
    column = columns()
    cold = record(POISSON, replace(STEADY, cold=True), 1, 0)
    slow = cold[:, column["ttft"]][:, 7:].sum(axis=1)
    assert slow[:12].mean() > 2 * slow[13:].mean()


def test_pods_of_one_course_have_their_bursts_together_and_others_have_not() -> None:
    bursty = Arrivals(swing=0.5)
    server = Server(slowness=0.1, limit=1000)
    offered = [
        record(bursty, server, course, replica)[:, columns()["offered"]].ravel()
        for course, replica in ((1, 0), (1, 1), (2, 0))
    ]
    assert np.corrcoef(offered[0], offered[1])[0, 1] > 0.8
    assert abs(np.corrcoef(offered[0], offered[2])[0, 1]) < 0.4


def test_arrivals_have_the_variation_that_is_asked_for() -> None:
    server = Server(slowness=0.1, limit=1000)

    def dispersion(cv: float) -> float:
        offered = np.concatenate(
            [record(Arrivals(cv=cv), server, course, 0)[:, 0] for course in range(4)]
        )
        return float(offered.var() / offered.mean())

    # Of a renewal process the counts' variance is the mean times the square of the variation.
    assert dispersion(1.0) == pytest.approx(1, rel=0.3)
    assert dispersion(2.0) == pytest.approx(4, rel=0.3)


def test_another_server_or_another_traffic_is_kept_under_another_name() -> None:
    shelf = Shelf(POISSON, STEADY, 10, 1)
    names = {
        shelf.file,
        Shelf(POISSON, STEADY, 10, 1).file,
        Shelf(POISSON, STEADY, 11, 1).file,
        Shelf(Arrivals(cv=2), STEADY, 10, 1).file,
        Shelf(POISSON, replace(STEADY, limit=4), 10, 1).file,
    }
    assert len(names) == 4


@pytest.mark.usefixtures("_numbered")
def test_an_upgrade_takes_no_spell_twice_and_its_canary_the_candidates() -> None:
    upgrades = compose(SETTING, 208, 5, np.random.default_rng(1))
    assert upgrades.shape[:3] == (5, STRETCHES * SPELL_LOOKS, 4)
    for upgrade in upgrades:
        stretches = upgrade[::SPELL_LOOKS, :, 0]
        assert (upgrade[SPELL_LOOKS - 1 :: SPELL_LOOKS, :, 0] == stretches).all()
        assert (stretches[:, 0] >= 1000).all()
        assert (stretches[:, 1:] < 1000).all()
        assert len(np.unique(stretches)) == stretches.size


@pytest.mark.usefixtures("_numbered")
def test_a_cache_is_cold_in_the_canarys_first_spell_alone() -> None:
    cold = replace(SETTING, canary=replace(STEADY, cold=True))
    _, shelf = shelves(cold, 208)
    np.save(shelf.file, np.load(shelves(SETTING, 208)[1].file))
    for upgrade in compose(cold, 208, 5, np.random.default_rng(1)):
        canary = upgrade[::SPELL_LOOKS, 0, 0]
        assert canary[library.LEARN_SPELLS] >= 1000
        assert (canary[library.LEARN_SPELLS + 1 :] < 1000).all()


@pytest.mark.usefixtures("_numbered")
def test_shared_bursts_are_one_course_for_all_pods_of_a_stretch() -> None:
    upgrades = compose(replace(SETTING, shared=True), 208, 5, np.random.default_rng(1))
    for upgrade in upgrades:
        stretches = upgrade[::SPELL_LOOKS, :, 0]
        assert (stretches[:, 0] - 1000 == stretches[:, 1]).all()
        assert (stretches[:, 1:] == stretches[:, 1:2]).all()
        assert len(np.unique(stretches[:, 1])) == STRETCHES


@pytest.mark.usefixtures("_numbered")
def test_too_few_spells_are_refused() -> None:
    few = replace(SETTING, canary=STEADY)
    shelf, _ = shelves(few, 12)
    np.save(shelf.file, np.zeros((12, 1, SPELL_LOOKS, columns()["e2e"].stop), dtype=np.int32))
    with pytest.raises(ValueError, match="takes 52 spells, and 12 are recorded: record more"):
        compose(few, 12, 1, np.random.default_rng(1))


@pytest.mark.usefixtures("_numbered")
def test_counts_of_an_engine_begin_with_ten_minutes_without_a_canary() -> None:
    engine_traces.frozen.cache_clear()
    traces = engine_traces.draw(SETTING, 208, 2, np.random.default_rng(1))
    engine_traces.frozen.cache_clear()
    assert traces.learned == SPELL_LOOKS
    assert traces.of[:, :, :SPELL_LOOKS, 0].sum() == 0
    assert traces.of[:, :, SPELL_LOOKS:, 0].min() >= 1000
    assert (traces.bad <= traces.of).all()
    assert [check.name for check in traces.checks][:4] == ["rejections", "ttft", "itl", "e2e"]
