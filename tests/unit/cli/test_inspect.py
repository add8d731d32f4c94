from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from vllm_upgrade_operator.cli import inspect
from vllm_upgrade_operator.cli.__main__ import main

if TYPE_CHECKING:
    from collections.abc import Callable

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm"
SATURATED = FIXTURES / "0.32.0-v1-ngram-kv-full"
REFUSED = FIXTURES / "0.32.0-v2-forced-no-triton-exits"


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["inspect", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_a_healthy_server(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run(
        "--log",
        f"{SATURATED}/server.log",
        "--metrics",
        f"{SATURATED}/metrics-idle.txt",
        f"{SATURATED}/metrics-burst.txt",
    )
    assert code == 0
    for said in (
        "v1: Worker pid 19356 logged 'Starting to load model' (cpu_model_runner.py)",
        "0.32.0",
        "LlamaForCausalLM",
        "weights 0.01 s, engine 0.01 s",
        "1536 tokens, 100.0% in use",
        "4, 11",
        "23 max_num_queued_tokens",
        "68 offered, 23 rejected (33.8%), 0 failed, 9 preemptions",
    ):
        assert said in out


def test_json_has_the_fields_that_are_promised(run: Callable[..., tuple[int, str, str]]) -> None:
    # The flag may be repeated too.
    code, out, _ = run(
        "-o",
        "json",
        "--metrics",
        f"{SATURATED}/metrics-idle.txt",
        "--metrics",
        f"{SATURATED}/metrics-burst.txt",
    )
    found = json.loads(out)
    assert code == 0
    assert found["runner"] == "unknown"
    assert found["phases"] == dict.fromkeys(("weights", "model", "compile", "graphs", "engine"))
    assert found["rates"]["rejected"] == 23
    assert found["failure"] is None
    assert {
        "version",
        "architecture",
        "kv_capacity_tokens",
        "kv_usage",
        "running",
        "waiting",
    } < set(found)
    assert found["rejections"]["max_num_queued_tokens"] == 23
    assert found["preemptions"] == 9


def test_a_failure_exits_with_1(run: Callable[..., tuple[int, str, str]]) -> None:
    code, out, _ = run("--log", f"{REFUSED}/startup.log", "-o", "json")
    assert code == 1
    assert json.loads(out)["failure"]["class"] == "TritonMissing"
    code, out, _ = run("--log", f"{REFUSED}/startup.log")
    assert code == 1
    assert "what to do" in out


def test_what_is_not_recognised_exits_with_3(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    file = tmp_path / "some.log"
    file.write_bytes(b"\xff\x00 hello\n")
    code, out, _ = run("--log", str(file))
    assert code == 3
    assert "the log has no line in vLLM's format" in out
    code, out, _ = run("--log", f"{SATURATED}/server.log", "--metrics", str(file))
    assert code == 3
    assert "metrics file 1: /metrics has no metric of vLLM" in out


def test_usage_exits_with_2(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run() == (
        2,
        "",
        "vllm-upgrade: error: nothing to read: give --log FILE, --metrics FILE, or both\n",
    )
    code, _, err = run("--log", str(tmp_path / "absent"))
    assert code == 2
    assert "absent: No such file or directory" in err
    code, _, err = run("--log", str(tmp_path))
    assert code == 2
    assert "Is a directory" in err
    code, _, err = run("--log", "-", "--metrics", "-")
    assert code == 2
    assert "only one" in err
    monkeypatch.setattr(inspect, "_LIMIT_BYTES", 10)
    code, _, err = run("--log", f"{SATURATED}/server.log")
    assert code == 2
    assert "is larger than" in err


def test_standard_input(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (REFUSED / "startup.log").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    assert run("--log", "-")[0] == 1
