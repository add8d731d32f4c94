"""Status conditions, by the rules of kstatus: an abnormal-true condition is absent when false."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Condition
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus

READY = "Ready"
RECONCILING = "Reconciling"
STALLED = "Stalled"
FINISHED = "Finished"
PROMOTED = "Promoted"
ROLLED_BACK = "RolledBack"
KNOWN_GOOD_RECORDED = "KnownGoodRecorded"
RUNNER_VERIFIED = "RunnerVerified"
METRICS_AVAILABLE = "MetricsAvailable"
BASELINE_HEALTHY = "BaselineHealthy"
CAPACITY_AVAILABLE = "CapacityAvailable"
CONFLICT = "Conflict"
FOREIGN_CHANGE = "ForeignChange"

_MESSAGE_LIMIT = 1024


def put(  # noqa: PLR0913 - a condition has this many parts
    status: VLLMUpgradeStatus,
    type_: str,
    value: bool | None,  # noqa: FBT001 - a condition is true, false or unknown
    reason: str,
    message: str,
    *,
    generation: int,
    now: float,
) -> VLLMUpgradeStatus:
    """Set a condition; its transition time moves only when its status does."""
    text = "Unknown" if value is None else str(value)
    old = next((c for c in status.conditions if c.type == type_), None)
    new = Condition(
        type=type_,
        status=text,
        reason=reason,
        message=message[:_MESSAGE_LIMIT],
        observed_generation=generation,
        last_transition_time=(
            rfc3339(now) if old is None or old.status != text else old.last_transition_time
        ),
    )
    others = tuple(c for c in status.conditions if c.type != type_)
    kept = tuple(new if c.type == type_ else c for c in status.conditions)
    return status.model_copy(update={"conditions": (*others, new) if old is None else kept})


def drop(status: VLLMUpgradeStatus, *types: str) -> VLLMUpgradeStatus:
    """Remove conditions."""
    kept = tuple(c for c in status.conditions if c.type not in types)
    return status.model_copy(update={"conditions": kept})


def is_true(status: VLLMUpgradeStatus, type_: str) -> bool:
    """Whether a condition is there and true."""
    return any(c.type == type_ and c.status == "True" for c in status.conditions)
