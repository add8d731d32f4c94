from __future__ import annotations

import pytest

from localcluster.sim import faults
from localcluster.sim.engine import Engine, Limits, Speed
from localcluster.sim.faults import Fault
from localcluster.sim.options import parse
from localcluster.sim.settings import read


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
        ("0.29.0", "SIM_FAULT_KV_BLOCKS", "few", "write VALUE or VALUE@SECONDS"),
        ("0.29.0", "SIM_FAULT_KV_BLOCKS", "1@", "write VALUE or VALUE@SECONDS"),
        ("0.29.0", "SIM_FAULT_EXIT_CODE", "1.5", "write a whole number"),
        ("0.29.0", "SIM_FAULT_DECODE_FACTOR", "0", "write a factor above 0"),
        ("0.28.0", "SIM_FAULT_MAX_QUEUED_REQS", "1", "has no admission control"),
    ],
)
def test_what_is_no_fault_is_an_error(version: str, variable: str, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        faults.read(version, {variable: text})


def test_what_each_fault_does() -> None:
    engine = Engine(Limits(), Speed(step_seconds=1.0, sequence_seconds=0.1))
    faults.apply(Fault("DECODE_FACTOR", 2.0, 0), engine)
    assert (engine.speed.step_seconds, engine.speed.sequence_seconds) == (2.0, 0.2)
    faults.apply(Fault("PREFILL_FACTOR", 4.0, 0), engine)
    assert engine.speed.prefill_tokens_per_second == Speed().prefill_tokens_per_second / 4
    faults.apply(Fault("MAX_QUEUED_REQS", 0, 0), engine)
    assert engine.limits.max_num_queued_reqs == 0
    engine.admit(1, 1)
    faults.apply(Fault("KV_BLOCKS", 10, 0), engine)
    assert engine.limits.kv_blocks == 10


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
