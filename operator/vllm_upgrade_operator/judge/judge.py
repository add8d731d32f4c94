"""The judge: from counters and earlier evidence to verdicts and the evidence to keep.

A pure function, called once per look. What can be counted request by request (rejections, errors,
preemptions, latencies above a bucket bound) is judged by evidence that may be looked at any time,
against the stable pods at the same moment: `Harm` where the evidence of all limits together leaves
no more than 1 - confidence to chance, over the whole upgrade, or where it is flagrant. `Pass` needs
evidence that the canary is safe, for each limit, and `min_requests`. Gauges are held against limits
for a time. Everything else is `Hold`: a missing metric, too few requests, doubt.

Without canary pods a look teaches how noisy the stable pods are, and nothing is said.

The method with its figures is docs/judge.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES
from vllm_upgrade_operator.api.spec import Metric, Mode
from vllm_upgrade_operator.judge import around, level, telling
from vllm_upgrade_operator.judge.budget import enough
from vllm_upgrade_operator.judge.counted import Counted
from vllm_upgrade_operator.judge.held import Held
from vllm_upgrade_operator.judge.limits import compares, signature, write_limit
from vllm_upgrade_operator.judge.model import CheckResult, Judgement, Verdict
from vllm_upgrade_operator.judge.packed import pack, unpack
from vllm_upgrade_operator.judge.safety import ENOUGH
from vllm_upgrade_operator.judge.series import ALONE_LOOKS
from vllm_upgrade_operator.judge.words import NONE, plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm_upgrade_operator.api.checks import Check
    from vllm_upgrade_operator.judge.around import Around
    from vllm_upgrade_operator.judge.counted import Limit
    from vllm_upgrade_operator.judge.events import Missing
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
    Metric.PREEMPTIONS: "preempted requests",
    Metric.DRAFT_ACCEPTANCE: "accepted draft tokens",
}

# Versions without a counter of rejections answer 503, as they may for another reason.
_APPROXIMATE = {
    Metric.REJECTIONS: " (approximate: all 5xx answers, for want of a counter)",
    Metric.ERRORS: " (5xx answers count as rejections, for want of a counter of those)",
}

# More load than stable pods have explains what a full queue does, and no error.
_OF_LOAD = LATENCIES | {Metric.REJECTIONS, Metric.PREEMPTIONS}

_IDLE_PEERS = "stable pods got no requests to compare with"
_UNREAD_PEERS = "no stable pod to compare with was read"

IDLE_LOOKS = 5
"""Looks without a request after which what was found before says nothing of now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What a verdict needs.

    Attributes:
        min_requests: Canary requests without which nothing passes.
        confidence: Chance that a harmless canary is not rolled back, over the whole upgrade.
    """

    min_requests: int
    confidence: float


@dataclass(frozen=True, slots=True)
class _Found:
    """What the limits of all checks say together.

    Attributes:
        broken: Limits of this check that are.
        sharing: Limits that share the budget of errors.
    """

    broken: Sequence[Limit]
    sharing: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """A check with this look taken in."""

    check: Check
    kept: Counted | Held
    missing: Missing | None

    @property
    def acts(self) -> bool:
        return self.check.mode is Mode.ENFORCE

    def limits(self) -> list[Limit]:
        if self.missing is not None or not isinstance(self.kept, Counted):
            return []
        return self.kept.limits(self.check)


def judge(
    checks: Sequence[Check], look: Look, evidence: Mapping[str, str], demands: Demands
) -> Judgement:
    """Take one look into the evidence and say what it shows now.

    Args:
        checks: All checks; disabled ones are left out of the results.
        look: What happened since the look before.
        evidence: What the last judgement returned; empty at the beginning.
        demands: What a verdict needs.
    """
    beside = around.take(look, evidence)
    taken = [
        _take(c, beside.warm(look, c.metric), evidence.get(c.name))
        for c in checks
        if c.mode is not Mode.DISABLED
    ]
    kept = {t.check.name: pack(signature(t.check), t.kept.dump()) for t in taken}
    kept |= beside.dump()
    if not look.canary:
        return Judgement(results=(), evidence=kept, verdict=Verdict.HOLD)
    results = _results(taken, look, demands, beside)
    return Judgement(results=tuple(results), evidence=kept, verdict=_together(results))


def _take(check: Check, look: Look, text: str | None) -> _Taken:
    raw = unpack(text, signature(check))
    kept: Counted | Held
    if check.metric in level.GAUGES:
        kept = Held() if raw is None else Held.load(raw)
        if check.metric is Metric.DRAFT_ACCEPTANCE and _undrafted(look) is not None:
            return _Taken(check, kept, None)
        return _Taken(check, kept, level.take(check, look, kept))
    kept = Counted() if raw is None else Counted.load(raw)
    return _Taken(check, kept, kept.take(check, look))


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


def _results(
    taken: Sequence[_Taken], look: Look, demands: Demands, beside: Around
) -> list[CheckResult]:
    """Judge every check; they share one budget of errors."""
    acting = [limit for t in taken if t.acts for limit in t.limits()]
    found = [limit.harm() for limit in acting]
    budget = max(1, len(acting))
    worst = max(found, default=0.0) if enough(found, demands.confidence) else None
    results = []
    for t in taken:
        metric = t.check.metric
        flagrant = [
            limit
            for limit in t.limits()
            if limit.series.flagrant(limit.terms, of_load=metric in _OF_LOAD)
        ]
        broken = flagrant or [
            limit
            for limit in t.limits()
            # Alone, or as the worst of several that are so together.
            if limit.harm() >= budget / (1 - demands.confidence)
            or (t.acts and limit.harm() == worst)
        ]
        result = _one(t, look, _Found(broken, budget), demands)
        if (chill := beside.chill(look, metric)) is not None:
            result = replace(result, verdict=Verdict.HOLD, reason=chill)
        results.append(beside.comment(result, metric, flagrant=bool(flagrant)))
    return results


def _one(t: _Taken, look: Look, found: _Found, demands: Demands) -> CheckResult:
    check, kept = t.check, t.kept
    blank = CheckResult(
        name=check.name,
        metric=check.metric.value,
        canary=NONE,
        stable=NONE,
        limit=write_limit(check),
        requests=round(kept.requests),
        verdict=Verdict.HOLD,
        reason="",
        observe_only=check.mode is Mode.OBSERVE,
    )
    if check.metric is Metric.DRAFT_ACCEPTANCE and (other := _undrafted(look)) is not None:
        return replace(blank, verdict=Verdict.NOT_APPLICABLE, reason=f"does not apply: {other}")
    if t.missing is not None:
        return replace(blank, reason=t.missing.why, doubtful=True, missing=not t.missing.exposed)
    observed = "only observed: " if blank.observe_only else ""
    said = (
        _gauge(check, kept, blank, demands)
        if isinstance(kept, Held)
        else _count(kept, t, blank, found, demands)
    )
    return replace(said, reason=f"{observed}{_phrase(check, look)} {said.reason}")


def _gauge(check: Check, held: Held, blank: CheckResult, demands: Demands) -> CheckResult:
    finding = level.weigh(check, held)
    words = f"{finding.words}, in {plural(held.requests, 'request')}"
    result = replace(blank, canary=finding.canary, stable=finding.stable)
    if finding.broken:
        return replace(result, verdict=Verdict.HARM, reason=words, doubtful=True)
    hold = _too_little(held.requests, held.idle, demands)
    if hold is None and finding.doubtful:
        hold = "not certain yet"
    if hold is None and compares(check) and not finding.compared:
        if not held.alone:
            hold = _IDLE_PEERS
        elif held.alone < ALONE_LOOKS or not held.worst:
            hold = _UNREAD_PEERS
    if hold is not None:
        return replace(result, reason=f"{words}; {hold}", doubtful=finding.doubtful)
    if held.alone and check.max is None:
        words += "; no limit without stable pods to compare with"
    return replace(result, verdict=Verdict.PASS, reason=words)


def _count(
    counted: Counted, t: _Taken, blank: CheckResult, found: _Found, demands: Demands
) -> CheckResult:
    check = t.check
    canary, stable = telling.values(check, counted)
    result = replace(
        blank,
        canary=telling.show(check, canary),
        stable=telling.show(check, stable),
        noise=telling.noise(check, counted),
        power=telling.power(check, counted, found.sharing, demands.confidence),
    )
    if found.broken:
        words = telling.sentence(check, counted, found.broken, clear=True)
        return replace(result, verdict=Verdict.HARM, reason=words, doubtful=True)
    words = telling.sentence(check, counted, (), clear=False)
    limits = counted.limits(check)
    doubtful = any(limit.suspicion() >= ENOUGH for limit in limits)
    alone = counted.alone
    hold = _too_little(counted.requests, counted.idle, demands)
    if hold is None and compares(check):
        hold = _without_peers(check, counted)
    if hold is None and (doubtful or not (alone or all(limit.safe() for limit in limits))):
        hold = telling.open_question(check, counted)
    if hold is not None:
        return replace(result, reason=f"{words}; {hold}", doubtful=doubtful)
    if alone and check.max is None and check.metric not in LATENCIES:
        words += "; no limit without stable pods to compare with"
    if result.power:
        words += f"; {result.power}"
    return replace(result, verdict=Verdict.PASS, reason=words)


def _too_little(requests: float, idle: int, demands: Demands) -> str | None:
    if requests < demands.min_requests:
        return f"{requests:.0f} of {plural(demands.min_requests, 'request')}"
    if idle >= IDLE_LOOKS:
        return f"no new requests for {idle} looks"
    return None


def _without_peers(check: Check, counted: Counted) -> str | None:
    """Say what is missing to compare with; stable pods that are gone for good are not missed."""
    if counted.alone >= ALONE_LOOKS and counted.asked:
        return None
    if counted.alone:
        return _UNREAD_PEERS
    if not counted.has_peers:
        return _IDLE_PEERS
    if check.metric in LATENCIES and check.max_increase is not None and counted.place is None:
        return "stable pods have too few requests yet to tell their tail"
    return None


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
