"""Results that mean nothing because the canary's requests or its caches are others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.unit.judge.test_judge import calm
from tests.unit.judge.traffic import demands
from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS
from vllm_upgrade_operator.judge.counters import Histogram
from vllm_upgrade_operator.judge.judge import judge
from vllm_upgrade_operator.judge.model import CheckResult, Look, Verdict

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.counters import Delta

INF = float("inf")
CHECKS = {check.name: check for check in DEFAULT_CHECKS}
TTFT = CHECKS["ttft-p99"]
REJECTIONS = CHECKS["rejections"]
BOUNDS = (0.1, 0.5, 1.0, 2.5, INF)
# A third of them is slow: harm, but not flagrant.
SLOW = Histogram(BOUNDS, (6.0, 6.0, 6.0, 10.0, 10.0), 8.0)


def lengths(tokens: float) -> Histogram:
    return Histogram((100.0, 1000.0, INF), (0.0, 10.0, 10.0), 10.0 * tokens)


def run(
    canary: Delta, stable: Delta, looks: int = 90, admitted: float = 1000.0
) -> dict[str, CheckResult]:
    """Learn, then judge; give the last results by check."""
    evidence: dict[str, str] = {}
    results: dict[str, CheckResult] = {}
    pods = {f"s{i}": stable for i in range(3)}
    for number in range(-70, looks):
        judged = {"c": canary} if number >= 0 else {}
        look = Look(at=float(number), canary=judged, stable=pods, admitted={"c": admitted + number})
        judgement = judge((TTFT, REJECTIONS), look, evidence, demands())
        evidence = judgement.evidence
        results = {r.name: r for r in judgement.results}
        if judgement.verdict is Verdict.HARM:
            break
    return results


def test_slow_answers_to_alike_requests_are_harm_and_it_is_said_where_the_time_goes() -> None:
    slow = calm(
        ttft=SLOW,
        queue=Histogram((1.0, INF), (10.0, 10.0), 7.0),
        prefill=Histogram((1.0, INF), (10.0, 10.0), 1.0),
        prompt_lengths=lengths(200),
    )
    usual = calm(
        queue=Histogram((1.0, INF), (10.0, 10.0), 0.2),
        prefill=Histogram((1.0, INF), (10.0, 10.0), 0.6),
        prompt_lengths=lengths(200),
    )
    result = run(slow, usual)["ttft-p99"]
    assert result.verdict is Verdict.HARM
    assert "time to first token p99" in result.reason
    assert "in the queue" in result.reason


def test_slow_answers_to_longer_prompts_are_no_verdict() -> None:
    results = run(calm(ttft=SLOW, prompt_lengths=lengths(900)), calm(prompt_lengths=lengths(200)))
    assert results["ttft-p99"].verdict is Verdict.HOLD
    assert results["ttft-p99"].reason.startswith("TrafficMixDiffers: ")
    assert results["rejections"].verdict is Verdict.PASS


def test_what_is_flagrant_no_prompts_explain() -> None:
    slow = Histogram(BOUNDS, (0.0, 0.0, 0.0, 10.0, 10.0), 20.0)
    results = run(calm(ttft=slow, prompt_lengths=lengths(900)), calm(prompt_lengths=lengths(200)))
    assert results["ttft-p99"].verdict is Verdict.HARM


def test_a_cold_cache_is_no_slow_candidate_for_five_minutes() -> None:
    warm = calm(prefix_queries=1000.0, prefix_hits=800.0)
    cold = calm(ttft=SLOW, prefix_queries=1000.0, prefix_hits=0.0)
    results = run(cold, warm, looks=60, admitted=60.0)
    assert results["ttft-p99"].verdict is Verdict.HOLD
    assert "cache" in results["ttft-p99"].reason
    assert results["rejections"].verdict is Verdict.PASS
    assert run(cold, warm, looks=120, admitted=400.0)["ttft-p99"].verdict is Verdict.HARM


def test_rejections_count_while_the_cache_is_cold() -> None:
    warm = calm(prefix_queries=1000.0, prefix_hits=800.0)
    cold = replace(warm, prefix_hits=0.0, rejected=9.0)
    assert run(cold, warm, looks=10, admitted=60.0)["rejections"].verdict is Verdict.HARM
