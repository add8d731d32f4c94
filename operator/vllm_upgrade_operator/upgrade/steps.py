"""How many canary pods a step means, and which steps make no sense for a target."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.observation import Refusal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.v1alpha1 import Step
    from vllm_upgrade_operator.upgrade.observation import Target


def replicas_of(step: Step, target_replicas: int, before: int = 1) -> int:
    """Give the canary pods of a step: a count as it is, a percentage rounded up.

    Args:
        step: The step; it has either `replicas` or `percent`.
        target_replicas: The target's spec.replicas when the step began.
        before: Canary pods of the step before, or the least: there are never fewer, also where
            the target was scaled down meanwhile.
    """
    return max(before, _replicas_of(step, target_replicas))


def kept_words(step: Step, target: Target, before: int) -> str:
    """Say that a step keeps the pods of the one before, where it would now have fewer."""
    pods = _replicas_of(step, target.replicas)
    if pods >= before:
        return ""
    wanted = f"{step.percent}%" if step.percent is not None else str(step.replicas)
    return (
        f" with the {before} canary pods of the step before: {wanted} of the {target.replicas} "
        f"pods that {target.name} has by now would be fewer"
    )


def impossible_steps(steps: Sequence[Step], target: Target) -> Refusal | None:
    """Find a step that has fewer pods than the one before, or more than the target.

    A number and a percentage can only be compared now that the target's replicas are known.
    """
    before = 1
    for index, step in enumerate(steps):
        pods = _replicas_of(step, target.replicas)
        said = f"spec.strategy.steps[{index}]." + (
            f"replicas is {step.replicas}"
            if step.percent is None
            else f"percent is {step.percent}: {pods} of the {target.replicas} pods of {target.name}"
        )
        if pods > target.replicas:
            return Refusal(
                reason="StepsImpossible",
                message=f"{said}, more than the {target.replicas} pods of {target.name} (over "
                f"100%): give at most {target.replicas}",
            )
        if pods < before:
            least = math.floor(100 * (before - 1) / target.replicas) + 1
            right = f"replicas: {before}" if step.percent is None else f"percent: {least}"
            return Refusal(
                reason="StepsImpossible",
                message=f"{said}, fewer than the {before} of the step before: steps must not "
                f"descend, give at least {right}",
            )
        before = pods
    return None


def _replicas_of(step: Step, target_replicas: int) -> int:
    if step.replicas is not None:
        return step.replicas
    if step.percent is None:
        raise ValueError("a step has neither replicas nor percent")
    return max(1, math.ceil(target_replicas * step.percent / 100))
