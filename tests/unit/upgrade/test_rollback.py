"""The end of a rollback: what runs is what was known good, or it is said that it is not."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.world import OLD, World, calm
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.names import ROLE

PINNED = "sim/vllm@sha256:old"


def condition(world: World, type_: str) -> tuple[str, str] | None:
    found = [c for c in world.status.conditions if c.type == type_]
    return (found[0].status, found[0].reason) if found else None


def image(world: World) -> str:
    return str(world.template["spec"]["containers"][0]["image"])


def broken_after_a_move(*, pin: bool) -> World:
    """A promotion that is harmful, when the tag of known-good has moved meanwhile."""
    world = World()
    world.spec["rollback"] = {"pinDigest": pin}
    world.run_until("Promoting")
    world.run(10)
    world.tag_moved_to = "sha256:moved"
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RollingBack")
    return world


def test_a_moved_tag_halts_and_says_how_to_get_the_image_back() -> None:
    world = broken_after_a_move(pin=False)
    world.run_until("Halted")
    assert condition(world, "Stalled") == ("True", "KnownGoodMoved")
    message = world.status.message or ""
    assert "runs image sha256:moved, known-good was sha256:old" in message
    assert "spec.rollback.pinDigest: true" in message
    assert PINNED in message
    assert world.template == OLD
    world.run(200)
    assert world.status.phase == "Halted"


@pytest.mark.parametrize("inherited", [None, "one-before"])
def test_a_moved_tag_is_pinned_where_the_spec_says_so(inherited: str | None) -> None:
    world = broken_after_a_move(pin=True)
    assert world.known_good is not None
    world.known_good = replace(world.known_good, inherited=inherited)
    world.run_until("RolledBack")
    assert "Halted" not in world.phases
    assert condition(world, "RolledBack") == ("True", "CheckFailed")
    expected = copy.deepcopy(OLD)
    expected["spec"]["containers"][0]["image"] = PINNED
    assert world.template == expected
    pods = world.of("llm")
    assert len(pods) == 4
    assert {p.template_hash for p in pods} == {"foreign"}
    assert {p.labels[ROLE] for p in pods} == {"stable"}
    message = world.status.message or ""
    assert message.startswith("rolled back (CheckFailed): check errors")
    assert f"container vllm is pinned to {PINNED}" in message
    assert "differs from known-good's in that alone" in message
    reasons = [e.reason for e in world.status.timeline]
    assert reasons.count("KnownGoodPinned") == 1
    assert [n.type for n in world.notices if n.reason == "KnownGoodPinned"] == ["Warning"]
    world.run(5)
    assert world.known_good is None


def test_pinning_may_be_allowed_when_it_has_halted() -> None:
    world = broken_after_a_move(pin=False)
    world.run_until("Halted")
    world.spec["rollback"] = {"pinDigest": True}
    world.run_until("RolledBack")
    assert image(world) == PINNED


def test_a_person_may_pin_it_by_hand() -> None:
    world = broken_after_a_move(pin=False)
    world.run_until("Halted")
    world.template = copy.deepcopy(OLD)
    world.template["spec"]["containers"][0]["image"] = PINNED
    world.run_until("RolledBack")
    assert image(world) == PINNED
    assert f"pinned to {PINNED}" in (world.status.message or "")


def test_a_tag_that_moves_back_ends_the_halt() -> None:
    world = broken_after_a_move(pin=False)
    world.run_until("Halted")
    world.digests.clear()
    world.run_until("RolledBack")
    assert image(world) == "sim/vllm:0.28.0"


def test_an_operator_that_is_killed_while_it_pins_ends_the_same() -> None:
    for lost in range(1, 40, 2):
        world = broken_after_a_move(pin=True)
        for _ in range(lost):
            world.reconcile()
            world.now += 0.5
        before = world.status
        world.reconcile()
        world.status = before
        world.run_until("RolledBack", limit=300)
        assert image(world) == PINNED


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        ({"digests": ("sha256:old", "sha256:x")}, "its pods ran 2 different images"),
        ({"pullable": False}, "sha256:old is the digest of a local image"),
        ({"container": None}, "which of its containers runs vLLM was not recorded"),
    ],
)
def test_what_cannot_be_pinned_is_not_guessed(recorded: dict[str, Any], words: str) -> None:
    world = broken_after_a_move(pin=True)
    assert world.known_good is not None
    world.known_good = replace(world.known_good, **recorded)
    world.run_until("Halted")
    assert condition(world, "Stalled") == ("True", "KnownGoodMoved")
    assert f"it cannot be pinned for you: {words}" in (world.status.message or "")
    assert world.template == OLD


def test_a_pinned_image_that_does_not_come_up_is_stuck_and_is_waited_for() -> None:
    world = broken_after_a_move(pin=True)
    while not world.status.progress.pinned:
        world.run(0.5)
    world.start_seconds = 1e9
    world.run_until("Halted")
    assert condition(world, "Stalled") == ("True", "RollbackStuck")
    assert image(world) == PINNED
    world.start_seconds = 3.0
    world.run_until("RolledBack")


def test_a_rollback_has_its_time_anew_with_each_pod_that_is_back() -> None:
    world = World(replicas=6)
    world.spec["strategy"]["startDeadline"] = "30s"
    world.run_until("Baking")
    world.run(2)
    world.start_seconds = 25.0
    began = world.now
    world.candidate_delta = calm(errors=5.0)
    world.spec["strategy"]["bake"] = "60s"
    world.run_until("RolledBack")
    assert world.now - began > 2 * 60.0
    assert "Halted" not in world.phases


def test_a_restored_template_may_get_another_hash() -> None:
    """The Deployment controller does so where a ReplicaSet of that name is in the way."""
    world = World()
    world.run_until("Promoting")
    world.run(10)
    assert world.known_good is not None
    world.known_good = replace(world.known_good, template_hash="gone")
    for pod in world.of("llm"):
        if pod.template_hash == "old":
            world.change(pod.name, template_hash="gone")
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    assert {p.template_hash for p in world.of("llm")} == {"old"}
    assert {p.labels[ROLE] for p in world.of("llm")} == {"stable"}


def test_a_paused_target_is_not_begun_with() -> None:
    world = World()
    world.run_until("Preflight")
    observed = world.observe(look=False)
    assert observed.target is not None
    paused = replace(observed, target=replace(observed.target, paused=True))
    status = decide(paused, world.status, world.now).status
    assert status.phase == "Blocked"
    assert [(c.status, c.reason) for c in status.conditions if c.type == "Finished"] == [
        ("True", "Blocked")
    ]
    assert status.timeline[-1].reason == "TargetPaused"
    assert "rollout resume deployment/llm" in (status.message or "")
