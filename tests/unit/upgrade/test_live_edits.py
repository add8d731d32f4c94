"""A spec that is edited under way: what the edit is about changes, and nothing else."""

from __future__ import annotations

import copy

import pytest

from tests.unit.upgrade.world import NEW, OLD, World, calm


def edit(world: World) -> None:
    """What the API server does when a spec is changed."""
    world.generation += 1


def in_step(world: World, index: int) -> None:
    """Go on until a step's pods are in the traffic."""
    world.run_until("Canary")
    while (
        world.status.step is None
        or world.status.step.index != index
        or world.status.progress.step_since is None
    ):
        world.run(1)


def timeline(world: World, reason: str) -> list[str]:
    return [e.message for e in world.status.timeline if e.reason == reason]


def test_what_is_asked_for_more_strictly_is_not_passed_by_what_was_found_before() -> None:
    """The edit comes after the hold, between two looks."""
    world = World()
    world.spec["analysis"]["interval"] = "5s"
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "30s", "approval": True}]
    world.run_until("Canary")
    world.run(60)
    assert world.status.verdict == "Pass"
    world.spec["analysis"]["minRequests"] = 100_000
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "30s"}]
    edit(world)
    world.run(10)
    assert world.status.phase == "Canary"
    assert world.status.verdict == "Hold"


def test_a_changed_check_begins_again_and_no_other_does() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "300s"}]
    in_step(world, 0)
    world.run(60)
    before = {c.name: c for c in world.status.checks}
    world.spec["analysis"]["checks"] = [{"name": "errors", "max": "2%"}]
    edit(world)
    world.run(3)
    after = {c.name: c for c in world.status.checks}
    assert after["errors"].requests < 5000 <= before["errors"].requests
    assert after["rejections"].requests > before["rejections"].requests
    assert after["rejections"].verdict == "Pass"
    assert world.status.step is not None
    assert (world.status.attempt, world.status.step.index) == (world.status.attempt, 0)
    assert world.phases.count("Starting") == 1


def test_a_hold_that_is_shortened_ends_by_the_new_time() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "500s"}]
    in_step(world, 0)
    world.run(30)
    world.spec["strategy"]["steps"][0]["hold"] = "20s"
    edit(world)
    world.run_until("Promoting", limit=10)


def test_another_count_for_the_present_step_begins_it_anew() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "50s"}]
    in_step(world, 0)
    world.run(40)
    attempt = world.status.attempt
    world.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "50s"}]
    edit(world)
    world.run(40)
    assert world.status.phase == "Canary"
    assert len(world.of("canary")) == 2
    assert timeline(world, "StepsChanged") == [
        "spec.strategy.steps changed: step 1 of 1 begins anew with 2 canary pods"
    ]
    world.run_until("Succeeded")
    assert world.status.attempt == attempt


def test_fewer_pods_for_the_present_step_take_none_out_of_the_traffic() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 3, "hold": "50s"}]
    in_step(world, 0)
    pods = {p.uid for p in world.of("canary")}
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "50s"}]
    edit(world)
    world.run(5)
    assert {p.uid for p in world.of("canary")} == pods
    (said,) = timeline(world, "StepsChanged")
    assert said.endswith(
        "begins anew with 3 canary pods, not 1: those in the traffic stay in it until the end"
    )


def test_pods_that_never_came_into_the_traffic_may_be_given_up() -> None:
    """The way out where there is no room for so many."""
    world = World()
    world.room = 5
    world.spec["strategy"]["steps"] = [{"replicas": 3, "hold": "10s"}]
    world.run_until("Starting")
    world.run(20)
    assert len(world.of("canary")) == 3
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "10s"}]
    edit(world)
    world.run_until("Succeeded")
    assert "RollingBack" not in world.phases


def test_steps_that_are_taken_out_leave_the_last_that_is_left() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [
        {"replicas": 1, "hold": "10s"},
        {"replicas": 2, "hold": "500s"},
    ]
    in_step(world, 1)
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "10s"}]
    edit(world)
    world.run_until("Succeeded")
    assert "not 1: those in the traffic stay" in timeline(world, "StepsChanged")[0]


def test_a_step_that_is_added_behind_the_present_one_is_gone_through() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "50s"}]
    in_step(world, 0)
    world.run(45)
    world.spec["strategy"]["steps"].append({"replicas": 2, "hold": "10s"})
    edit(world)
    in_step(world, 1)
    assert timeline(world, "StepsChanged") == ["spec.strategy.steps changed: step 1 of 2 goes on"]
    world.run_until("Succeeded")


def test_a_target_that_is_scaled_changes_no_step_that_has_begun() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"percent": 50, "hold": "50s"}]
    in_step(world, 0)
    world.replicas = 8
    world.spec["analysis"]["minRequests"] = 60
    edit(world)
    world.run(20)
    assert timeline(world, "StepsChanged") == []
    assert len(world.of("canary")) == 2


@pytest.mark.parametrize(
    "phase", ["Starting", "Verifying", "Canary", "Promoting", "Baking", "RollingBack", "Succeeded"]
)
def test_another_candidate_supersedes_in_every_phase(phase: str) -> None:
    world = World()
    if phase == "RollingBack":
        world.run_until("Canary")
        world.run(3)
        world.candidate_delta = calm(errors=5.0)
    world.run_until(phase)
    world.candidate_delta = calm()
    if phase == "Succeeded":
        world.template = copy.deepcopy(OLD)
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    edit(world)
    world.run_until("Pending")
    assert world.status.attempt is not None
    assert world.status.attempt.number == 2
    if phase not in ("Succeeded", "RollingBack"):
        assert "RolledBack" in world.phases
        assert timeline(world, "Superseded")
    assert world.template == OLD
    world.run_until("Succeeded")
    assert world.template == NEW


def test_a_candidate_that_is_changed_there_and_back_is_tried_all_the_same() -> None:
    """It was given up for another one, not for being bad."""
    world = World()
    world.run_until("Canary")
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    edit(world)
    world.run_until("RollingBack")
    del world.spec["candidate"]["env"]
    edit(world)
    world.run_until("Succeeded")
    assert world.status.attempt is not None
    assert world.status.attempt.number == 2


def test_an_ended_upgrade_is_only_begun_anew_by_another_candidate() -> None:
    world = World()
    world.run_until("Succeeded")
    world.run(2)
    status = world.status
    world.spec["strategy"]["bake"] = "500s"
    world.spec["analysis"]["minRequests"] = 7
    edit(world)
    world.run(5)
    assert world.status.phase == "Succeeded"
    assert world.status.attempt == status.attempt
    assert world.status.observed_generation == world.generation
