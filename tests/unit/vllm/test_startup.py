from __future__ import annotations

import pytest

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.vllm.startup import startup_phase

CAPTURES = ("0.29.0-v2-auto", "0.32.0-v1-auto-no-triton", "0.32.0-v1-forced", "0.32.0-v2-forced")


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_started_server_serves(capture: str) -> None:
    assert startup_phase(read(capture, "startup.log")) == "serving"


@pytest.mark.parametrize("capture", CAPTURES)
def test_a_start_goes_through_its_phases_in_order(capture: str) -> None:
    lines = read(capture, "startup.log").splitlines(keepends=True)
    seen: list[str | None] = []
    for end in range(len(lines) + 1):
        phase = startup_phase("".join(lines[:end]))
        if not seen or seen[-1] != phase:
            seen.append(phase)
    assert len(seen) == len(set(seen)), "a phase came back"
    assert [p for p in seen if p in ("starting the engine", "loading weights", "serving")] == [
        "starting the engine",
        "loading weights",
        "serving",
    ]


def test_compiling_with_and_without_a_tag() -> None:
    for tag in ("", "[backbone] "):
        log = (
            "(Worker pid=1) INFO 11-30 20:39:11 [backends.py:1] "
            f"{tag}Dynamo bytecode transform time: 3.10 s\n"
        )
        assert startup_phase(log) == "compiling"


def test_a_log_that_says_nothing() -> None:
    assert startup_phase("hello\n") is None
