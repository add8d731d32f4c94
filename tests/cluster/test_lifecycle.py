"""A cluster's life: started, used, broken, found broken, stopped. It runs within another one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from localcluster import build
from localcluster.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 120.0
_COMMAND = (sys.executable, "-m", "localcluster")


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("LOCALCLUSTER_DIR", str(tmp_path))
    # Nothing would answer there.
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    yield tmp_path
    _localcluster("down")


def _localcluster(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(  # noqa: S603 - our own program
        [*_COMMAND, *arguments],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
    )
    return done.returncode, done.stdout


def _processes(directory: Path) -> dict[int, str]:
    """The live processes of a cluster, known by its directory in their command lines."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if str(directory) in command:
            found[int(entry.name)] = command
    return found


def _stopped_command() -> subprocess.Popen[bytes]:
    """Start a command inside and stop it, as a terminal does on Ctrl-Z."""
    shell = [*_COMMAND, "exec", "--", "sh", "-c", "kill -STOP $$"]
    command = subprocess.Popen(shell, cwd=ROOT, start_new_session=True)  # noqa: S603
    end = time.monotonic() + _SECONDS
    while " T " not in _status_line(command.pid):
        assert time.monotonic() < end, "it has not stopped"
        time.sleep(0.05)
    return command


def _status_line(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text()


def test_a_cluster_lives_breaks_and_leaves_nothing(directory: Path) -> None:
    code, said = _localcluster("up", "--no-operator")
    assert code == 0, said
    assert f"export KUBECONFIG={directory}/kubeconfig" in said
    kubectl = build.kubectl()

    outside = subprocess.run(  # noqa: S603 - our own cluster's
        [kubectl, f"--kubeconfig={directory}/kubeconfig", "get", "nodes", "--output=name"],
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    inside = _localcluster("exec", "--", kubectl, "get", "nodes", "--output=name")
    assert outside.stdout.splitlines() == ["node/node-0", "node/node-1"], outside.stderr
    assert inside == (0, outside.stdout)
    assert _localcluster("exec", "--", "sh", "-c", "exit 7")[0] == 7
    assert _localcluster("status")[0] == 0

    before = set(_processes(directory))
    code, said = _localcluster("up", "--no-operator")
    assert code == 0
    assert "a cluster runs already" in said
    assert set(_processes(directory)) == before

    # Another directory's commands, and ours from within, must not touch it.
    code, said = _localcluster("exec", "--", *_COMMAND, "up", "--no-operator")
    assert code == 1
    assert f"{directory} is in use" in said
    assert set(_processes(directory)) == before

    (scheduler,) = (
        p for p, command in _processes(directory).items() if "/kube-scheduler" in command
    )
    os.kill(scheduler, signal.SIGKILL)
    end = time.monotonic() + _SECONDS
    while _localcluster("status")[0] == 0:
        assert time.monotonic() < end, "the end of the scheduler was not seen"
    for command in ("status", "up"):
        code, said = _localcluster(command)
        assert code == 1
        assert "kube-scheduler has ended by signal 9; see " in said
    assert "Stop what is left of it by `make down`" in said

    stopped = _stopped_command()
    assert _localcluster("down") == (0, "stopped\n")
    stopped.wait(_SECONDS)
    assert _processes(directory) == {}
    assert _localcluster("down") == (0, "nothing was running\n")
    assert _localcluster("status")[0] == 1


def test_a_cluster_whose_holder_was_killed_dies_and_is_started_anew(directory: Path) -> None:
    code, said = _localcluster("up", "--no-operator")
    assert code == 0, said
    (holder,) = (p for p, c in _processes(directory).items() if c.startswith("unshare "))
    os.kill(holder, signal.SIGKILL)
    end = time.monotonic() + _SECONDS
    while _processes(directory):
        assert time.monotonic() < end, _processes(directory)
        time.sleep(0.05)
    code, said = _localcluster("up", "--no-operator")
    assert code == 0, said
    assert "the cluster of an earlier run has died: starting anew" in said
