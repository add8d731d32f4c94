"""How many canary pods a step means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import Step


def replicas_of(step: Step, target_replicas: int) -> int:
    """Give the canary pods of a step: a count as it is, a percentage rounded up, at least one.

    Args:
        step: The step; it has either `replicas` or `percent`.
        target_replicas: The target's spec.replicas when the step began.
    """
    if step.replicas is not None:
        return step.replicas
    if step.percent is None:
        raise ValueError("a step has neither replicas nor percent")
    return max(1, math.ceil(target_replicas * step.percent / 100))
