from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from localcluster import power
from localcluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = {"node-0": True, "node-1": False}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster's directory with a node agent that takes requests away; `done` lists them."""
    monkeypatch.setattr(power, "_nodes", lambda _: NODES)
    monkeypatch.setattr(power, "_READY_SECONDS", 0.3)
    folder = power.requests(tmp_path / "nodes")
    folder.mkdir(parents=True)
    done = threading.Event()

    def agent() -> None:
        while not done.is_set():
            for request in folder.glob("[!.]*"):
                with (tmp_path / "done").open("a") as log:
                    log.write(f"{request.name} {request.read_text()}\n")
                request.unlink()
            time.sleep(0.01)

    thread = threading.Thread(target=agent)
    thread.start()
    yield tmp_path
    done.set()
    thread.join()


def test_requests_are_handed_over_and_waited_for(directory: Path) -> None:
    power.stop(directory, "node-1")
    power.start(directory, "node-0")
    power.start(directory, "node-0", "a")
    assert (directory / "done").read_text() == "node-1 off\nnode-0 on \nnode-0 on a\n"


def test_what_cannot_be_done_is_said(
    directory: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ClusterError, match="no node 'node-9' to stop: there are node-0, node-1"):
        power.stop(directory, "node-9")
    with pytest.raises(ClusterError, match=r"'\.\./x' is no name"):
        power.start(directory, "../x")
    with pytest.raises(ClusterError, match="node node-1 did not become ready within"):
        power.start(directory, "node-1")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    with pytest.raises(ClusterError, match="no cluster was started in"):
        power.stop(elsewhere, "node-0")
    power.requests(elsewhere / "nodes").mkdir(parents=True)
    monkeypatch.setattr(power, "_ANSWER_SECONDS", 0.2)
    with pytest.raises(ClusterError, match=r"the node agent did not answer .*node-agent\.log"):
        power.stop(elsewhere, "node-0")
    # A request that nobody took is not carried out later.
    assert list(power.requests(elsewhere / "nodes").iterdir()) == []
