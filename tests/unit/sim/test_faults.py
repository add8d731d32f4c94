from __future__ import annotations

import pytest

from localcluster.sim import faults
from localcluster.sim.engine import Engine, Limits, Request, Speed
from localcluster.sim.faults import Fault
from localcluster.sim.options import parse
from localcluster.sim.settings import read
from localcluster.sim.trouble import Trouble


def test_faults_are_read_in_the_order_in_which_they_begin() -> None:
    env = {
        "SIM_FAULT_DECODE_FACTOR": "2.5@30",
        "SIM_FAULT_KV_BLOCKS": "100",
        "SIM_FAULT_AFTER": "10",
        "PATH": "/",
    }
    assert faults.read("0.29.0", env) == [
        Fault("KV_BLOCKS", 100, 10),
        Fault("DECODE_FACTOR", 2.5, 30),
    ]


@pytest.mark.parametrize(
    ("version", "variable", "text", "said"),
    [
        ("0.29.0", "SIM_FAULT_SPEED", "1", "SIM_FAULT_SPEED is no fault: there are DECODE_FACTOR"),
        ("0.29.0", "SIM_FAULT_KV_BLOCKS", "few", "KV_BLOCKS=few: write a whole number, 0 or more"),
        ("0.29.0", "SIM_FAULT_KV_BLOCKS", "-1", "write a whole number, 0 or more"),
        ("0.29.0", "SIM_FAULT_HANG", "0", "SIM_FAULT_HANG=0: write 1"),
        ("0.29.0", "SIM_FAULT_HEALTH", "1", "SIM_FAULT_HEALTH=1: write 0"),
        ("0.29.0", "SIM_FAULT_ERROR_FRACTION", "1.5", "write a share from 0 to 1"),
        ("0.29.0", "SIM_FAULT_DRAFT_ACCEPTANCE", "nan", "write a share from 0 to 1"),
        ("0.29.0", "SIM_FAULT_VERSION", "v1", "write a version such as 0.1.2"),
        ("0.29.0", "SIM_FAULT_METRICS", "gone", "write missing, huge, .* or without:<beginning"),
        ("0.29.0", "SIM_FAULT_METRICS", "without:", "write missing"),
        ("0.29.0", "SIM_FAULT_DECODE_FACTOR", "inf", "write a factor above 0"),
        ("0.29.0", "SIM_FAULT_KV_BLOCKS", "1@", "write VALUE or VALUE@SECONDS"),
        ("0.29.0", "SIM_FAULT_EXIT_CODE", "1.5", "write a whole number"),
        ("0.29.0", "SIM_FAULT_DECODE_FACTOR", "0", "write a factor above 0"),
        ("0.28.0", "SIM_FAULT_MAX_QUEUED_REQS", "1", "has no admission control"),
    ],
)
def test_what_is_no_fault_is_an_error(version: str, variable: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        faults.read(version, {variable: text})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("HANG", "1", 1.0),
        ("ENGINE_DEATH", "1", 1.0),
        ("OOM", "1", 1.0),
        ("HEALTH", "0", 0.0),
        ("ERROR_FRACTION", "0.5", 0.5),
        ("DRAFT_ACCEPTANCE", "0", 0.0),
        ("VERSION", "0.1.2", "0.1.2"),
        ("METRICS", "without:vllm:kv_cache", "without:vllm:kv_cache"),
        *(("METRICS", mode, mode) for mode in faults.METRICS),
    ],
)
def test_a_fault_is_read(name: str, text: str, value: float | str) -> None:
    read_one = faults.read("0.29.0", {f"SIM_FAULT_{name}": f"{text}@3"})
    assert read_one == [Fault(name, value, 3)]


def test_what_a_fault_does_to_speed_and_limits_ends_with_it() -> None:
    trouble = Trouble()
    speed, limits = Speed(step_seconds=1.0, sequence_seconds=0.1), Limits()
    for name, value in (
        ("DECODE_FACTOR", 2.0),
        ("PREFILL_FACTOR", 4.0),
        ("MAX_QUEUED_REQS", 0.0),
        ("KV_BLOCKS", 10.0),
    ):
        trouble.begin(Fault(name, value))
        # A fault that begins again does not add up.
        trouble.begin(Fault(name, value))
    slow = trouble.speed(speed)
    assert (slow.step_seconds, slow.sequence_seconds) == (2.0, 0.2)
    assert slow.prefill_tokens_per_second == speed.prefill_tokens_per_second / 4
    assert trouble.limits(limits).max_num_queued_reqs == 0
    assert trouble.limits(limits).kv_blocks == 10
    for name in ("DECODE_FACTOR", "PREFILL_FACTOR", "MAX_QUEUED_REQS", "KV_BLOCKS"):
        trouble.end(name)
    assert trouble.speed(speed) == speed
    assert trouble.limits(limits) == limits
    trouble.end("HANG")


def test_few_blocks_make_running_requests_lose_theirs() -> None:
    engine = Engine(Limits(kv_blocks=1000), Speed())
    for _ in range(20):
        engine.admit(32, 200)
    engine.advance(0.5)
    assert engine.figures.preemptions == 0
    trouble = Trouble()
    trouble.begin(Fault("KV_BLOCKS", 30.0))
    assert engine.resize(trouble.limits(engine.limits)) == []
    engine.advance(3.0)
    assert engine.figures.preemptions > 10
    assert engine.kv_usage > 0.8


def test_a_hung_engine_lets_requests_in_and_computes_none() -> None:
    engine = Engine(Limits(), Speed())
    engine.admit(10, 100)
    engine.advance(0.5)
    before = engine.figures.generation_tokens
    engine.hang()
    late = engine.admit(10, 5)
    assert engine.advance(20.0) == {}
    assert engine.figures.generation_tokens == before > 0
    assert (len(engine.running), len(engine.waiting)) == (1, 1)
    engine.recover()
    engine.advance(30.0)
    assert engine.idle
    # What waited for it has waited for all of it.
    assert engine.figures.e2e.total > 39
    assert isinstance(late, Request)
    assert late.first_token_at is not None
    assert late.first_token_at > 20


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SIM_LOAD_SECONDS", "soon"),
        ("SIM_LOAD_SECONDS", "-1"),
        ("SIM_DECODE_STEP_SECONDS", "0"),
        ("SIM_KV_BLOCKS", "nan"),
    ],
)
def test_a_setting_that_cannot_be_is_an_error(variable: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"{variable}={text}: write a number that is at least"):
        read("0.29.0", parse("0.29.0", ["m"]), {variable: text})
