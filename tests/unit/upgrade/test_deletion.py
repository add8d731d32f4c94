"""An upgrade is deleted: the canary goes, known-good comes back, and it takes bounded time."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.unit.upgrade.world import NEW, OLD, World, calm
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.observation import Refusal

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.decision import Decision


def delete(world: World) -> None:
    world.deleting, world.deleted_at = True, world.now


def released(world: World, limit: float) -> Decision:
    """Reconcile until it may go; fails after `limit` simulated seconds."""
    end = world.now + limit
    while world.now < end:
        seen = world.observe(look=False)
        found = decide(seen, world.status, world.now)
        if found.released:
            return found
        world.run(0.5)
    raise AssertionError(f"not released: {world.phases} {world.status.message}")


def is_clean(world: World) -> bool:
    return (world.of("canary"), world.known_good, world.candidate) == ([], None, None)


@pytest.mark.parametrize(
    "phase",
    ["Pending", "Preflight", "Starting", "Verifying", "Canary", "Promoting", "Baking"],
)
def test_a_deleted_upgrade_leaves_the_target_as_it_was(phase: str) -> None:
    world = World()
    if phase == "Pending":
        world.spec["paused"] = True
        world.run(2)
    else:
        world.run_until(phase)
        world.run(3 if phase in ("Canary", "Promoting", "Baking") else 0.3)
    delete(world)
    found = released(world, limit=60)
    assert [n.reason for n in found.notices if n.reason == "ReleasedUnfinished"] == []
    assert world.template == OLD
    assert is_clean(world)


def test_one_that_waits_for_approval_is_deleted_like_any_other() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "5s", "approval": True}]
    world.run_until("Canary")
    world.run(60)
    assert "waits for approval" in (world.status.message or "")
    delete(world)
    released(world, limit=60)
    assert is_clean(world)


def test_one_that_is_halted_is_rolled_back() -> None:
    world = World()
    world.candidate_delta = None
    world.run_until("Halted")
    delete(world)
    released(world, limit=60)
    assert is_clean(world)


def test_one_that_rolls_back_already_goes_on_with_that() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    delete(world)
    released(world, limit=60)
    assert world.phases.count("RollingBack") == 1
    assert (world.template, is_clean(world)) == (OLD, True)


@pytest.mark.parametrize("end", ["Succeeded", "RolledBack"])
def test_one_that_has_ended_goes_at_once(end: str) -> None:
    world = World()
    if end == "RolledBack":
        world.candidate_version = "0.28.9"
    world.run_until(end)
    template = copy.deepcopy(world.template)
    delete(world)
    released(world, limit=3)
    assert (world.template, is_clean(world)) == (template, True)


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
def test_without_a_target_only_the_canary_is_waited_for(phase: str) -> None:
    world = World()
    world.run_until(phase)
    world.target_uid = None
    delete(world)
    released(world, limit=60)
    assert world.of("canary") == []


def test_pods_of_known_good_that_do_not_start_hold_it_up_until_the_deadline_alone() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    delete(world)
    world.run_until("RollingBack")
    world.start_seconds = 1e9
    found = released(world, limit=150)
    (left,) = (n for n in found.notices if n.reason == "ReleasedUnfinished")
    assert "its rollback did not get on: llm has its known-good template and " in left.message
    assert world.template == OLD


def test_a_template_that_cannot_be_put_back_is_named_with_where_it_is_kept() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    delete(world)
    world.run_until("RollingBack")
    refusal = Refusal(reason="ActionRefused", message="the API server refuses ReplaceTemplate")
    seen = replace(world.observe(look=False), refused=refusal, canary=None)
    found = decide(seen, world.status, world.now + 1000)
    assert found.released
    (left,) = (n for n in found.notices if n.reason == "ReleasedUnfinished")
    assert "kept as ControllerRevision up-known-good" in left.message
    assert "the next VLLMUpgrade of llm puts it back" in left.message
    assert world.template == NEW


def test_an_operator_that_was_away_for_an_hour_rolls_back_all_the_same() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    delete(world)
    world.now += 3600
    released(world, limit=90)
    assert (world.template, is_clean(world)) == (OLD, True)


def test_canary_pods_that_do_not_end_are_left_to_the_garbage_collector() -> None:
    """After a foreign change there is nothing to put back: only the canary is waited for."""
    world = World()
    world.run_until("Canary")
    world.template = {**copy.deepcopy(OLD), "spec": {"containers": []}}
    world.rolls_slowly = True
    world.run_until("Halted")
    delete(world)
    end = world.now + 200
    while True:
        seen = world.observe(look=False)
        assert seen.canary is not None
        stuck = replace(seen, canary=replace(seen.canary, deleting=True))
        found = decide(stuck, world.status, world.now)
        if found.released:
            break
        assert world.now < end
        world.now += 1
    (left,) = (n for n in found.notices if n.reason == "ReleasedUnfinished")
    assert "its canary did not end within 90 s" in left.message
    assert "1 pod of Deployment llm-canary" in left.message
