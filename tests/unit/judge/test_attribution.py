from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from localcluster.sim.engine import Limits, Speed
from tests.unit.judge.answered import answered, lengths
from tests.unit.judge.scraped import Server
from tests.unit.judge.traffic import seeded
from vllm_upgrade_operator.api.spec import Metric
from vllm_upgrade_operator.judge.attribution import attribute
from vllm_upgrade_operator.judge.means import Means, Totals, load

if TYPE_CHECKING:
    from vllm_upgrade_operator.judge.attribution import Attribution

STABLE = Means(
    ttft=0.25,
    itl=0.024,
    e2e=2.65,
    queue=0.05,
    prefill=0.2,
    decode=2.4,
    prompt_tokens=400.0,
    output_tokens=100.0,
    preemptions=0.0,
    prefix_hit_rate=0.6,
    draft_acceptance=0.7,
    kv_capacity_tokens=100_000.0,
    requests=1000.0,
)
CANARY = replace(
    STABLE,
    ttft=1.68,
    itl=0.031,
    e2e=4.78,
    queue=1.4,
    prefill=0.28,
    decode=3.1,
    preemptions=0.3,
    kv_capacity_tokens=60_000.0,
)
E2E, TTFT, ITL = (
    Metric.END_TO_END_LATENCY,
    Metric.TIME_TO_FIRST_TOKEN,
    Metric.INTER_TOKEN_LATENCY,
)


def parts(found: Attribution) -> dict[str, tuple[float, float]]:
    return {p.name: (round(p.seconds, 6), round(p.share, 3)) for p in found.parts}


def test_the_extra_time_of_whole_requests_is_parted_and_causes_are_named() -> None:
    found = attribute(CANARY, STABLE, E2E)
    assert found.extra == pytest.approx(2.13)
    assert parts(found) == {
        "queue": (1.35, 0.634),
        "slower tokens": (0.7, 0.329),
        "prefill": (0.08, 0.038),
        "elsewhere": (0.0, 0.0),
        "longer outputs": (0.0, 0.0),
    }
    assert found.sentence == (
        "2.13s more per request: 63% in the queue, 33% slower tokens (31ms against 24ms each), "
        "4% in prefill; the KV cache holds 40% fewer tokens; 0.3 preemptions per request against 0"
    )


def test_the_time_to_the_first_token_has_no_decode_in_it() -> None:
    found = attribute(CANARY, STABLE, TTFT)
    assert set(parts(found)) == {"queue", "prefill", "elsewhere"}
    assert found.sentence.startswith("1.43s more per request: 94% in the queue, 6% in prefill; ")


def test_of_the_inter_token_latency_there_is_one_part_only() -> None:
    found = attribute(replace(CANARY, draft_acceptance=0.35), STABLE, ITL)
    assert found.parts == ()
    assert found.sentence == (
        "7ms more per token (31ms against 24ms); the KV cache holds 40% fewer tokens; "
        "0.3 preemptions per request against 0; 35% of drafts accepted against 70%"
    )


def test_longer_outputs_are_told_from_slower_tokens() -> None:
    longer = replace(STABLE, e2e=5.05, decode=4.8, output_tokens=200.0)
    found = attribute(longer, STABLE, E2E)
    assert parts(found)["longer outputs"] == (2.4, 1.0)
    assert parts(found)["slower tokens"] == (0.0, 0.0)
    assert found.sentence == ("2.4s more per request: 100% longer outputs (200 tokens against 100)")


def test_a_cold_cache_and_longer_prompts_are_named() -> None:
    canary = replace(STABLE, ttft=0.65, prefill=0.6, prefix_hit_rate=0.1, prompt_tokens=800.0)
    assert attribute(canary, STABLE, TTFT).sentence == (
        "400ms more per request: 100% in prefill; the prefix cache finds 10% of prompt tokens "
        "against 60%; prompts of 800 tokens against 400"
    )


def test_what_the_engine_did_not_see_is_elsewhere() -> None:
    found = attribute(replace(STABLE, ttft=1.25), STABLE, TTFT)
    assert parts(found)["elsewhere"] == (1.0, 1.0)
    assert "100% elsewhere (outside of the engine" in found.sentence


def test_a_part_that_is_faster_takes_no_share() -> None:
    canary = replace(STABLE, ttft=1.15, queue=1.05, prefill=0.1)
    found = attribute(canary, STABLE, TTFT)
    assert parts(found)["queue"] == (1.0, 1.0)
    assert parts(found)["prefill"] == (-0.1, 0.0)


def test_a_tail_that_is_slower_while_the_mean_is_not() -> None:
    found = attribute(replace(STABLE, ttft=0.2), STABLE, TTFT)
    assert found.sentence == (
        "the mean is not longer (200ms against 250ms): only the slowest requests are slower"
    )


def test_without_the_parts_the_total_is_told() -> None:
    bare: dict[str, Any] = {"queue": None, "prefill": None, "decode": None}
    found = attribute(replace(CANARY, **bare), replace(STABLE, **bare), E2E)
    assert found.parts == ()
    assert found.sentence.startswith(
        "2.13s more per request (4.78s against 2.65s); queue, prefill and decode times are not "
        "known on both sides"
    )


def test_decode_that_cannot_be_split_is_one_part() -> None:
    found = attribute(replace(CANARY, output_tokens=None), replace(STABLE, output_tokens=None), E2E)
    assert parts(found)["decode"] == (0.7, 0.329)
    assert "33% in decode" in found.sentence


@pytest.mark.parametrize(
    ("canary", "stable", "sides"),
    [
        (Means(), STABLE, "the canary"),
        (CANARY, Means(), "stable pods"),
        (Means(), Means(), "the canary and stable pods"),
    ],
)
def test_a_side_without_data_is_told(canary: Means, stable: Means, sides: str) -> None:
    found = attribute(canary, stable, TTFT)
    assert (found.extra, found.parts) == (None, ())
    assert found.sentence == (
        f"where the time went is not known: no time to first token was observed on {sides}"
    )


def test_of_what_is_no_latency_the_causes_are_told() -> None:
    assert attribute(CANARY, STABLE, Metric.REJECTIONS).sentence == (
        "the KV cache holds 40% fewer tokens; 0.3 preemptions per request against 0; "
        "31ms per token against 24ms"
    )
    same = attribute(STABLE, STABLE, Metric.REJECTIONS)
    assert same.sentence == "nothing else that is measured is different"


def test_a_metric_is_no_cause_of_itself() -> None:
    for metric, words in (
        (Metric.KV_CAPACITY, "KV cache"),
        (Metric.PREEMPTIONS, "preemptions"),
        (Metric.DRAFT_ACCEPTANCE, "drafts"),
    ):
        canary = replace(CANARY, draft_acceptance=0.3)
        assert words not in attribute(canary, STABLE, metric).sentence
        assert words in attribute(canary, STABLE, Metric.ERRORS).sentence


VALUES: list[float | None] = [None, 0.0, 1e-9, 0.5, 1e9]


@pytest.mark.parametrize("metric", list(Metric))
def test_whatever_is_known_a_bounded_sentence_is_said(metric: Metric) -> None:
    names = ("ttft", "e2e", "itl", "queue", "decode", "output_tokens", "prompt_tokens")
    for value, other in product(VALUES, VALUES):
        mine = {**dict.fromkeys(names, value), "preemptions": other, "prefix_hit_rate": value}
        theirs = {**dict.fromkeys(names, other), "preemptions": value, "prefix_hit_rate": other}
        found = attribute(replace(CANARY, **mine), replace(STABLE, **theirs), metric)  # type: ignore[arg-type] # all are numbers
        assert 0 < len(found.sentence) <= 300
        assert sum(p.share for p in found.parts) <= 1.0 + 1e-9


def test_a_record_holds_every_number() -> None:
    record: dict[str, Any] = attribute(CANARY, STABLE, E2E).record()
    assert json.loads(json.dumps(record)) == record
    assert record["metric"] == "EndToEndLatency"
    assert record["parts"][0] == {
        "name": "queue",
        "seconds": pytest.approx(1.35),
        "share": pytest.approx(0.634, abs=1e-3),
    }
    assert record["canary"]["kv_capacity_tokens"] == 60_000.0
    assert record["stable"]["draft_acceptance"] == 0.7


def test_means_are_of_requests_and_not_of_pods() -> None:
    totals = Totals()
    totals.add(
        [
            answered(90.0, queue=lengths(90.0, 9.0), preemptions=9.0, kv_capacity_tokens=100.0),
            answered(10.0, queue=lengths(10.0, 31.0), preemptions=1.0, kv_capacity_tokens=300.0),
            answered(50.0, queue=None, finished=None),
        ]
    )
    means = totals.means()
    assert means.queue == pytest.approx(0.4)
    assert means.preemptions == pytest.approx(0.1)
    assert means.kv_capacity_tokens == pytest.approx((100.0 + 300.0 + 100_000.0) / 3)
    assert means.prompt_tokens == pytest.approx(400.0)
    assert means.draft_acceptance is None


def test_what_was_long_ago_counts_for_little() -> None:
    totals = Totals()
    for number in range(360 + 30):
        more = 0.1 if number < 360 else 2.0
        totals.add([answered(100.0, ttft=lengths(100.0, 100.0 * more))])
    found = totals.means().ttft
    assert found is not None
    # Five minutes of ten: 1 - exp(-1/2) of what counts.
    assert found == pytest.approx(0.1 + 1.9 * 0.393, rel=0.02)


def test_nothing_is_known_of_requests_of_an_hour_ago() -> None:
    totals = Totals()
    totals.add([answered(10.0, ttft=lengths(10.0, 5.0))])
    assert totals.means().ttft == pytest.approx(0.5)
    for _ in range(360):
        totals.add([answered(0.0, ttft=lengths(0.0, 0.0))])
    assert totals.means().ttft is None
    assert Totals().means() == Means()


def test_totals_are_as_good_after_a_restart_of_the_operator() -> None:
    totals = Totals()
    totals.add([answered(100.0, ttft=lengths(100.0, 20.0), prefix_queries=10.0, prefix_hits=3.0)])
    assert load(totals.dump()) == totals
    assert load("what another version wrote") == Totals()


STEADY = {"prompt": 300.0, "output": 80.0}


def observed(limits: Limits, speed: Speed, rate: float, **tokens: float) -> Means:
    server, random, totals = Server(limits, speed), seeded(11), Totals()
    for _ in range(30):
        server.load(random, rate, 10.0, **{**STEADY, **tokens})
        totals.add([server.look()])
    return totals.means()


GOOD = (Limits(kv_blocks=8192, max_num_seqs=64), Speed())


def test_an_engine_with_less_memory_makes_requests_wait() -> None:
    stable = observed(*GOOD, 10.0)
    canary = observed(Limits(kv_blocks=300, max_num_seqs=64), Speed(), 10.0)
    found = attribute(canary, stable, TTFT)
    assert found.parts[0].name == "queue"
    assert found.parts[0].share > 0.5
    assert "the KV cache holds 96% fewer tokens" in found.sentence
    assert "preemptions per request against 0" in found.sentence


def test_an_engine_with_a_slower_step_makes_slower_tokens() -> None:
    stable = observed(*GOOD, 5.0)
    canary = observed(GOOD[0], Speed(step_seconds=0.03), 5.0)
    found = attribute(canary, stable, E2E)
    assert found.parts[0].name == "slower tokens"
    assert found.parts[0].share > 0.9
    assert found.extra == pytest.approx(sum(p.seconds for p in found.parts))


def test_an_engine_that_is_asked_for_more_has_longer_outputs() -> None:
    stable = observed(*GOOD, 2.0)
    canary = observed(*GOOD, 2.0, output=200.0)
    found = attribute(canary, stable, E2E)
    assert found.parts[0].name == "longer outputs"
    assert found.parts[0].share > 0.8


def test_an_engine_that_prefills_slowly_takes_longer_there() -> None:
    stable = observed(*GOOD, 2.0)
    canary = observed(GOOD[0], Speed(prefill_tokens_per_second=2000.0), 2.0)
    found = attribute(canary, stable, TTFT)
    assert found.parts[0].name == "prefill"
    assert found.parts[0].share > 0.6
