"""An operator that is killed between its actions and its status write changes no outcome."""

from __future__ import annotations

import pytest

from tests.unit.upgrade.world import World, calm

ON_THE_WAY = ["StoreKnownGood", "EnsureCanary", "Admit", "LabelPod", "ReplaceTemplate"]


def reach(world: World, phase: str, killed_after: str) -> None:
    """Reconcile until the phase; the status write that follows the first such action is lost."""
    killed = False
    end = world.now + 600
    while world.status.phase != phase:
        assert world.now < end, f"{world.phases} {world.status.message}"
        before, done = world.status, len(world.log)
        requeue = world.reconcile()
        actions = [action for _, action in world.log[done:]]
        if killed_after in actions and not killed:
            killed = True
            world.status = before
        world.now += min(1.0 if requeue is None else requeue, 1.0) or 0.01
    assert killed, f"{killed_after} never happened"


@pytest.mark.parametrize("action", [*ON_THE_WAY, "DeleteCanary", "RestoreOwnership"])
def test_a_good_upgrade_is_promoted_all_the_same(action: str) -> None:
    world = World()
    reach(world, "Succeeded", killed_after=action)
    assert world.template["spec"]["containers"][0]["image"] == "sim/vllm:0.29.0"
    assert world.of("canary") == []


@pytest.mark.parametrize("action", ["Withdraw", "DeleteCanary"])
def test_a_bad_canary_is_rolled_back_all_the_same(action: str) -> None:
    world = World(candidate_delta=calm(errors=5.0))
    reach(world, "RolledBack", killed_after=action)
    assert world.template["spec"]["containers"][0]["image"] == "sim/vllm:0.28.0"
    assert world.of("canary") == []


def test_harm_right_after_the_lost_write_of_the_promotion_puts_known_good_back() -> None:
    world = World()
    world.run_until("Promoting")
    before = world.status
    world.reconcile()
    assert world.template["spec"]["containers"][0]["image"] == "sim/vllm:0.29.0"
    world.status = before
    canary = world.of("canary")[0]
    world.change(canary.name, exit_code=1, exit_reason="Error", ready_at=None)
    world.run_until("RolledBack")
    assert world.template["spec"]["containers"][0]["image"] == "sim/vllm:0.28.0"
