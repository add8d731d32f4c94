"""`Halted`, and the ends: `Succeeded`, `RolledBack`, `Blocked`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.judge.model import Verdict
from vllm_upgrade_operator.upgrade import promotion
from vllm_upgrade_operator.upgrade.decision import DropRevisions
from vllm_upgrade_operator.upgrade.flow import Turn, enter, phase_since, remember, roll_back
from vllm_upgrade_operator.upgrade.inheritance import owed
from vllm_upgrade_operator.upgrade.phases.rollback import after_a_move, in_order
from vllm_upgrade_operator.upgrade.removal import remove_canary

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation

# Nothing of ours can mend these: the target is somebody else's now, or does not come back.
_STUCK = "RollbackStuck"
_MOVED = "KnownGoodMoved"


def halted(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Wait for a person, at most `haltTimeout`."""
    reason = status.progress.halt_reason or ""
    end = phase_since(status, now) + seconds_of(o.spec.strategy.halt_timeout)
    if reason == "ForeignChange":
        return _foreign(o, status, end, now)
    if reason == _STUCK:
        if not in_order(o, status):
            return Turn(status=status)
        return enter(
            remember(status, halt_reason=None),
            Phase.ROLLING_BACK,
            "RollbackGoesOn",
            "what the rollback waited for has happened",
            now=now,
        )
    if reason == _MOVED:
        # All that can be undone is undone: the record only serves until something else is asked.
        over = o.deleting or status.attempt is None or o.spec_hash != status.attempt.hash
        left = o.known_good is not None or o.candidate is not None
        if over:
            return Turn(status=status, actions=(DropRevisions(),) if left else ())
        return after_a_move(o, status, now) or Turn(status=status)
    if reason == "Inconclusive" and status.verdict == Verdict.PASS:
        return enter(
            remember(status, halt_reason=None),
            Phase.BAKING if status.progress.promoted else Phase.CANARY,
            "EvidenceArrived",
            "the evidence that was missing has arrived",
            now=now,
        )
    if reason == "Inconclusive" and promotion.asked(o, status):
        words = "although evidence was missing"
        return enter(
            remember(promotion.record(o, status, words, now), halt_reason=None, promoted=True),
            Phase.BAKING if status.progress.promoted else Phase.PROMOTING,
            "PromotedByPerson",
            f"promoted by a person {words}",
            now=now,
        )
    if now > end:
        return roll_back(
            status,
            reason or "HaltTimeout",
            f"nobody decided within spec.strategy.haltTimeout ({o.spec.strategy.halt_timeout}): "
            f"{status.message}",
            now=now,
        )
    return Turn(status=status, at=end)


def _foreign(o: Observation, status: VLLMUpgradeStatus, end: float, now: float) -> Turn:
    """Take our canary away and leave the target as whoever changed it wants it."""
    removal = remove_canary(o, began=phase_since(status, now), now=now)
    if removal is not None:
        return Turn(status=status, actions=removal[1], at=removal[2])
    left = o.known_good is not None or o.candidate is not None
    drop = (DropRevisions(),) if left else ()
    if now > end:
        return enter(
            remember(status, result_reason="ForeignChange", result_message=status.message),
            Phase.ROLLED_BACK,
            "ForeignChange",
            f"given up: {status.message}; the canary is gone, the target is as it was changed",
            now=now,
            type_="Warning",
        ).having(*drop)
    return Turn(status=status, actions=drop, at=end)


def ended(o: Observation, status: VLLMUpgradeStatus, _now: float) -> Turn:
    """Nothing is left to do but to clear away what was only kept for the way back."""
    if (o.known_good is not None or o.candidate is not None) and not owed(o):
        return Turn(status=status, actions=(DropRevisions(),))
    return Turn(status=status)
