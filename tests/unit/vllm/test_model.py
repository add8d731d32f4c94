from __future__ import annotations

import pytest

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.vllm.model import Model, read_model, read_version


@pytest.mark.parametrize(
    ("capture", "version"),
    [
        ("0.29.0-v2-auto", "0.29.0"),
        ("0.32.0-v1-auto-no-triton", "0.32.0"),
        ("0.32.0-v1-forced", "0.32.0"),
        ("0.32.0-v1-ngram-kv-full", "0.32.0"),
        ("0.32.0-v2-forced", "0.32.0"),
    ],
)
def test_real_servers(capture: str, version: str) -> None:
    log = read(capture, "startup.log")
    assert read_version(log) == version
    assert read_model(log) == Model("LlamaForCausalLM", 512)


def line(file: str, message: str, process: str = "APIServer") -> str:
    return f"({process} pid=7) INFO 11-30 20:39:11 [{file}:1] {message}\n"


def test_a_log_that_does_not_say_it() -> None:
    assert read_model("") == Model(None, None)
    assert read_version("garbage\n\x00\xff") is None
    assert read_model(line("model.py", "Using max model len many")) == Model(None, None)


def test_a_draft_model_that_is_resolved_later_is_another() -> None:
    log = line("model.py", "Resolved architecture: A") + line("model.py", "Using max model len 8")
    log += line("model.py", "Resolved architecture: B") + line("model.py", "Using max model len 9")
    assert read_model(log) == Model("A", 8)


def test_what_a_request_says_is_not_believed() -> None:
    request = line("logger.py", "Received request: Resolved architecture: Evil")
    assert read_model(request + line("logger.py", "Resolved architecture: Evil")) == Model()
    words = "Initializing a V1 LLM engine (v9.9.9) with config: x"
    assert read_version(line("core.py", words)) is None
    assert read_version(line("core.py", words, "EngineCore_DP0")) == "9.9.9"
