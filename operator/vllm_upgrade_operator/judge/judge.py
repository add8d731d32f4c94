"""The judge: from counters and earlier evidence to verdicts and the evidence to keep.

A pure function. The rule, in words: per check a window of the last 20 to 24 looks is kept, in
blocks of four. A limit is *broken* in a look where the window is beyond it by more than chance
would do (one in ten thousand), and each of the last blocks is beyond it too: two of them for
errors, five for what depends on a queue, which must also be worse than what any single stable pod
went through lately. `Harm` is a limit that was broken in 3 of the last 5 looks. `Pass` needs
`min_requests` canary requests and no limit that even looks broken. Everything else is `Hold`: a
missing metric, too few requests, doubt.

Where it is weak: near saturation the queues of equal pods differ for longer than the window. With
simulated engines, looks of 1 s and 2 minutes per upgrade, a good canary beside three stable pods
was rolled back in none of 16 runs at half of their capacity, 1 of 40 at 77 %, 6 of 40 at 90 %.

Hard limits act only where the canary is worse than stable pods at the same moment, as long as
there are any: load that hurts all pods alike is no reason to roll back, nor to go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric, Mode
from vllm_upgrade_operator.judge import level, ratio, tail_latency
from vllm_upgrade_operator.judge.evidence import OF_LOOKS, Evidence, load
from vllm_upgrade_operator.judge.limits import compares, signature, write_limit
from vllm_upgrade_operator.judge.model import CheckResult, Judgement, Verdict
from vllm_upgrade_operator.judge.take import LEVELS, Missing, Taken, take
from vllm_upgrade_operator.judge.words import NONE, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.finding import Finding
    from vllm_upgrade_operator.judge.model import Look

_PHRASES = {
    Metric.REJECTIONS: "rejected requests",
    Metric.ERRORS: "failed requests",
    Metric.QUEUE_DEPTH: "queue depth",
    Metric.TIME_TO_FIRST_TOKEN: "time to first token",
    Metric.INTER_TOKEN_LATENCY: "inter-token latency",
    Metric.END_TO_END_LATENCY: "end-to-end latency",
    Metric.KV_CACHE_USAGE: "KV cache usage",
    Metric.KV_CAPACITY: "tokens that the KV cache holds",
    Metric.PREEMPTIONS: "preemptions per request",
    Metric.DRAFT_ACCEPTANCE: "accepted draft tokens",
}

# Versions without a counter of rejections answer 503, as they may for another reason.
_APPROXIMATE = {
    Metric.REJECTIONS: " (approximate: all 5xx answers, for want of a counter)",
    Metric.ERRORS: " (5xx answers count as rejections, for want of a counter of those)",
}


def judge(
    checks: Sequence[Check],
    look: Look,
    evidence: Mapping[str, str],
    min_requests: int,
) -> Judgement:
    """Take one look into the evidence and say what it shows now.

    Args:
        checks: All checks; disabled ones are left out of the results.
        look: What happened since the look before.
        evidence: What the last judgement returned; empty at the beginning.
        min_requests: Canary requests without which nothing passes.
    """
    results: list[CheckResult] = []
    kept: dict[str, str] = {}
    for check in checks:
        if check.mode is Mode.DISABLED:
            continue
        state = load(evidence.get(check.name), signature(check))
        results.append(_one(check, look, state, min_requests))
        kept[check.name] = state.dump(signature(check))
    return Judgement(results=tuple(results), evidence=kept, verdict=_together(results))


def _together(results: Sequence[CheckResult]) -> Verdict:
    verdicts = [
        r.verdict for r in results if not r.observe_only and r.verdict is not Verdict.NOT_APPLICABLE
    ]
    if Verdict.HARM in verdicts:
        return Verdict.HARM
    # No check is no evidence.
    if verdicts and all(v is Verdict.PASS for v in verdicts):
        return Verdict.PASS
    return Verdict.HOLD


def _one(check: Check, look: Look, state: Evidence, min_requests: int) -> CheckResult:
    """Judge one check; `state` is brought up to date."""
    blank = CheckResult(
        name=check.name,
        metric=check.metric.value,
        canary=NONE,
        stable=NONE,
        limit=write_limit(check),
        requests=round(state.requests),
        verdict=Verdict.HOLD,
        reason="",
        observe_only=check.mode is Mode.OBSERVE,
    )
    if check.metric is Metric.DRAFT_ACCEPTANCE and (other := _undrafted(look)) is not None:
        return replace(blank, verdict=Verdict.NOT_APPLICABLE, reason=f"does not apply: {other}")
    taken = take(check, look)
    if isinstance(taken, Missing):
        state.idle += 1
        return replace(blank, reason=taken.why, doubtful=True, missing=not taken.exposed)
    finding = _update(check, look, state, taken, min_requests)
    verdict, reason = _verdict(check, state, finding, min_requests)
    observed = "only observed: " if blank.observe_only else ""
    return replace(
        blank,
        canary=finding.canary,
        stable=finding.stable,
        requests=round(state.requests),
        verdict=verdict,
        reason=f"{observed}{_phrase(check, look)} {reason}",
        doubtful=finding.broken or finding.doubtful,
    )


def _update(check: Check, look: Look, state: Evidence, taken: Taken, min_requests: int) -> Finding:
    """Add the look to the evidence and weigh it."""
    if taken.bounds and taken.bounds != state.bounds:
        fresh = Evidence(requests=state.requests, reference=state.reference, bounds=taken.bounds)
        vars(state).update(vars(fresh))
    state.alone = 0 if look.stable else state.alone + 1
    if state.alone == OF_LOOKS:
        state.forget_stable()
    state.requests += taken.requests
    if taken.block is None:
        state.idle += 1
        return _weigh(check, state, min_requests)
    state.idle = 0
    state.add(taken.block, taken.pods)
    finding = _weigh(check, state, min_requests)
    state.note(broken=finding.broken)
    if finding.stable_value is not None:
        state.reference = finding.stable_value
    return finding


def _weigh(check: Check, state: Evidence, min_requests: int) -> Finding:
    if check.metric in LEVELS:
        return level.weigh(check, state)
    if check.metric in LATENCIES:
        return tail_latency.weigh(check, state, min_requests)
    return ratio.weigh(check, state)


def _verdict(
    check: Check, state: Evidence, finding: Finding, min_requests: int
) -> tuple[Verdict, str]:
    if state.harmful and finding.broken:
        return Verdict.HARM, f"{finding.words}; {plural(state.requests, 'request')} in all"
    if state.requests < min_requests:
        seen = f"{state.requests:.0f} of {plural(min_requests, 'request')}"
        return Verdict.HOLD, f"{finding.words}; {seen}"
    if finding.broken or finding.doubtful:
        return Verdict.HOLD, f"{finding.words}; not certain yet"
    if state.idle >= OF_LOOKS:
        return Verdict.HOLD, f"{finding.words}; no new requests for {state.idle} looks"
    if compares(check) and (state.alone or finding.stable_value is None):
        if not state.alone:
            return Verdict.HOLD, f"{finding.words}; stable pods got no requests to compare with"
        if state.alone < OF_LOOKS or state.reference is None:
            return Verdict.HOLD, f"{finding.words}; no stable pod to compare with was read"
        if check.max is None and check.metric not in LATENCIES:
            return Verdict.PASS, (
                f"{finding.canary}: no limit without stable pods to compare with, "
                f"after {plural(state.requests, 'request')}"
            )
    return Verdict.PASS, f"{finding.words}; {plural(state.requests, 'request')} in all"


def _phrase(check: Check, look: Look) -> str:
    phrase = _PHRASES[check.metric]
    if check.quantile is not None:
        phrase += f" p{check.quantile * 100:.0f}"
    if any(d.rejections_approximate for d in (*look.canary.values(), *look.stable.values())):
        phrase += _APPROXIMATE.get(check.metric, "")
    return phrase


def _undrafted(look: Look) -> str | None:
    """Say where speculative decoding does not run; its counters only exist where it does."""
    sides = {"canary": look.canary, "stable": look.stable}
    without = [
        f"{side} pods"
        for side, pods in sides.items()
        if pods and all(d.draft_tokens is None for d in pods.values())
    ]
    if not without:
        return None
    return f"speculative decoding does not run on {' and '.join(without)}"
