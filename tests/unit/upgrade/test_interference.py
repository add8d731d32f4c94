"""People, quotas and dead pods get in the way: no success is claimed, and nothing goes round."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.world import NEW, OLD, World, calm
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.times import seconds

FOREIGN: dict[str, Any] = {
    **copy.deepcopy(OLD),
    "spec": {"containers": [{"name": "vllm", "image": "theirs"}]},
}


def reason_of(world: World, type_: str) -> str | None:
    return next((c.reason for c in world.status.conditions if c.type == type_), None)


@pytest.mark.parametrize("phase", ["Promoting", "Baking"])
def test_who_undoes_a_promotion_is_not_fought_and_it_is_no_success(phase: str) -> None:
    world = World()
    world.spec["strategy"]["bake"] = "60s"
    world.run_until(phase)
    world.run(3)
    assert world.template == NEW
    world.template = copy.deepcopy(OLD)
    world.run(5)
    assert world.status.phase == "Halted"
    assert reason_of(world, "ForeignChange") == "ForeignChange"
    world.run_until("RolledBack")
    assert world.template == OLD
    assert world.of("canary") == []


def test_another_candidate_after_a_foreign_change_begins_anew_at_once() -> None:
    world = World()
    world.run_until("Canary")
    world.template = copy.deepcopy(FOREIGN)
    world.run_until("Halted")
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    world.generation += 1
    world.run_until("Starting", limit=60)
    assert world.phases[-5:] == ["Canary", "Halted", "Pending", "Preflight", "Starting"]
    assert world.known_good is not None
    assert world.known_good.template == FOREIGN


def test_another_candidate_after_a_moved_tag_begins_anew_at_once() -> None:
    world = World()
    world.run_until("Canary")
    assert world.known_good is not None
    object.__setattr__(world.known_good, "digests", ("sha256:older",))
    world.candidate_delta = calm(errors=5.0)
    world.run_until("Halted")
    world.run(5)
    world.candidate_delta = calm()
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    world.generation += 1
    world.run_until("Succeeded")
    assert world.phases.count("Halted") == 1


def test_deleting_after_a_moved_tag_leaves_no_record_behind() -> None:
    world = World()
    world.run_until("Canary")
    assert world.known_good is not None
    object.__setattr__(world.known_good, "digests", ("sha256:older",))
    world.candidate_delta = calm(errors=5.0)
    world.run_until("Halted")
    world.deleting = True
    world.run(2)
    assert world.known_good is None


def test_deleting_before_anything_has_started_starts_nothing() -> None:
    world = World()
    world.reconcile()
    world.reconcile()
    assert world.status.phase == "Preflight"
    world.deleting = True
    world.run(2)
    assert {action for _, action in world.log} == {"LabelPod"}
    assert world.known_good is None


def test_pods_that_do_not_serve_at_the_end_of_the_bake_are_no_success() -> None:
    world = World()
    world.run_until("Baking")
    world.run(5)
    world.start_seconds = 1e9
    for pod in world.of("llm"):
        world.change(pod.name, ready_at=None, unready_since=world.now)
    world.run(40)
    assert world.status.phase == "Baking"
    world.start_seconds = 3.0
    world.run_until("Succeeded")


def test_pods_that_never_serve_again_are_rolled_back() -> None:
    world = World()
    world.run_until("Baking")
    world.run(5)
    world.start_seconds = 1e9
    for pod in world.of("llm"):
        world.change(pod.name, ready_at=None, unready_since=world.now)
    world.run_until("RollingBack")
    assert "0 of 4 pods" in (world.status.message or "")


@pytest.mark.parametrize("side", ["candidate_delta", "stable_delta"])
def test_one_blind_look_long_after_the_pass_does_not_end_the_wait_for_a_person(side: str) -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["approval"] = True
    world.spec["strategy"]["haltTimeout"] = "1000s"
    world.spec["analysis"]["onInconclusive"] = "Rollback"
    world.run_until("Canary")
    world.run(100)
    setattr(world, side, None)
    world.run(2)
    setattr(world, side, calm())
    world.run(2)
    assert world.status.phase == "Canary"
    assert reason_of(world, "Reconciling") == "WaitingForApproval"


def test_blindness_that_lasts_ends_the_wait_for_a_person() -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["approval"] = True
    world.spec["strategy"]["haltTimeout"] = "1000s"
    world.run_until("Canary")
    world.run(100)
    world.candidate_delta = None
    world.run_until("Halted", limit=70)


def test_steps_that_are_taken_out_under_way_end_with_the_last_that_is_left() -> None:
    world = World()
    world.run_until("Canary")
    while world.status.step is None or world.status.step.index == 0:
        world.run(1)
    world.spec["strategy"]["steps"] = world.spec["strategy"]["steps"][:1]
    world.run_until("Succeeded")


def test_a_pod_that_a_quota_refuses_is_not_waited_for_without_end() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "10s"}]
    world.most_canary_pods = 1
    world.run_until("RollingBack", limit=70)
    assert "only 1 of 2 canary pods were created" in (world.status.message or "")


def test_a_pod_that_is_lost_late_has_the_whole_deadline_to_come_back() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "120s"}]
    world.run_until("Canary")
    world.run(80)
    world.most_canary_pods = 1
    del world.pods[world.of("canary")[0].name]
    world.run(50)
    assert world.status.phase == "Canary"
    world.most_canary_pods = 2
    world.run_until("Succeeded")


def test_an_evicted_pod_of_the_candidate_does_not_keep_a_rollback_from_its_end() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    evicted = next(p for p in world.of("llm") if p.template_hash == "new")
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    world.pods["llm-evicted"] = replace(
        evicted, name="llm-evicted", uid="uid-evicted", ready_at=None, started_at=None, ended=True
    )
    world.run_until("RolledBack", limit=50)
    assert "Halted" not in world.phases


def test_an_evicted_canary_pod_is_replaced() -> None:
    world = World()
    world.run_until("Canary")
    world.run(3)
    evicted = world.of("canary")[0].name
    world.change(evicted, ready_at=None, started_at=None, ended=True)
    world.run_until("Succeeded")
    assert "RollingBack" not in world.phases


def test_no_step_passes_while_one_of_its_pods_cannot_be_read() -> None:
    world = World()
    world.run_until("Canary")
    while world.status.step is None or world.status.step.index == 0:
        world.run(1)
    world.run(5)
    mute = world.of("canary")[-1]
    world.mute = frozenset({mute.name})
    world.run_until("Halted", limit=100)
    assert "metrics are missing" in (world.status.message or "")
    assert mute.name in (world.status.message or "")
    world.mute = frozenset()
    world.run_until("Succeeded")


def test_a_step_that_is_shorter_than_a_look_waits_for_a_verdict_of_its_own() -> None:
    world = World()
    world.spec["strategy"]["steps"][1]["hold"] = "1s"
    world.run_until("Canary")
    while world.status.step is None or world.status.step.index == 0:
        world.run(0.5)
    world.spec["analysis"]["interval"] = "20s"
    while world.status.progress.step_since is None:
        world.run(0.1)
    admitted = world.now
    world.run_until("Promoting")
    assert world.status.progress.look_at is not None
    assert seconds(world.status.progress.look_at) > admitted


@pytest.mark.parametrize("phase", ["Canary", "Promoting"])
def test_an_operator_that_was_away_for_longer_than_the_deadline_rolls_back_all_the_same(
    phase: str,
) -> None:
    world = World()
    world.run_until(phase)
    world.run(4)
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    world.now += 1000
    world.run_until("RolledBack", limit=60)
    assert world.template == OLD
    assert world.of("canary") == []


def test_a_rollback_that_was_stuck_ends_when_what_it_waited_for_has_happened() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(6)
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    world.start_seconds = 1e9
    world.run_until("Halted")
    assert reason_of(world, "Stalled") == "RollbackStuck"
    world.run(200)
    assert world.status.phase == "Halted"
    world.start_seconds = 3.0
    world.run_until("RolledBack")
    assert world.template == OLD
    assert reason_of(world, "Stalled") == "RolledBack"


def test_a_rollback_that_is_refused_for_good_halts() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(4)
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    refusal = Refusal(reason="ActionRefused", message="the API server refuses ReplaceTemplate")
    seen = replace(world.observe(look=False), refused=refusal)
    later = world.now + 1000
    assert decide(seen, world.status, later).status.phase == "Halted"
