"""Nodes that do not report, pods that do not end, pods that are not created: bounded, and said."""

from __future__ import annotations

import pytest

from tests.unit.upgrade.test_harm import result
from tests.unit.upgrade.world import World
from vllm_upgrade_operator.upgrade.health import LOST_SECONDS

QUOTA = 'pods "llm-canary-1" is forbidden: exceeded quota: q, requested: pods=1, used: pods=4'


def lose_the_node(world: World) -> None:
    for pod in world.of("canary"):
        world.change(
            pod.name, node_lost=True, ready_at=None, unready_since=world.now, eviction_seconds=10.0
        )
    world.start_seconds = 1e9


def test_a_pod_on_a_lost_node_is_taken_out_of_the_traffic_and_replaced() -> None:
    world = World(canary_held=True)
    world.spec["strategy"]["steps"] = [{"replicas": 1, "hold": "20s"}]
    world.run_until("Canary")
    world.run(5)
    lose_the_node(world)
    world.run(2)
    (lost,) = world.of("canary")
    assert "app" not in lost.labels
    assert "its node does not report any more" in (world.status.message or "")
    assert "until" in (world.status.message or "")
    # The taint eviction controller deletes it; it stays listed, for nobody ends it.
    world.change(lost.name, terminating=True, gone_at=world.now + 30)
    world.start_seconds = 3.0
    world.run_until("Succeeded")
    assert lost.name in world.pods


def test_a_node_that_stays_lost_ends_it_without_harm_being_called() -> None:
    world = World()
    world.run_until("Canary")
    world.run(5)
    lose_the_node(world)
    world.run(68)
    assert world.status.phase == "Canary"
    world.run(5)
    assert world.status.progress.result_reason == "NodeLost"
    assert "70 s are given" in (world.status.progress.result_message or "")


@pytest.mark.parametrize("end", ["Succeeded", "RolledBack"])
def test_pods_that_cannot_end_hold_nothing_up(end: str) -> None:
    world = World(canary_held=True)
    if end == "RolledBack":
        world.run_until("Canary")
        world.deleting = True
        world.run_until("RollingBack")
    else:
        world.run_until("Baking")
    while not world.canary_deleting:
        world.run(1)
    world.run(3)
    assert "to end, until" in (world.status.message or "")
    began = world.now
    world.run_until(end, 120)
    assert world.now - began <= 30 + LOST_SECONDS + 15
    assert world.canary_replicas is None
    world.run(5)
    assert world.known_good is None


def test_the_next_attempt_is_not_held_up_either() -> None:
    world = World(canary_held=True)
    world.run_until("Canary")
    world.spec["candidate"] = {"image": "sim/vllm:0.29.0", "version": "0.29.0", "args": []}
    world.spec["runner"] = {"expected": "Any"}
    world.generation = 2
    world.run_until("Succeeded", 400)
    assert world.status.attempt is not None
    assert world.status.attempt.number == 2


def test_a_quota_is_named_at_once_and_ends_it_at_the_deadline() -> None:
    world = World(most_canary_pods=0, canary_refusal=QUOTA)
    world.run_until("Starting")
    world.run(2)
    assert f"0 of 1 ready; no more can be created: {QUOTA}" in (world.status.message or "")
    found = next(c for c in world.status.conditions if c.type == "CapacityAvailable")
    assert (found.status, found.reason) == ("False", "PodsNotCreated")
    world.run_until("RolledBack", 100)
    reason, message = result(world)
    assert reason == "QuotaExceeded"
    assert "exceeded quota: q" in message
    assert "raise the ResourceQuota" in message


def test_other_reasons_for_no_pods_are_not_called_a_quota() -> None:
    world = World(most_canary_pods=0, canary_refusal='pods "x" is forbidden: no such account')
    world.run_until("RolledBack", 100)
    assert result(world)[0] == "NoPods"
    assert "no such account" in result(world)[1]


def test_a_quota_that_is_raised_in_time_is_no_end() -> None:
    world = World(most_canary_pods=0, canary_refusal=QUOTA)
    world.run_until("Starting")
    world.run(20)
    world.most_canary_pods, world.canary_refusal = 100, None
    world.run_until("Succeeded")
