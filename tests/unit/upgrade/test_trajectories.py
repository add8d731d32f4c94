"""Whole upgrades, decided step by step in a world of plain values."""

from __future__ import annotations

import copy

import pytest

from tests.unit.upgrade.world import NEW, OLD, V1, World, calm
from vllm_upgrade_operator.upgrade.names import ACTIVE_RUNNER, ADMITTED_AT, ROLE
from vllm_upgrade_operator.upgrade.times import seconds
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence


def condition(world: World, type_: str) -> tuple[str, str] | None:
    found = [c for c in world.status.conditions if c.type == type_]
    return (found[0].status, found[0].reason) if found else None


def test_a_good_candidate_goes_through_every_phase_and_is_promoted() -> None:
    world = World()
    world.run_until("Succeeded")
    assert world.phases == [
        "Preflight",
        "Starting",
        "Verifying",
        "Canary",
        "Promoting",
        "Baking",
        "Succeeded",
    ]
    assert world.template == NEW
    assert world.of("canary") == []
    assert condition(world, "Promoted") == ("True", "Promoted")
    assert condition(world, "Finished") == ("True", "Promoted")
    assert condition(world, "Ready") == ("True", "Promoted")
    assert condition(world, "Reconciling") is None
    assert condition(world, "Stalled") is None
    assert {p.labels[ROLE] for p in world.of("llm")} == {"stable"}
    assert {p.labels[ACTIVE_RUNNER] for p in world.of("llm")} == {"v2"}
    world.run(5)
    assert world.known_good is None


def test_known_good_is_stored_before_anything_else_is_changed() -> None:
    world = World()
    world.run_until("Succeeded")
    actions = [name for _, name in world.log if name != "LabelPod"]
    assert actions[0] == "StoreKnownGood"
    assert actions.index("StoreKnownGood") < actions.index("EnsureCanary")


def test_no_pod_is_admitted_before_it_is_verified() -> None:
    world = World(candidate_runner=None)
    world.run(40)
    assert world.status.phase == "Verifying"
    assert not [name for _, name in world.log if name == "Admit"]


def test_steps_hold_for_their_time() -> None:
    world = World()
    world.run_until("Canary")
    began = world.now
    world.run_until("Promoting")
    assert world.now - began >= 20.0


def test_the_second_step_is_a_percentage_of_the_target() -> None:
    world = World()
    world.run_until("Canary")
    assert world.canary_replicas == 1
    world.run_until("Promoting")
    assert world.canary_replicas == 2


def test_an_approval_is_waited_for_and_reaches_no_further_than_its_step() -> None:
    world = World()
    for step in world.spec["strategy"]["steps"]:
        step["approval"] = True
    world.run_until("Canary")
    world.run(30)
    assert world.status.phase == "Canary"
    assert condition(world, "Reconciling") == ("True", "WaitingForApproval")
    assert world.status.attempt is not None
    assert f"approve={world.status.attempt.id}.1" in (world.status.message or "")
    world.annotations["vllmupgrade.dev/approve"] = f"{world.status.attempt.id}.1"
    world.annotations["vllmupgrade.dev/approved-by"] = "kim"
    world.run(60)
    assert world.status.phase == "Canary"
    assert world.status.step is not None
    assert world.status.step.index == 1
    assert any("approved by kim" in e.message for e in world.status.timeline)
    world.annotations["vllmupgrade.dev/approve"] = f"{world.status.attempt.id}.2"
    world.run_until("Succeeded")


def test_nobody_approves_and_it_is_rolled_back() -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["approval"] = True
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "ApprovalTimeout")
    assert world.template == OLD


def test_a_failing_check_withdraws_first_then_deletes() -> None:
    world = World()
    world.run_until("Canary")
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    after = [name for phase, name in world.log if phase == "RollingBack"]
    assert after[0] == "Withdraw"
    assert after.index("Withdraw") < after.index("DeleteCanary")
    assert world.template == OLD
    assert world.of("canary") == []
    assert "errors" in (world.status.message or "")
    assert condition(world, "Finished") == ("True", "RolledBack")
    assert condition(world, "Promoted") == ("False", "CheckFailed")
    assert condition(world, "Stalled") == ("True", "RolledBack")


def test_a_failing_check_during_promotion_puts_the_template_back() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(4)
    assert world.template == NEW
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    assert world.template == OLD
    assert {p.template_hash for p in world.of("llm")} == {"old"}
    assert len(world.of("llm")) == 4


def test_a_failing_check_while_baking_puts_the_template_back() -> None:
    world = World()
    world.spec["strategy"]["bake"] = "60s"
    world.run_until("Baking")
    world.run(10)
    assert world.of("canary") == []
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    assert world.template == OLD


def test_without_traffic_it_holds_and_is_never_promoted() -> None:
    world = World(candidate_delta=calm(0.0))
    world.run_until("Canary")
    world.run(59)
    assert world.status.phase == "Canary"
    world.run_until("Halted", limit=30)
    assert condition(world, "Stalled") == ("True", "Inconclusive")
    world.run_until("RolledBack")
    assert "Promoting" not in world.phases


def test_evidence_that_arrives_while_halted_goes_on() -> None:
    world = World(candidate_delta=calm(0.0))
    world.run_until("Halted", limit=200)
    world.candidate_delta = calm()
    world.run_until("Succeeded")


def test_inconclusive_rolls_back_at_once_where_the_spec_says_so() -> None:
    world = World(candidate_delta=calm(0.0))
    world.spec["analysis"]["onInconclusive"] = "Rollback"
    world.run_until("RolledBack")
    assert "Halted" not in world.phases
    assert condition(world, "RolledBack") == ("True", "Inconclusive")


@pytest.mark.parametrize(("heals", "end"), [(True, "Succeeded"), (False, "RolledBack")])
def test_a_bake_does_not_end_in_doubt(*, heals: bool, end: str) -> None:
    world = World()
    world.spec["strategy"]["bake"] = "30s"
    world.run_until("Baking")
    world.run(26)
    world.candidate_delta = calm(errors=0.8)
    world.run(4)
    assert world.status.phase == "Baking"
    assert "looks wrong" in (world.status.message or "")
    if heals:
        world.candidate_delta = calm()
    world.run_until(end)
    if heals:
        assert world.status.verdict == "Pass"
    else:
        assert world.template == OLD


def test_a_bake_that_sees_nothing_does_not_end_well() -> None:
    world = World()
    world.run_until("Baking")
    world.mute = frozenset(p.name for p in world.of("llm"))
    world.run_until("Halted", limit=120)
    assert "cannot be read" in (world.status.message or "")
    world.run_until("RolledBack")
    assert world.template == OLD


def test_a_step_does_not_pass_while_its_pods_are_cold() -> None:
    world = World()
    world.spec["strategy"]["steps"][1]["hold"] = "1s"
    world.spec["analysis"]["warmup"] = {"duration": "20s", "requests": 5}
    world.run_until("Promoting")
    assert world.status.step is not None
    last = max(seconds(p.annotations[ADMITTED_AT]) for p in world.of("canary"))
    assert world.now - last >= 20.0


def test_the_same_spec_in_another_object_is_another_attempt() -> None:
    ids = set()
    for uid in ("one", "other"):
        world = World(uid=uid)
        world.run_until("Canary")
        assert world.status.attempt is not None
        ids.add(world.status.attempt.id)
    assert len(ids) == 2


@pytest.mark.parametrize("side", ["candidate_delta", "stable_delta"])
def test_blindness_after_a_pass_is_no_pass(side: str) -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["hold"] = "30s"
    world.run_until("Canary")
    world.run(25)
    assert world.status.verdict == "Pass"
    setattr(world, side, None)
    world.run_until("Halted", limit=120)
    assert condition(world, "Stalled") == ("True", "Inconclusive")
    assert "Promoting" not in world.phases


FALLBACK = RunnerEvidence(
    runner=Runner.V1, how="fallback warning", fallback_features=("custom logits processors",)
)


@pytest.mark.parametrize(
    ("policy", "end"), [("Halt", "Halted"), ("Rollback", "RolledBack"), ("Allow", "Succeeded")]
)
def test_a_runner_that_is_not_expected(policy: str, end: str) -> None:
    world = World(candidate_runner=FALLBACK)
    world.spec["runner"]["onMismatch"] = policy
    world.run_until(end)
    admitted = "Admit" in [name for _, name in world.log]
    assert admitted == (policy == "Allow")
    assert world.status.runners is not None
    assert world.status.runners.fallback_ratio == "100%"


@pytest.mark.parametrize(
    ("feature", "retest_after", "end"),
    [
        ("custom logits processors", "2999-01-01", "Succeeded"),
        ("custom logits processors", "2020-01-01", "Halted"),
        ("another feature", "2999-01-01", "Halted"),
    ],
)
def test_an_exception_holds_for_its_feature_until_its_date(
    feature: str, retest_after: str, end: str
) -> None:
    world = World(candidate_runner=FALLBACK)
    world.spec["runner"]["exceptions"] = [
        {"feature": feature, "reason": "r", "owner": "o", "retestAfter": retest_after}
    ]
    world.run_until(end)


def test_a_silent_fallback_is_not_covered_by_an_exception() -> None:
    world = World(candidate_runner=V1)
    world.spec["runner"]["exceptions"] = [
        {"feature": "triton", "reason": "r", "owner": "o", "retestAfter": "2999-01-01"}
    ]
    world.run_until("Halted")


def test_nobody_decides_on_a_halt_and_it_is_rolled_back() -> None:
    world = World(candidate_runner=V1)
    world.run_until("Halted")
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "RunnerMismatch")


def test_an_unknown_runner_halts_at_the_deadline() -> None:
    world = World(candidate_runner=None)
    world.run_until("Halted")
    assert condition(world, "Stalled") == ("True", "RunnerUnknown")


def test_the_wrong_version_is_rolled_back_before_any_traffic() -> None:
    world = World(candidate_version="0.28.0")
    world.run_until("RolledBack")
    assert "Admit" not in [name for _, name in world.log]
    assert "0.28.0" in (world.status.message or "")


def test_a_canary_that_ends_is_rolled_back_at_once() -> None:
    world = World()
    world.run_until("Canary")
    world.change(world.of("canary")[0].name, exit_code=1, exit_reason="Error", ready_at=None)
    world.run(1)
    assert "exit code 1" in (world.status.message or "")
    world.run_until("RolledBack")


def test_harm_acts_while_a_person_is_asked() -> None:
    world = World()
    world.spec["strategy"]["steps"][0]["approval"] = True
    world.run_until("Canary")
    world.run(20)
    assert condition(world, "Reconciling") == ("True", "WaitingForApproval")
    world.candidate_delta = calm(errors=5.0)
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "CheckFailed")


def test_a_foreign_change_withdraws_the_canary_and_leaves_the_target() -> None:
    world = World()
    world.run_until("Canary")
    world.run(3)
    world.template = {**copy.deepcopy(OLD), "spec": {"containers": []}}
    world.rolls_slowly = True
    world.run_until("Halted", limit=5)
    assert condition(world, "ForeignChange") == ("True", "ForeignChange")
    assert "spec.template.spec.containers[vllm] changed by" in (world.status.message or "")
    world.run(40)
    assert world.of("canary") == []
    assert world.template["spec"] == {"containers": []}
    world.run_until("RolledBack")
    assert condition(world, "Finished") == ("True", "Aborted")


def test_a_changed_candidate_supersedes_and_starts_clean() -> None:
    world = World()
    world.run_until("Canary")
    world.run(8)
    first = world.status.attempt
    world.spec["candidate"]["env"] = [{"name": "A", "value": "1"}]
    world.generation += 1
    world.run_until("Preflight")
    assert first is not None
    assert world.status.attempt is not None
    assert world.status.attempt.number == first.number + 1
    assert world.status.checks == ()
    assert world.status.evidence == ()
    assert world.phases[-3:] == ["RolledBack", "Pending", "Preflight"]
    world.run_until("Succeeded")


def test_deleting_takes_the_canary_away_and_restores_a_promotion() -> None:
    world = World()
    world.run_until("Promoting")
    world.run(4)
    world.deleting = True
    world.run_until("RolledBack")
    assert world.template == OLD
    assert world.of("canary") == []


def test_a_moved_tag_is_found_when_rolling_back() -> None:
    world = World()
    world.run_until("Canary")
    world.candidate_delta = calm(errors=5.0)
    world.known_good = None if world.known_good is None else world.known_good
    assert world.known_good is not None
    object.__setattr__(world.known_good, "digests", ("sha256:older",))
    world.run_until("Halted")
    assert condition(world, "Stalled") == ("True", "KnownGoodMoved")


def test_an_operator_that_is_killed_after_any_decision_ends_the_same() -> None:
    """Replay every prefix: actions done, status lost. The end must be the same."""
    for lost in range(1, 60, 3):
        world = World()
        for _ in range(lost):
            world.reconcile()
            world.now += 0.5
        before = world.status
        world.reconcile()
        world.status = before
        world.run_until("Succeeded", limit=300)
        assert world.template == NEW
        assert world.of("canary") == []


def test_the_canary_is_promoted_only_with_what_was_judged() -> None:
    world = World()
    world.run_until("Promoting")
    world.candidate_digest = "sha256:moved"
    world.run_until("RolledBack")
    assert condition(world, "RolledBack") == ("True", "DigestMismatch")
