"""Verbs and pause: what a person asks for, in every phase, and what is left of it later."""

from __future__ import annotations

import copy

import pytest

from tests.unit.upgrade.world import NEW, OLD, V1, V2, World, calm
from vllm_upgrade_operator.upgrade.names import ABORT, APPROVE, APPROVED_BY, PROMOTE, RETRY

UNDER_WAY = ["Starting", "Verifying", "Canary", "Promoting", "Baking"]


def attempt(world: World) -> str:
    assert world.status.attempt is not None
    return world.status.attempt.id


def said(world: World, reason: str) -> list[str]:
    return [n.message for n in world.notices if n.reason == reason]


def condition(world: World, type_: str) -> tuple[str, str] | None:
    found = [c for c in world.status.conditions if c.type == type_]
    return (found[0].status, found[0].reason) if found else None


# Abort.


@pytest.mark.parametrize("phase", UNDER_WAY)
def test_abort_restores_known_good_from_every_phase(phase: str) -> None:
    world = World()
    world.run_until(phase)
    world.annotations[ABORT] = "now"
    world.run_until("RolledBack")
    assert world.template == OLD
    assert world.of("canary") == []
    assert condition(world, "Finished") == ("True", "Aborted")
    assert condition(world, "RolledBack") == ("True", "Aborted")
    assert "aborted by a person (vllmupgrade.dev/abort=now)" in (world.status.message or "")


@pytest.mark.parametrize("phase", ["Pending", "Preflight"])
def test_abort_before_the_start_makes_nothing(phase: str) -> None:
    world = World()
    world.spec["paused"] = True
    world.run(1)
    if phase == "Preflight":
        world.spec["paused"] = False
        world.run_until(phase)
    assert world.status.phase == phase
    world.annotations[ABORT] = "now"
    world.run_until("RolledBack")
    world.run(5)
    assert condition(world, "Finished") == ("True", "Aborted")
    assert not [name for _, name in world.log if name in ("EnsureCanary", "ReplaceTemplate")]
    assert world.known_good is None


def test_abort_beats_an_approval_and_a_pause() -> None:
    world = World()
    for step in world.spec["strategy"]["steps"]:
        step["approval"] = True
    world.run_until("Canary")
    world.run(20)
    world.spec["paused"] = True
    world.annotations |= {APPROVE: f"{attempt(world)}.1", APPROVED_BY: "kim", ABORT: "x"}
    world.run_until("RolledBack")
    assert condition(world, "Finished") == ("True", "Aborted")


def test_a_second_abort_changes_nothing_and_is_answered() -> None:
    world = World()
    world.run_until("Canary")
    world.annotations[ABORT] = "one"
    world.run_until("RollingBack")
    world.annotations[ABORT] = "two"
    world.run_until("RolledBack")
    assert len(said(world, "AbortIgnored")) == 1
    assert "nothing is left to abort" in said(world, "AbortIgnored")[0]
    assert world.phases.count("RollingBack") == 1


def test_an_abort_that_comes_back_from_git_does_not_abort_what_was_begun_since() -> None:
    world = World()
    for value in ("one", "two"):
        world.run_until("Canary")
        world.annotations[ABORT] = value
        world.run_until("RolledBack")
        world.annotations[RETRY] = attempt(world)
        world.run(1)
    world.annotations[ABORT] = "one"
    world.run_until("Succeeded")


def test_an_abort_that_was_there_from_the_beginning_meant_another_object() -> None:
    world = World(annotations={ABORT: "old"})
    world.run_until("Succeeded")


def test_abort_closes_a_foreign_change_at_once() -> None:
    world = World()
    world.run_until("Canary")
    foreign = copy.deepcopy(OLD)
    foreign["metadata"]["labels"]["team"] = "b"
    world.template = foreign
    world.run_until("Halted")
    world.run(10)
    world.annotations[ABORT] = "seen"
    world.run_until("RolledBack")
    world.run(3)
    assert world.template == foreign
    assert world.of("canary") == []
    assert world.known_good is None


def test_abort_does_not_close_a_rollback_that_is_stuck() -> None:
    world = World()
    world.run_until("Baking")
    world.annotations[ABORT] = "one"
    world.run_until("RollingBack")
    world.rolls_slowly = True
    world.run_until("Halted")
    assert world.status.progress.halt_reason == "RollbackStuck"
    world.annotations[ABORT] = "two"
    world.run(5)
    assert world.status.phase == "Halted"
    assert "it is being rolled back" in said(world, "AbortIgnored")[0]
    assert world.known_good is not None
    world.rolls_slowly = False
    world.run_until("RolledBack")
    assert world.template == OLD


# Retry.


def test_retry_begins_the_same_once_more() -> None:
    world = World(candidate_delta=calm(errors=5.0))
    world.run_until("RolledBack")
    first = attempt(world)
    world.run(5)
    assert world.status.phase == "RolledBack"
    world.candidate_delta = calm()
    world.annotations[RETRY] = first
    world.run_until("Succeeded")
    assert attempt(world) == first.replace("-1", "-2")


def test_a_retry_acts_once() -> None:
    world = World(candidate_delta=calm(errors=5.0))
    world.run_until("RolledBack")
    world.annotations[RETRY] = attempt(world)
    world.run_until("Canary")
    world.run_until("RolledBack")
    world.run(5)
    assert world.status.attempt is not None
    assert world.status.attempt.number == 2
    assert said(world, "RetryIgnored") == []


def test_a_retry_of_another_attempt_is_ignored_with_the_right_value() -> None:
    world = World(candidate_delta=calm(errors=5.0))
    world.run_until("RolledBack")
    world.annotations[RETRY] = "0123abcd-1"
    world.run(5)
    assert world.status.phase == "RolledBack"
    (message,) = said(world, "RetryIgnored")
    assert attempt(world) in message
    world.annotations[RETRY] = attempt(world) + ".again"
    world.run_until("Canary")


@pytest.mark.parametrize(("phase", "advice"), [("Canary", "abort it first"), ("Succeeded", "only")])
def test_nothing_is_retried_that_did_not_fail(phase: str, advice: str) -> None:
    world = World()
    world.run_until(phase)
    world.annotations[RETRY] = attempt(world)
    world.run(2)
    assert world.status.phase == phase
    assert advice in said(world, "RetryIgnored")[0]


# Approve.


def test_a_wrong_approval_is_answered_once_and_a_right_one_works_after_it() -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["approval"] = True
    world.run_until("Canary")
    world.run(20)
    world.annotations |= {APPROVE: "0123abcd-1.1", APPROVED_BY: "kim"}
    world.run(5)
    (message,) = said(world, "ApproveIgnored")
    assert f"step 1 is approved by {attempt(world)}.1" in message
    assert world.canary_replicas == 1
    world.annotations[APPROVE] = f"{attempt(world)}.1"
    world.run_until("Succeeded")
    assert len(said(world, "ApproveIgnored")) == 1


# Promote.


def test_promote_skips_what_is_left_of_the_steps_and_says_so() -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["hold"] = "1000s"
    world.run_until("Canary")
    world.run(5)
    world.annotations |= {PROMOTE: attempt(world), APPROVED_BY: "kim"}
    world.run_until("Succeeded")
    assert world.template == NEW
    (entry,) = [e for e in world.status.timeline if e.reason == "PromotedByPerson"]
    assert "promoted by kim; in step 1 of 2, with verdict" in entry.message
    assert world.status.handled_actions is not None
    assert world.status.handled_actions.promote == attempt(world)


@pytest.mark.parametrize("phase", ["Starting", "Verifying"])
def test_nothing_is_promoted_that_was_not_verified(phase: str) -> None:
    world = World(candidate_runner=None)
    world.run_until(phase)
    world.annotations[PROMOTE] = attempt(world)
    world.run(3)
    assert "only a verified canary" in said(world, "PromoteIgnored")[0]
    world.candidate_runner = V2
    world.run_until("Canary")
    world.run(5)
    assert world.status.phase == "Canary"


def test_promote_of_another_attempt_is_ignored() -> None:
    world = World()
    world.run_until("Canary")
    world.annotations[PROMOTE] = "0123abcd-1"
    world.run(5)
    assert world.status.phase == "Canary"
    assert "names another attempt" in said(world, "PromoteIgnored")[0]


def test_a_person_may_promote_without_evidence_and_harm_still_acts() -> None:
    world = World(candidate_delta=calm(requests=0.0), stable_delta=calm(requests=0.0))
    world.run_until("Halted")
    assert world.status.progress.halt_reason == "Inconclusive"
    world.annotations |= {PROMOTE: attempt(world), APPROVED_BY: "kim"}
    world.run_until("Baking")
    world.candidate_delta = calm(errors=8.0)
    world.run_until("RolledBack")
    assert world.template == OLD


def test_a_runner_mismatch_is_not_promoted_by_hand() -> None:
    world = World(candidate_runner=V1)
    world.run_until("Halted")
    world.annotations[PROMOTE] = attempt(world)
    world.run(3)
    assert world.status.phase == "Halted"
    assert "RunnerMismatch" in said(world, "PromoteIgnored")[0]


def test_manual_promotion_asks_and_goes_on_when_told() -> None:
    world = World()
    world.spec["strategy"] |= {"promotion": "Manual"}
    world.run_until("Canary")
    world.run(60)
    assert world.status.phase == "Canary"
    assert f"{PROMOTE}={attempt(world)}" in (world.status.message or "")
    assert condition(world, "Reconciling") == ("True", "WaitingForApproval")
    assert len(said(world, "ApprovalNeeded")) == 1
    world.annotations[PROMOTE] = attempt(world)
    world.run_until("Succeeded")


def test_manual_promotion_that_nobody_gives_is_rolled_back() -> None:
    world = World()
    world.spec["strategy"] |= {"promotion": "Manual"}
    world.run_until("RolledBack")
    assert world.status.progress.result_reason == "PromotionTimeout"


# Pause.


@pytest.mark.parametrize("phase", ["Pending", "Starting", "Verifying", "Canary"])
def test_a_pause_stops_the_way_forward_and_a_resume_goes_on(phase: str) -> None:
    world = World()
    if phase == "Pending":
        world.spec["paused"] = True
        world.run(1)
    else:
        world.run_until(phase)
        world.spec["paused"] = True
    before = (world.canary_replicas, world.template)
    world.run(50)
    assert world.status.phase == phase
    assert (world.canary_replicas, world.template) == before
    assert "paused by spec.paused" in (world.status.message or "")
    assert condition(world, "Reconciling") == ("True", "Paused")
    world.spec["paused"] = False
    world.run_until("Succeeded")
    assert [e.reason for e in world.status.timeline if e.reason in ("Paused", "Resumed")] == [
        "Paused",
        "Resumed",
    ]


def test_harm_wins_while_paused() -> None:
    world = World()
    world.run_until("Canary")
    world.run(5)
    world.spec["paused"] = True
    world.run(2)
    world.candidate_delta = calm(errors=8.0)
    world.run_until("RolledBack", limit=60)
    assert world.status.progress.result_reason == "CheckFailed"


def test_a_pause_ends_at_halt_timeout() -> None:
    world = World()
    world.run_until("Canary")
    world.spec["paused"] = True
    began = world.now
    world.run_until("RolledBack")
    assert world.now - began >= 100.0
    assert world.status.progress.result_reason == "PauseTimeout"


def test_a_long_pause_is_no_hour_without_a_verdict() -> None:
    world = World()
    world.spec["analysis"]["maxDuration"] = "20s"
    world.run_until("Canary")
    world.run(3)
    world.candidate_delta = world.stable_delta = calm(requests=0.0)
    world.spec["paused"] = True
    world.run(60)
    world.spec["paused"] = False
    world.run(10)
    assert world.status.phase == "Canary"


@pytest.mark.parametrize("phase", ["Promoting", "Baking"])
def test_from_promotion_on_a_pause_has_no_effect(phase: str) -> None:
    world = World()
    world.run_until(phase)
    world.spec["paused"] = True
    world.run_until("Succeeded")
