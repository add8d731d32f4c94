"""Does the judge find harm, and does it leave good canaries alone?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from localcluster.sim.engine import Limits, Speed
from tests.unit.judge.engines import fleet
from tests.unit.judge.traffic import GOOD, Behaviour, demands, run, seeded
from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS
from vllm_upgrade_operator.judge.judge import judge
from vllm_upgrade_operator.judge.model import Look, Verdict

if TYPE_CHECKING:
    from tests.unit.judge.engines import Fleet
    from vllm_upgrade_operator.judge.model import Judgement

CHECKS = {check.name: check for check in DEFAULT_CHECKS}
COMPARED = tuple(CHECKS[name] for name in ("rejections", "errors", "queue", "ttft-p99"))


@pytest.mark.parametrize(
    ("canaries", "stables", "behaviour"),
    [
        (1, 3, replace(GOOD, rate=5.0)),
        (1, 3, replace(GOOD, rate=20.0)),
        # As many rejections as the hard limit allows, and more than it allows on all pods alike.
        (1, 3, replace(GOOD, rejected=0.01)),
        (1, 3, replace(GOOD, rejected=0.05)),
        (1, 1, GOOD),
    ],
)
def test_a_good_canary_is_left_alone(canaries: int, stables: int, behaviour: Behaviour) -> None:
    found = []
    for seed in range(12):
        end = run(
            seeded(seed),
            COMPARED,
            canary=behaviour,
            stable=behaviour,
            canaries=canaries,
            stables=stables,
        )
        found += [r.reason for r in end.judgement.results if r.verdict is Verdict.HARM]
    assert found == []


@pytest.mark.parametrize(
    ("name", "canary", "stable", "looks"),
    [
        ("rejections", replace(GOOD, rejected=0.2), replace(GOOD, rejected=0.05), 40),
        ("rejections", replace(GOOD, rejected=0.1), replace(GOOD, rejected=0.0), 40),
        ("errors", replace(GOOD, errors=0.5), GOOD, 12),
        ("ttft-p99", replace(GOOD, latency=0.45), GOOD, 40),
    ],
)
def test_harm_is_found(name: str, canary: Behaviour, stable: Behaviour, looks: int) -> None:
    for seed in range(8):
        end = run(seeded(seed), COMPARED, canary=canary, stable=stable, looks=looks)
        assert end.harm_at is not None
        assert [r.name for r in end.judgement.results if r.verdict is Verdict.HARM] == [name]
        assert end.pass_at is None or end.pass_at <= 12


def test_a_growing_queue_is_found() -> None:
    end = run(seeded(1), COMPARED, canary=lambda look: replace(GOOD, waiting=float(look)), looks=35)
    (harm,) = (r for r in end.judgement.results if r.verdict is Verdict.HARM)
    assert harm.name == "queue"
    assert "queue depth" in harm.reason
    assert "the limit of 8" in harm.reason
    assert harm.reason.endswith("requests")


def test_harm_that_begins_late_is_found() -> None:
    def late(look: int) -> Behaviour:
        return replace(GOOD, rejected=0.3) if look > 60 else GOOD

    end = run(seeded(1), COMPARED, canary=late)
    assert end.harm_at is not None
    assert 60 < end.harm_at <= 90


def test_a_burst_such_as_stable_pods_have_is_no_harm() -> None:
    """Each pod refuses a third of its requests for six looks now and then, one after the other."""
    refusing = replace(GOOD, rejected=0.3)

    def burst(look: int, pod: int) -> Behaviour:
        return refusing if 0 <= (look + 15 * pod) % 60 < 6 else GOOD

    end = run(seeded(1), COMPARED, canary=lambda look: burst(look, 3), stable=burst, looks=360)
    assert end.harm_at is None


def test_load_that_hurts_all_pods_alike_is_no_harm_and_no_pass() -> None:
    overloaded = replace(GOOD, rejected=0.2)
    end = run(seeded(1), (CHECKS["rejections"],), canary=overloaded, stable=overloaded)
    assert end.harm_at is None
    assert end.pass_at is None
    assert "stable pods are beyond it too" in end.judgement.results[0].reason


# Engines whose capacity is about 22 requests/s of this load, so that they queue now and then.
SMALL = Limits(max_num_seqs=16, kv_blocks=2000)


LEARNING = 60


def judge_fleet(
    pods: Fleet, looks: int, seconds: float = 1.0
) -> tuple[int | None, list[Judgement]]:
    """Judge until harm is found; give the look in which it was, and all judgements."""
    evidence: dict[str, str] = {}
    judgements: list[Judgement] = []
    for number in range(1 - LEARNING, looks + 1):
        look = pods.look(seconds)
        if number < 1:
            look = Look(at=look.at, canary={}, stable=look.stable)
        judgement = judge(DEFAULT_CHECKS, look, evidence, demands())
        evidence = judgement.evidence
        if number < 1:
            continue
        judgements.append(judgement)
        if judgements[-1].verdict is Verdict.HARM:
            return number, judgements
    return None, judgements


@pytest.mark.parametrize("rate", [8.0, 14.0])
def test_equal_engines_are_left_alone_and_found_safe(rate: float) -> None:
    for seed in range(4):
        harm_at, judgements = judge_fleet(fleet(seeded(seed), rate, limits=SMALL), 150, 3.0)
        assert harm_at is None, judgements[-1].results
        assert any(j.verdict is Verdict.PASS for j in judgements), judgements[-1].results


@pytest.mark.parametrize(
    ("change", "names"),
    [
        # Four times slower is too slow for this load: the queue tells first.
        ({"canary_speed": Speed(step_seconds=0.06)}, {"queue", "ttft-p99"}),
        ({"canary_speed": Speed(prefill_tokens_per_second=2500.0)}, {"queue", "ttft-p99"}),
        ({"canary_limits": Limits(max_num_seqs=4, kv_blocks=2000)}, {"queue", "ttft-p99"}),
        (
            {"canary_limits": Limits(max_num_seqs=16, max_num_queued_reqs=6, kv_blocks=2000)},
            {"rejections"},
        ),
        ({"canary_limits": Limits(max_num_seqs=16, kv_blocks=1500)}, {"kv-capacity"}),
    ],
)
def test_worse_engines_are_found(change: dict[str, Any], names: set[str]) -> None:
    for seed in range(3):
        harm_at, judgements = judge_fleet(fleet(seeded(seed), 12.0, limits=SMALL, **change), 60)
        assert harm_at is not None
        found = {r.name for r in judgements[-1].results if r.verdict is Verdict.HARM}
        assert found & names, found
