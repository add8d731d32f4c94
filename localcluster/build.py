"""Build etcd, the Kubernetes control plane and helm from their Go modules, once per version.

The binaries go to a directory named after everything that they are made of, so a checkout with
the same modules finds them there. A first build takes about 11 minutes on two cores; it says what
it does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from localcluster import tools
from localcluster.errors import BuildError
from localcluster.locks import locked
from localcluster.paths import ROOT, cache_dir

__all__ = ["BuildError", "binaries", "key", "kubectl", "needed_go"]

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

_BUILD_SECONDS = 3600.0
_SAY_SECONDS = 20.0
_TAIL_LINES = 15


def binaries() -> Path:
    """Give the directory with all binaries, building what is missing. Raises `BuildError`."""
    directory = cache_dir() / "controlplane" / key()
    directory.mkdir(parents=True, exist_ok=True)
    if not _missing(directory):
        return directory
    with locked(directory / ".lock", "another build", _BUILD_SECONDS):
        missing = _missing(directory)
        if missing:
            go = tools.go(needed_go())
            print(
                f"building {len(missing)} programs of the control plane, once: all of them take "
                "about 11 minutes on two cores",
                flush=True,
            )
            for number, program in enumerate(missing, start=1):
                _build(go, program, directory, f"{number}/{len(missing)}")
    return directory


def kubectl() -> str:
    """Give the path of kubectl: the machine's, else the one of a Python package."""
    return tools.kubectl()


def key() -> str:
    """Name what the binaries are made of: the modules' files, which say which Go, and the flags."""
    digest = hashlib.sha256()
    for name in sorted({p.module for p in PROGRAMS}):
        for file in ("go.mod", "go.sum"):
            digest.update((MODULES / name / file).read_bytes())
    for program in PROGRAMS:
        digest.update(repr(program).encode())
    return digest.hexdigest()[:16]


def needed_go() -> tuple[int, ...]:
    """Give the oldest Go that all modules accept, by the `go` lines of their go.mod."""
    return max(
        tools.numbers(line)
        for p in PROGRAMS
        for line in (MODULES / p.module / "go.mod").read_text().splitlines()
        if line.startswith("go ")
    )


def _missing(directory: Path) -> list[Program]:
    return [p for p in PROGRAMS if not (directory / p.name).exists()]


def _build(go: str, program: Program, directory: Path, count: str) -> None:
    """Build one program; it appears in the directory as a whole or not at all."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        output, log = Path(scratch) / program.name, Path(scratch) / "log"
        with log.open("w") as sink:
            process = subprocess.Popen(
                [
                    *(go, "build", "-trimpath", "-ldflags", program.link),
                    *("-o", str(output), program.package),
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
        try:
            code = _wait(process, f"  [{count}] building {program.name}", began)
        finally:
            process.kill()
            process.wait()
        if code != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
            raise BuildError(f"go build of {program.name} failed with exit code {code}:\n{tail}")
        output.rename(directory / program.name)
    print(f"  [{count}] {program.name} built in {time.monotonic() - began:.0f} s", flush=True)


def _wait(process: subprocess.Popen[bytes], what: str, began: float) -> int:
    """Wait for a build, and say every now and then that it goes on."""
    while (spent := time.monotonic() - began) < _BUILD_SECONDS:
        try:
            return process.wait(timeout=_SAY_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{what}: {spent + _SAY_SECONDS:.0f} s", flush=True)
    raise BuildError(f"{what.strip()} did not end within {_BUILD_SECONDS:.0f} s")
