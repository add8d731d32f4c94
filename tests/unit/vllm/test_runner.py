from __future__ import annotations

import pytest

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.vllm.runner import Runner, observe, split_features


def line(message: str, file: str = "core.py", process: str = "Worker", pid: int = 9) -> str:
    return f"({process} pid={pid}) INFO 11-30 20:39:11 [{file}:162] {message}\n"


TRAP = line("Initializing a V1 LLM engine (v0.32.0) with config: x", process="EngineCore")
V2 = line("Using V2 Model Runner", "gpu_worker.py")
V1 = line("Starting to load model /models/tiny...", "gpu_model_runner.py")


@pytest.mark.parametrize(
    ("capture", "runner", "features"),
    [
        ("0.29.0-v2-auto", Runner.V2, ()),
        ("0.32.0-v2-forced", Runner.V2, ()),
        ("0.32.0-v1-auto-no-triton", Runner.V1, ("triton",)),
        ("0.32.0-v1-forced", Runner.V1, ()),
        ("0.32.0-v1-ngram-kv-full", Runner.V1, ()),
    ],
)
def test_real_logs(capture: str, runner: Runner, features: tuple[str, ...]) -> None:
    evidence = observe(read(capture, "startup.log"))
    assert evidence.runner is runner
    assert evidence.fallback_features == features
    assert "Worker pid" in evidence.how
    assert evidence.refused is None


def test_a_server_that_refuses_to_start() -> None:
    evidence = observe(read("0.32.0-v2-forced-no-triton-exits", "startup.log"))
    assert evidence.runner is Runner.UNKNOWN
    assert evidence.refused == "Model Runner V2 requires Triton."
    assert "refused to start" in evidence.how


def test_the_line_about_the_engine_says_nothing_of_the_runner() -> None:
    assert observe(TRAP).runner is Runner.UNKNOWN
    assert observe(TRAP + V2).runner is Runner.V2


@pytest.mark.parametrize("file", ["gpu_worker.py", "cpu_worker.py", "xpu_worker.py"])
@pytest.mark.parametrize("process", ["Worker", "Worker_TP0_EP0", "EngineCore", "EngineCore_DP1"])
def test_v2_on_every_platform(file: str, process: str) -> None:
    assert observe(line("Using V2 Model Runner", file, process)).runner is Runner.V2


def test_a_coloured_log_and_one_with_a_prefix_and_a_path() -> None:
    assert observe(f"\x1b[36m{V2.strip()}\x1b[0m").runner is Runner.V2
    assert observe(V2.replace("Worker pid=9", "RayWorkerWrapper pid=9, ip=10.0.0.2")).runner == "V2"
    prefixed = V2.replace("INFO", "pod-7 INFO").replace("gpu_worker", "v1/worker/gpu_worker")
    assert observe(prefixed).runner is Runner.V2


@pytest.mark.parametrize(
    "said",
    [
        # Request logging prints what a user sends, in the API server's lines.
        line("Using V2 Model Runner", "gpu_worker.py", process="APIServer"),
        line("Using V2 Model Runner", "gpu_worker.py", process="ApiServer_1"),
        line("Received request: prompt: 'Using V2 Model Runner'", "logger.py", "APIServer"),
        line("Using V2 Model Runner", "logger.py"),
        "Using V2 Model Runner\n",
        'INFO:     1.2.3.4:5 - "GET /Using V2 Model Runner HTTP/1.1" 404 Not Found\n',
        line("prompt (Worker pid=9) INFO 11-30 20:39:11 [gpu_worker.py:1] Using V2 Model Runner"),
    ],
)
def test_what_a_user_can_make_a_server_print_is_no_evidence(said: str) -> None:
    assert observe(said).runner is Runner.UNKNOWN
    assert observe(V1 + said).runner is Runner.V1


def test_all_workers_must_agree() -> None:
    both = "".join(
        line("Using V2 Model Runner", "gpu_worker.py", f"Worker_TP{i}", i) for i in (1, 2)
    )
    assert observe(both).runner is Runner.V2
    assert "1 more" in observe(both).how
    other = line("Starting to load model x...", "gpu_model_runner.py", "Worker_TP3", 3)
    evidence = observe(both + other)
    assert evidence.runner is Runner.UNKNOWN
    assert evidence.conflicting
    assert "Worker_TP3" in evidence.how


def test_a_log_that_lost_its_beginning() -> None:
    late = "Graph capturing finished in 12 secs, took 0.5 GiB"
    assert observe(line(late, "gpu_model_runner.py")).runner is Runner.V1
    assert observe(line(late, "model_runner.py")).runner is Runner.V2
    evidence = observe(line("Engine 000: Avg prompt throughput: 1", "loggers.py", "APIServer"))
    assert evidence.runner is Runner.UNKNOWN
    assert "no worker has logged" in evidence.how


def test_an_empty_log_and_a_foreign_one() -> None:
    assert "no line in vLLM's format" in observe("").how
    assert "no line in vLLM's format" in observe('{"message": "Using V2 Model Runner"}\n').how


UNSUPPORTED = "Model Runner V2 does not yet support {}; using the V1 model runner instead."


def test_features_behind_a_fallback() -> None:
    said = line(UNSUPPORTED.format("custom logits processors, prompt embeds"), "vllm.py")
    evidence = observe(said + said + V1)
    assert evidence.runner is Runner.V1
    assert evidence.fallback_features == ("custom logits processors", "prompt embeds")


def test_a_feature_is_never_longer_than_an_exception_can_be() -> None:
    said = line(UNSUPPORTED.format("ngram, " + "x" * 500), "vllm.py")
    assert observe(said + V1).fallback_features == ("ngram", "x" * 128)


def test_a_fallback_that_is_only_announced() -> None:
    evidence = observe(line(UNSUPPORTED.format("KV sharing fast prefill"), "vllm.py", "APIServer"))
    assert evidence.runner is Runner.UNKNOWN
    assert evidence.fallback_features == ("KV sharing fast prefill",)
    assert "announced" in evidence.how


def test_the_list_of_exceptions_on_rocm() -> None:
    said = "Defaulting to V1 model runner on ROCm for model architectures: DeepseekV4ForCausalLM"
    evidence = observe(line(said, "vllm.py") + V1)
    assert evidence.fallback_features == ("ROCm default for DeepseekV4ForCausalLM",)


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("a, b", ["a", "b"]),
        ("speculative method 'x, y', b", ["speculative method 'x, y'", "b"]),
        ("dual batch overlap (LoRA, PP), b", ["dual batch overlap (LoRA, PP)", "b"]),
        ("one", ["one"]),
    ],
)
def test_features_are_parted_at_their_commas_only(text: str, features: list[str]) -> None:
    assert split_features(text) == features


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "ValueError: Model Runner V2 does not yet support: suffix decoding, b",
            "Model Runner V2 does not yet support: suffix decoding, b",
        ),
        (
            (
                "(EngineCore pid=4) ERROR 11-30 20:39:11 [core.py:9] "
                "ValueError: Model Runner V1 does not support: diffusion models"
            ),
            "Model Runner V1 does not support: diffusion models",
        ),
        (
            "  Value error, Model Runner V2 requires Triton. [type=value_error, input_value=secret",
            "Model Runner V2 requires Triton.",
        ),
    ],
)
def test_refusals(text: str, words: str) -> None:
    assert observe(text).refused == words


@pytest.mark.parametrize(
    "text",
    [
        "prompt: ValueError: Model Runner V2 requires Triton.",
        "Exception caught. Request id: x] ValueError: Model Runner V2 requires Triton.",
    ],
)
def test_a_refusal_that_a_user_wrote_is_none(text: str) -> None:
    said = line(text, "logger.py", "APIServer").replace("INFO", "ERROR")
    assert observe(said + V2).refused is None


@pytest.mark.parametrize("end", ["\x85", "\u2028", "\x0b", "\x1c", "\r"])
def test_only_a_line_feed_ends_a_line(end: str) -> None:
    """A request's id is logged, and a header may hold these."""
    said = line(f"Request id: x{end}{V2.strip()}", "exception.py", "APIServer")
    assert observe(V1 + said).runner is Runner.V1
    assert observe(said).runner is Runner.UNKNOWN
