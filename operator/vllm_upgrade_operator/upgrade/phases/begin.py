"""`Pending` and `Preflight`: may this upgrade start? Nothing changes before known-good is kept."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import (
    CandidateStatus,
    KnownGoodStatus,
    Phase,
    PreflightResult,
)
from vllm_upgrade_operator.upgrade import conditions
from vllm_upgrade_operator.upgrade.decision import (
    DeleteCanary,
    DropRevisions,
    Notice,
    StoreCandidate,
    StoreKnownGood,
)
from vllm_upgrade_operator.upgrade.flow import Turn, enter, phase_since, remember, wait
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.inheritance import owed, settle
from vllm_upgrade_operator.upgrade.names import ABORT, known_good_name
from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.upgrade.preflight import chain, server
from vllm_upgrade_operator.upgrade.removal import remove_canary
from vllm_upgrade_operator.upgrade.shown import shown_flags
from vllm_upgrade_operator.upgrade.surroundings import Unread

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import PreflightCheck, VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.conflicts import Rival
    from vllm_upgrade_operator.upgrade.decision import Action
    from vllm_upgrade_operator.upgrade.observation import KnownGood, Observation, Target
    from vllm_upgrade_operator.upgrade.preflight.configs import ConfigMaps

_MESSAGE_LIMIT = 1024


def pending(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Wait until no other upgrade works on the same target."""
    if o.conflict is not None:
        return _behind(o, o.conflict, status, now)
    return enter(
        conditions.drop(status, conditions.CONFLICT),
        Phase.PREFLIGHT,
        "Started",
        f"attempt {status.attempt.id if status.attempt else '?'} begins: checking the target",
        now=now,
    )


def _behind(o: Observation, other: Rival, status: VLLMUpgradeStatus, now: float) -> Turn:
    message = f"waiting for upgrade {other.name}, which has the same target and goes first" + (
        f": it is Halted, so decide what it asks, abort it ({ABORT}=<any new value>) or delete it"
        if other.phase == Phase.HALTED
        else f": it is {other.phase or Phase.PENDING}; this one begins when it has ended"
    )
    status = conditions.put(
        status,
        conditions.CONFLICT,
        True,
        "TargetInUse",
        message,
        generation=o.generation,
        now=now,
    )
    return wait(status, message)


def preflight(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Refuse what cannot work, then record the known-good configuration."""
    target = o.target
    if o.conflict is not None:
        return _give_way(o, o.conflict, status, now)
    first = chain.of_target(o)
    if target is None or chain.blocking(first) is not None:
        return _block(status.model_copy(update={"preflight": first}), now)
    attempt = status.attempt.id if status.attempt else ""
    removal = remove_canary(o, began=phase_since(status, now), now=now)
    if removal is not None:
        words, actions, due = removal
        return wait(
            status, f"removing the canary of an earlier attempt: {words}", *actions, until=due
        )
    status, turn = settle(o, target, status, now)
    if turn is not None:
        return turn
    notices: tuple[Notice, ...] = ()
    if not _recorded(o, attempt) and o.proposed is not None:
        status, notices = _examined(status, chain.examine(o, target, now))
        if chain.blocking(status.preflight) is not None:
            return _block(status, now)
    turn = _at_rest(o, target, attempt, status, now)
    return replace(_with_warnings(turn), notices=(*notices, *turn.notices))


def _at_rest(
    o: Observation, target: Target, attempt: str, status: VLLMUpgradeStatus, now: float
) -> Turn:
    """Wait until all stable pods are ready, then record what runs."""
    unrest = _unrest(target)
    if unrest is not None:
        end = phase_since(status, now) + seconds_of(o.spec.strategy.start_deadline)
        if now > end:
            reason = "BaselineUnhealthy"
            return enter(status, Phase.BLOCKED, reason, unrest, now=now, type_="Warning")
        status = conditions.put(
            status,
            conditions.BASELINE_HEALTHY,
            False,
            "TargetNotAtRest",
            unrest,
            generation=o.generation,
            now=now,
        )
        return wait(status, f"waiting for the target to be at rest: {unrest}", until=end)
    status = conditions.put(
        status,
        conditions.BASELINE_HEALTHY,
        True,
        "AllReady",
        f"all {target.replicas} pods of {target.name} are ready",
        generation=o.generation,
        now=now,
    )
    return _record(o, target, attempt, status, now)


def _give_way(o: Observation, other: Rival, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Two began at the same moment: the younger one steps back before it has made anything."""
    leftover = clear(o, now)
    if leftover:
        return wait(status, f"giving way to upgrade {other.name}", *leftover)
    message = f"upgrade {other.name} of the same target began at the same moment and goes first"
    return enter(status, Phase.PENDING, "GivesWay", message, now=now)


def clear(o: Observation, now: float) -> tuple[Action, ...]:
    """Take away what is there before an attempt has started, such as another attempt's rest."""
    removal = remove_canary(o, began=now, now=now)
    if removal is not None:
        return removal[1] if o.canary is None or o.canary.deleting else (DeleteCanary(),)
    if owed(o):
        return ()
    return (DropRevisions(),) if o.known_good is not None or o.candidate is not None else ()


def _recorded(o: Observation, attempt: str) -> bool:
    """Whether known-good and this attempt's candidate are stored."""
    return o.known_good is not None and o.candidate is not None and o.candidate.attempt == attempt


def _record(
    o: Observation, target: Target, attempt: str, status: VLLMUpgradeStatus, now: float
) -> Turn:
    """Have known-good and candidate stored; go on only when both have been read back."""
    if o.known_good is None or not _recorded(o, attempt):
        if o.proposed is None or isinstance(o.proposed, Refusal):
            return wait(status, "waiting for the API server to compute the candidate's template")
        store_candidate = StoreCandidate(
            attempt=attempt, template=o.proposed, target_uid=target.uid
        )
        if o.known_good is None:
            record = StoreKnownGood(data=_known_good(o, target), target_uid=target.uid)
            return wait(status, "recording the known-good configuration", record, store_candidate)
        return wait(status, "recording the candidate's template", store_candidate)
    if o.known_good.target_uid != target.uid or o.known_good.template != target.template:
        # The target was changed between recording and reading back: nothing has been started yet.
        return wait(status, "the target changed while it was recorded: again", DropRevisions())
    known = o.known_good
    maps = {} if o.surroundings is None else o.surroundings.config_maps
    stable = server.stable(target, maps)
    summary = KnownGoodStatus(
        name=known.name,
        images=_images(known),
        digests=known.digests,
        version=known.version,
        flags=shown_flags(stable.options),
    )
    status = conditions.put(
        status.model_copy(
            update={
                "known_good": summary,
                "candidate": CandidateStatus(flags=_candidate_flags(o, target, stable, maps)),
            }
        ),
        conditions.KNOWN_GOOD_RECORDED,
        True,
        "Recorded",
        f"stored as ControllerRevision {known_good_name(o.name)}",
        generation=o.generation,
        now=now,
    )
    return enter(
        remember(status, target_uid=target.uid),
        Phase.STARTING,
        "KnownGoodRecorded",
        f"known-good recorded: {', '.join(summary.images)}; starting the canary",
        now=now,
    )


def _unrest(target: Target) -> str | None:
    """Say why the target is not at rest, or None."""
    if target.observed_generation < target.generation:
        return f"the newest change of {target.name} has not been acted on yet"
    if not target.updated == target.total == target.ready == target.replicas:
        return (
            f"{target.name} has {target.ready} of {target.replicas} pods ready, "
            f"{target.updated} of its newest template, {target.total} in all"
        )
    if target.template_hash is None:
        return f"the ReplicaSet of {target.name} is not there yet"
    missing = [p.name for p in target.pods if is_ready(p) and p.digest is None]
    if missing:
        return f"image digest of {', '.join(missing)} is not known yet"
    return None


def _known_good(o: Observation, target: Target) -> dict[str, object]:
    """Everything that is needed to put the target back and to prove that it is back."""
    ready = [p for p in target.pods if is_ready(p)]
    versions = {p.version for p in ready if p.version is not None}
    return {
        "targetUID": target.uid,
        "template": target.template,
        "templateHash": target.template_hash,
        "replicas": target.replicas,
        "digests": sorted({p.digest for p in ready if p.digest is not None}),
        "version": versions.pop() if len(versions) == 1 else None,
        "managedFields": list(target.managed_fields),
        "container": target.container,
        "references": _references(o),
        "pullable": all(p.pullable for p in ready if p.digest is not None),
    }


def _references(o: Observation) -> list[dict[str, object]]:
    """ConfigMaps and Secrets by resourceVersion; none of their content, and none where unread."""
    found = None if o.surroundings is None else o.surroundings.stable_references
    if found is None or isinstance(found, Unread):
        return []
    return [
        {"kind": r.kind, "name": r.name, "resourceVersion": r.resource_version}
        for r in found
        if r.resource_version is not None
    ]


def _candidate_flags(
    o: Observation, target: Target, stable: server.Server, maps: ConfigMaps
) -> tuple[str, ...]:
    """What the candidate is told; nothing where its container is not known."""
    if o.candidate is None or target.container is None:
        return ()
    found = server.candidate(o.spec, o.candidate.template, stable, target.container, maps)
    return shown_flags(found.options)


def _images(known: KnownGood) -> tuple[str, ...]:
    containers = (known.template.get("spec") or {}).get("containers") or []
    return tuple(str(c.get("image", "")) for c in containers)


def _block(status: VLLMUpgradeStatus, now: float) -> Turn:
    """Stop for the most severe of the checks that block; status.preflight has them all."""
    found = [c for c in status.preflight if c.result is PreflightResult.BLOCK]
    others = [c.name for c in found[1:]]
    more = f"; these block too, see status.preflight: {', '.join(others)}" if others else ""
    message = f"{found[0].message}{more}"
    return enter(status, Phase.BLOCKED, found[0].reason, message, now=now, type_="Warning")


def _examined(
    status: VLLMUpgradeStatus, checks: tuple[PreflightCheck, ...]
) -> tuple[VLLMUpgradeStatus, tuple[Notice, ...]]:
    """Take over what was found; what warns and did not before is told in an Event."""
    told = {(c.name, c.reason) for c in chain.warnings(status.preflight)}
    new = [c for c in chain.warnings(checks) if (c.name, c.reason) not in told]
    status = status.model_copy(update={"preflight": checks})
    if not new or chain.blocking(checks) is not None:
        return status, ()
    message = "; ".join(f"{c.name}: {c.message}" for c in new)
    return status, (Notice(type="Warning", reason="PreflightWarnings", message=message),)


def _with_warnings(turn: Turn) -> Turn:
    """Name the warnings as long as it is in preflight: later other things matter more."""
    names = ", ".join(c.name for c in chain.warnings(turn.status.preflight))
    if not names or turn.moved:
        return turn
    message = f"{turn.status.message} (warnings, see status.preflight: {names})"
    status = turn.status.model_copy(update={"message": message[:_MESSAGE_LIMIT]})
    return replace(turn, status=status)
