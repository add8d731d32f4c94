"""Approval of a step by a person: an annotation whose value names the attempt and the step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import HandledActions, Phase
from vllm_upgrade_operator.upgrade.decision import Notice
from vllm_upgrade_operator.upgrade.flow import note
from vllm_upgrade_operator.upgrade.names import APPROVE, APPROVED_BY

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.flow import Turn
    from vllm_upgrade_operator.upgrade.observation import Observation

_BEFORE_APPROVALS = frozenset(
    {
        Phase.PENDING,
        Phase.PREFLIGHT,
        Phase.STARTING,
        Phase.VERIFYING,
        Phase.CANARY,
        Phase.HALTED,
    }
)


def token(status: VLLMUpgradeStatus) -> str:
    """What the annotation must say to approve the present step: `<attempt>.<step, from 1>`.

    The step is part of it, so that an approval never reaches further than what was looked at.
    """
    attempt = status.attempt.id if status.attempt else ""
    step = status.step.index + 1 if status.step else 0
    return f"{attempt}.{step}"


def given(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether the present step is approved."""
    return o.annotations.get(APPROVE) == token(status)


def may_come_true(value: str, status: VLLMUpgradeStatus) -> bool:
    """Whether a value approves the present step, or one that this attempt has not come to yet."""
    attempt, _, step = value.rpartition(".")
    present = status.step.index + 1 if status.step else 1
    before = status.phase in _BEFORE_APPROVALS
    named = status.attempt is not None and attempt == status.attempt.id
    return before and named and step.isdecimal() and int(step) >= present


def record(o: Observation, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Remember that the approval was acted on, and whose it was."""
    person = o.annotations.get(APPROVED_BY, "somebody who did not say who")
    handled = (status.handled_actions or HandledActions()).model_copy(
        update={"approve": token(status)}
    )
    return note(
        status.model_copy(update={"handled_actions": handled}),
        "StepApproved",
        f"step {token(status).rpartition('.')[2]} approved by {person}",
        now,
    )


def command(o: Observation, status: VLLMUpgradeStatus) -> str:
    """Give the command that approves the present step."""
    return (
        f"kubectl -n {o.namespace} annotate --overwrite vllmupgrade {o.name} "
        f"{APPROVE}={token(status)} {APPROVED_BY}=<your user name>"
    )


def announce(turn: Turn, message: str) -> Turn:
    """Add the Event that asks for the approval."""
    asking = Notice(type="Normal", reason="ApprovalNeeded", message=message)
    return replace(turn, notices=(*turn.notices, asking))
