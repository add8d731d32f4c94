"""`RollingBack`: withdraw, put the template back, drain, delete, and see that it is so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.upgrade import digests
from vllm_upgrade_operator.upgrade.decision import ReplaceTemplate, RestoreOwnership
from vllm_upgrade_operator.upgrade.flow import Turn, enter, halt, phase_since, remember, since, wait
from vllm_upgrade_operator.upgrade.health import is_ready, progress, start_budget
from vllm_upgrade_operator.upgrade.labels import unsettled_roles
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER
from vllm_upgrade_operator.upgrade.pinning import pin, why_not
from vllm_upgrade_operator.upgrade.removal import grace_seconds, remove_canary, withdrawals
from vllm_upgrade_operator.upgrade.rollout import is_rolled, obstacles
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.decision import Action
    from vllm_upgrade_operator.upgrade.observation import KnownGood, Observation, Pod, Target
    from vllm_upgrade_operator.upgrade.pinning import Pin


def rolling_back(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Restore what was there before. Every step is seen before the next one counts as done."""
    why = status.progress.result_message or status.message
    status = _advanced(o, status, now)
    end, patience = _deadline(o, status, now)
    target, known = o.target, o.known_good
    restore = _restore_template(o, status)
    removal = remove_canary(o, began=phase_since(status, now), now=now)
    undone = bool(restore or (removal is not None and removal[1])) and o.refused is None
    # An operator that was away for longer than the deadline has not even tried.
    if now > end and not undone:
        return halt(
            status,
            "RollbackStuck",
            f"rolling back did not get on for {patience:.0f} s: {status.message}; look at "
            f"the pods of {o.spec.target_ref.name}. Rolled back because: {why}",
            now=now,
        )
    if removal is not None:
        words, actions, due = removal
        # Withdrawing comes first: the canary's users are helped at once, the target's later.
        urgent: tuple[Action, ...] = (*withdrawals(o), *restore)
        return wait(
            status,
            f"rolling back: {words} (because {why})",
            *(urgent or actions),
            until=min(end, due),
        )
    if restore:
        return wait(status, f"rolling back: putting the template back ({why})", *restore)
    if target is not None and known is not None:
        unrest = _unrest(target, status)
        if unrest is not None:
            return wait(status, f"rolling back: {unrest} (because {why})", until=end)
        moved = digests.moved(target, known)
        if moved is not None:
            return _known_good_moved(o, status, target, known, moved, now)
    return _done(o, status, now)


def in_order(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether nothing is left to roll back."""
    if o.canary is not None or _restore_template(o, status):
        return False
    return o.target is None or o.known_good is None or _unrest(o.target, status) is None


def after_a_move(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Go on from `KnownGoodMoved` when a person has found a way back, or allows ours."""
    target, known = o.target, o.known_good
    if target is None or known is None or status.progress.pinned:
        return None
    ours = pin(known, o.candidate)
    by_hand = ours is not None and target.template == ours.template
    asked = ours is not None and o.spec.rollback.pin_digest and target.template == known.template
    back = in_order(o, status) and digests.moved(target, known) is None
    if not (by_hand or asked or back):
        return None
    return enter(
        remember(status, halt_reason=None, pinned=by_hand),
        Phase.ROLLING_BACK,
        "RollbackGoesOn",
        "there is a way back to the image that was known good",
        now=now,
    )


def pinned(o: Observation, status: VLLMUpgradeStatus) -> Pin | None:
    """The pin that this rollback has decided on, if it has."""
    if not status.progress.pinned or o.known_good is None:
        return None
    return pin(o.known_good, o.candidate)


def _wanted(o: Observation, known: KnownGood, status: VLLMUpgradeStatus) -> Mapping[str, object]:
    decided = pinned(o, status)
    return known.template if decided is None else decided.template


def _restore_template(o: Observation, status: VLLMUpgradeStatus) -> tuple[ReplaceTemplate, ...]:
    target, known = o.target, o.known_good
    if target is None or known is None:
        return ()
    wanted = _wanted(o, known, status)
    if target.template == wanted:
        return ()
    return (ReplaceTemplate(expected=target.template, replacement=wanted),)


def _restored(target: Target) -> list[Pod]:
    """The pods of the present template, which is the one to go back to."""
    return [
        p
        for p in target.pods
        if p.template_hash == target.template_hash and not (p.terminating or p.ended)
    ]


def _advanced(o: Observation, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Note more restored pods than ever before: only that is progress."""
    if o.target is None or _restore_template(o, status):
        return status
    ready = sum(is_ready(p) for p in _restored(o.target))
    if ready <= status.progress.ready_high_water:
        return status
    return remember(status, ready_high_water=ready, ready_since=rfc3339(now))


def _deadline(o: Observation, status: VLLMUpgradeStatus, now: float) -> tuple[float, float]:
    """When it counts as stuck, and after how many seconds without progress that is."""
    began = max(phase_since(status, now), since(status.progress.ready_since, now))
    start = seconds_of(o.spec.strategy.start_deadline)
    pods = [] if o.target is None else _restored(o.target)
    patience = max([start_budget(p, start) for p in pods], default=start) + grace_seconds(o)
    return began + patience, patience


def _unrest(target: Target, status: VLLMUpgradeStatus) -> str | None:
    """Say what of the target is not as it was, or None.

    Where promotion had not begun the target was never touched: a stable pod that is not ready for
    reasons of its own is not waited for.
    """
    if target.observed_generation < target.generation:
        return f"{target.name} has not acted on its template yet"
    if target.template_hash is None:
        return "; ".join([f"{target.name} has no ReplicaSet for it yet", *obstacles(target)])
    others = [
        p.name for p in target.pods if p.template_hash != target.template_hash and not p.ended
    ]
    touched = status.progress.promoted or status.progress.pinned
    restored = _restored(target)
    unready = [progress(p) for p in restored if not is_ready(p)][:2] if touched else []
    in_the_way = [*unready, *obstacles(target)]
    if others:
        words = f"pods of another template are still there: {', '.join(others[:3])}"
        return "; ".join([words, *in_the_way])
    if touched and not is_rolled(target):
        words = f"{target.ready} of {target.replicas} pods of {target.name} ready"
        return "; ".join([words, *in_the_way])
    return None


def _known_good_moved(  # noqa: PLR0913, PLR0917 - what was found out about one situation
    o: Observation,
    status: VLLMUpgradeStatus,
    target: Target,
    known: KnownGood,
    moved: str,
    now: float,
) -> Turn:
    ours = pin(known, o.candidate)
    if ours is not None and o.spec.rollback.pin_digest and not status.progress.pinned:
        # Said before it is done, as a promotion is.
        return enter(
            remember(status, pinned=True),
            Phase.ROLLING_BACK,
            "KnownGoodPinned",
            f"{moved}; container {ours.container} of {target.name} is set to {ours.image}, as "
            "spec.rollback.pinDigest says",
            now=now,
            type_="Warning",
        )
    if ours is not None and not status.progress.pinned:
        advice = (
            f"to get it back, set spec.rollback.pinDigest: true, or set the image of container "
            f"{ours.container} of {target.name} to {ours.image} yourself"
        )
    else:
        advice = f"find out which image {target.name} should run, and set it by its digest"
        reason = why_not(known)
        if reason is not None:
            advice += f" (it cannot be pinned for you: {reason})"
    return halt(status, "KnownGoodMoved", f"{moved}; {advice}", now=now)


def _done(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    if unsettled_roles(o):
        return wait(status, "rolled back; labelling the pods as stable")
    reason = status.progress.result_reason or "RolledBack"
    message = status.progress.result_message or "rolled back"
    end = f"rolled back ({reason}): {message}"
    decided = pinned(o, status)
    if decided is not None:
        end += (
            f"; the tag of known-good has moved, so container {decided.container} is pinned to "
            f"{decided.image}, and the template differs from known-good's in that alone"
        )
    turn = enter(status, Phase.ROLLED_BACK, "RolledBack", end, now=now, type_="Warning")
    known = o.known_good
    if known is None or o.target is None or not _ours(o.target):
        return turn
    return turn.having(RestoreOwnership(recorded=known.managed_fields))


def _ours(target: Target) -> bool:
    return any(entry.get("manager") == FIELD_MANAGER for entry in target.managed_fields)
