"""What status says when reconciling fails again and again: an error is never silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.upgrade import conditions

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus

PERSISTENT_FAILURES = 3
"""From this many failures in a row on, status tells."""

_MESSAGE_LIMIT = 1024
_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 30.0

# Their message says how it ended or what is asked of a person, and nothing would write it again.
_KEEPS_MESSAGE = frozenset({Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED, Phase.HALTED})


def backoff_seconds(failures: int) -> float:
    """How long to wait after so many failures in a row (1 or more): 1, 2, 4 ... at most 30."""
    return float(min(_LONGEST_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS * 2 ** min(failures - 1, 10)))


def troubled(
    status: VLLMUpgradeStatus, *, error: str, generation: int, now: float
) -> VLLMUpgradeStatus:
    """Say in the condition `Reconciling` that nothing is decided at the moment, and why.

    Phase, evidence and deadlines stay: an error is unknown, not a finding. The text has no count
    in it, so a lasting failure writes status once. The next reconcile that works writes condition
    and message anew.
    """
    message = f"cannot go on, tried again at least every 30 s: {error}"[:_MESSAGE_LIMIT]
    if status.phase not in _KEEPS_MESSAGE:
        status = status.model_copy(update={"message": message})
    return conditions.put(
        status,
        conditions.RECONCILING,
        True,
        "ApiError",
        message,
        generation=generation,
        now=now,
    )
