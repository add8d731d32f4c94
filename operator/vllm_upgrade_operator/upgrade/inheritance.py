"""Known-good of an upgrade that is gone without having put its target in order.

Whoever takes our finalizer off leaves a target with a template that was never judged to the end.
To record that as known-good would make a rollback worthless. So the next upgrade takes over what
the last one had recorded, and puts it back before it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.decision import (
    DropOrphan,
    Inherit,
    Notice,
    ReplaceTemplate,
)
from vllm_upgrade_operator.upgrade.flow import Turn, note, remember, wait
from vllm_upgrade_operator.upgrade.foreign import last_writer
from vllm_upgrade_operator.upgrade.pinning import is_known_good

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Orphan, Target


def settle(
    o: Observation, target: Target, status: VLLMUpgradeStatus, now: float
) -> tuple[VLLMUpgradeStatus, Turn | None]:
    """Clear away or take over what was left; None when there is nothing (more) of it to do."""
    if o.orphan is not None:
        return status, _take(o.orphan, target, status, now)
    known = o.known_good
    if known is None or known.inherited is None or status.progress.restored:
        return status, None
    if is_known_good(target.template, known, o.candidate):
        return remember(status, restored=True), None
    words = f"putting back the known-good configuration that upgrade {known.inherited} left"
    back = ReplaceTemplate(expected=target.template, replacement=known.template)
    return status, wait(status, words, back)


def owed(o: Observation) -> bool:
    """Whether a target still runs what it should be rid of: the record must not be lost then."""
    return (
        o.target is not None
        and o.known_good is not None
        and o.known_good.inherited is not None
        and o.known_good.target_uid == o.target.uid
        and not is_known_good(o.target.template, o.known_good, o.candidate)
    )


def _take(orphan: Orphan, target: Target, status: VLLMUpgradeStatus, now: float) -> Turn:
    known = orphan.known_good
    drop = DropOrphan(revisions=orphan.revisions)
    if known is None or target.template == known.template:
        return wait(status, f"clearing away what upgrade {orphan.upgrade} left", drop)
    if target.template != orphan.candidate:
        message = (
            f"upgrade {orphan.upgrade} is gone and left a known-good configuration, but "
            f"{target.name} was changed by {last_writer(target.managed_fields)} since: what runs "
            "now is taken for known-good"
        )
        changed = note(status, "KnownGoodOutdated", message, now)
        notice = Notice(type="Warning", reason="KnownGoodOutdated", message=message)
        return Turn(status=changed, actions=(drop,), notices=(notice,))
    message = (
        f"upgrade {orphan.upgrade} is gone and left {target.name} with its candidate's template: "
        "its known-good configuration is taken over and put back first"
    )
    notice = Notice(type="Warning", reason="KnownGoodInherited", message=message)
    inherited = wait(note(status, "KnownGoodInherited", message, now), message)
    return Turn(
        status=inherited.status,
        actions=(Inherit(upgrade=orphan.upgrade, revisions=orphan.revisions),),
        notices=(notice,),
    )
