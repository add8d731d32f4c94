"""The processes that a local cluster is made of."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
NODE_AGENT = "node-agent"

# What the cluster's own parts do all the time would bury what tests look for.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [local-node-agent, "system:apiserver", "system:kube-controller-manager",
            "system:kube-scheduler"]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
"""

# A lost node is noticed, and its pods are replaced, each after this time: five minutes, as usual,
# would be long for somebody who looks on.
_LOST_NODE_SECONDS = 30


@dataclass(frozen=True, slots=True)
class Component:
    """One process: its name, which its log file has too, and its command line."""

    name: str
    command: tuple[str, ...]


def components(
    *, state: Path, binaries: Path, port: int, images: Sequence[Path]
) -> tuple[Component, ...]:
    """Give every process of a cluster in the order of starting.

    Args:
        state: The cluster's directory, with keys in `pki/` and the audit policy in it.
        binaries: Where the control plane's programs are.
        port: The API server's port.
        images: Image maps for the node agent; the last one wins.
    """
    pki = state / "pki"
    etcd = "http://127.0.0.1:2379"
    peer = "http://127.0.0.1:2380"
    return (
        Component(
            "etcd",
            (
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
            ),
        ),
        Component(
            "kube-apiserver",
            (
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
                f"--default-not-ready-toleration-seconds={_LOST_NODE_SECONDS}",
                f"--default-unreachable-toleration-seconds={_LOST_NODE_SECONDS}",
                f"--audit-policy-file={state}/audit-policy.yaml",
                f"--audit-log-path={state}/logs/audit.log",
                "--audit-log-maxsize=64",
                "--audit-log-maxbackup=9",
            ),
        ),
        Component(
            "kube-controller-manager",
            (
                f"{binaries}/kube-controller-manager",
                f"--kubeconfig={pki}/controller-manager.kubeconfig",
                "--leader-elect=false",
                "--use-service-account-credentials=true",
                f"--service-account-private-key-file={pki}/service-account.key",
                f"--root-ca-file={pki}/ca.crt",
                "--concurrent-deployment-syncs=10",
                f"--node-monitor-grace-period={_LOST_NODE_SECONDS}s",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ),
        ),
        Component(
            "kube-scheduler",
            (
                f"{binaries}/kube-scheduler",
                f"--kubeconfig={pki}/scheduler.kubeconfig",
                "--leader-elect=false",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ),
        ),
        Component(
            NODE_AGENT,
            (
                sys.executable,
                "-m",
                "localcluster.nodeagent",
                f"--kubeconfig={pki}/node-agent.kubeconfig",
                f"--state-dir={state}/nodes",
                *(part for file in images for part in ("--images", str(file))),
            ),
        ),
    )
