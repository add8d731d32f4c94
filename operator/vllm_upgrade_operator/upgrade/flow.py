"""The moves that every phase is made of: wait, go to a phase, halt, roll back.

A `Turn` is what a phase answers with: the new status, the actions and the Events. `decide.py`
turns it into a `Decision`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from vllm_upgrade_operator.api.v1alpha1 import Phase, TimelineEntry
from vllm_upgrade_operator.upgrade.decision import Notice
from vllm_upgrade_operator.upgrade.times import clock, rfc3339, seconds

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.decision import Action

TIMELINE_LIMIT = 50
_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What one phase wants."""

    status: VLLMUpgradeStatus
    actions: tuple[Action, ...] = ()
    notices: tuple[Notice, ...] = ()
    moved: bool = False
    """Whether the phase changed: then the next reconcile follows at once."""
    at: float | None = None
    """When something is due at the latest, for the next reconcile."""

    def having(self, *actions: Action) -> Turn:
        """Give the same turn with more actions, done first."""
        return replace(self, actions=(*actions, *self.actions))


def wait(
    status: VLLMUpgradeStatus, message: str, *actions: Action, until: float | None = None
) -> Turn:
    """Stay in the phase, saying for what and until when."""
    text = message if until is None else f"{message}; until {clock(until)}"
    return Turn(
        status=status.model_copy(update={"message": text[:_MESSAGE_LIMIT]}),
        actions=actions,
        at=until,
    )


def enter(  # noqa: PLR0913 - a transition has this many parts
    status: VLLMUpgradeStatus,
    phase: Phase,
    reason: str,
    message: str,
    *,
    now: float,
    type_: Literal["Normal", "Warning"] = "Normal",
) -> Turn:
    """Go to another phase: message, timeline and Event say why."""
    entry = TimelineEntry(time=rfc3339(now), phase=phase, reason=reason, message=message[:512])
    progress = status.progress.model_copy(
        update={"phase_since": rfc3339(now), "ready_high_water": 0, "ready_since": rfc3339(now)}
    )
    return Turn(
        status=status.model_copy(
            update={
                "phase": phase,
                "message": message[:_MESSAGE_LIMIT],
                "timeline": (*status.timeline, entry)[-TIMELINE_LIMIT:],
                "progress": progress,
            }
        ),
        notices=(Notice(type=type_, reason=reason, message=message),),
        moved=True,
    )


def note(status: VLLMUpgradeStatus, reason: str, message: str, now: float) -> VLLMUpgradeStatus:
    """Add a line to the timeline without leaving the phase."""
    entry = TimelineEntry(
        time=rfc3339(now), phase=status.phase, reason=reason, message=message[:512]
    )
    return status.model_copy(update={"timeline": (*status.timeline, entry)[-TIMELINE_LIMIT:]})


def halt(status: VLLMUpgradeStatus, reason: str, message: str, *, now: float) -> Turn:
    """Stop and ask a person."""
    halted = remember(status, halt_reason=reason)
    return enter(halted, Phase.HALTED, reason, message, now=now, type_="Warning")


def roll_back(
    status: VLLMUpgradeStatus,
    reason: str,
    message: str,
    *,
    now: float,
    type_: Literal["Normal", "Warning"] = "Warning",
) -> Turn:
    """Begin to restore the known-good configuration; reason and message stay for the end."""
    going = remember(
        status, halt_reason=None, result_reason=reason, result_message=message[:_MESSAGE_LIMIT]
    )
    return enter(going, Phase.ROLLING_BACK, reason, message, now=now, type_=type_)


def remember(status: VLLMUpgradeStatus, **fields: object) -> VLLMUpgradeStatus:
    """Change working state that must outlive the operator's process."""
    return status.model_copy(update={"progress": status.progress.model_copy(update=fields)})


def since(text: str | None, default: float) -> float:
    """Read a time out of status."""
    return default if text is None else seconds(text)


def phase_since(status: VLLMUpgradeStatus, now: float) -> float:
    """When the present phase began."""
    return since(status.progress.phase_since, now)
