"""A cluster is found again by its record, and never mistaken for another process."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from localcluster import record
from localcluster.errors import ClusterError
from localcluster.lifecycle import LocalCluster, inside_environment

if TYPE_CHECKING:
    from pathlib import Path


def _own() -> record.Running:
    started = record.start_time(os.getpid())
    assert started is not None
    return record.Running(os.getpid(), started, 6443)


def test_a_live_cluster_is_found(tmp_path: Path) -> None:
    record.write(tmp_path / "cluster.json", _own())
    assert LocalCluster(tmp_path).running() == _own()


def test_a_process_that_took_over_the_number_is_not_the_cluster(tmp_path: Path) -> None:
    other = replace(_own(), started=_own().started - 1)
    record.write(tmp_path / "cluster.json", other)
    cluster = LocalCluster(tmp_path)
    assert cluster.running() is None
    # It would end this very process.
    assert cluster.down() is False
    assert not (tmp_path / "cluster.json").exists()


def test_a_process_that_nobody_has_collected_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert record.start_time(child.pid) is None
    child.wait()
    assert record.start_time(child.pid) is None


def test_the_first_process_inside_is_the_holders_child() -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "sleep 60 & echo; wait"], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        inner = record.Running(holder.pid, 0, 0).first_inside()
        assert inner is not None
        os.kill(inner, 9)
    assert record.Running(holder.pid, 0, 0).first_inside() is None


@pytest.mark.parametrize("content", ["", '{"pid": 1', "{}", '{"process": 1}'])
def test_a_damaged_record_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "cluster.json").write_text(content)
    assert record.read(tmp_path / "cluster.json") is None


def test_what_needs_a_cluster_says_that_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"no cluster runs in {tmp_path}: start one"):
        LocalCluster(tmp_path).command_inside(["true"])
    with pytest.raises(ClusterError, match="there is no log 'etcd'"):
        LocalCluster(tmp_path).log("etcd")


def test_a_missing_program_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match="unshare is not on this machine: install util-linux"):
        LocalCluster(tmp_path).up(operator=False)


def test_no_proxy_goes_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "http_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example:3128")
    monkeypatch.setenv("KEPT", "1")
    found = inside_environment()
    assert found["KEPT"] == "1"
    assert not [name for name in found if name.lower().endswith("_proxy")]
