"""Promotion where room is missing, and images that are not what was judged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.upgrade.world import NEW, OLD, World, calm
from vllm_upgrade_operator.upgrade.decide import decide


def condition(world: World, type_: str) -> tuple[str, str] | None:
    found = [c for c in world.status.conditions if c.type == type_]
    return (found[0].status, found[0].reason) if found else None


def actions_of(world: World, phase: str) -> list[str]:
    return [name for at, name in world.log if at == phase]


def reasons(world: World) -> list[str]:
    return [e.reason for e in world.status.timeline]


def test_a_canary_pod_makes_room_for_a_new_pod_that_finds_none() -> None:
    world = World()
    world.run_until("Promoting")
    world.room = len(world.pods)
    canaries = {p.name for p in world.of("canary")}
    assert len(canaries) == 2
    seen: list[int] = []
    messages: list[str] = []
    while world.status.phase == "Promoting":
        world.run(0.2)
        seen.append(len(world.of("canary")))
        messages.append(world.status.message or "")
        # Those that are left are in the traffic, those that went were withdrawn before.
        assert all("app" in p.labels for p in world.of("canary")) or 2 in seen
    assert world.status.phase == "Baking"
    assert world.template == NEW
    # One for one: the rollout frees the room for all but its first pod by itself.
    assert min(seen) == 1
    assert reasons(world).count("CanaryReleased") == 1
    assert any("cannot be scheduled: 0/2 nodes are available" in m for m in messages)
    assert any("released from the canary to make room" in m for m in messages)
    promoting = [a for a in actions_of(world, "Promoting") if a != "LabelPod"]
    assert promoting[:3] == ["ReplaceTemplate", "Release", "EnsureCanary"]
    assert condition(world, "CapacityAvailable") == ("True", "Scheduled")
    world.run_until("Succeeded")


def test_all_of_the_canary_goes_before_promotion_fails_for_want_of_room() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(0.5)
    world.room = 0
    for pod in world.of("llm"):
        if pod.template_hash == "new":
            world.change(pod.name, scheduled_at=None, unschedulable="no room", ready_at=None)
    world.run_until("RollingBack")
    world.room = 1000
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "NoCapacity")
    assert reasons(world).count("CanaryReleased") == 2
    assert world.template == OLD


def test_a_busy_canary_pod_is_drained_before_it_goes() -> None:
    world = World()
    world.spec["strategy"]["scheduleDeadline"] = "300s"
    world.run_until("Promoting")
    world.room = len(world.pods)
    world.in_flight = 3.0
    world.run(20)
    assert len(world.of("canary")) == 2
    assert "3 requests" in (world.status.message or "")
    world.run(20)
    assert len(world.of("canary")) == 1


def test_room_that_the_rollout_frees_itself_is_waited_for() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(0.5)
    world.room = len(world.pods) - 1
    for pod in world.of("llm"):
        if pod.template_hash == "new":
            world.change(pod.name, scheduled_at=None, unschedulable="no room", ready_at=None)
    going = world.of("llm")[0]
    world.change(going.name, terminating=True)
    world.run(10)
    assert "CanaryReleased" not in reasons(world)
    # Its node may be gone for good.
    world.run(25)
    assert "CanaryReleased" in reasons(world)


def test_a_quota_is_made_room_in_as_well() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(0.5)
    status, observed = world.status, world.observe(look=False)
    assert observed.target is not None
    old = tuple(p for p in observed.target.pods if p.template_hash == "old")
    stuck = replace(observed.target, pods=old, replica_failure='pods "llm-x" is forbidden: quota')
    decision = decide(replace(observed, target=stuck), status, world.now)
    assert [type(a).__name__ for a in decision.actions].count("Release") == 1
    assert "llm cannot make a pod: pods" in (decision.status.message or "")
    # The ReplicaSet controller takes its time to try again.
    gone = observed.canary and replace(observed.canary, replicas=1, pods=observed.canary.pods[:1])
    for seconds, released in ((5, 0), (11, 1)):
        later = replace(observed, target=stuck, canary=gone)
        again = decide(later, decision.status, world.now + seconds)
        assert [type(a).__name__ for a in again.actions].count("Release") == released


def test_what_keeps_the_rollout_from_going_on_is_said() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(0.5)
    world.rolls_slowly = True
    world.run(1)
    observed = world.observe(look=False)
    assert observed.target is not None
    late = 'ReplicaSet "llm-new" has timed out progressing.'
    old = tuple(p for p in observed.target.pods if p.template_hash == "old")
    stuck = replace(observed.target, pods=old, paused=True, late=late)
    waiting = decide(replace(observed, target=stuck), world.status, world.now).status
    assert "kubectl rollout resume deployment/llm" in (waiting.message or "")
    assert late in (waiting.message or "")
    over = decide(replace(observed, target=stuck), world.status, world.now + 500).status
    assert (over.phase, over.progress.result_reason) == ("RollingBack", "PromotionStuck")
    assert "kubectl rollout resume deployment/llm" in (over.message or "")


def test_canary_pods_that_differ_are_not_admitted() -> None:
    world = World()
    world.run_until("Canary")
    world.run(5)
    world.digests["canary-canary-6"] = "sha256:other"
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "DigestMismatch")
    message = world.status.message or ""
    assert "canary-canary-6 runs image sha256:other" in message
    assert "the canary pods before it ran sha256:new" in message
    assert actions_of(world, "Canary").count("Admit") == 1


def test_two_first_canary_pods_that_differ_are_not_admitted() -> None:
    world = World()
    world.spec["strategy"]["steps"] = [{"replicas": 2, "hold": "10s"}]
    world.digests["canary-canary-6"] = "sha256:other"
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "DigestMismatch")
    assert "canary-canary-5 runs sha256:new" in (world.status.message or "")
    assert "Admit" not in [name for _, name in world.log]


def test_a_pod_whose_image_is_not_known_is_not_admitted() -> None:
    world = World()
    world.digests["canary-canary-5"] = None
    world.run_until("Halted")
    assert "image digest of canary-canary-5 is not known" in (world.status.message or "")
    assert "Admit" not in [name for _, name in world.log]


def test_a_promoted_pod_of_another_image_is_named_with_both() -> None:
    world = World()
    world.run_until("Promoting")
    world.candidate_digest = "sha256:moved"
    world.run_until("RolledBack")
    message = world.status.message or ""
    assert "runs image sha256:moved" in message
    assert "the canary that was judged ran sha256:new" in message


@pytest.mark.parametrize("phase", ["Promoting", "Baking"])
def test_a_pod_that_ends_puts_known_good_back(phase: str) -> None:
    world = World()
    world.spec["strategy"]["bake"] = "60s"
    world.run_until(phase)
    world.run(6)
    promoted = next(p for p in world.of("llm") if p.template_hash == "new")
    world.change(promoted.name, exit_code=7, ready_at=None)
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "ContainerExited")
    assert f"{promoted.name}: its vLLM container ended with exit code 7" in (
        world.status.message or ""
    )
    assert world.template == OLD
    assert {p.template_hash for p in world.of("llm")} == {"old"}


@pytest.mark.parametrize("phase", ["Promoting", "Baking"])
def test_a_wrong_runner_or_check_in_the_end_names_itself(phase: str) -> None:
    world = World()
    world.spec["strategy"]["bake"] = "60s"
    world.run_until(phase)
    world.run(4)
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "CheckFailed")
    assert "check errors" in (world.status.message or "")
    assert world.template == OLD
