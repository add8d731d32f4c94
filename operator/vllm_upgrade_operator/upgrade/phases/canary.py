"""`Starting`, `Verifying` and `Canary`: pods beside the stable ones, verified, admitted, judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import CandidateStatus, Phase
from vllm_upgrade_operator.judge.model import Verdict
from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade import (
    approval,
    conditions,
    digests,
    promotion,
    settling,
    shortage,
)
from vllm_upgrade_operator.upgrade.decision import Admit, EnsureCanary
from vllm_upgrade_operator.upgrade.flow import (
    Turn,
    enter,
    halt,
    note,
    phase_since,
    remember,
    roll_back,
    since,
    wait,
)
from vllm_upgrade_operator.upgrade.health import (
    is_ready,
    lateness,
    progress,
    start_budget,
    waiting_until,
)
from vllm_upgrade_operator.upgrade.judging import unconvinced
from vllm_upgrade_operator.upgrade.removal import withdrawals_of_lost
from vllm_upgrade_operator.upgrade.step_edits import begin_step, follow
from vllm_upgrade_operator.upgrade.steps import kept_words
from vllm_upgrade_operator.upgrade.times import clock, rfc3339
from vllm_upgrade_operator.upgrade.traffic import (
    is_fully_admitted,
    traffic_labels,
    withdrawn_template,
)
from vllm_upgrade_operator.upgrade.verify import Finding, Kind, verify

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import Step, VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Candidate, Observation, Pod, Target


@dataclass(frozen=True, slots=True)
class _Scene:
    """What the three phases need, with the Nones ruled out by `decide`."""

    o: Observation
    target: Target
    candidate: Candidate
    pods: tuple[Pod, ...]


def starting(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Make the first step's pods and wait until they are ready."""
    scene = _scene(o)
    status = follow(o, scene.target, status, now)
    turn = _mismatch(scene, status, now) or _gather_pods(scene, status, now)
    if turn is not None:
        return turn
    complete = remember(status, wanted_since=rfc3339(now))
    return enter(complete, Phase.VERIFYING, "CanaryReady", "canary pods are ready", now=now)


def verifying(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Hold the pods back from the traffic until each is what it should be."""
    scene = _scene(o)
    status = follow(o, scene.target, status, now)
    turn = (
        _mismatch(scene, status, now)
        or _gather_pods(scene, status, now)
        or _verified(scene, status, now)
    )
    if turn is not None:
        return turn
    return enter(
        _record_candidate(scene, status, now),
        Phase.CANARY,
        "CanaryVerified",
        f"canary verified before traffic: {_runner_words(scene, now)}; admitting it",
        now=now,
    )


def canary(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Admit the step's pods, hold, and go on when the evidence allows it."""
    scene = _scene(o)
    status = follow(o, scene.target, status, now)
    turn = (
        _mismatch(scene, status, now)
        or _gather_pods(scene, status, now)
        or _verified(scene, status, now)
    )
    if turn is not None:
        return turn
    labels = traffic_labels(scene.candidate.template, o.traffic_keys)
    outside = [p for p in scene.pods if not is_fully_admitted(p, labels)]
    if outside:
        admissions = tuple(Admit(pod=p.name, pod_uid=p.uid, labels=labels, at=now) for p in outside)
        names = ", ".join(p.name for p in outside)
        return wait(status, f"admitting {names} to the traffic", *admissions)
    status = _record_candidate(scene, status, now)
    if o.looked:
        status = remember(status, wanted_since=rfc3339(now))
    if status.progress.step_since is None:
        # The next step needs a verdict of its own: the present one is of fewer pods.
        status = note(
            remember(
                status.model_copy(update={"verdict": Verdict.HOLD}),
                step_since=rfc3339(now),
                unsettled_since=None,
            ),
            "StepAdmitted",
            f"step {_step_words(status)}: {plural(len(scene.pods), 'canary pod')} in the traffic",
            now,
        )
    return _hold(scene, status, now)


def _hold(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn:
    """The hold of a step: time, evidence, approval, in this order."""
    index, step = _present_step(scene, status)
    if promotion.asked(scene.o, status):
        return _promote_at_once(scene, status, now)
    began = settling.hold_began(scene.pods, status, now)
    hold_end = began + seconds_of(step.hold)
    if now < hold_end:
        again = began > since(status.progress.step_since, now)
        words = f"step {_step_words(status)}: holding with {plural(len(scene.pods), 'canary pod')}"
        if not again:
            return wait(status, f"{words}{_verdict_words(status)}", until=hold_end)
        status = settling.unsettled(status, now)
        return _unsettled(scene, status, now) or wait(
            status,
            f"{words} anew, for a pod was not ready or was replaced{_verdict_words(status)}",
            until=hold_end,
        )
    status = remember(status, unsettled_since=None)
    if status.verdict != Verdict.PASS:
        return _without_evidence(scene, status, began, now)
    strategy = scene.o.spec.strategy
    if strategy.promotion == "Manual" and index + 1 >= len(strategy.steps):
        # This is more than an approval of the last step, and stands for it.
        return _ask(scene, status, now, promote=True)
    if step.approval and not approval.given(scene.o, status):
        return _ask(scene, status, now, promote=False)
    return _next(scene, status, step, index, now)


def _without_evidence(scene: _Scene, status: VLLMUpgradeStatus, began: float, now: float) -> Turn:
    analysis = scene.o.spec.analysis
    _, step = _present_step(scene, status)
    patience = seconds_of(analysis.max_duration)
    # One look that sees nothing, after hours of waiting for an approval, is not an hour without a
    # verdict.
    passed = since(status.progress.passed_at, began)
    end = max(began + seconds_of(step.hold), passed + patience)
    if now < end:
        return wait(
            status,
            f"step {_step_words(status)}: not enough evidence yet: {unconvinced(scene.o, status)}",
            until=end,
        )
    message = (
        f"step {_step_words(status)}: no verdict after {analysis.max_duration}: "
        f"{unconvinced(scene.o, status)}"
    )
    if analysis.on_inconclusive == "Rollback":
        return roll_back(status, "Inconclusive", message, now=now)
    return halt(
        status,
        "Inconclusive",
        f"{message}; it goes on when the evidence arrives, else it is rolled back at "
        f"{clock(now + seconds_of(scene.o.spec.strategy.halt_timeout))}",
        now=now,
    )


def _ask(scene: _Scene, status: VLLMUpgradeStatus, now: float, *, promote: bool) -> Turn:
    """Ask a person for the step's approval, or for the promotion."""
    step = f"step {_step_words(status)}"
    if promote:
        what, command = f"{step} passed and waits to be promoted", promotion.command
        late = "PromotionTimeout", "nobody promoted it"
    else:
        what, command = f"{step} passed and waits for approval", approval.command
        late = "ApprovalTimeout", f"nobody approved {step}"
    asked = status.progress.approval_since
    if asked is None:
        status = remember(status, approval_since=rfc3339(now))
    timeout = scene.o.spec.strategy.halt_timeout
    end = since(asked, now) + seconds_of(timeout)
    if now > end:
        words = f"{late[1]} within spec.strategy.haltTimeout ({timeout})"
        return roll_back(status, late[0], words, now=now)
    message = f"{what}: {command(scene.o, status)}; rolled back otherwise"
    turn = wait(status, message, until=end)
    return turn if asked is not None else approval.announce(turn, message)


def _next(scene: _Scene, status: VLLMUpgradeStatus, step: Step, index: int, now: float) -> Turn:
    if step.approval:
        status = approval.record(scene.o, status, now)
    steps = scene.o.spec.strategy.steps
    if index + 1 < len(steps):
        before = status.step.replicas if status.step else 1
        status = begin_step(scene.o, scene.target, status, index + 1, now)
        kept = kept_words(steps[index + 1], scene.target, before)
        words = f"step {_step_words(status)} begins{kept}"
        return wait(note(status, "StepPassed", words, now), words)
    return _to_promotion(scene, status, "all steps passed", now)


def _promote_at_once(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Promote because a person says so, with the verdict that there is."""
    verdict = status.verdict or Verdict.HOLD
    left = "" if verdict == Verdict.PASS else f" ({unconvinced(scene.o, status)})"
    skipped = f"in step {_step_words(status)}, with verdict {verdict}{left}"
    status = promotion.record(scene.o, status, skipped, now)
    return _to_promotion(scene, status, f"promoted by a person {skipped}", now)


def _to_promotion(scene: _Scene, status: VLLMUpgradeStatus, why: str, now: float) -> Turn:
    # Said before it is done: an operator that is killed after the write would otherwise find a
    # template that it does not know for its own.
    return enter(
        remember(status, promoted=True),
        Phase.PROMOTING,
        "Promoting",
        f"{why}: {scene.target.name} gets the candidate's template",
        now=now,
    )


def _present_step(scene: _Scene, status: VLLMUpgradeStatus) -> tuple[int, Step]:
    """Give the step and its position."""
    index = status.step.index if status.step else 0
    return index, scene.o.spec.strategy.steps[index]


def _gather_pods(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Bring the step's pods up; None when all of them are ready."""
    wanted = status.step.replicas if status.step else 0
    strategy = scene.o.spec.strategy
    limits = (seconds_of(strategy.schedule_deadline), seconds_of(strategy.start_deadline))
    if scene.o.canary is None or scene.o.canary.replicas != wanted:
        ensure = EnsureCanary(
            attempt=scene.candidate.attempt,
            replicas=wanted,
            template=withdrawn_template(scene.candidate.template, scene.o.traffic_keys),
        )
        return wait(status, f"making {plural(wanted, 'canary pod')}", ensure)
    lost = withdrawals_of_lost(scene.o, now)
    if lost:
        names = ", ".join(w.pod for w in lost)
        return wait(status, f"the node of {names} does not report: out of the traffic", *lost)
    for pod in scene.pods:
        late = lateness(pod, schedule_deadline=limits[0], start_deadline=limits[1], now=now)
        if late is not None:
            return roll_back(_capacity(status, scene, pod, now), late[0], late[1], now=now)
    ready = [p for p in scene.pods if is_ready(p)]
    if len(ready) == wanted == len(scene.pods):
        return None
    status = settling.unsettled(status, now)
    overdue = _unsettled(scene, status, now)
    if overdue is not None:
        return overdue
    short = shortage.of_pods(scene.o, status, list(scene.pods), now)
    if short is not None:
        return short
    unready = [p for p in scene.pods if not is_ready(p)]
    for pod in unready:
        status = _capacity(status, scene, pod, now)
    end_words = waiting_until(
        unready, schedule_deadline=limits[0], start_deadline=limits[1], now=now
    )
    return wait(
        status,
        f"waiting for canary pods: {len(ready)} of {wanted} ready; "
        f"{'; '.join(progress(p) for p in unready[:3])}; until {end_words}",
    )


def _unsettled(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """End a step whose pods come and go without an end."""
    _, step = _present_step(scene, status)
    analysis = scene.o.spec.analysis
    end = settling.limit(scene.o.spec, step, scene.pods, status)
    if end is None or now <= end:
        return None
    ready = [p for p in scene.pods if is_ready(p)]
    return roll_back(
        status,
        "NotSettled",
        f"step {_step_words(status)}: canary pods were lost or not ready again and again, so that "
        f"no hold ({step.hold}) has passed within spec.analysis.maxDuration "
        f"({analysis.max_duration}); {len(ready)} of {len(scene.pods)} are ready now",
        now=now,
    )


def _capacity(status: VLLMUpgradeStatus, scene: _Scene, pod: Pod, now: float) -> VLLMUpgradeStatus:
    fits = pod.unschedulable is None
    return conditions.put(
        status,
        conditions.CAPACITY_AVAILABLE,
        fits,
        "Scheduled" if fits else "Unschedulable",
        "canary pods have nodes" if fits else f"{pod.name}: {pod.unschedulable}",
        generation=scene.o.generation,
        now=now,
    )


def _mismatch(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Act on a ready pod that is not what it should be, whatever the others do."""
    spec = scene.o.spec
    for pod in scene.pods:
        finding = verify(pod, spec.candidate, spec.runner, now)
        if is_ready(pod) and finding.kind is Kind.WRONG_VERSION:
            return roll_back(status, "VersionMismatch", finding.message, now=now)
        if is_ready(pod) and finding.kind is Kind.WRONG_RUNNER:
            return _wrong_runner(scene, status, finding, now)
    return None


def _verified(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> Turn | None:
    """Check images; wait until version and runner of every pod are known; None: all accepted."""
    other = digests.differing(scene.pods, status)
    if other is not None:
        return roll_back(status, "DigestMismatch", other, now=now)
    spec = scene.o.spec
    findings = [(p, verify(p, spec.candidate, spec.runner, now)) for p in scene.pods]
    for pod, finding in findings:
        if finding.kind is Kind.WAITING:
            began = since(None, pod.scheduled_at or now)
            end = max(
                began + start_budget(pod, seconds_of(spec.strategy.start_deadline)),
                phase_since(status, now),
            )
            if now > end:
                return _unknown_runner(scene, status, finding, now)
            return wait(status, f"verifying before traffic: {finding.message}", until=end)
    return None


def _wrong_runner(scene: _Scene, status: VLLMUpgradeStatus, finding: Finding, now: float) -> Turn:
    status = _runner_condition(status, scene, False, "RunnerMismatch", finding.message, now)
    if scene.o.spec.runner.on_mismatch == "Rollback":
        return roll_back(status, "RunnerMismatch", finding.message, now=now)
    return halt(
        status,
        "RunnerMismatch",
        f"{finding.message}. Change the candidate, or accept it in spec.runner (an exception per "
        "feature with a date to test again, or onMismatch: Allow); rolled back at "
        f"{clock(now + seconds_of(scene.o.spec.strategy.halt_timeout))}",
        now=now,
    )


def _unknown_runner(scene: _Scene, status: VLLMUpgradeStatus, finding: Finding, now: float) -> Turn:
    status = _runner_condition(status, scene, None, "RunnerUnknown", finding.message, now)
    return halt(
        status,
        "RunnerUnknown",
        f"{finding.message}. Look at the pod's log; rolled back at "
        f"{clock(now + seconds_of(scene.o.spec.strategy.halt_timeout))}",
        now=now,
    )


def _record_candidate(scene: _Scene, status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    digests = tuple(sorted({p.digest for p in scene.pods if p.digest is not None}))
    versions = {p.version for p in scene.pods if p.version is not None}
    seen = CandidateStatus(
        digests=digests,
        version=versions.pop() if len(versions) == 1 else None,
        flags=status.candidate.flags if status.candidate else (),
    )
    return _runner_condition(
        status.model_copy(update={"candidate": seen}),
        scene,
        True,
        "Verified",
        _runner_words(scene, now),
        now,
    )


def _runner_condition(  # noqa: PLR0913, PLR0917 - the parts of a condition
    status: VLLMUpgradeStatus,
    scene: _Scene,
    value: bool | None,  # noqa: FBT001 - a condition is true, false or unknown
    reason: str,
    message: str,
    now: float,
) -> VLLMUpgradeStatus:
    return conditions.put(
        status,
        conditions.RUNNER_VERIFIED,
        value,
        reason,
        message,
        generation=scene.o.generation,
        now=now,
    )


def _runner_words(scene: _Scene, now: float) -> str:
    spec = scene.o.spec
    findings = [verify(p, spec.candidate, spec.runner, now) for p in scene.pods]
    return "; ".join(dict.fromkeys(f.message for f in findings))


def _step_words(status: VLLMUpgradeStatus) -> str:
    return f"{status.step.index + 1} of {status.step.total}" if status.step else "?"


def _verdict_words(status: VLLMUpgradeStatus) -> str:
    return f", verdict {status.verdict}" if status.verdict else ""


def _scene(o: Observation) -> _Scene:
    if o.target is None or o.candidate is None:
        raise ValueError("a canary phase needs a target and a stored candidate")
    pods = () if o.canary is None else o.canary.pods
    alive = tuple(p for p in pods if not (p.terminating or p.ended))
    return _Scene(o, o.target, o.candidate, alive)
