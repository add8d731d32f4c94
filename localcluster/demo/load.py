"""The load generator as a process inside the cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from localcluster.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from localcluster.lifecycle import LocalCluster

_FIRST_SECONDS = 30.0
_STOP_SECONDS = 20.0


class LoadError(Exception):
    """The load generator does not do its work; the text says why."""


class Load:
    """A running load generator."""

    def __init__(self, cluster: LocalCluster, service: str, rate: float) -> None:
        self._report: Path = cluster.directory / "load.json"
        self._report.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            cluster.command_inside(
                [
                    *(sys.executable, "-m", "localcluster.load"),
                    *("--service", service, "--rate", str(rate)),
                    *("--report", str(self._report)),
                ]
            ),
            cwd=ROOT,
            env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PYTHONPATH": str(ROOT)},
            start_new_session=True,
        )

    def wait_for_answers(self) -> None:
        """Wait until requests are answered. Raises `LoadError`."""
        end = time.monotonic() + _FIRST_SECONDS
        while not any(pod["outcomes"]["ok"] for pod in self.report().get("pods", {}).values()):
            if self._process.poll() is not None:
                raise LoadError(
                    f"the load generator ended with exit code {self._process.returncode}"
                )
            if time.monotonic() > end:
                raise LoadError(f"no request was answered within {_FIRST_SECONDS:.0f} s")
            time.sleep(0.2)

    def report(self) -> dict[str, Any]:
        """The newest report; empty before the first."""
        if not self._report.exists():
            return {}
        found: dict[str, Any] = json.loads(self._report.read_text())
        return found

    def stop(self) -> dict[str, Any]:
        """Stop sending, let requests end, and give the last report."""
        if self._process.poll() is None:
            # The generator is a child of nsenter, which passes no signal on: tell them both.
            os.killpg(self._process.pid, signal.SIGTERM)
            self._process.wait()
        end = time.monotonic() + _STOP_SECONDS
        while self.report().get("running", True) and time.monotonic() < end:
            time.sleep(0.1)
        return self.report()
