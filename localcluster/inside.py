"""The first process of the cluster's namespaces: starts everything, and forwards the one port.

It is process 1 of a PID namespace, so nothing that the cluster started can outlive it. The
listening socket was made outside and is inherited: a socket stays in the network namespace that
it was made in, so what connects to it outside is passed on to the API server inside.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
_CHUNK = 65536

Children = list[tuple[str, "subprocess.Popen[bytes]"]]
_STOP_SECONDS = 8.0

_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [local-node-agent, "system:apiserver", "system:kube-controller-manager",
            "system:kube-scheduler"]
  - level: Metadata
"""


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--binaries", type=Path, required=True)
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--images", type=Path, action="append", required=True)
    options = parser.parse_args()
    children = _start(options)
    asyncio.run(_run(options, children))
    _stop(children)


def _start(options: argparse.Namespace) -> Children:
    """Make every pod address local, then start everything."""
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "address", "add", POD_NETWORK, "dev", "lo"],
    ):
        subprocess.run(command, check=True)
    state: Path = options.state_dir
    (state / "audit-policy.yaml").write_text(_AUDIT_POLICY)
    children: Children = []
    for name, command in _commands(options):
        with (state / "logs" / f"{name}.log").open("ab") as log:
            child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        children.append((name, child))
    return children


async def _run(options: argparse.Namespace, children: Children) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listener = socket.socket(fileno=options.socket_fd)
    server = await asyncio.start_server(lambda r, w: _forward(r, w, options.port), sock=listener)
    reaper = asyncio.create_task(_reap_for_ever(children, options.state_dir))
    await stop.wait()
    server.close()
    reaper.cancel()


def _stop(children: Children) -> None:
    """End everything, what was started last first, in bounded time."""
    for _, child in reversed(children):
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
    end = time.monotonic() + _STOP_SECONDS
    while time.monotonic() < end and any(child.poll() is None for _, child in children):
        time.sleep(0.05)


async def _reap_for_ever(children: Children, state: Path) -> None:
    while True:
        await asyncio.sleep(1.0)
        await asyncio.to_thread(_reap, children, state)


def _reap(children: Children, state: Path) -> None:
    """Collect ended processes, orphans too; note which of ours has ended."""
    for name, child in children:
        if child.poll() is not None:
            (state / f"{name}.ended").write_text(f"exit code {child.returncode}\n")
    ours = {child.pid for _, child in children}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in ours and _is_dead_orphan(entry):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(int(entry.name), os.WNOHANG)


def _is_dead_orphan(entry: Path) -> bool:
    try:
        fields = (entry / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] == "Z" and fields[1] == "1"


def _commands(options: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Give every process of the control plane, in the order of starting."""
    state, binaries, port = options.state_dir, options.binaries, options.port
    pki = state / "pki"
    etcd = "http://127.0.0.1:2379"
    peer = "http://127.0.0.1:2380"
    images = [part for file in options.images for part in ("--images", str(file))]
    return [
        (
            "etcd",
            [
                f"{binaries}/etcd",
                f"--data-dir={state}/etcd",
                # Nothing here outlives the machine.
                "--unsafe-no-fsync",
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--quota-backend-bytes=4294967296",
                "--log-level=warn",
            ],
        ),
        (
            "kube-apiserver",
            [
                f"{binaries}/kube-apiserver",
                f"--etcd-servers={etcd}",
                f"--secure-port={port}",
                "--bind-address=127.0.0.1",
                "--advertise-address=10.244.0.1",
                "--endpoint-reconciler-type=none",
                f"--service-cluster-ip-range={SERVICE_NETWORK}",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                f"--client-ca-file={pki}/ca.crt",
                f"--tls-cert-file={pki}/apiserver.crt",
                f"--tls-private-key-file={pki}/apiserver.key",
                f"--service-account-key-file={pki}/service-account.key",
                f"--service-account-signing-key-file={pki}/service-account.key",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--kubelet-preferred-address-types=InternalIP",
                f"--audit-policy-file={state}/audit-policy.yaml",
                f"--audit-log-path={state}/logs/audit.log",
                "--audit-log-maxsize=64",
                "--audit-log-maxbackup=2",
            ],
        ),
        (
            "kube-controller-manager",
            [
                f"{binaries}/kube-controller-manager",
                f"--kubeconfig={pki}/controller-manager.kubeconfig",
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={pki}/service-account.key",
                f"--root-ca-file={pki}/ca.crt",
                "--concurrent-deployment-syncs=10",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
        ),
        (
            "kube-scheduler",
            [
                f"{binaries}/kube-scheduler",
                f"--kubeconfig={pki}/scheduler.kubeconfig",
                "--leader-elect=false",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
        ),
        (
            "node-agent",
            [
                sys.executable,
                "-m",
                "localcluster.nodeagent",
                f"--kubeconfig={pki}/node-agent.kubeconfig",
                f"--state-dir={state}/nodes",
                *images,
            ],
        ),
    ]


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """Pass one connection on to the API server."""
    try:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        writer.close()
        return
    await asyncio.gather(_copy(reader, onward_writer), _copy(onward_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()
        else:
            writer.close()


if __name__ == "__main__":
    main()
