"""What the checks come to together, and how it is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.unit.upgrade.preflight.asking import BLOCK, WARN, seen
from tests.unit.upgrade.world import ROOMY, World
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.preflight import chain
from vllm_upgrade_operator.upgrade.surroundings import Claim, Reference, Unread


def names(o: Any) -> list[str]:
    return [c.name for c in chain.examine(o, o.target, 0.0)]


def test_every_check_has_a_name_of_its_own_and_speaks() -> None:
    o = seen()
    assert o.target is not None
    found = chain.examine(o, o.target, 0.0)
    assert len({c.name for c in found}) == len(found) > 20
    assert all(c.message and c.reason.isalnum() for c in found)


def test_without_a_target_nothing_else_is_asked() -> None:
    o = replace(seen(), target=None)
    (only,) = chain.of_target(o)
    assert (only.result, only.reason) == (BLOCK, "TargetNotFound")


def test_a_template_that_is_refused_leaves_the_checks_of_the_target() -> None:
    refused = replace(seen(), proposed=Refusal(reason="CandidateRefused", message="no"))
    expected = [n for n in names(seen()) if n.startswith("target-") or n == "steps"]
    assert names(refused) == [*expected, "candidate"]


def test_the_first_block_is_the_reason_and_the_others_are_named() -> None:
    claims = (Claim(name="models", access_modes=("ReadWriteOncePod",)),)
    missing = (Reference(kind="Secret", name="x", optional=False, resource_version=None),)
    world = World(surroundings=replace(ROOMY, claims=claims, references=missing))
    world.run_until("Blocked")
    assert world.status.timeline[-1].reason == "ReferenceNotFound"
    assert world.status.message is not None
    assert world.status.message.startswith("Secret x, which")
    assert world.status.message.endswith("these block too, see status.preflight: volumes")
    results = {c.name: c.result for c in world.status.preflight}
    assert results["references"] == results["volumes"] == BLOCK
    assert world.canary_replicas is None
    assert world.known_good is None


def test_a_blocked_upgrade_is_asked_anew_when_it_is_edited() -> None:
    claims = (Claim(name="models", access_modes=("ReadWriteOncePod",)),)
    world = World(surroundings=replace(ROOMY, claims=claims))
    world.run_until("Blocked")
    world.surroundings = ROOMY
    world.generation += 1
    world.run_until("Starting")
    assert BLOCK not in {c.result for c in world.status.preflight}


def test_warnings_are_told_once_and_do_not_stop() -> None:
    world = World()
    world.run_until("Preflight")
    world.change(world.of("llm")[0].name, ready_at=None, unready_since=world.now + 1e9)
    world.start_seconds = 1e9
    world.run(20)
    warned = [c.name for c in world.status.preflight if c.result == WARN]
    assert "grace-period" in warned
    assert world.status.message is not None
    assert world.status.message.startswith("waiting for the target to be at rest")
    assert f"(warnings, see status.preflight: {', '.join(warned)})" in world.status.message
    told = [n for n in world.notices if n.reason == "PreflightWarnings"]
    assert len(told) == 1
    assert all(f"{name}: " in told[0].message for name in warned)


def test_a_new_warning_is_told_alone() -> None:
    world = World()
    world.run_until("Preflight")
    world.reconcile()
    world.status = world.status.model_copy(
        update={"preflight": tuple(c for c in world.status.preflight if c.name != "grace-period")}
    )
    world.known_good = world.candidate = None
    world.notices.clear()
    world.reconcile()
    (told,) = [n for n in world.notices if n.reason == "PreflightWarnings"]
    assert told.message.startswith("grace-period: ")


def test_warnings_are_in_the_message_only_in_preflight() -> None:
    world = World()
    world.run_until("Starting")
    assert "warnings" not in (world.status.message or "")
    assert "grace-period" in {c.name for c in world.status.preflight if c.result == WARN}
    world.run_until("Succeeded")
    assert world.status.preflight, "what was found stays on record"


def test_what_could_not_be_read_does_not_stop_it() -> None:
    unread = Unread(why="this may not be read: grant it")
    world = World(
        surroundings=replace(
            ROOMY,
            nodes=unread,
            claims=unread,
            budgets=unread,
            references=unread,
            stable_references=unread,
        )
    )
    world.run_until("Succeeded")
    unknown = {c.name for c in world.status.preflight if c.result == "Unknown"}
    assert unknown >= {"capacity", "volumes", "disruption-budget", "references"}


def test_known_good_keeps_the_versions_of_what_the_stable_template_refers_to() -> None:
    stable = (
        Reference(kind="ConfigMap", name="prompts", optional=False, resource_version="7"),
        Reference(kind="Secret", name="gone", optional=True, resource_version=None),
    )
    world = World(surroundings=replace(ROOMY, stable_references=stable))
    world.run_until("Preflight")
    decision = decide(world.observe(look=False), world.status, world.now)
    (record,) = [a for a in decision.actions if type(a).__name__ == "StoreKnownGood"]
    assert record.data["references"] == [  # type: ignore[union-attr]
        {"kind": "ConfigMap", "name": "prompts", "resourceVersion": "7"}
    ]


def test_long_findings_are_cut_to_what_status_takes() -> None:
    many = tuple(
        Reference(kind="ConfigMap", name=f"{n}" * 60, optional=False, resource_version=None)
        for n in range(40)
    )
    o = seen(around={"references": many})
    assert o.target is not None
    assert max(len(c.message) for c in chain.examine(o, o.target, 0.0)) == 1024
