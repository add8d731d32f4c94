"""Start and stop one local cluster, and run commands inside of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster import build, pki, record, release, tags
from localcluster.administrator import Administrator, NoAnswerError
from localcluster.errors import ClusterError
from localcluster.family import ended, forget_ended
from localcluster.locks import try_lock
from localcluster.paths import ROOT, state_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["ClusterError", "LocalCluster"]

_READY_SECONDS = 60.0
_STOP_SECONDS = 15.0
_KILL_SECONDS = 10.0
_TAIL_LINES = 12

# Program, and the package that brings it.
_TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}


class LocalCluster:
    """One cluster, known by its state directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or state_dir()
        self.kubeconfig = self.directory / "kubeconfig"
        self._record = self.directory / "cluster.json"

    def running(self) -> record.Running | None:
        """Give what runs, or None; a record of a cluster that has died counts as none."""
        found = record.read(self._record)
        return found if found is not None and found.alive() else None

    def problems(self) -> list[str]:
        """Say what is wrong with a cluster that runs; empty if nothing is."""
        found = [
            f"{name} has ended {how}; {self._tail(name)}"
            for name, how in ended(self.directory).items()
        ]
        if found:
            return found
        try:
            Administrator(self.kubeconfig).read("/readyz")
        except (NoAnswerError, OSError) as error:
            return [f"the API server is not ready: {error}; {self._tail('kube-apiserver')}"]
        return []

    def up(self, *, operator: bool) -> None:
        """Start the cluster, and install the operator from the chart where wanted.

        Raises:
            ClusterError: It could not be started, or the one that runs is broken.
            BuildError: A program of the control plane could not be built.
        """
        for tool, package in _TOOLS.items():
            if shutil.which(tool) is None:
                raise ClusterError(f"{tool} is not on this machine: install {package}")
        binaries = build.binaries()
        if self.running() is None:
            with self._lock() as lock:
                self._start(binaries, lock)
        else:
            print(f"a cluster runs already in {self.directory}", flush=True)
            try:
                self._wait_until_ready()
            except ClusterError as error:
                raise ClusterError(f"{error}\nStop what is left of it by `make down`") from error
        if operator:
            print(f"installing the operator into namespace {release.NAMESPACE}", flush=True)
            release.install(binaries / "helm", self.kubeconfig)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        """Hold the directory's lock; the cluster's first process keeps it as long as it lives."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "lock").open("w") as file:
            if not try_lock(file):
                raise ClusterError(
                    f"{self.directory} is in use by another command, or by a cluster that cannot "
                    "be seen from here, such as from within a cluster: wait, or choose another "
                    "directory by LOCALCLUSTER_DIR"
                )
            yield file.fileno()

    def _start(self, binaries: Path, lock: int) -> None:
        began = time.monotonic()
        if record.read(self._record) is not None:
            print("the cluster of an earlier run has died: starting anew", flush=True)
        for name in ("etcd", "nodes", "logs", "pki"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        forget_ended(self.directory)
        (self.directory / "logs").mkdir()
        tags.path(self.directory).write_text("{}\n")
        print("starting etcd and the control plane", flush=True)
        try:
            self._spawn(binaries, lock)
            self._wait_until_ready()
        except BaseException:
            self.down()
            raise
        print(f"control plane and nodes are ready after {time.monotonic() - began:.1f} s")

    def _spawn(self, binaries: Path, lock: int) -> None:
        """Make keys, and start the process that holds the namespaces."""
        with (
            socket.create_server(("127.0.0.1", 0)) as listener,
            (self.directory / "logs" / "inside.log").open("ab") as log,
        ):
            port = int(listener.getsockname()[1])
            pki.write(self.directory / "pki", port)
            shutil.copy(self.directory / "pki" / "admin.kubeconfig", self.kubeconfig)
            process = subprocess.Popen(
                [
                    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid"),
                    *("--fork", "--kill-child=SIGKILL", "--mount-proc", "--"),
                    *(sys.executable, "-m", "localcluster.inside"),
                    f"--state-dir={self.directory}",
                    f"--binaries={binaries}",
                    f"--socket-fd={listener.fileno()}",
                    f"--port={port}",
                    *(f"--images={file}" for file in tags.image_maps(self.directory)),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno(), lock],
                start_new_session=True,
                env={**inside_environment(), "PYTHONPATH": str(ROOT)},
            )
        started = record.start_time(process.pid)
        if started is None:
            raise ClusterError(self._no_namespaces())
        record.write(self._record, record.Running(process.pid, started, port))

    def _wait_until_ready(self) -> None:
        """Wait until the API server and every node are ready."""
        administrator = Administrator(self.kubeconfig)
        self._wait_for(
            "the API server", "kube-apiserver", lambda: administrator.read("/readyz") == b"ok"
        )
        self._wait_for("the nodes", "node-agent", lambda: _nodes_ready(administrator))

    def _wait_for(self, what: str, log: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + _READY_SECONDS
        why = "not ready"
        while time.monotonic() < end:
            if self.running() is None:
                raise ClusterError(self._no_namespaces())
            for name, how in ended(self.directory).items():
                raise ClusterError(f"{name} has ended {how}; {self._tail(name)}")
            try:
                if ready():
                    return
            except NoAnswerError as error:
                why = str(error)
            time.sleep(0.1)
        raise ClusterError(
            f"{what}: not ready within {_READY_SECONDS:.0f} s ({why}); {self._tail(log)}"
        )

    def down(self) -> bool:
        """Stop the cluster and everything in it; False where none ran. Raises `ClusterError`."""
        found = self.running()
        if found is None:
            self._record.unlink(missing_ok=True)
            return False
        inner = found.first_inside()
        since = None if inner is None else record.start_time(inner)

        def gone() -> bool:
            return not found.alive() and (inner is None or record.start_time(inner) != since)

        if inner is not None:
            # One that a terminal has stopped could not collect its command, and so the namespace
            # could not end.
            for entrant in record.entrants(inner):
                _signal(entrant, signal.SIGCONT)
            _signal(inner, signal.SIGTERM)
        if not _wait(gone, _STOP_SECONDS):
            # Its child dies with it, and with that one all processes of the namespace.
            _signal(found.pid, signal.SIGKILL)
            if not _wait(gone, _KILL_SECONDS):
                raise ClusterError(f"process {found.pid} does not end, though it was killed")
        self._record.unlink(missing_ok=True)
        return True

    def command_inside(self, command: list[str]) -> list[str]:
        """Give the command line that runs a command in the cluster's namespaces."""
        found = self.running()
        inner = None if found is None else found.first_inside()
        if inner is None:
            raise ClusterError(f"no cluster runs in {self.directory}: start one with `make up`")
        return [
            *("nsenter", f"--target={inner}"),
            *("--user", "--preserve-credentials", "--net", "--mount", "--pid"),
            f"--wd={Path.cwd()}",
            "--",
            *command,
        ]

    def log(self, name: str) -> Path:
        """Give the log file of a process of the cluster. Raises `ClusterError`."""
        logs = {file.stem: file for file in sorted((self.directory / "logs").glob("*.log"))}
        if name not in logs:
            known = ", ".join(logs) or "none, for no cluster was started yet"
            raise ClusterError(f"there is no log {name!r} in {self.directory}/logs: {known}")
        return logs[name]

    def _no_namespaces(self) -> str:
        return (
            "the process that holds the cluster's namespaces has ended; what a machine must allow "
            f"for them is in localcluster/README.md; {self._tail('inside')}"
        )

    def _tail(self, name: str) -> str:
        log = self.directory / "logs" / f"{name}.log"
        if not log.exists():
            return f"no log at {log}"
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return f"see {log}; its end:\n" + "\n".join(lines)


def inside_environment() -> dict[str, str]:
    """Give our environment without proxies: nothing inside can reach one."""
    return {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}


def _nodes_ready(administrator: Administrator) -> bool:
    nodes = administrator.items("/api/v1/nodes")
    # Pods need it, and a controller makes it.
    accounts = administrator.items("/api/v1/namespaces/default/serviceaccounts")
    return bool(nodes) and bool(accounts) and all(_is_ready(node) for node in nodes)


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
