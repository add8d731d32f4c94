"""From an observation to the judge and back into status: who is compared with whom, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import fraction_of, resolve_checks
from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import CheckStatus, Evidence, Mode, Phase
from vllm_upgrade_operator.judge.judge import Demands, judge
from vllm_upgrade_operator.judge.model import Look, Verdict
from vllm_upgrade_operator.upgrade import sight
from vllm_upgrade_operator.upgrade.flow import remember, since
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.names import ADMITTED_AT
from vllm_upgrade_operator.upgrade.pinning import is_known_good
from vllm_upgrade_operator.upgrade.times import rfc3339, seconds
from vllm_upgrade_operator.upgrade.traffic import is_admitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec, VLLMUpgradeStatus
    from vllm_upgrade_operator.judge.counters import Delta
    from vllm_upgrade_operator.judge.model import Judgement
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod

JUDGED = frozenset({Phase.CANARY, Phase.HALTED, Phase.PROMOTING, Phase.BAKING})
# How noisy stable pods are is learned while the canary loads.
_LEARNING = frozenset({Phase.STARTING, Phase.VERIFYING})
_LOOKED_AT = JUDGED | _LEARNING | {Phase.ROLLING_BACK}

# A look may come a little early: timers of the event loop are not exact, and a look that is put
# off to the next wake-up would halve the rate.
_EARLY = 0.9

_UNREAD = "metrics of the candidate's pods cannot be read"


def look_is_due(spec: VLLMUpgradeSpec, status: VLLMUpgradeStatus, now: float) -> bool:
    """Whether pods should be scraped now."""
    if status.phase not in _LOOKED_AT:
        return False
    if status.progress.look_at is None:
        return True
    interval = seconds_of(spec.analysis.interval)
    return now - seconds(status.progress.look_at) >= _EARLY * interval


def until_next_look(spec: VLLMUpgradeSpec, status: VLLMUpgradeStatus, now: float) -> float | None:
    """Seconds until pods should be scraped again; None where the phase needs no looks."""
    if status.phase not in _LOOKED_AT:
        return None
    interval = seconds_of(spec.analysis.interval)
    return max(0.05, since(status.progress.look_at, now - interval) + interval - now)


def look(
    o: Observation, status: VLLMUpgradeStatus, now: float
) -> tuple[VLLMUpgradeStatus, Judgement | None]:
    """Judge what was scraped; None where nothing was looked at or there is nothing to judge."""
    if not o.looked:
        return _before_the_next_look(o, status), None
    # The next look is due an interval after this one began, however long the pods took.
    status = remember(status, look_at=rfc3339(o.looked_at or now))
    sides = _sides(o, status)
    if status.phase in _LEARNING:
        status, _ = _learned(o, status, Look(now, {}, _deltas(stable_pods(o))))
    if status.phase not in JUDGED:
        return sight.note_unread(o, sides, status, now), None
    status, judgement = _judged(o, sight.note_traffic(sides, status, now), now)
    return sight.note_gaps(o, sides, status, judgement, now), judgement


def _before_the_next_look(o: Observation, status: VLLMUpgradeStatus) -> VLLMUpgradeStatus:
    """A spec that was edited may ask for more than what has passed: only a look can tell."""
    edited = o.generation != status.observed_generation
    if edited and status.phase in JUDGED and status.verdict == Verdict.PASS:
        return status.model_copy(update={"verdict": Verdict.HOLD})
    return status


def _judged(
    o: Observation, status: VLLMUpgradeStatus, now: float
) -> tuple[VLLMUpgradeStatus, Judgement | None]:
    peers = stable_pods(o)
    warm, serving = judged_pods(o, status, now), _serving_since(o, status, now)
    canary, stable = _deltas(warm), _deltas(peers)
    seen = Look(
        at=now,
        canary=canary,
        stable=stable,
        warming=_deltas([pod for pod, _ in serving if pod not in warm]),
        admitted={pod.name: now - began for pod, began in serving},
    )
    blind = bool(peers) and not stable
    if not canary and not blind:
        status, _ = _learned(o, status, seen)
    if not canary or blind:
        # What was found before stays on show, but nothing may go on because of it.
        if _unread(o, status):
            status = remember(status, doubt=_UNREAD)
        judged = status.phase in (Phase.CANARY, Phase.HALTED)
        return (status.model_copy(update={"verdict": Verdict.HOLD}) if judged else status), None
    status, judgement = _learned(o, status, seen)
    checks = tuple(
        CheckStatus(
            name=r.name,
            canary=r.canary,
            stable=r.stable,
            limit=r.limit,
            requests=r.requests,
            verdict=r.verdict,
            reason=r.reason,
            power=r.power,
            noise=r.noise,
        )
        for r in judgement.results
    )
    doubts = [r.reason for r in judgement.results if r.doubtful and not r.observe_only]
    if _unread(o, status):
        doubts.append(_UNREAD)
    status = remember(status, doubt=doubts[0][:1024] if doubts else None)
    verdict = judgement.verdict
    if verdict is Verdict.PASS and (_unread(o, status) or _cold(o, status, now)):
        # The pods that were judged do not speak for the one that was not.
        verdict = Verdict.HOLD
    if verdict is Verdict.PASS:
        status = remember(status, passed_at=rfc3339(now))
    return (
        status.model_copy(update={"checks": checks, "verdict": verdict}),
        judgement,
    )


def _learned(
    o: Observation, status: VLLMUpgradeStatus, seen: Look
) -> tuple[VLLMUpgradeStatus, Judgement]:
    """Take a look into the evidence."""
    analysis = o.spec.analysis
    judgement = judge(
        resolve_checks(analysis.checks),
        seen,
        {e.name: e.value for e in status.evidence},
        Demands(min_requests=analysis.min_requests, confidence=fraction_of(analysis.confidence)),
    )
    evidence = tuple(Evidence(name=n, value=v) for n, v in sorted(judgement.evidence.items()))
    return status.model_copy(update={"evidence": evidence}), judgement


def harm(judgement: Judgement) -> tuple[str, str] | None:
    """Give the event reason and the sentence of the first check that found harm."""
    if judgement.verdict is not Verdict.HARM:
        return None
    for result in judgement.results:
        if result.verdict is Verdict.HARM and not result.observe_only:
            return "CheckFailed", f"check {result.name}: {result.reason}"
    return None


def judged_pods(o: Observation, status: VLLMUpgradeStatus, now: float) -> list[Pod]:
    """The pods on the candidate's side: in the traffic, and warm."""
    warmup = o.spec.analysis.warmup
    interval = seconds_of(o.spec.analysis.interval)
    return [
        pod
        for pod, began in _serving_since(o, status, now)
        # One interval more: the counters of this look reach back to the look before.
        if now - began >= seconds_of(warmup.duration) + interval
        and (pod.offered or 0.0) >= warmup.requests
    ]


def _serving_since(
    o: Observation, status: VLLMUpgradeStatus, now: float
) -> list[tuple[Pod, float]]:
    """Give the pods on the candidate's side that are in the traffic, and since when."""
    pods = [(pod, _admitted_at(pod, now)) for pod in _admitted(o)]
    if status.progress.promoted:
        pods.extend((pod, since(None, pod.ready_at or now)) for pod in promoted_pods(o))
    return pods


def candidates_in_traffic(o: Observation, status: VLLMUpgradeStatus) -> list[Pod]:
    """The pods on the candidate's side that serve and are in the traffic, warm or not."""
    return [*_admitted(o), *(promoted_pods(o) if status.progress.promoted else ())]


def _admitted(o: Observation) -> list[Pod]:
    """The canary pods that serve and are in the traffic."""
    pods = () if o.canary is None else o.canary.pods
    return [p for p in pods if is_ready(p) and is_admitted(p, o.traffic_keys)]


def _admitted_at(pod: Pod, now: float) -> float:
    """When a pod was let into the traffic; an annotation that says nothing means just now."""
    try:
        return seconds(pod.annotations.get(ADMITTED_AT, ""))
    except ValueError:
        return now


def _cold(o: Observation, status: VLLMUpgradeStatus, now: float) -> bool:
    """Whether a canary pod takes traffic and does not count yet."""
    warm = {p.uid for p in judged_pods(o, status, now)}
    return any(p.uid not in warm for p in _admitted(o))


def _unread(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether a pod of the candidate serves and its metrics could not be read."""
    pods = [] if o.canary is None else list(o.canary.pods)
    if status.progress.promoted:
        pods += promoted_pods(o)
    return any(is_ready(p) and p.scrape_error is not None for p in pods)


def stable_pods(o: Observation) -> list[Pod]:
    """The target's ready pods that run the known-good template."""
    return [p for p in _target_pods(o) if is_ready(p) and not is_promoted(o, p)]


def promoted_pods(o: Observation) -> list[Pod]:
    """The target's ready pods that run another template than the known-good one."""
    return [p for p in _target_pods(o) if is_ready(p) and is_promoted(o, p)]


def is_promoted(o: Observation, pod: Pod) -> bool:
    """Whether a pod of the target is of another template than the one that was known good.

    The hash of a restored template is the recorded one, as a rule: where a ReplicaSet of that name
    is in the way the Deployment controller takes another.
    """
    known, target = o.known_good, o.target
    if known is None or pod.template_hash == known.template_hash:
        return False
    if target is None or pod.template_hash != target.template_hash:
        return True
    return not is_known_good(target.template, known, o.candidate)


def unconvinced(o: Observation, status: VLLMUpgradeStatus) -> str:
    """Say in a clause which checks have not passed, why, and what helps."""
    blind = sight.blindness(status)
    if blind is not None:
        return blind
    if not status.checks:
        return "no requests were judged on the canary; send it traffic"
    act = {c.name for c in resolve_checks(o.spec.analysis.checks) if c.mode is Mode.ENFORCE}
    settled = (Verdict.PASS, Verdict.NOT_APPLICABLE)
    open_checks = [c for c in status.checks if c.name in act and c.verdict not in settled]
    words = "; ".join(f"{c.name}: {c.reason}" for c in open_checks[:1])
    if open_checks[1:]:
        words += f"; and {', '.join(c.name for c in open_checks[1:])} (see status.checks)"
    if any(c.requests < o.spec.analysis.min_requests for c in open_checks):
        words += "; send it more traffic, or lower spec.analysis.minRequests"
    return words or "pods still warm up"


def _target_pods(o: Observation) -> tuple[Pod, ...]:
    return () if o.target is None else o.target.pods


def _deltas(pods: list[Pod]) -> Mapping[str, Delta]:
    return {p.name: p.delta for p in pods if p.delta is not None}


def _sides(o: Observation, status: VLLMUpgradeStatus) -> sight.Sides:
    canary = [p for p in (() if o.canary is None else o.canary.pods) if is_ready(p)]
    promoted = promoted_pods(o) if status.progress.promoted else []
    return sight.Sides(
        canary=[*canary, *promoted], admitted=[*_admitted(o), *promoted], stable=stable_pods(o)
    )
