from __future__ import annotations

from typing import Any

import pytest

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.vllm.inspect import Rates, inspect
from vllm_upgrade_operator.vllm.runner import observe
from vllm_upgrade_operator.vllm.serverlog import latest_run, read_log

Phases = dict[str, float | None]


def phases(**known: float) -> Phases:
    return {
        "weights": None,
        "model": None,
        "compile": None,
        "graphs": None,
        "engine": None,
        **known,
    }


# What is to be read from each recording: its log and the metrics at the height of its load.
RECORDINGS: dict[str, dict[str, Any]] = {
    "0.29.0-v2-auto": {
        "runner": "v2",
        "version": "0.29.0",
        "phases": phases(weights=0.01, model=1.803189, engine=1.28),
        "kv_capacity_tokens": 2097152,
        "kv_usage": 0.00024415552707079957,
        "running": 4,
        "waiting": 8,
        "rejections": {"max_num_queued_reqs": 46},
        "preemptions": 0,
    },
    "0.32.0-v1-auto-no-triton": {
        "runner": "v1",
        "version": "0.32.0",
        "phases": phases(weights=0.01, engine=67.34),
        "kv_capacity_tokens": 2097152,
        "kv_usage": 0.00024415552707079957,
        "running": 4,
        "waiting": 8,
        "rejections": {"max_num_queued_reqs": 32, "max_num_queued_tokens": 0},
        "preemptions": 0,
    },
    "0.32.0-v1-forced": {
        "runner": "v1",
        "version": "0.32.0",
        "phases": phases(weights=0.02, engine=1.32),
        "kv_capacity_tokens": 2097152,
        "kv_usage": 0.0004883110541414881,
        "running": 4,
        "waiting": 8,
        "rejections": {"max_num_queued_reqs": 44, "max_num_queued_tokens": 0},
        "preemptions": 0,
    },
    "0.32.0-v1-ngram-kv-full": {
        "runner": "v1",
        "version": "0.32.0",
        "phases": phases(weights=0.01, engine=0.01),
        "kv_capacity_tokens": 1536,
        "kv_usage": 1,
        "running": 4,
        "waiting": 11,
        "rejections": {"max_num_queued_reqs": 0, "max_num_queued_tokens": 23},
        "preemptions": 9,
    },
    "0.32.0-v2-forced": {
        "runner": "v2",
        "version": "0.32.0",
        "phases": phases(weights=0.01, model=4.127356, engine=0.94),
        "kv_capacity_tokens": 2097152,
        "kv_usage": 0.0003051944088384717,
        "running": 4,
        "waiting": 8,
        "rejections": {"max_num_queued_reqs": 46, "max_num_queued_tokens": 0},
        "preemptions": 0,
    },
}
NEVER_SERVED = ("0.32.0-v2-forced-no-triton-exits",)


def log_of(capture: str) -> str:
    """The whole log, to the end of its server."""
    return read(capture, "startup.log" if capture in NEVER_SERVED else "server.log")


@pytest.mark.parametrize("capture", RECORDINGS)
def test_recorded_servers(capture: str) -> None:
    report = inspect(log_of(capture), [read(capture, "metrics-burst.txt")])
    found = report.as_json()
    assert {key: found[key] for key in RECORDINGS[capture]} == RECORDINGS[capture]
    assert found["architecture"] == "LlamaForCausalLM"
    assert found["startup"] == "serving"
    # Each of them was told to stop; what its engine said then is no failure.
    assert found["failure"] is None
    assert found["evidence"]["source"] == "log"
    assert found["problems"] == []


def test_the_fallback_is_told() -> None:
    evidence = inspect(log_of("0.32.0-v1-auto-no-triton")).evidence
    assert evidence.fallback_features == ("triton",)


@pytest.mark.parametrize("capture", [*RECORDINGS, *NEVER_SERVED])
def test_no_part_of_a_recorded_log_is_misread(capture: str) -> None:
    """At each line the log may end, or have been rotated away before it."""
    log = log_of(capture)
    lines = log.splitlines(keepends=True)
    whole, runner = read_log(log), observe(log).runner
    for cut in range(min(len(lines), 130)):
        for part in ("".join(lines[:cut]), "".join(lines[cut:])):
            found = read_log(part)
            assert found.version in (None, whole.version)
            assert found.architecture in (None, whole.architecture)
            assert set(found.kv_capacity_tokens.values()) <= set(whole.kv_capacity_tokens.values())
            for phase in ("weights", "model", "engine"):
                assert getattr(found.phases, phase) in (None, getattr(whole.phases, phase))
            assert observe(part).runner in ("Unknown", runner)


@pytest.mark.parametrize(
    ("capture", "name", "reason", "says"),
    [
        (
            "0.32.0-v2-forced-no-triton-exits",
            "startup.log",
            "TritonMissing",
            "Model Runner V2 is forced, and there is no Triton in the image for this platform",
        ),
        ("0.29.0-engine-death", "end.log", "EngineDied", "vLLM's engine died"),
        ("0.32.0-engine-death", "end.log", "EngineDied", "vLLM's engine died"),
        (
            "0.32.0-unknown-flag-exits",
            "startup.log",
            "UnknownFlag",
            "this vLLM does not know --no-such-flag",
        ),
        (
            "0.29.0-unsupported-architecture-exits",
            "startup.log",
            "UnsupportedArchitecture",
            "this vLLM does not support the model's architecture NoSuchForCausalLM",
        ),
    ],
)
def test_recorded_failures(capture: str, name: str, reason: str, says: str) -> None:
    report = inspect(read(capture, name))
    assert report.runner == "unknown"
    failure = report.as_json()["failure"]
    assert (failure["class"], failure["sentence"]) == (reason, says)


def test_two_metrics_files_give_rates() -> None:
    name = "0.32.0-v1-ngram-kv-full"
    idle, burst, after = (read(name, f"metrics-{n}.txt") for n in ("idle", "burst", "after"))
    rates = inspect(None, [idle, burst]).rates
    assert rates == Rates(
        offered=68,
        rejected=23,
        rejection_rate=23 / 68,
        errors=0,
        error_rate=0,
        finished=42,
        preemptions=9,
        preemptions_per_request=9 / 42,
        prompt_tokens=2319,
        generation_tokens=3905,
    )
    # Of more than two the first and the last count.
    whole = inspect(None, [idle, burst, after]).rates
    assert whole is not None
    assert whole.preemptions == 39
    assert inspect(None, [idle]).rates is None
    same = inspect(None, [idle, idle]).rates
    assert same is not None
    assert same.rejection_rate is None


def test_metrics_files_that_cannot_be_compared() -> None:
    name = "0.32.0-v1-ngram-kv-full"
    idle, burst = (read(name, f"metrics-{n}.txt") for n in ("idle", "burst"))
    report = inspect(None, [burst, idle])
    assert report.rates is None
    assert "cannot be compared" in report.problems[0]
    assert report.recognised


def test_without_a_version_rejections_of_029_are_approximate() -> None:
    text = read("0.29.0-v2-auto", "metrics-burst.txt")
    assert inspect(None, [text]).rejections == {"http_5xx": 46.0}
    assert inspect("", [text]).rejections == {"http_5xx": 46.0}
    idle = read("0.29.0-v2-auto", "metrics-idle.txt")
    assert inspect(None, [idle]).rejections == {}


def test_the_log_alone_tells_what_it_can() -> None:
    report = inspect(log_of("0.29.0-v2-auto"))
    assert report.rejections == {"max_num_queued_reqs": 46.0}
    assert report.kv_capacity_tokens == 2097152
    assert (report.running, report.waiting, report.preemptions) == (0, 0, None)
    # From 0.32 on a log does not say what was refused.
    assert inspect(log_of("0.32.0-v2-forced")).rejections is None


def line(message: str, file: str, process: str = "EngineCore", pid: int = 9) -> str:
    return f"({process} pid={pid}) INFO 11-30 20:39:11 [{file}:162] {message}\n"


def test_gpu_lines_of_several_workers_and_engines() -> None:
    log = "".join(
        (
            line("Resolved architecture: LlamaForCausalLM", "model.py", "APIServer"),
            line("Resolved architecture: EagleLlamaForCausalLM", "model.py", "APIServer"),
            line("Loading weights took 41.20 seconds", "default_loader.py", "Worker_TP0", 1),
            line("Loading weights took 52.75 seconds", "default_loader.py", "Worker_TP1", 2),
            line(
                "Model loading took 14.99 GiB memory and 55.123456 seconds",
                "model_runner.py",
                "Worker_TP0",
            ),
            line("[backbone] torch.compile took 31.50 s in total", "monitor.py", "Worker_TP0"),
            line(
                "Graph capturing finished in 12 secs, took 0.54 GiB",
                "model_runner.py",
                "Worker_TP0",
            ),
            line(
                "GPU KV cache size: 1,000 tokens, Maximum concurrency for 8 tokens per request: 1x",
                "kv_cache_utils.py",
                "EngineCore_DP0",
            ),
            line(
                "GPU + host KV cache size: 2,000 tokens, Maximum concurrency for 8 tokens: 1x",
                "kv_cache_utils.py",
                "EngineCore_DP1",
            ),
            line(
                "init engine (profile, create kv cache, warmup model) took 77.10 s "
                "(compilation: 31.50 s)",
                "core.py",
            ),
            line(
                "Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 "
                "tokens/s, Running: 4 reqs, Waiting: 8 reqs, GPU KV cache usage: 12.5%, Prefix "
                "cache hit rate: 0.0%",
                "loggers.py",
                "APIServer",
            ),
            line(
                "Engine 001: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 "
                "tokens/s, Running: 1 reqs, Waiting: 0 reqs, Preemptions: 3, GPU KV cache usage: "
                "50.0%, Prefix cache hit rate: 0.0%",
                "loggers.py",
                "APIServer",
            ),
        )
    )
    report = inspect(log)
    assert report.as_json()["phases"] == phases(
        weights=52.75, model=55.123456, compile=31.5, graphs=12, engine=77.1
    )
    assert report.kv_capacity_tokens == 3000
    assert (report.running, report.waiting, report.kv_usage) == (5, 8, 0.5)
    assert report.architecture == "LlamaForCausalLM"
    assert report.draft_architecture == "EagleLlamaForCausalLM"


@pytest.mark.parametrize(
    "said",
    [
        line("prompt: 'Resolved architecture: EvilModel'", "logger.py", "APIServer"),
        line("Resolved architecture: EvilModel", "logger.py", "APIServer"),
        line("Resolved architecture: Evil Model", "model.py", "APIServer"),
        line("Loading weights took 9999.00 seconds", "logger.py", "APIServer"),
        line("Initializing a V1 LLM engine (v9.9.9) with config: x", "logger.py", "APIServer"),
        line("Request queue full - rejecting request x", "logger.py", "APIServer"),
        line("Request queue full - rejecting request x", "async_llm.py", "Worker"),
        "Resolved architecture: EvilModel\n",
    ],
)
def test_what_a_user_can_make_a_server_print_says_nothing(said: str) -> None:
    found = read_log(said)
    assert found == read_log("")


def banner(version: str) -> str:
    return line(f" ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}", "api_utils.py", "APIServer")


def test_the_last_of_several_servers_in_one_log_counts() -> None:
    first = log_of("0.29.0-v2-auto")
    second = log_of("0.32.0-v1-forced")
    report = inspect(first + second)
    assert (report.runner, report.version) == ("v1", "0.32.0")
    assert inspect(second + first).runner == "v2"
    assert latest_run("no banner\n") == "no banner\n"
    # A user's word is no banner.
    said = line(f"prompt: '{banner('9.9.9').strip()}'", "logger.py", "APIServer")
    assert latest_run(second + said) == latest_run(second) + said
    assert read_log(banner("0.33.0")).version == "0.33.0"


@pytest.mark.parametrize(
    ("log", "expositions"),
    [("", []), ("\x00\x01", ["\x00"]), ("hello\n" * 1000, ["up 1\n"]), (None, ["vllm:x{"])],
)
def test_nothing_is_recognised_in_something_else(log: str | None, expositions: list[str]) -> None:
    report = inspect(log, expositions)
    assert report.runner == "unknown"
    assert report.failure is None
    assert not report.recognised
    assert len(report.problems) == len(expositions)
    assert report.as_json()["rejections"] is None
