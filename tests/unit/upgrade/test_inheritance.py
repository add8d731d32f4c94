"""A target that another upgrade left with its candidate's template: known-good is inherited."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.unit.upgrade.world import NEW, OLD, World
from vllm_upgrade_operator.upgrade.conflicts import Rival
from vllm_upgrade_operator.upgrade.names import ABORT
from vllm_upgrade_operator.upgrade.observation import KnownGood, Orphan

OTHER: dict[str, Any] = {
    "metadata": {"labels": {"app": "llm", "team": "a"}},
    "spec": {"containers": [{"name": "vllm", "image": "sim/vllm:0.27.0"}]},
}


def left(candidate: dict[str, Any] | None, known_good: dict[str, Any] | None = OLD) -> Orphan:
    kept = known_good and KnownGood(
        name="before-known-good",
        target_uid="uid-llm",
        template=known_good,
        template_hash="old",
        replicas=4,
        digests=("sha256:old",),
        version="0.28.0",
        managed_fields=(),
    )
    return Orphan(
        upgrade="before",
        known_good=kept or None,
        candidate=candidate,
        revisions=("before-known-good", "before-candidate"),
    )


def said(world: World, reason: str) -> list[str]:
    return [n.message for n in world.notices if n.reason == reason]


def test_known_good_is_inherited_and_put_back_before_anything_else() -> None:
    world = World(template=copy.deepcopy(NEW), orphan=left(NEW))
    for pod in world.of("llm"):
        world.change(pod.name, template_hash="new")
    world.run_until("Starting")
    assert world.template == OLD
    actions = [name for _, name in world.log if name != "LabelPod"]
    assert actions == ["Inherit", "ReplaceTemplate", "StoreCandidate"]
    assert len(said(world, "KnownGoodInherited")) == 1
    assert "upgrade before is gone" in said(world, "KnownGoodInherited")[0]
    assert world.status.known_good is not None
    assert world.status.known_good.digests == ("sha256:old",)
    world.run_until("Succeeded")
    assert world.template == NEW


def test_a_rollback_goes_to_what_was_inherited() -> None:
    world = World(template=copy.deepcopy(NEW), orphan=left(NEW))
    for pod in world.of("llm"):
        world.change(pod.name, template_hash="new")
    world.run_until("Baking")
    world.annotations[ABORT] = "1"
    world.run_until("RolledBack")
    assert world.template == OLD


@pytest.mark.parametrize("orphan", [left(NEW, OLD), left(NEW, None), left(None, OLD)])
def test_a_target_that_is_in_order_inherits_nothing(orphan: Orphan) -> None:
    world = World(orphan=orphan)
    world.run_until("Starting")
    actions = [name for _, name in world.log if name != "LabelPod"]
    assert actions == ["DropOrphan", "StoreKnownGood", "StoreCandidate"]
    assert world.orphan is None


def test_a_target_that_was_changed_since_is_taken_as_it_is() -> None:
    world = World(orphan=left(NEW, OTHER))
    world.run_until("Starting")
    actions = [name for _, name in world.log if name != "LabelPod"]
    assert actions == ["DropOrphan", "StoreKnownGood", "StoreCandidate"]
    assert "changed by" in said(world, "KnownGoodOutdated")[0]


def test_what_is_owed_survives_an_abort_before_it_was_put_back() -> None:
    world = World(template=copy.deepcopy(NEW), orphan=left(NEW))
    for pod in world.of("llm"):
        world.change(pod.name, template_hash="new")
    while world.known_good is None:
        world.reconcile()
    world.annotations[ABORT] = "1"
    world.run_until("RolledBack")
    world.run(5)
    assert world.template == NEW
    assert world.known_good is not None


def test_a_person_who_changes_the_target_after_it_was_put_back_is_not_fought() -> None:
    world = World(template=copy.deepcopy(NEW), orphan=left(NEW), start_seconds=30.0)
    for pod in world.of("llm"):
        world.change(pod.name, template_hash="new")
    while world.template != OLD:
        world.reconcile()
    world.run(2)
    world.template = copy.deepcopy(OTHER)
    world.run(10)
    assert world.template == OTHER


def test_who_began_at_the_same_moment_gives_way_and_leaves_nothing() -> None:
    world = World()
    world.run_until("Preflight")
    world.reconcile()
    assert world.known_good is not None
    first = Rival(name="first", uid="a", created="2026", target="llm", phase="Preflight")
    world.conflict = first
    world.run_until("Pending")
    assert world.known_good is None
    world.run(3)
    assert "waiting for upgrade first" in (world.status.message or "")
    world.conflict = None
    world.run_until("Succeeded")
