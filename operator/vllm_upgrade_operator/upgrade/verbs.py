"""The one-shot verbs: annotations that a person sets, each value of which acts once.

`approve`, `promote` and `retry` name the attempt, so a value that a manifest keeps says nothing to
another attempt. `abort` takes any value; the last ones are remembered, so an old one that comes
back does not abort what was begun since. A verb that can do nothing is said to have been ignored,
and why; it is never kept for later without a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import HandledActions, Phase
from vllm_upgrade_operator.upgrade import approval, promotion
from vllm_upgrade_operator.upgrade.decision import Notice
from vllm_upgrade_operator.upgrade.flow import note
from vllm_upgrade_operator.upgrade.names import ABORT, APPROVE, PROMOTE, RETRY

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation

_VALUE_LIMIT = 128
_ABORTS_REMEMBERED = 16
_NOTHING_TO_ABORT = frozenset(
    {Phase.ROLLING_BACK, Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED}
)
_RETRIED = frozenset({Phase.ROLLED_BACK, Phase.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the annotations ask for now.

    Attributes:
        status: With the values that were acted on or ignored.
        notices: What is to be said about those that were ignored.
        abort: The attempt is to be given up.
        retry: The same is to be tried again.
    """

    status: VLLMUpgradeStatus
    notices: tuple[Notice, ...] = ()
    abort: bool = False
    retry: bool = False


def at_first_sight(o: Observation, status: VLLMUpgradeStatus) -> VLLMUpgradeStatus:
    """Take note of an abort that was there when the upgrade was made: it meant another one."""
    value = _value(o, ABORT)
    return status if value is None else _handled(status, aborts=(value,))


def hear(o: Observation, status: VLLMUpgradeStatus, now: float) -> Heard:
    """Read the verbs. `promote` and a right `approve` stay for the phase that acts on them."""
    heard = _abort(o, Heard(status=status), now)
    heard = _retry(o, heard, now)
    heard = _approve(o, heard, now)
    return _promote(o, heard, now)


def _abort(o: Observation, heard: Heard, now: float) -> Heard:
    value, status = _value(o, ABORT), heard.status
    known = () if status.handled_actions is None else status.handled_actions.aborts
    if value is None or value in known:
        return heard
    status = _handled(status, aborts=(*known, value)[-_ABORTS_REMEMBERED:])
    if status.phase in _NOTHING_TO_ABORT:
        why = f"{value!r} comes when it is already {status.phase}: nothing is left to abort"
        return _ignored(heard, status, "Abort", why, now)
    if status.progress.halt_reason == "RollbackStuck":
        # Closing it would throw away the only record of known-good, which is not back yet.
        why = "it is being rolled back, and goes on when what status.message names has happened"
        return _ignored(heard, status, "Abort", why, now)
    return Heard(status=status, notices=heard.notices, abort=True)


def _retry(o: Observation, heard: Heard, now: float) -> Heard:
    value, status = _value(o, RETRY), heard.status
    if value is None or (status.handled_actions and value == status.handled_actions.retry):
        return heard
    status = _handled(status, retry=value)
    if not names_attempt(value, status):
        return _ignored(heard, status, "Retry", _wrong_attempt(value, status), now)
    if status.phase not in _RETRIED:
        why = f"it is {status.phase}; only what was rolled back or blocked can be tried again" + (
            "" if status.phase == Phase.SUCCEEDED else f": abort it first ({ABORT}=<any new value>)"
        )
        return _ignored(heard, status, "Retry", why, now)
    return Heard(status=status, notices=heard.notices, abort=heard.abort, retry=True)


def _approve(o: Observation, heard: Heard, now: float) -> Heard:
    value, status = _value(o, APPROVE), heard.status
    if value is None or (status.handled_actions and value == status.handled_actions.approve):
        return heard
    if approval.may_come_true(value, status):
        return heard
    status = _handled(status, approve=value)
    why = f"{value!r} approves nothing that is waited for; " + (
        f"step {status.step.index + 1} is approved by {approval.token(status)}"
        if status.phase == Phase.CANARY and status.step
        else f"it is {status.phase}"
    )
    return _ignored(heard, status, "Approve", why, now)


def _promote(o: Observation, heard: Heard, now: float) -> Heard:
    value, status = _value(o, PROMOTE), heard.status
    if value is None or (status.handled_actions and value == status.handled_actions.promote):
        return heard
    why = (
        promotion.impossible(o, status)
        if names_attempt(value, status)
        else _wrong_attempt(value, status)
    )
    if why is None:
        return heard
    return _ignored(heard, _handled(status, promote=value), "Promote", why, now)


def names_attempt(value: str, status: VLLMUpgradeStatus) -> bool:
    """Whether a value is the attempt's id, or that with a dot and anything: to say it again."""
    return status.attempt is not None and value.partition(".")[0] == status.attempt.id


def _wrong_attempt(value: str, status: VLLMUpgradeStatus) -> str:
    present = status.attempt.id if status.attempt else "none"
    return (
        f"{value!r} names another attempt than the present one: write {present}, or "
        f"{present}.<anything> where that was written before"
    )


def _ignored(heard: Heard, status: VLLMUpgradeStatus, verb: str, why: str, now: float) -> Heard:
    message = f"{verb.lower()} was ignored: {why}"
    reason = f"{verb}Ignored"
    notice = Notice(type="Warning", reason=reason, message=message)
    return Heard(
        status=note(status, reason, message, now),
        notices=(*heard.notices, notice),
        abort=heard.abort,
        retry=heard.retry,
    )


def _value(o: Observation, annotation: str) -> str | None:
    """The value as far as it is remembered; an empty one asks for nothing."""
    return (o.annotations.get(annotation) or "")[:_VALUE_LIMIT] or None


def _handled(status: VLLMUpgradeStatus, **values: object) -> VLLMUpgradeStatus:
    present = status.handled_actions or HandledActions()
    return status.model_copy(update={"handled_actions": present.model_copy(update=values)})
