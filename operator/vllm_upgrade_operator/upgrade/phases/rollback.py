"""`RollingBack`: withdraw, put the template back, drain, delete, and see that it is so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.upgrade.decision import ReplaceTemplate, RestoreOwnership
from vllm_upgrade_operator.upgrade.flow import Turn, enter, halt, phase_since, wait
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.labels import unsettled_roles
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER
from vllm_upgrade_operator.upgrade.removal import grace_seconds, remove_canary, withdrawals

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.decision import Action
    from vllm_upgrade_operator.upgrade.observation import KnownGood, Observation, Target


def rolling_back(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Restore what was there before. Every step is seen before the next one counts as done."""
    why = status.progress.result_message or status.message
    began = phase_since(status, now)
    strategy = o.spec.strategy
    end = began + seconds_of(strategy.start_deadline) + grace_seconds(o)
    target, known = o.target, o.known_good
    restore = _restore_template(target, known)
    removal = remove_canary(o, began=began, now=now)
    undone = bool(restore or (removal is not None and removal[1])) and o.refused is None
    # An operator that was away for longer than the deadline has not even tried.
    if now > end and not undone:
        return halt(
            status,
            "RollbackStuck",
            f"rolling back did not end within {end - began:.0f} s: {status.message}; look at "
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
        unrest = _unrest(target, known, status)
        if unrest is not None:
            return wait(status, f"rolling back: {unrest} (because {why})", until=end)
        moved = _moved(target, known)
        if moved is not None:
            return halt(status, "KnownGoodMoved", moved, now=now)
    return _done(o, status, now)


def in_order(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether nothing is left to roll back."""
    target, known = o.target, o.known_good
    if o.canary is not None or _restore_template(target, known):
        return False
    return target is None or known is None or _unrest(target, known, status) is None


def _restore_template(
    target: Target | None, known: KnownGood | None
) -> tuple[ReplaceTemplate, ...]:
    if target is None or known is None or target.template == known.template:
        return ()
    return (ReplaceTemplate(expected=target.template, replacement=known.template),)


def _unrest(target: Target, known: KnownGood, status: VLLMUpgradeStatus) -> str | None:
    """Say what of the target is not as it was, or None.

    Where promotion had not begun the target was never touched: a stable pod that is not ready for
    reasons of its own is not waited for.
    """
    if target.observed_generation < target.generation:
        return f"{target.name} has not acted on its template yet"
    foreign = [
        p.name for p in target.pods if p.template_hash != known.template_hash and not p.ended
    ]
    if foreign:
        return f"pods of the candidate's template are still there: {', '.join(foreign[:3])}"
    if (
        status.progress.promoted
        and not target.ready == target.updated == target.replicas == target.total
    ):
        return f"{target.ready} of {target.replicas} pods of {target.name} ready"
    return None


def _moved(target: Target, known: KnownGood) -> str | None:
    """Compare what runs with what was recorded: a tag may have moved in the meantime."""
    for pod in target.pods:
        if is_ready(pod) and pod.digest is not None and pod.digest not in known.digests:
            return (
                f"{pod.name} runs image {pod.digest}, known-good was {', '.join(known.digests)}: "
                "the tag has moved; set the image of the target by digest to get it back"
            )
    return None


def _done(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    if unsettled_roles(o):
        return wait(status, "rolled back; labelling the pods as stable")
    reason = status.progress.result_reason or "RolledBack"
    message = status.progress.result_message or "rolled back"
    turn = enter(
        status,
        Phase.ROLLED_BACK,
        "RolledBack",
        f"rolled back ({reason}): {message}",
        now=now,
        type_="Warning",
    )
    known = o.known_good
    if known is None or o.target is None or not _ours(o.target):
        return turn
    return turn.having(RestoreOwnership(recorded=known.managed_fields))


def _ours(target: Target) -> bool:
    return any(entry.get("manager") == FIELD_MANAGER for entry in target.managed_fields)
