"""Letting a deleted upgrade go although not all of it is in order: a finalizer may never block.

A rollback has a deadline of its own, which grows with the start-up budget of the pods: at its end,
`RollbackStuck`, a deleted upgrade is let go. Where there is nothing to roll back only the canary
has to end. What is left then is said in an Event; known-good stays on record, and the next upgrade
of the target inherits it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade.decision import Notice
from vllm_upgrade_operator.upgrade.flow import phase_since
from vllm_upgrade_operator.upgrade.names import canary_name
from vllm_upgrade_operator.upgrade.pinning import is_known_good
from vllm_upgrade_operator.upgrade.removal import grace_seconds
from vllm_upgrade_operator.upgrade.rollout import is_rolled, obstacles

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation

# Beyond the grace period of its pods: for the kubelet and the controllers.
_SLACK_SECONDS = 60.0

_STUCK = "RollbackStuck"


def unfinished(o: Observation, status: VLLMUpgradeStatus, now: float) -> Notice | None:
    """Say what is left behind by a deleted upgrade that is waited for no longer, or None."""
    if o.deleted_at is None:
        return None
    if status.phase == Phase.HALTED and status.progress.halt_reason == _STUCK:
        why = "its rollback did not get on"
    elif o.canary is not None and status.phase != Phase.ROLLING_BACK:
        began = max(o.deleted_at, phase_since(status, now))
        patience = grace_seconds(o) + _SLACK_SECONDS
        if now <= began + patience:
            return None
        why = f"its canary did not end within {patience:.0f} s"
    else:
        return None
    left = "; ".join(_left(o)) or "nothing is left of it"
    return Notice(
        type="Warning",
        reason="ReleasedUnfinished",
        message=f"the deleted upgrade is let go, for {why}: {left}",
    )


def _left(o: Observation) -> list[str]:
    found: list[str] = []
    target, known = o.target, o.known_good
    if target is not None and known is not None:
        if not is_known_good(target.template, known, o.candidate):
            found.append(
                f"{target.name} does not have its known-good template, which is kept as "
                f"ControllerRevision {known.name}: the next VLLMUpgrade of {target.name} puts it "
                "back before it begins"
            )
        elif not is_rolled(target):
            ready = f"{target.ready} of {target.replicas} pods ready"
            words = f"{target.name} has its known-good template and {ready}"
            found.append("; ".join([words, *obstacles(target)]))
    if o.canary is not None:
        found.append(
            f"{plural(len(o.canary.pods), 'pod')} of Deployment "
            f"{canary_name(o.spec.target_ref.name)}, which the garbage collector deletes"
        )
    return found
