import subprocess
from pathlib import Path

from localcluster.nodeagent.commands import command_line, write_programs
from localcluster.nodeagent.images import Image

DIGEST = "sha256:" + "0" * 64
WORDS = {"python": "/bin/echo", "root": "/opt/of", "pod_ip": "10.244.0.9"}
SIM = Image("sim", ("{python}", "-m", "sim"), DIGEST, host_flag="--host", is_vllm=True)
PLAIN = Image("plain", ("run", "it"), DIGEST)


def test_arguments_follow_the_entrypoint_and_the_address_comes_last() -> None:
    container = {"args": ["--model", "$(M)", "$(N)"]}
    line = command_line(SIM, container, {"M": "m"}, WORDS)
    assert line == [
        "/bin/echo", "-m", "sim", "--model", "m", "$(N)", "--host", "10.244.0.9",
    ]  # fmt: skip


def test_a_command_replaces_the_entrypoint() -> None:
    container = {"command": ["sh", "-c"], "args": ["echo $(M)"]}
    assert command_line(PLAIN, container, {"M": "m"}, WORDS) == ["sh", "-c", "echo m"]


def run(tmp_path: Path, *command: str) -> str:
    programs = write_programs(tmp_path, SIM, WORDS)
    return subprocess.run(  # noqa: S603  # the program under test
        [str(programs / command[0]), *command[1:]], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_command_vllm_serve_leads_to_the_entrypoint(tmp_path: Path) -> None:
    said = run(tmp_path, "vllm", "serve", "a model", "--port", "1", "--host", "0.0.0.0")  # noqa: S104
    assert said == "-m sim --model a model --port 1 --host 0.0.0.0 --host 10.244.0.9"


def test_the_module_leads_to_the_entrypoint(tmp_path: Path) -> None:
    for python in ("python3", "python"):
        said = run(tmp_path, python, "-m", "vllm.entrypoints.openai.api_server", "--model", "m")
        assert said == "-m sim --model m --host 10.244.0.9"


def test_python_is_python_for_everything_else(tmp_path: Path) -> None:
    assert run(tmp_path, "python3", "-c", "pass") == "-c pass"
