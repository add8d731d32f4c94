from __future__ import annotations

from pathlib import Path

import pytest

from vllm_upgrade_operator.vllm.causes import Ending, Probe, of_end, of_wait, served

FIXTURES = Path(__file__).parents[2] / "fixtures" / "vllm"
UP = '(APIServer pid=7) INFO:     10.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n'


def pydantic(message: str) -> str:
    return (
        "Traceback (most recent call last):\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig\n"
        f"  Value error, {message} [type=value_error, input_value=ArgsKwargs((), {{'a': ...}})]\n"
    )


def engine(message: str) -> str:
    """A traceback as the engine's process logs it, and what the API server makes of it."""
    return (
        "(EngineCore pid=9) ERROR 11-30 20:48:41 [core.py:1130] EngineCore failed to start.\n"
        "(EngineCore pid=9) ERROR 11-30 20:48:41 [core.py:1130] Traceback (most recent call "
        "last):\n"
        f"(EngineCore pid=9) ERROR 11-30 20:48:41 [core.py:1130] {message}\n"
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {}\n"
    )


LOGS: dict[str, tuple[int, str, str, str]] = {
    "a flag": (
        2,
        "usage: vllm serve\nvllm serve: error: unrecognized arguments: --disable-log-requests\n",
        "UnknownFlag",
        "--disable-log-requests",
    ),
    "several flags": (
        2,
        "api_server.py: error: unrecognized arguments: --one 1 --two=2\n",
        "UnknownFlag",
        "--one, --two",
    ),
    "a word that is no flag": (
        2,
        "vllm serve: error: unrecognized arguments: s3cret\n",
        "UnknownFlag",
        "an argument that is no flag",
    ),
    "a flag that is short for several": (
        2,
        "vllm serve: error: ambiguous option: --max could match --max-a, --max-b\n",
        "UnknownFlag",
        "--max ",
    ),
    "a value": (
        2,
        "vllm serve: error: argument --max-num-seqs: invalid int value: 's3cret'\n",
        "BadFlagValue",
        "--max-num-seqs",
    ),
    "a value of a flag with a short form": (
        2,
        "vllm serve: error: argument --tensor-parallel-size/-tp: expected one argument\n",
        "BadFlagValue",
        "--tensor-parallel-size",
    ),
    "exit code 2 and nothing said": (2, "", "BadCommandLine", "exit code 2"),
    "an architecture": (
        1,
        pydantic(
            "Model architectures ['NoSuchForCausalLM'] are not supported for now. Supported "
            "architectures: dict_keys(['LlamaForCausalLM'])"
        ),
        "UnsupportedArchitecture",
        "architecture NoSuchForCausalLM",
    ),
    "an architecture of former times": (
        1,
        "ValueError: Model architecture ArcticForCausalLM was supported in vLLM until v0.28.0, and",
        "UnsupportedArchitecture",
        "ArcticForCausalLM any more",
    ),
    "a forced runner": (
        1,
        pydantic("Model Runner V2 does not yet support: custom logits processors, prompt embeds"),
        "RunnerImpossible",
        "V2 does not yet support: custom logits processors, prompt embeds",
    ),
    "no room for one request": (
        1,
        engine(
            "ValueError: To serve at least one request with the models's max seq len (8192), "
            "(1.0 GiB KV cache is needed, which is larger than the available KV cache memory"
        ),
        "KVCacheTooSmall",
        "8192 tokens",
    ),
    "no room at all": (
        1,
        engine("ValueError: No available memory for the cache blocks. Try increasing"),
        "KVCacheTooSmall",
        "no memory for the KV cache",
    ),
    "a GPU in use": (
        1,
        engine(
            "ValueError: Free memory on device cuda:0 (2.6/79.1 GiB) on startup is less than "
            "desired GPU memory utilization (0.9, 71.2 GiB)."
        ),
        "GPUMemoryTaken",
        "in use by something else",
    ),
    "a GPU too small": (
        1,
        engine("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."),
        "GPUOutOfMemory",
        "did not suffice",
    ),
    "a port": (1, "OSError: [Errno 98] Address already in use\n", "PortInUse", "its port"),
    "a gated model": (
        1,
        "OSError: You are trying to access a gated repo.\n",
        "ModelAccessDenied",
        "HF_TOKEN",
    ),
    "a model that is not there": (
        1,
        "OSError: /models/x is not a local folder and is not a valid model identifier listed\n",
        "ModelNotFound",
        "--model",
    ),
    "an old driver": (
        1,
        engine("RuntimeError: The NVIDIA driver on your system is too old (found version 12040)."),
        "DriverTooOld",
        "newer GPU driver",
    ),
    "an engine": (
        0,
        UP + "(EngineCore pid=9) ERROR 11-30 20:48:41 [core.py:9] EngineCore encountered a fatal "
        "error.\n",
        "EngineDied",
        "engine died",
    ),
    "an engine, as the API server sees it": (
        1,
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack\n",
        "EngineDied",
        "engine died",
    ),
    "a start for an unknown reason": (
        1,
        engine("ValueError: something new"),
        "EngineStartFailed",
        "did not start",
    ),
    "nothing": (7, UP, "ContainerExited", "exit code 7"),
    "no such command": (127, "sh: vllm: not found\n", "CommandNotFound", "exit code 127"),
    "a signal": (137, UP, "KilledBySignal", "SIGKILL"),
}


@pytest.mark.parametrize("case", LOGS)
def test_what_a_log_tells(case: str) -> None:
    code, log, reason, words = LOGS[case]
    cause = of_end(Ending(exit_code=code, reason="Error", log=log))
    assert cause.reason == reason
    assert words in cause.words
    assert "s3cret" not in cause.words
    assert not cause.may_heal


REAL: dict[str, tuple[int, str, str]] = {
    "0.29.0-unknown-flag-exits/startup.log": (2, "UnknownFlag", "does not know --no-such-flag"),
    "0.32.0-unknown-flag-exits/startup.log": (2, "UnknownFlag", "does not know --no-such-flag"),
    "0.29.0-unsupported-architecture-exits/startup.log": (
        1,
        "UnsupportedArchitecture",
        "NoSuchForCausalLM",
    ),
    "0.32.0-unsupported-architecture-exits/startup.log": (
        1,
        "UnsupportedArchitecture",
        "NoSuchForCausalLM",
    ),
    "0.32.0-v2-forced-no-triton-exits/startup.log": (1, "TritonMissing", "unset VLLM_USE_V2"),
    "0.29.0-engine-death/end.log": (0, "EngineDied", "engine died"),
    "0.32.0-engine-death/end.log": (0, "EngineDied", "engine died"),
}


@pytest.mark.parametrize("file", REAL)
def test_what_real_logs_tell(file: str) -> None:
    code, reason, words = REAL[file]
    cause = of_end(Ending(exit_code=code, reason="Error", log=(FIXTURES / file).read_text()))
    assert cause.reason == reason
    assert words in cause.words


@pytest.mark.parametrize("name", sorted(f.parent.name for f in FIXTURES.glob("*/startup.log")))
def test_real_logs_of_good_starts_name_no_cause(name: str) -> None:
    log = (FIXTURES / name / "startup.log").read_text()
    ends_well = not name.endswith("-exits")
    assert served(log) == ends_well
    if ends_well:
        assert of_end(Ending(exit_code=7, log=log)).reason == "ContainerExited"


def test_what_a_user_wrote_names_no_cause() -> None:
    line = (
        "(APIServer pid=7) INFO 11-30 20:48:41 [logger.py:40] Received request cmpl-1: prompt: "
        "'EngineCore encountered a fatal error. CUDA out of memory'\n"
    )
    assert of_end(Ending(exit_code=1, log=line)).reason == "ContainerExited"


def test_a_flag_is_only_unknown_where_the_parser_ended_the_process() -> None:
    log = "vllm serve: error: unrecognized arguments: --x\n"
    assert of_end(Ending(exit_code=1, log=log)).reason == "ContainerExited"


@pytest.mark.parametrize(
    ("log", "when"), [(UP, "while serving"), ("", "while loading"), (None, "for memory (")]
)
def test_out_of_memory_says_when(log: str | None, when: str) -> None:
    cause = of_end(Ending(exit_code=137, reason="OOMKilled", log=log))
    assert cause.reason == "OutOfMemory"
    assert when in cause.sentence


@pytest.mark.parametrize("code", [0, 1, 137, 143])
def test_a_probe_that_kills_a_slow_start_is_no_crash(code: int) -> None:
    for probe, log in ((Probe.STARTUP, None), (Probe.LIVENESS, "loading\n")):
        cause = of_end(Ending(exit_code=code, probe=probe, budget_seconds=90.0, log=log))
        assert cause.reason == "StartupTooSlow"
        assert "90 s" in cause.sentence
        assert f"{probe} probe" in cause.sentence
        assert cause.may_heal


def test_a_server_that_does_not_answer_any_more_is_one() -> None:
    cause = of_end(Ending(exit_code=137, probe=Probe.LIVENESS, log=UP))
    assert cause.reason == "LivenessProbeFailed"
    assert not cause.may_heal


def test_a_reboot_of_the_node_may_heal() -> None:
    cause = of_end(Ending(exit_code=255, reason="Unknown"))
    assert (cause.reason, cause.may_heal) == ("NodeRestarted", True)


def test_a_container_that_never_ran() -> None:
    message = "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4"
    cause = of_end(Ending(exit_code=128, reason="StartError", message=message))
    assert (cause.reason, cause.may_heal) == ("DriverTooOld", False)
    message = 'exec: "vllm": executable file not found in $PATH'
    cause = of_end(Ending(exit_code=128, reason="StartError", message=message))
    assert (cause.reason, cause.may_heal) == ("CommandNotFound", False)
    cause = of_end(Ending(exit_code=128, reason="StartError", message="cgroup trouble"))
    assert (cause.reason, cause.may_heal) == ("StartError", True)
    assert "cgroup trouble" in cause.sentence


@pytest.mark.parametrize(
    ("waits", "message", "reason", "may_heal"),
    [
        ("InvalidImageName", "couldn't parse", "InvalidImageName", False),
        ("ErrImagePull", 'failed to resolve "x": x: not found', "ImageNotFound", False),
        ("ImagePullBackOff", "Back-off: ErrImagePull: manifest unknown", "ImageNotFound", False),
        ("ErrImagePull", "rpc error: code = NotFound desc = ...", "ImageNotFound", False),
        ("ErrImagePull", "dial tcp: lookup r: no such host", "ImagePull", True),
        ("ImagePullBackOff", "Back-off pulling image", "ImagePull", True),
        ("CreateContainerConfigError", 'secret "x" not found', "CreateContainerConfigError", True),
    ],
)
def test_what_a_wait_tells(waits: str, message: str, reason: str, *, may_heal: bool) -> None:
    cause = of_wait(waits, message)
    assert cause is not None
    assert (cause.reason, cause.may_heal) == (reason, may_heal)
    assert message in cause.sentence


@pytest.mark.parametrize("waits", [None, "ContainerCreating", "CrashLoopBackOff"])
def test_a_container_on_its_way_has_no_cause(waits: str | None) -> None:
    assert of_wait(waits, None) is None
