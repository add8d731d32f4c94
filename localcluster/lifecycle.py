"""Start and stop one local cluster, and run commands inside of it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from base64 import b64decode
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster import build, pki
from localcluster.paths import ROOT, state_dir

_API_SECONDS = 60.0
_NODES_SECONDS = 60.0
_STOP_SECONDS = 15.0
_TAIL_LINES = 12

CHART = ROOT / "charts" / "vllm-upgrade-operator"
SYSTEM_NAMESPACE = "vllm-upgrade-system"


class ClusterError(Exception):
    """The cluster cannot be started or used; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a running cluster left in its state directory.

    Attributes:
        pid: The process that holds the namespaces, as seen from outside.
        started: Its start time in clock ticks since boot: a process id alone may be used again.
        port: The API server's port.
    """

    pid: int
    started: int
    port: int


class LocalCluster:
    """One cluster, known by its state directory."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory or state_dir()
        self.kubeconfig = self.directory / "kubeconfig"
        self._record = self.directory / "cluster.json"

    def running(self) -> Running | None:
        """Give what runs, or None; a record of a cluster that has died counts as none."""
        if not self._record.exists():
            return None
        found = Running(**json.loads(self._record.read_text()))
        return found if _started(found.pid) == found.started else None

    def up(self, *, operator: bool) -> None:
        """Start the cluster, and install the operator from the chart where wanted."""
        binaries = build.binaries()
        if self.running() is None:
            self._start(binaries)
        else:
            print("the control plane runs already", flush=True)
        if operator:
            self.install_operator()

    def _start(self, binaries: Path) -> None:
        began = time.monotonic()
        for name in ("etcd", "nodes", "logs", "pki"):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for ended in self.directory.glob("*.ended"):
            ended.unlink()
        (self.directory / "logs").mkdir(parents=True)
        listener = socket.create_server(("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
        pki.write(self.directory / "pki", port)
        shutil.copy(self.directory / "pki" / "admin.kubeconfig", self.kubeconfig)
        with (self.directory / "logs" / "inside.log").open("ab") as log:
            process = subprocess.Popen(
                [
                    *("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid"),
                    *("--fork", "--kill-child=SIGKILL", "--mount-proc", "--"),
                    *(sys.executable, "-m", "localcluster.inside"),
                    f"--state-dir={self.directory}",
                    f"--binaries={binaries}",
                    f"--socket-fd={listener.fileno()}",
                    f"--port={port}",
                    *(f"--images={file}" for file in _image_maps()),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )
        listener.close()
        started = _started(process.pid)
        if started is None:
            raise ClusterError(f"the namespaces could not be made: {self._tail('inside')}")
        record = Running(pid=process.pid, started=started, port=port)
        self._record.write_text(json.dumps(asdict(record)))
        try:
            self._wait_for_api(process)
            self._wait_for_nodes(process)
        except ClusterError:
            self.down()
            raise
        print(f"control plane and nodes are ready after {time.monotonic() - began:.1f} s")

    def _wait_for_api(self, process: subprocess.Popen[bytes]) -> None:
        print("starting etcd and the control plane", flush=True)
        end = time.monotonic() + _API_SECONDS
        while time.monotonic() < end:
            self._still_alive(process)
            with contextlib.suppress(urllib.error.URLError, OSError):
                if self._read("/readyz") == b"ok":
                    return
            time.sleep(0.2)
        raise ClusterError(
            f"the API server was not ready after {_API_SECONDS:.0f} s: "
            f"{self._tail('kube-apiserver')}"
        )

    def _wait_for_nodes(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + _NODES_SECONDS
        while time.monotonic() < end:
            self._still_alive(process)
            nodes = json.loads(self._read("/api/v1/nodes"))["items"]
            account = json.loads(self._read("/api/v1/namespaces/default/serviceaccounts"))["items"]
            if nodes and account and all(_is_ready(node) for node in nodes):
                return
            time.sleep(0.2)
        raise ClusterError(
            f"nodes were not ready after {_NODES_SECONDS:.0f} s: {self._tail('node-agent')}"
        )

    def _still_alive(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is not None:
            raise ClusterError(
                f"the cluster ended with exit code {process.returncode}: {self._tail('inside')}"
            )
        for ended in self.directory.glob("*.ended"):
            raise ClusterError(f"{ended.stem} has ended: {self._tail(ended.stem)}")

    def _read(self, path: str) -> bytes:
        """Read from the API server as the administrator."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        context = ssl.create_default_context(
            cadata=b64decode(cluster["certificate-authority-data"]).decode()
        )
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(b64decode(user["client-certificate-data"]))
            pair.write(b64decode(user["client-key-data"]))
            pair.flush()
            context.load_cert_chain(pair.name)
        with urllib.request.urlopen(  # noqa: S310 - our own API server on 127.0.0.1
            cluster["server"] + path, context=context, timeout=5
        ) as answer:
            content: bytes = answer.read()
        return content

    def install_operator(self) -> None:
        """Install or upgrade the operator by helm, as its users would."""
        print(f"installing the operator into namespace {SYSTEM_NAMESPACE}", flush=True)
        done = subprocess.run(
            [
                *(str(build.binaries() / "helm"), "upgrade", "--install"),
                *("vllm-upgrade-operator", str(CHART)),
                *("--namespace", SYSTEM_NAMESPACE, "--create-namespace"),
                *("--wait", "--timeout", "60s"),
            ],
            env={**os.environ, "KUBECONFIG": str(self.kubeconfig)},
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            raise ClusterError(f"helm could not install the operator: {done.stderr.strip()}")

    def down(self) -> bool:
        """Stop the cluster and everything in it; False where none ran."""
        found = self.running()
        if found is None:
            self._record.unlink(missing_ok=True)
            return False
        inner = self._inner(found)
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner, signal.SIGTERM)
        end = time.monotonic() + _STOP_SECONDS
        while _started(found.pid) == found.started:
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(found.pid, signal.SIGKILL)
            time.sleep(0.05)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.pid, os.WNOHANG)
        self._record.unlink(missing_ok=True)
        return True

    def command_inside(self, command: list[str]) -> list[str]:
        """Give the command line that runs a command in the cluster's namespaces."""
        found = self.running()
        if found is None:
            raise ClusterError("no cluster runs: start one with `make up`")
        return [
            *("nsenter", f"--target={self._inner(found)}"),
            *("--user", "--preserve-credentials", "--net", "--mount", "--pid"),
            f"--wd={Path.cwd()}",
            "--",
            *command,
        ]

    def _inner(self, found: Running) -> int:
        """The first process inside: the child of the process that made the namespaces."""
        listed = Path(f"/proc/{found.pid}/task/{found.pid}/children")
        children = listed.read_text(encoding="ascii").split()
        if not children:
            raise ClusterError("the cluster is ending: wait a moment, then start one with make up")
        return int(children[0])

    def _tail(self, name: str) -> str:
        log = self.directory / "logs" / f"{name}.log"
        if not log.exists():
            return f"no log at {log}"
        lines = log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return f"see {log}; its end:\n" + "\n".join(lines)


def _image_maps() -> list[str]:
    maps = [str(ROOT / "localcluster" / "images.yaml")]
    further = os.environ.get("LOCALCLUSTER_IMAGES")
    return [*maps, str(Path(further).resolve())] if further else maps


def _started(pid: int) -> int | None:
    """Start time of a live process, in clock ticks since boot."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
