"""`Promoting` and `Baking`: the target gets the candidate's template, and is watched on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.judge.model import Verdict
from vllm_upgrade_operator.upgrade import digests
from vllm_upgrade_operator.upgrade.decision import ReplaceTemplate, RestoreOwnership
from vllm_upgrade_operator.upgrade.flow import (
    Turn,
    enter,
    halt,
    phase_since,
    remember,
    roll_back,
    wait,
)
from vllm_upgrade_operator.upgrade.health import (
    is_ready,
    lateness,
    progress,
    start_budget,
)
from vllm_upgrade_operator.upgrade.judging import is_promoted, promoted_pods
from vllm_upgrade_operator.upgrade.labels import unsettled_roles
from vllm_upgrade_operator.upgrade.release import relieve
from vllm_upgrade_operator.upgrade.removal import remove_canary
from vllm_upgrade_operator.upgrade.rollout import is_rolled, obstacles
from vllm_upgrade_operator.upgrade.sight import blindness, had_no_request
from vllm_upgrade_operator.upgrade.times import clock, rfc3339, seconds
from vllm_upgrade_operator.upgrade.verify import Kind, verify

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod, Target


def promoting(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Roll the target by its own strategy; the canary stays until that is done."""
    target, known, candidate = o.target, o.known_good, o.candidate
    if target is None or known is None or candidate is None:
        raise ValueError("promotion needs a target, known-good and the candidate's template")
    if target.template == known.template:
        replace = ReplaceTemplate(expected=known.template, replacement=candidate.template)
        return wait(status, f"giving {target.name} the candidate's template", replace)
    status = remember(status, replaced=True)
    problem = _wrong_pod(o, status, now)
    if problem is not None:
        return roll_back(status, problem[0], problem[1], now=now)
    if is_rolled(target) and not _unverified(o, now):
        return enter(
            status,
            Phase.BAKING,
            "TargetRolled",
            f"all {target.replicas} pods of {target.name} run the candidate; baking for "
            f"{o.spec.strategy.bake}",
            now=now,
        )
    return _rolling(o, target, status, now)


def _rolling(o: Observation, target: Target, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Wait for the rollout; only more ready pods than ever before count as progress."""
    new = [p for p in target.pods if is_promoted(o, p) and not (p.terminating or p.ended)]
    ready = len(promoted_pods(o))
    if ready > status.progress.ready_high_water:
        status = remember(status, ready_high_water=ready, ready_since=rfc3339(now))
    strategy = o.spec.strategy
    start = seconds_of(strategy.start_deadline)
    for pod in new:
        late = lateness(
            pod,
            schedule_deadline=seconds_of(strategy.schedule_deadline),
            start_deadline=start,
            now=now,
        )
        if late is not None:
            return roll_back(status, late[0], late[1], now=now)
    began = seconds(status.progress.ready_since or rfc3339(now))
    budget = max([start_budget(p, start) for p in new], default=start)
    end = began + budget + seconds_of(strategy.schedule_deadline)
    message = f"{target.name}: {ready} of {target.replicas} pods run the candidate"
    message = "; ".join([message, *obstacles(target)])
    if now > end:
        return roll_back(
            status,
            "PromotionStuck",
            f"{message}; no more of them became ready for {now - began:.0f} s",
            now=now,
        )
    status, relief, actions = relieve(o, status, now)
    unready = [progress(p) for p in new if not is_ready(p)]
    unverified = _unverified(o, now)
    words = "; ".join([message, *relief, *unready[:2], *unverified[:2]])
    return wait(status, words, *actions, until=end)


def _wrong_pod(o: Observation, status: VLLMUpgradeStatus, now: float) -> tuple[str, str] | None:
    """Find a promoted pod that is not what was judged."""
    for pod in promoted_pods(o):
        finding = verify(pod, o.spec.candidate, o.spec.runner, now)
        if finding.kind in (Kind.WRONG_RUNNER, Kind.WRONG_VERSION):
            return finding.kind.value, f"after promotion {finding.message}"
        other = digests.not_judged(pod, status)
        if other is not None:
            return "DigestMismatch", other
    return None


def _unverified(o: Observation, now: float) -> list[str]:
    findings = [verify(p, o.spec.candidate, o.spec.runner, now) for p in promoted_pods(o)]
    return [f.message for f in findings if not f.accepted]


def baking(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Take the canary away, watch the promoted pods, then close the upgrade."""
    target, known = o.target, o.known_good
    if target is None or known is None:
        raise ValueError("baking needs a target and known-good")
    problem = _wrong_pod(o, status, now)
    if problem is not None:
        return roll_back(status, problem[0], problem[1], now=now)
    end = phase_since(status, now) + seconds_of(o.spec.strategy.bake)
    removal = remove_canary(o, began=phase_since(status, now), now=now)
    if removal is not None:
        message, actions, due = removal
        return wait(status, f"baking; {message}", *actions, until=max(end, due))
    doubt = None if status.progress.decided else status.progress.doubt
    if now >= end and doubt is not None:
        # Ending here would call good what may well be found bad in a moment.
        patience = end + seconds_of(o.spec.analysis.max_duration)
        if now < patience:
            return wait(status, f"baking on, for something looks wrong: {doubt}", until=patience)
        return halt(
            status,
            "Inconclusive",
            f"baked, but still in doubt: {doubt}; rolled back at "
            f"{clock(now + seconds_of(o.spec.strategy.halt_timeout))}, unless it gets better",
            now=now,
        )
    unready = [p for p in target.pods if not (is_ready(p) or p.terminating or p.ended)]
    if now < end:
        return wait(status, _bake_words(target, unready) + _blind_words(status), until=end)
    # A pod without a node, or on a lost one, is the cluster's concern; one that has a node and does
    # not serve is the candidate's.
    dead = [p for p in unready if p.scheduled_at is not None and not p.node_lost]
    if dead or not promoted_pods(o):
        words = _bake_words(target, dead)
        patience = end + seconds_of(o.spec.analysis.max_duration)
        if now < patience:
            return wait(status, f"baking on until all pods are ready: {words}", until=patience)
        return roll_back(status, "NotReady", f"pods did not stay ready: {words}", now=now)
    unsettled = unsettled_roles(o)
    if unsettled:
        baked = remember(status, baked=True)
        return wait(baked, "baked; labelling the promoted pods as stable")
    return enter(
        # What was promoted had passed; a short bake alone may be too little for a verdict.
        status.model_copy(update={"verdict": Verdict.PASS}),
        Phase.SUCCEEDED,
        "Promoted",
        f"promoted: all {target.replicas} pods of {target.name} run the candidate; "
        f"the canary is gone{_unseen_words(status, phase_since(status, now))}",
        now=now,
    ).having(RestoreOwnership(recorded=known.managed_fields))


def _blind_words(status: VLLMUpgradeStatus) -> str:
    blind = blindness(status)
    return "" if blind is None else f"; {blind}"


def _unseen_words(status: VLLMUpgradeStatus, began: float) -> str:
    """A bake without traffic is no reason to roll back, and no proof either."""
    if not had_no_request(status, began):
        return ""
    return "; no request was seen on them during the bake, so it has shown nothing under load"


def _bake_words(target: Target, unready: list[Pod]) -> str:
    words = f"baking: {target.ready} of {target.replicas} pods of {target.name} ready"
    return "; ".join([words, *(progress(p) for p in unready[:2])])
