"""kubectl as a person at a terminal would use it."""

from __future__ import annotations

import json
import os
import queue
import shlex
import subprocess
import threading
from typing import IO, TYPE_CHECKING, Any

from localcluster.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

_SECONDS = 30.0


class KubectlError(Exception):
    """kubectl failed; the text is what it said."""


class Kubectl:
    """Runs kubectl on one cluster and namespace."""

    def __init__(self, program: str, kubeconfig: Path, namespace: str) -> None:
        self._program = program
        self._namespace = namespace
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str) -> str:
        """Run one command and give its output. Raises `KubectlError`."""
        done = subprocess.run(
            [self._program, *arguments, "--namespace", self._namespace],
            env=self._environment,
            cwd=ROOT,
            check=False,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def show(self, *arguments: str) -> str:
        """Run a command in sight: print it, and what it says."""
        print(f"\n$ kubectl -n {self._namespace} {shlex.join(arguments)}", flush=True)
        output = self.run(*arguments)
        print(output.rstrip(), flush=True)
        return output

    def read(self, *arguments: str) -> dict[str, Any]:
        """Read an object. Raises `KubectlError`."""
        found: dict[str, Any] = json.loads(self.run("get", *arguments, "--output=json"))
        return found

    def watch(self, *arguments: str) -> Watch:
        """Run `kubectl get --watch` in sight."""
        print(f"\n$ kubectl -n {self._namespace} get {shlex.join(arguments)} --watch", flush=True)
        process = subprocess.Popen(
            [self._program, "get", *arguments, "--watch", "--namespace", self._namespace],
            env=self._environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        return Watch(process)


class Watch:
    """The lines of a running `kubectl get --watch`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.Queue[str] = queue.Queue()
        if process.stdout is None:
            raise TypeError("the process must have a pipe as its standard output")
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self._lines.put(line.rstrip())

    def next(self, seconds: float) -> str | None:
        """Give the next line; None when none came in this time."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the command."""
        self._process.terminate()
        self._process.wait()
