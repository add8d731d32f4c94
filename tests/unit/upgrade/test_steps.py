"""Steps of a target whose pods are known: what is refused, and what is never gone below."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.upgrade.world import World
from vllm_upgrade_operator.api.v1alpha1 import Step
from vllm_upgrade_operator.upgrade.steps import replicas_of


def stepped(*steps: dict[str, Any], replicas: int = 4) -> World:
    world = World(replicas=replicas)
    world.spec["strategy"]["steps"] = [{"hold": "10s", **step} for step in steps]
    return world


@pytest.mark.parametrize(
    ("steps", "wrong", "right"),
    [
        (
            [{"replicas": 3}, {"percent": 50}],
            "spec.strategy.steps[1].percent is 50: 2 of the 4 pods of llm, fewer than the 3 of",
            "give at least percent: 51",
        ),
        (
            [{"percent": 60}, {"replicas": 2}],
            "spec.strategy.steps[1].replicas is 2, fewer than the 3 of the step before",
            "give at least replicas: 3",
        ),
        (
            [{"replicas": 1}, {"replicas": 5}],
            "spec.strategy.steps[1].replicas is 5, more than the 4 pods of llm (over 100%)",
            "give at most 4",
        ),
    ],
)
def test_steps_that_make_no_sense_are_refused(
    steps: list[dict[str, Any]], wrong: str, right: str
) -> None:
    world = stepped(*steps)
    world.run_until("Blocked")
    message = world.status.message or ""
    assert message.startswith(wrong)
    assert message.endswith(right)
    assert {action for _, action in world.log} <= {"LabelPod"}


def test_the_least_that_is_named_is_right() -> None:
    assert replicas_of(Step(percent=51), 4) == 3
    assert replicas_of(Step(percent=50), 4) == 2


def test_a_target_that_was_scaled_down_does_not_take_canary_pods_back() -> None:
    world = stepped({"replicas": 3}, {"percent": 75})
    world.run_until("Canary")
    world.replicas = 2
    for pod in world.of("llm")[2:]:
        del world.pods[pod.name]
    world.run_until("Promoting")
    assert len(world.of("canary")) == 3
    (passed,) = [e for e in world.status.timeline if e.reason == "StepPassed"]
    assert passed.message == (
        "step 2 of 2 begins with the 3 canary pods of the step before: 75% of the 2 pods that llm "
        "has by now would be fewer"
    )


def test_a_target_that_was_scaled_up_gets_its_share() -> None:
    assert replicas_of(Step(percent=75), 8, 3) == 6
