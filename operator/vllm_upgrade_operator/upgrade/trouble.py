"""What status says when the operator itself cannot get on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade import conditions

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus

_ERROR_LIMIT = 600


def troubled(  # noqa: PLR0913 - what is told
    status: VLLMUpgradeStatus,
    error: str,
    *,
    failures: int,
    generation: int,
    now: float,
    retry_seconds: float,
) -> VLLMUpgradeStatus:
    """Say that nothing moves, why, and when it is tried again. The phase stays as it is."""
    message = (
        f"cannot get on, tried {failures} times, next in {retry_seconds:.0f} s: "
        f"{error[:_ERROR_LIMIT]}"
    )
    told = conditions.put(
        status,
        conditions.RECONCILING,
        True,
        "ReconcileError",
        message,
        generation=generation,
        now=now,
    )
    return told.model_copy(update={"message": message})
