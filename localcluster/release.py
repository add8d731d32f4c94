"""Install the operator from the chart, as its users would."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from localcluster.errors import ClusterError
from localcluster.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

CHART = ROOT / "charts" / "vllm-upgrade-operator"
NAME = "vllm-upgrade-operator"
NAMESPACE = "vllm-upgrade-system"
_SECONDS = 60


def install(helm: Path, kubeconfig: Path) -> None:
    """Install or upgrade the release and wait for its pod. Raises `ClusterError`."""
    command = [
        *(str(helm), "upgrade", "--install", NAME, str(CHART)),
        *("--namespace", NAMESPACE, "--create-namespace"),
        *("--wait", "--timeout", f"{_SECONDS}s"),
    ]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
            check=False,
            capture_output=True,
            text=True,
            # Its own limit comes first; this one is for a helm that hangs.
            timeout=2 * _SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"helm did not end within {2 * _SECONDS} s") from error
    if done.returncode != 0:
        raise ClusterError(
            f"helm could not install the operator: {done.stderr.strip()}\n"
            f"The operator's pods: kubectl --kubeconfig {kubeconfig} --namespace {NAMESPACE} "
            "describe pods"
        )
