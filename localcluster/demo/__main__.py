"""`python -m localcluster.demo`: a good upgrade is promoted, a bad one is rolled back."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from localcluster import build
from localcluster.demo.kubectl import Kubectl, KubectlError
from localcluster.demo.load import Load, LoadError
from localcluster.demo.summary import Ended, checks, summary
from localcluster.lifecycle import ClusterError, LocalCluster
from localcluster.paths import ROOT, state_dir

if TYPE_CHECKING:
    from pathlib import Path

_EXAMPLES = ROOT / "examples" / "demo"
_NAMESPACE = "serving"
_RATE = 30.0
_UPGRADE_SECONDS = 300.0
_ENDS = frozenset({"Succeeded", "RolledBack", "Halted", "Blocked"})
_LABELS = "--label-columns=" + ",".join(
    f"vllmupgrade.dev/{name}" for name in ("role", "active-runner", "version")
)


def main() -> int:
    """Show it; the exit code is 0 only if both upgrades ended as they should."""
    given = os.environ.get("LOCALCLUSTER_DIR")
    cluster = LocalCluster(state_dir() if given else state_dir() / "demo")
    cluster.directory.mkdir(parents=True, exist_ok=True)
    keep = os.environ.get("KEEP") == "1"
    try:
        cluster.down()
        cluster.up(operator=True)
        return _show(cluster)
    except (ClusterError, KubectlError, LoadError, build.BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if keep and cluster.running() is not None:
            print(f"\nLeft running. Look around:\n  export KUBECONFIG={cluster.kubeconfig}")
            print(f"  {build.kubectl()} --namespace {_NAMESPACE} get vllmupgrades,pods")
            print(f"Stop it: LOCALCLUSTER_DIR={cluster.directory} make down")
        elif cluster.down():
            print(f"\nAll of it is stopped. Logs: {_from_here(cluster.directory / 'logs')}")


def _show(cluster: LocalCluster) -> int:
    kubectl = Kubectl(build.kubectl(), cluster.kubeconfig, _NAMESPACE)
    _say("A team serves a model: vLLM 0.28 on Model Runner V1, four replicas, behind a Service")
    kubectl.show("apply", "--filename", _example("serving"))
    kubectl.show("rollout", "status", "deployment/llama", "--timeout=25s")
    load = Load(cluster, f"{_NAMESPACE}/llama", _RATE)
    try:
        load.wait_for_answers()
        print(f"\nUsers send {_RATE:.0f} requests per second from now on.", flush=True)
        _say("An upgrade to vLLM 0.29 on Model Runner V2: a good one")
        good = _upgrade(kubectl, "llama-v0.29", "upgrade-good", "Succeeded")
        _say("An upgrade to vLLM 0.32 with a queue limit that is far too low: a bad one")
        bad = _upgrade(kubectl, "llama-v0.32", "upgrade-breach", "RolledBack")
    finally:
        report = load.stop()
    print("\n" + "=" * 72)
    print(summary((good, bad), report))
    print("Where to look:")
    print(f"  the upgrades' manifests: {_from_here(_EXAMPLES)}")
    print(f"  the requests of each pod: {_from_here(cluster.directory / 'load.json')}")
    print("  a cluster that goes on: make demo KEEP=1, or make up")
    return 0 if good.right and bad.right else 1


def _upgrade(kubectl: Kubectl, name: str, example: str, expected: str) -> Ended:
    """Apply an upgrade and follow it to its end as a person would."""
    began = time.monotonic()
    kubectl.show("apply", "--filename", _example(example))
    status = _follow(kubectl, name, began)
    kubectl.show("get", "pods", _LABELS)
    print(f"\nWhat was measured last (status.checks of {name}):\n{checks(status)}")
    kubectl.show("events", "--for", f"vllmupgrade/{name}")
    return Ended(
        name,
        str(status.get("phase")),
        expected,
        str(status.get("message")),
        time.monotonic() - began,
    )


def _follow(kubectl: Kubectl, name: str, began: float) -> dict[str, Any]:
    """Print the upgrade's line whenever it changes, approve where asked, until it has ended."""
    status: dict[str, Any] = {}
    shown, approved, pods_shown = "", "", False
    watch = kubectl.watch("vllmupgrade", name)
    try:
        while status.get("phase") not in _ENDS:
            if time.monotonic() - began > _UPGRADE_SECONDS:
                raise KubectlError(
                    f"{name} has not ended after {_UPGRADE_SECONDS:.0f} s: {status.get('message')}"
                )
            line = watch.next(2.0)
            # The last column is the age: it would make every line a new one.
            row = (line or "").rpartition(" ")[0].rstrip()
            if row not in {"", shown}:
                print(f"{time.monotonic() - began:4.0f}s  {row}", flush=True)
                shown = row
            status = kubectl.read("vllmupgrade", name).get("status") or {}
            if status.get("phase") == "Canary" and not pods_shown:
                kubectl.show("get", "pods", _LABELS)
                pods_shown = True
            token = _asked(status)
            if token and token != approved:
                _approve(kubectl, name, token)
                approved = token
    finally:
        watch.close()
    return status


def _asked(status: dict[str, Any]) -> str:
    """The approval that the upgrade waits for; empty if none."""
    waiting = any(c["reason"] == "WaitingForApproval" for c in status.get("conditions", []))
    return f"{status['attempt']['id']}.{status['step']['index'] + 1}" if waiting else ""


def _approve(kubectl: Kubectl, name: str, token: str) -> None:
    print("\nThe step waits for a person. We have looked, and approve it:")
    user = kubectl.run("auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
    kubectl.show(
        *("annotate", "--overwrite", "vllmupgrade", name),
        f"vllmupgrade.dev/approve={token}",
        f"vllmupgrade.dev/approved-by={user}",
    )


def _example(name: str) -> str:
    return str((_EXAMPLES / f"{name}.yaml").relative_to(ROOT))


def _from_here(path: Path) -> str:
    """A path as short as it can be written in this directory."""
    return os.path.relpath(path)


def _say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
