"""A candidate's template that cannot be tried is refused before anything is changed."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.upgrade.world import NEW, OLD, World
from vllm_upgrade_operator.upgrade.decide import decide
from vllm_upgrade_operator.upgrade.selection import Expression, Selector

TARGET = Selector(owner="Deployment llm", labels={"app": "llm"})
SERVICE = Selector(owner="Service llm", labels={"app": "llm"})


def template(labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(NEW)
    made["metadata"]["labels"].update(labels or {})
    made["spec"].update(spec)
    return made


def refusal(
    proposed: dict[str, Any],
    *selectors: Selector,
    target: dict[str, Any] = OLD,
    keys: frozenset[str] = frozenset({"app"}),
) -> tuple[str, str]:
    """Phase and message after preflight has seen it."""
    world = World(template=copy.deepcopy(target))
    world.run_until("Preflight")
    seen = world.observe(look=False)
    seen = replace(
        seen, proposed=proposed, selectors=(TARGET, SERVICE, *selectors), traffic_keys=keys
    )
    decision = decide(seen, world.status, world.now)
    blocked = decision.status.phase == "Blocked"
    assert blocked == (not decision.actions)
    return str(decision.status.phase), decision.status.message or ""


def test_a_candidate_like_any_other_is_fit() -> None:
    assert refusal(template())[0] == "Preflight"
    assert refusal(template({"tier": "b"}))[0] == "Preflight"


@pytest.mark.parametrize("key", ["vllmupgrade.dev/role", "vllmupgrade.dev/x", "pod-template-hash"])
def test_labels_of_the_operator_and_of_controllers_are_theirs(key: str) -> None:
    phase, message = refusal(template({key: "v"}))
    assert phase == "Blocked"
    assert message.startswith(f"spec.candidate.templatePatch.metadata.labels[{key}] is 'v', but ")
    assert "take it out" in message


def test_that_the_target_has_one_is_said_of_the_target() -> None:
    target = copy.deepcopy(OLD)
    target["metadata"]["annotations"] = {"vllmupgrade.dev/x": "v"}
    proposed = template()
    proposed["metadata"]["annotations"] = {"vllmupgrade.dev/x": "v"}
    phase, message = refusal(proposed, target=target)
    assert phase == "Blocked"
    field = "spec.template.metadata.annotations[vllmupgrade.dev/x] of Deployment llm is 'v'"
    assert message.startswith(field)


def test_the_labels_of_the_traffic_stay_as_they_are() -> None:
    team = Selector(owner="Service team", labels={"team": "a"})
    phase, message = refusal(template({"team": "b"}), team, keys=frozenset({"app", "team"}))
    assert phase == "Blocked"
    assert message == (
        "spec.candidate.templatePatch.metadata.labels changes team from 'a' to 'b', by which "
        "Service team selects the pods of llm: the candidate would not get the target's traffic; "
        "leave it as it is"
    )


def test_a_key_that_the_user_named_is_one_of_them() -> None:
    _, message = refusal(template({"team": "b"}), keys=frozenset({"app", "team"}))
    assert "by which spec.strategy.trafficLabels selects" in message


@pytest.mark.parametrize(
    "labels",
    [
        {"vllmupgrade.dev/role": "canary"},
        {"vllmupgrade.dev/active-runner": "v2"},
        {"added": "x"},
        {"added": "x", "vllmupgrade.dev/version": "0.29.0"},
    ],
)
def test_a_service_that_would_route_to_unverified_pods_blocks(labels: dict[str, str]) -> None:
    other = Selector(owner="Service other", labels=labels)
    phase, message = refusal(template({"added": "x"}), other)
    assert phase == "Blocked"
    assert message.startswith("Service other selects by ")
    assert "add a label to its selector that the pods of llm have" in message


@pytest.mark.parametrize(
    "labels",
    [
        {"app": "llm", "vllmupgrade.dev/active-runner": "v2"},
        {"vllmupgrade.dev/role": "stable"},
        {"app": "llm", "added": "x"},
    ],
)
def test_a_service_that_needs_a_label_of_the_traffic_does_not(labels: dict[str, str]) -> None:
    other = Selector(owner="Service other", labels=labels)
    assert refusal(template({"added": "x"}), other)[0] == "Preflight"


def test_a_target_that_selects_by_absence_would_take_the_canary_for_its_own() -> None:
    absent = Expression(key="old", operator="DoesNotExist")
    selector = Selector(owner="Deployment llm", labels={}, expressions=(absent,))
    phase, message = refusal(template(), selector)
    assert phase == "Blocked"
    assert "(NotIn, DoesNotExist)" in message
    assert "make the Deployment anew with spec.selector.matchLabels" in message


def test_pods_on_the_network_of_their_node_cannot_be_judged() -> None:
    phase, message = refusal(template(hostNetwork=True))
    assert phase == "Blocked"
    assert message.startswith("spec.candidate.templatePatch.spec.hostNetwork is true")
    target = copy.deepcopy(OLD)
    target["spec"]["hostNetwork"] = True
    _, message = refusal(template(hostNetwork=True), target=target)
    assert message.startswith("spec.template.spec.hostNetwork of Deployment llm is true")


def test_bad_input_is_told_before_the_target_is_at_rest() -> None:
    world = World()
    world.run_until("Preflight")
    seen = world.observe(look=False)
    assert seen.target is not None
    seen = replace(seen, proposed=template(hostNetwork=True), target=replace(seen.target, ready=0))
    assert decide(seen, world.status, world.now).status.phase == "Blocked"
