"""Stopping and starting single nodes of a cluster that runs, by requests to its node agent.

A request is a file `<name>` in `<cluster's directory>/nodes/power/`, which the node agent takes
away when it has done what the file says: `off`, `on`, or `on POOL`.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from localcluster.administrator import Administrator, NoAnswerError
from localcluster.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_ANSWER_SECONDS = 30.0
_READY_SECONDS = 60.0
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# The label and the taint of nodes that only pods shall use that ask for it.
POOL = "pool"


def requests(nodes: Path) -> Path:
    """Give the directory for requests, of the node agent's own directory."""
    return nodes / "power"


def stop(directory: Path, name: str) -> None:
    """Let a node be lost: its processes end, and the API server hears of it no more.

    Its pods stay in the API as they were until the control plane takes action.

    Raises:
        ClusterError: There is no such node, or the node agent does not answer.
    """
    if name not in _nodes(directory):
        known = ", ".join(sorted(_nodes(directory)))
        raise ClusterError(f"there is no node {name!r} to stop: there are {known}")
    _ask(directory, name, "off")


def start(directory: Path, name: str, pool: str | None = None) -> None:
    """Bring a node back, or make a new one, and wait until it is ready.

    Args:
        directory: The cluster's directory.
        name: The node's.
        pool: For a new node: it gets this value of the label `pool`, and a taint that keeps off
            pods that do not tolerate it.

    Raises:
        ClusterError: The name is none that a node can have, the node agent does not answer, or the
            node does not become ready.
    """
    for word in (name, pool or name):
        if _NAME.fullmatch(word) is None:
            raise ClusterError(f"{word!r} is no name: write small letters, digits and dashes")
    _ask(directory, name, f"on {pool or ''}")
    _wait(
        lambda: _nodes(directory).get(name, False),
        _READY_SECONDS,
        f"node {name} did not become ready within {_READY_SECONDS:.0f} s",
    )


def _ask(directory: Path, name: str, what: str) -> None:
    folder = requests(directory / "nodes")
    if not folder.is_dir():
        raise ClusterError(f"no cluster was started in {directory}")
    request = folder / name
    fresh = folder / f".{name}"
    fresh.write_text(what, encoding="utf-8")
    fresh.replace(request)
    try:
        _wait(
            lambda: not request.exists(),
            _ANSWER_SECONDS,
            f"the node agent did not answer within {_ANSWER_SECONDS:.0f} s; see "
            f"{directory}/logs/node-agent.log",
        )
    except ClusterError:
        request.unlink(missing_ok=True)
        raise


def _nodes(directory: Path) -> dict[str, bool]:
    """Give the nodes by name, and whether each is ready."""
    try:
        items = Administrator(directory / "kubeconfig").items("/api/v1/nodes")
    except (NoAnswerError, OSError) as error:
        raise ClusterError(f"the cluster in {directory} does not answer: {error}") from error
    return {
        node["metadata"]["name"]: any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in node.get("status", {}).get("conditions", [])
        )
        for node in items
    }


def _wait(done: Callable[[], bool], seconds: float, otherwise: str) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise ClusterError(otherwise)
        time.sleep(0.1)
