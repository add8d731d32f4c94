"""The target is deleted, or deleted and made anew, while it is upgraded."""

from __future__ import annotations

import pytest

from tests.unit.upgrade.world import NEW, World


@pytest.mark.parametrize("phase", ["Starting", "Verifying", "Canary", "Promoting", "Baking"])
def test_a_target_that_is_deleted_takes_the_canary_with_it(phase: str) -> None:
    world = World()
    world.run_until(phase)
    world.target_uid = None
    world.run_until("RolledBack", limit=90)
    assert world.of("canary") == []
    assert "Halted" not in world.phases
    assert world.status.message == "rolled back (TargetGone): Deployment llm was deleted"


@pytest.mark.parametrize("record", ["kept", "gone"])
@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
def test_a_target_that_is_made_anew_is_somebody_else_s(phase: str, record: str) -> None:
    """What was recorded belongs to the old one, and is collected some time after it."""
    world = World()
    world.run_until(phase)
    world.run(3)
    before = world.template
    world.target_uid = "uid-llm-2"
    if record == "gone":
        world.known_good = world.candidate = None
    world.run_until("Halted", limit=10)
    assert "Deployment llm was deleted and made anew" in (world.status.message or "")
    world.run(60)
    assert world.of("canary") == []
    assert world.template == before
    assert ("Halted", "ReplaceTemplate") not in world.log


def test_after_that_another_candidate_is_tried_on_the_new_one() -> None:
    world = World()
    world.run_until("Canary")
    world.target_uid = "uid-llm-2"
    world.run_until("Halted")
    world.run(60)
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    world.generation += 1
    world.run_until("Succeeded")
    assert world.template == NEW
