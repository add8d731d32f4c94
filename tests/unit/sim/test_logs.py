from __future__ import annotations

import re

import pytest

from localcluster.sim import architectures
from localcluster.sim.engine import Engine, Limits, Rejection, Speed
from localcluster.sim.logs import Log
from localcluster.sim.options import parse
from localcluster.sim.runner import Choice, choose
from localcluster.sim.settings import Settings, read
from tests.unit.sim.reading import fixture
from vllm_upgrade_operator.vllm.inspect import inspect

VERSIONS = ["0.28.0", "0.29.0", "0.32.0", "0.33.0"]
_LINE = re.compile(
    r"\((?P<process>APIServer|EngineCore|Worker|VllmWorker-0) pid=\d+\) "
    r"(?P<level>INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[(?P<file>[\w.]+):\d+\] (?P<text>.*)"
)
# What differs between any two servers.
_NUMBER = re.compile(r"\d[\d,.]*")

Line = tuple[str, str, str]


def settings(version: str, *flags: str) -> Settings:
    return read(version, parse(version, ["serve", "/models/tiny", *flags]), {})


def lines(text: str) -> list[Line]:
    """Process, level and text of each line that vLLM's logger wrote, without numbers."""
    found = [_LINE.fullmatch(line) for line in text.splitlines()]
    return [(m["process"], m["level"], _NUMBER.sub("N", m["text"])) for m in found if m]


def start(version: str, env: dict[str, str], *flags: str) -> Choice:
    played = settings(version, *flags)
    choice = choose(version, played.options, "LlamaForCausalLM", env)
    log = Log(played)
    log.banner()
    log.resolved()
    log.engine(choice)
    log.loading(choice)
    log.loaded(1.5, choice)
    log.serving("10.0.0.1", 8000)
    return choice


# What a real server's log holds of the start, whatever the device.
_TOLD = (
    "version N",
    "Resolved architecture: ",
    "Using max model len ",
    "Using V",
    "Starting to load model ",
    "Loading model from scratch",
    "Loading weights took ",
    "init engine (profile",
    "requires Triton; using the V",
)


def told(found: list[Line]) -> list[Line]:
    return [line for line in found if any(part in line[2] for part in _TOLD)]


@pytest.mark.parametrize(
    ("version", "capture", "env"),
    [
        ("0.29.0", "0.29.0-v2-auto", {}),
        ("0.32.0", "0.32.0-v2-forced", {"VLLM_USE_V2_MODEL_RUNNER": "1"}),
        ("0.32.0", "0.32.0-v1-forced", {"VLLM_USE_V2_MODEL_RUNNER": "0"}),
        ("0.32.0", "0.32.0-v1-auto-no-triton", {"SIM_TRITON": "0"}),
    ],
)
def test_the_start_reads_as_that_of_a_real_server(
    version: str, capture: str, env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    start(version, env, "--enforce-eager")
    mine, real = capsys.readouterr().out, fixture(capture, "startup.log")
    assert told(lines(mine)) == told(lines(real))
    assert "Application startup complete." in mine.splitlines()[-1]
    trap = f"Initializing a V1 LLM engine (v{version}) with config: model='/models/tiny'"
    assert trap in mine
    assert trap in real


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("v2", [True, False])
def test_the_runner_s_lines_in_every_version(
    version: str, *, v2: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    start(version, {"VLLM_USE_V2_MODEL_RUNNER": str(int(v2))})
    text = capsys.readouterr().out
    worker = [line for line in text.splitlines() if line.startswith("(Worker")]
    assert any("[gpu_worker.py" in w and "Using V2 Model Runner" in w for w in worker) is v2
    assert any("[gpu_model_runner.py" in w and "Starting to load" in w for w in worker) is not v2
    assert any("[model_runner.py" in w and "from scratch" in w for w in worker) is v2
    graphs = [w for w in worker if "Graph capturing finished" in w]
    assert len(graphs) == 1
    assert (" [gpu_model_runner.py" in graphs[0]) is not v2
    assert ("[backbone] torch.compile took" in text) is (version in {"0.32.0", "0.33.0"})


def test_the_capacity_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    start("0.29.0", {}, "--num-gpu-blocks-override", "1000", "--max-model-len", "1600")
    assert (
        "GPU KV cache size: 16,000 tokens, Maximum concurrency for 1,600 tokens per request: "
        "10.00x" in capsys.readouterr().out
    )


def test_a_refusal_reads_as_a_real_one(capsys: pytest.CaptureFixture[str]) -> None:
    Log(settings("0.32.0")).refused("Model Runner V2 requires Triton.", "VllmConfig")
    mine = capsys.readouterr()
    real = fixture("0.32.0-v2-forced-no-triton-exits", "startup.log").splitlines()
    assert mine.out == ""
    assert mine.err.splitlines()[:3] == real[-3:]


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0"])
def test_a_dead_engine_reads_as_a_real_one(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(settings(version))
    log.engine_died()
    log.closed_after_death()
    mine = capsys.readouterr().out
    real = fixture(f"{version}-engine-death", "end.log")

    def errors(text: str) -> list[Line]:
        found = [line for line in lines(text) if line[1] == "ERROR" and "Dumping" not in line[2]]
        # 0.29 may not know the code yet.
        return [(p, k, text.replace("None", "-N")) for p, k, text in found]

    assert errors(mine) == errors(real)

    def http(text: str) -> list[str]:
        found = [line for line in text.splitlines() if "INFO:  " in line and ' - "' not in line]
        return [_NUMBER.sub("N", line) for line in found]

    assert http(mine) == http(real)


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0"])
def test_an_unsupported_architecture_reads_as_on_a_real_server(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = architectures.refusal(version, "NoSuchForCausalLM")
    assert message is not None
    Log(settings(version)).refused(message, "ModelConfig")
    mine = capsys.readouterr().err.splitlines()
    real = fixture(f"{version}-unsupported-architecture-exits", "startup.log").splitlines()[-4:]

    def names(line: str) -> set[str]:
        return set(re.findall(r"'(\w+)'", line.partition("dict_keys")[2].partition(")")[0]))

    assert names(mine[2]) == names(real[2])
    assert len(names(mine[2])) > 300

    def plain(line: str) -> str:
        words, keys, rest = line.partition("dict_keys")
        return _NUMBER.sub("N", words) + keys + rest.partition(")")[2]

    assert [plain(line) for line in mine] == [plain(line) for line in real]


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0"])
def test_only_old_versions_log_why_a_request_is_rejected(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Engine(Limits(max_num_queued_reqs=12), Speed())
    for _ in range(12):
        engine.admit(1, 1)
    Log(settings(version)).rejected(Rejection.REQUESTS, "cmpl-1", engine)
    text = capsys.readouterr().out
    said = "Request queue full - rejecting request cmpl-1 (current=12, n=1, max=12)."
    assert (said in text) is (version == "0.29.0")
    assert "ERROR" in text
    assert "Exception caught. Request id: cmpl-1" in text


def test_an_api_key_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    start("0.29.0", {}, "--api-key", "very-secret")
    assert "very-secret" not in capsys.readouterr().out


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("forced", ["0", "1"])
def test_what_is_played_is_concluded_from_the_log(
    version: str, forced: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start(version, {"VLLM_USE_V2_MODEL_RUNNER": forced})
    report = inspect(capsys.readouterr().out)
    assert report.runner == ("v2" if forced == "1" else "v1")
    assert (report.version, report.architecture) == (version, "LlamaForCausalLM")
    assert report.startup == "serving"
    assert report.as_json()["phases"] == {
        "weights": 1.5,
        "model": 1.5,
        "compile": 0.3,
        "graphs": 0,
        "engine": 1.5,
    }
    assert report.kv_capacity_tokens == settings(version).limits.kv_tokens
    assert report.failure is None
