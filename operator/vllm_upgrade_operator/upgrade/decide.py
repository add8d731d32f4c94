"""The decision: one observation, the status and the time in; actions, status and Events out.

The order of what is asked is the order of what matters: is the object going away; was something
else asked for; did the target change under us; is there harm; and only then, how does the phase
go on. Harm therefore acts in every phase, also while a person is asked.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Attempt, Phase, Progress
from vllm_upgrade_operator.upgrade import conditions, harm, judging, letting_go, pausing, verbs
from vllm_upgrade_operator.upgrade.decision import Decision, Needs
from vllm_upgrade_operator.upgrade.flow import Turn, enter, halt, remember, roll_back
from vllm_upgrade_operator.upgrade.foreign import describe
from vllm_upgrade_operator.upgrade.inheritance import owed
from vllm_upgrade_operator.upgrade.labels import label_actions
from vllm_upgrade_operator.upgrade.names import ABORT
from vllm_upgrade_operator.upgrade.phases import begin, canary, promote, rollback, stopped
from vllm_upgrade_operator.upgrade.removal import without_stuck
from vllm_upgrade_operator.upgrade.report import report
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec, VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import (
        Candidate,
        KnownGood,
        Observation,
        Target,
    )

    PhaseFunction = Callable[[Observation, VLLMUpgradeStatus, float], Turn]

_PHASES: dict[Phase, PhaseFunction] = {
    Phase.PENDING: begin.pending,
    Phase.PREFLIGHT: begin.preflight,
    Phase.STARTING: canary.starting,
    Phase.VERIFYING: canary.verifying,
    Phase.CANARY: canary.canary,
    Phase.PROMOTING: promote.promoting,
    Phase.BAKING: promote.baking,
    Phase.ROLLING_BACK: rollback.rolling_back,
    Phase.HALTED: stopped.halted,
    Phase.SUCCEEDED: stopped.ended,
    Phase.ROLLED_BACK: stopped.ended,
    Phase.BLOCKED: stopped.ended,
}

ENDED = frozenset({Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED})
_NOTHING_STARTED = frozenset({Phase.PENDING, Phase.PREFLIGHT})
_UNDER_WAY = frozenset(
    {Phase.STARTING, Phase.VERIFYING, Phase.CANARY, Phase.PROMOTING, Phase.BAKING, Phase.HALTED}
)

_SUPERSEDED = "Superseded"
_NOTHING_TO_ROLL_BACK = frozenset({"ForeignChange", "KnownGoodMoved"})
_GIVEN_UP = _NOTHING_TO_ROLL_BACK | {"RollbackStuck"}

# What was just done shows in the next observation; events usually come sooner.
_AFTER_ACTION_SECONDS = 0.3

# A wait for pods is woken by the pods; this is only for what no event tells, such as a log line.
_POLL_SECONDS = 5.0


def needs(spec: VLLMUpgradeSpec, status: VLLMUpgradeStatus, now: float) -> Needs:
    """Say what the next observation has to contain beyond the objects."""
    return Needs(
        look=judging.look_is_due(spec, status, now),
        proposal=status.phase == Phase.PREFLIGHT,
    )


def decide(o: Observation, status: VLLMUpgradeStatus, now: float) -> Decision:
    """Decide what to do now. Pure: the same input gives the same decision."""
    o = without_stuck(o, now)
    if _is_new_attempt(o, status) and not o.deleting:
        return _finish(o, _begin(o, status, now), now)
    if o.deleting:
        return _finish(o, _turn(o, status, now), now)
    heard = verbs.hear(o, status, now)
    if heard.retry:
        turn = _begin(o, heard.status, now)
    elif heard.abort:
        turn = _aborted(o, heard.status, now)
    else:
        turn = _turn(o, heard.status, now)
    return _finish(o, replace(turn, notices=(*heard.notices, *turn.notices)), now)


def _turn(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    status, judgement = judging.look(o, status, now)
    status, found = harm.find(o, status, judgement, now)
    if not o.spec.paused:
        status = pausing.resumed(status, now)
    return (
        _deleted(o, status, now)
        or _superseded(o, status, now)
        or _unguarded(o, status, now)
        or _harmed(status, found, now)
        or _refused(o, status, now)
        or (pausing.paused(o, status, now) if pausing.stops(o, status) else None)
        or _PHASES[status.phase](o, status, now)
    )


def _is_new_attempt(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether what is asked for is untried, and nothing of another attempt is in the way."""
    if status.attempt is None:
        return True
    if status.phase == Phase.BLOCKED:
        return o.generation != status.observed_generation
    if status.phase == Phase.ROLLED_BACK and status.progress.result_reason == _SUPERSEDED:
        # Also where the candidate is by now what it was: it was given up, not found to be bad.
        return True
    changed = o.spec_hash != status.attempt.hash
    return changed and (
        status.phase in ENDED or status.phase in _NOTHING_STARTED or _left_as_it_is(o, status)
    )


def _left_as_it_is(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether it stopped for good, with nothing to roll back, and nothing of it is left."""
    return (
        status.phase == Phase.HALTED
        and status.progress.halt_reason in _NOTHING_TO_ROLL_BACK
        and o.canary is None
        and o.known_good is None
        and o.candidate is None
    )


def _begin(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Start clean: nothing of an earlier attempt counts, but its timeline stays readable."""
    if status.attempt is None:
        status = verbs.at_first_sight(o, status)
    number = 1 if status.attempt is None else status.attempt.number + 1
    # The object is part of it: an approval in an exported manifest must not approve its copy.
    name = hashlib.sha256(f"{o.uid}/{o.spec_hash}".encode()).hexdigest()[:8]
    attempt = Attempt(id=f"{name}-{number}", number=number, hash=o.spec_hash)
    fresh = type(status)(
        attempt=attempt,
        timeline=status.timeline,
        handled_actions=status.handled_actions,
        progress=Progress(phase_since=rfc3339(now), ready_since=rfc3339(now)),
    )
    return enter(fresh, Phase.PENDING, "AttemptBegins", f"attempt {attempt.id}", now=now)


def _is_stuck(status: VLLMUpgradeStatus) -> bool:
    return status.phase == Phase.HALTED and status.progress.halt_reason == "RollbackStuck"


def _out_of_our_hands(status: VLLMUpgradeStatus) -> bool:
    """Whether a person has to put the target right: nothing of ours may touch it any more."""
    return status.phase == Phase.HALTED and status.progress.halt_reason in _GIVEN_UP


def _deleted(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """A deleted upgrade that is under way is rolled back first; none is begun."""
    if o.deleting and status.phase in _NOTHING_STARTED:
        return Turn(status=status, actions=begin.clear(o, now))
    if not o.deleting or status.phase not in _UNDER_WAY:
        return None
    if _out_of_our_hands(status):
        return None
    return roll_back(status, "Aborted", "the VLLMUpgrade was deleted", now=now, type_="Normal")


def _aborted(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Give the attempt up because a person says so, whatever else is going on."""
    message = f"aborted by a person ({ABORT}={o.annotations[ABORT]:.64})"
    if status.phase in _NOTHING_STARTED or _out_of_our_hands(status):
        closed = remember(status, result_reason="Aborted", result_message=message)
        return enter(closed, Phase.ROLLED_BACK, "Aborted", message, now=now).having(
            *begin.clear(o, now)
        )
    return roll_back(status, "Aborted", message, now=now, type_="Normal")


def _superseded(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    if status.attempt is None or o.spec_hash == status.attempt.hash:
        return None
    if status.phase not in _UNDER_WAY or o.deleting:
        return None
    if status.phase == Phase.HALTED and status.progress.halt_reason in _NOTHING_TO_ROLL_BACK:
        # The new attempt begins as soon as what is left of this one has been cleared away.
        return None
    return roll_back(
        status,
        _SUPERSEDED,
        "spec.candidate, spec.container or spec.runner changed: this attempt is rolled back, "
        "then the new one begins",
        now=now,
        type_="Normal",
    )


def _unguarded(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Find that what the attempt stands on is gone or was changed by somebody else."""
    restoring = status.phase == Phase.ROLLING_BACK
    if status.phase not in _UNDER_WAY and not restoring:
        return None
    if _out_of_our_hands(status):
        return None
    if o.target is None:
        if restoring:
            return None
        return roll_back(
            status,
            "TargetGone",
            f"Deployment {o.spec.target_ref.name} was deleted",
            now=now,
        )
    if status.progress.target_uid not in (None, o.target.uid):
        # What was recorded of the old one goes with it, sooner or later.
        message = f"Deployment {o.target.name} was deleted and made anew during the upgrade"
        return _foreign(o, status, message, now)
    known, candidate = o.known_good, o.candidate
    if known is None or candidate is None:
        if restoring and status.known_good is None:
            return None
        message = (
            "the ControllerRevision with the "
            + ("known-good configuration" if known is None else "candidate's template")
            + " was deleted by somebody: nothing can be restored or promoted from it"
        )
        return _foreign(o, status, message, now)
    change = _changed(o, o.target, known, candidate, status)
    return None if change is None else _foreign(o, status, change, now)


def _changed(
    o: Observation,
    target: Target,
    known: KnownGood,
    candidate: Candidate,
    status: VLLMUpgradeStatus,
) -> str | None:
    """Say what somebody else did to the target, or None."""
    allowed = [known.template]
    if status.progress.replaced and status.phase != Phase.ROLLING_BACK:
        # Whoever puts the old template back, by hand or by GitOps, wants it so: it is not replaced
        # again, and it is no success.
        allowed = [candidate.template]
    elif status.progress.promoted:
        allowed.append(candidate.template)
    pin = rollback.pinned(o, status)
    if pin is not None:
        allowed.append(pin.template)
    if target.template in allowed:
        return None
    changes = describe(allowed, target.template, target.managed_fields)
    return f"the pod template of {target.name} was changed during the upgrade: {changes}"


def _foreign(o: Observation, status: VLLMUpgradeStatus, message: str, now: float) -> Turn:
    status = conditions.put(
        status,
        conditions.FOREIGN_CHANGE,
        True,
        "ForeignChange",
        message,
        generation=o.generation,
        now=now,
    )
    return halt(
        status,
        "ForeignChange",
        f"{message}; the canary is withdrawn and the target left as it is. To try again, change "
        "spec.candidate, or delete this VLLMUpgrade and make another",
        now=now,
    )


def _harmed(status: VLLMUpgradeStatus, found: tuple[str, str] | None, now: float) -> Turn | None:
    """Act on harm in whatever phase, also while paused or while a person is asked."""
    if found is None or status.phase not in _UNDER_WAY or _out_of_our_hands(status):
        return None
    return roll_back(status, found[0], found[1], now=now)


def _refused(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Do not try for ever what the API server does not allow, such as a canary by some policy."""
    if o.refused is None or status.phase not in _UNDER_WAY or _out_of_our_hands(status):
        return None
    return roll_back(status, o.refused.reason, o.refused.message, now=now)


def _finish(o: Observation, turn: Turn, now: float) -> Decision:
    """Add what belongs to every decision: labels, counts, conditions, and when to come back."""
    status = report(o, turn.status, now)
    labels = () if status.phase in ENDED else label_actions(o, status)
    left = letting_go.unfinished(o, status, now)
    return Decision(
        status=status,
        actions=(*turn.actions, *labels),
        notices=turn.notices if left is None else (*turn.notices, left),
        requeue_seconds=_requeue(o, turn, status, now),
        released=left is not None or (o.deleting and _is_in_order(o, status)),
    )


def _is_in_order(o: Observation, status: VLLMUpgradeStatus) -> bool:
    if _is_stuck(status):
        return False
    over = status.phase in ENDED or status.phase in _NOTHING_STARTED
    given_up = status.phase == Phase.HALTED
    kept = o.known_good is not None and not owed(o)
    return (over or given_up) and o.canary is None and not kept


def _requeue(o: Observation, turn: Turn, status: VLLMUpgradeStatus, now: float) -> float | None:
    if turn.moved:
        return 0.0
    if turn.actions:
        return _AFTER_ACTION_SECONDS
    if status.phase in ENDED:
        return None
    waits = [_POLL_SECONDS]
    if turn.at is not None:
        waits.append(max(0.05, turn.at - now + 0.01))
    interval = judging.until_next_look(o.spec, status, now)
    if interval is not None:
        waits.append(interval)
    return min(waits)
