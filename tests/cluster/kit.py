"""What a test of the whole job needs: a serving workload, load, an upgrade, and what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp

from localcluster import build
from vllm_upgrade_operator.cluster.client import MERGE, ApiError, Client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

GROUP = "/apis/vllmupgrade.dev/v1alpha1"
DOMAIN = "vllmupgrade.dev"

# A wait in a test ends long after what it waits for should have happened: only a defect reaches it.
PATIENCE = 120.0


@dataclass
class Serving:
    """One namespace with a Deployment `llm`, a Service `llm` and upgrades of it."""

    client: Client
    namespace: str
    directory: Path
    loads: list[Load] = field(default_factory=list)

    # Making things.

    async def deploy(
        self,
        image: str = "sim/vllm:0.28.0",
        *,
        replicas: int = 4,
        args: tuple[str, ...] = (),
        env: Mapping[str, str] | None = None,
        min_ready_seconds: int = 0,
    ) -> None:
        """Make the target and its Service, and wait until all pods are ready."""
        await self.serve(target_manifest(image, replicas, args, env or {}, min_ready_seconds))

    async def serve(self, deployment: Mapping[str, Any]) -> None:
        """Make this Deployment and the Service, and wait until all pods are ready."""
        await self.client.create(
            f"/apis/apps/v1/namespaces/{self.namespace}/deployments", deployment
        )
        await self.client.create(f"/api/v1/namespaces/{self.namespace}/services", SERVICE)
        await self.all_ready(deployment["spec"]["replicas"])

    async def helm(self, image: str, env: Mapping[str, str], replicas: int = 2) -> None:
        """Install or upgrade target and Service from a chart of their own."""
        chart = self.directory / "chart"
        (chart / "templates").mkdir(parents=True, exist_ok=True)
        about = {"apiVersion": "v2", "name": "llm", "version": "0.1.0"}
        (chart / "Chart.yaml").write_text(json.dumps(about))
        deployment = target_manifest(image, replicas, (), env, 0)
        for manifest in (deployment, SERVICE):
            file = chart / "templates" / f"{manifest['kind'].lower()}.yaml"
            file.write_text(json.dumps(manifest))
        helm = str(build.binaries() / "helm")
        await run(helm, "upgrade", "--install", "llm", str(chart), "-n", self.namespace)
        await self.all_ready(replicas)

    async def all_ready(self, replicas: int) -> None:
        """Wait until the target is at rest with so many pods."""
        await self.until(self._all_ready, f"{replicas} pods ready")

    async def _all_ready(self) -> bool:
        target = await self.target()
        status, wanted = target.get("status", {}), target["spec"]["replicas"]
        seen = status.get("observedGeneration", 0) >= target["metadata"]["generation"]
        counts = [status.get(k, 0) for k in ("readyReplicas", "updatedReplicas", "replicas")]
        return seen and counts == [wanted] * 3

    async def upgrade(
        self, name: str = "up", *, annotations: Mapping[str, str] | None = None, **spec: Any
    ) -> None:
        """Apply a VLLMUpgrade; the given parts replace those of a quick default."""
        await self.client.create(
            f"{GROUP}/namespaces/{self.namespace}/vllmupgrades",
            {
                "apiVersion": f"{DOMAIN}/v1alpha1",
                "kind": "VLLMUpgrade",
                "metadata": {"name": name, "annotations": dict(annotations or {})},
                "spec": {**quick_spec(), **spec},
            },
            fieldValidation="Strict",
        )

    async def load(self, rate: float, **options: str) -> Load:
        """Send open-loop traffic to the Service until the test ends; returns once it flows."""
        load = await Load.start(self, rate, options)
        self.loads.append(load)

        async def flows() -> bool:
            return bool(load.snapshot().get("pods"))

        await self.until(flows, "load on the Service")
        return load

    async def annotate(self, annotations: Mapping[str, str | None], name: str = "up") -> None:
        await self.client.patch(
            self.path(name), {"metadata": {"annotations": dict(annotations)}}, MERGE
        )

    async def set_spec(self, change: Mapping[str, Any], name: str = "up") -> None:
        """Change parts of an upgrade's spec, by a merge patch."""
        await self.client.patch(self.path(name), {"spec": dict(change)}, MERGE)

    async def fault(self, pod: Mapping[str, Any], name: str, value: str) -> None:
        """Begin a fault of one simulated server; `off` ends it."""
        url = f"http://{pod['status']['podIP']}:8000/sim/fault/{name}"
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, params={"value": value}) as response,
        ):
            assert response.status == 200, await response.text()

    # Looking at things.

    def path(self, name: str = "up") -> str:
        return f"{GROUP}/namespaces/{self.namespace}/vllmupgrades/{name}"

    async def target(self) -> dict[str, Any]:
        return await self.client.get(f"/apis/apps/v1/namespaces/{self.namespace}/deployments/llm")

    async def status(self, name: str = "up") -> dict[str, Any]:
        return dict((await self.client.get(self.path(name))).get("status") or {})

    async def pods(self, selector: str = "") -> list[dict[str, Any]]:
        """Pods of the namespace that are not terminating, by name."""
        query = {"labelSelector": selector} if selector else {}
        found = await self.client.get(f"/api/v1/namespaces/{self.namespace}/pods", **query)
        alive = [p for p in found["items"] if "deletionTimestamp" not in p["metadata"]]
        return sorted(alive, key=lambda p: str(p["metadata"]["name"]))

    async def canaries(self) -> list[dict[str, Any]]:
        return await self.pods(f"{DOMAIN}/canary")

    async def events(self) -> list[tuple[str, str, str]]:
        """Reason, type and note of each Event on the upgrade, oldest first."""
        found = await self.client.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        mine = [e for e in found["items"] if e["regarding"].get("kind") == "VLLMUpgrade"]
        mine.sort(key=lambda e: str(e.get("eventTime") or e["metadata"]["creationTimestamp"]))
        return [(e["reason"], e["type"], e.get("note", "")) for e in mine]

    # Waiting.

    async def phase(
        self,
        *phases: str,
        name: str = "up",
        seconds: float = PATIENCE,
        passing: tuple[str, ...] = (),
    ) -> str:
        """Wait for one of the phases; too late, or at another end, fail with the whole story.

        `passing` names ends that it may pass on its way, as the end of an earlier attempt.
        """
        ends = {"Succeeded", "RolledBack", "Blocked", "Halted"} - set(passing)
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            status = await self.status(name)
            now = status.get("phase")
            if now in phases:
                return str(now)
            if now in ends:
                break
            await asyncio.sleep(0.2)
        raise AssertionError(f"waited for {phases}, got {await self.story(status)}")

    async def until(self, holds: Callable[[], Any], what: str, seconds: float = PATIENCE) -> None:
        """Wait until an async predicate holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if await holds():
                return
            await asyncio.sleep(0.2)
        upgrade = await self.client.find(self.path()) or {}
        story = await self.story(upgrade.get("status") or {})
        raise AssertionError(f"waited {seconds:.0f} s for: {what}; {story}")

    async def story(self, status: dict[str, Any]) -> str:
        """Everything that helps to understand a failed wait."""
        lines = [json.dumps(status.get(k)) for k in ("phase", "message", "checks", "conditions")]
        lines += [f"{e['time']} {e['phase']} {e['message']}" for e in status.get("timeline", [])]
        for pod in await self.pods():
            states = pod["status"].get("containerStatuses", [])
            lines.append(
                f"{pod['metadata']['name']} {pod['metadata'].get('labels')} "
                f"{[s.get('state') for s in states]}"
            )
        lines += [str(load.snapshot()) for load in self.loads]
        return "\n".join(lines)


@dataclass
class Load:
    """A running load generator; `snapshot` is its newest report."""

    process: asyncio.subprocess.Process
    report: Path

    @classmethod
    async def start(cls, serving: Serving, rate: float, options: Mapping[str, str]) -> Load:
        report = serving.directory / f"load-{len(serving.loads)}.json"
        arguments = [
            "--service",
            f"{serving.namespace}/llm",
            "--rate",
            str(rate),
            "--report",
            str(report),
        ]
        for name, value in options.items():
            arguments.append(f"--{name.replace('_', '-')}")
            if value:
                arguments.append(value)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "localcluster.load", *arguments, env=dict(os.environ)
        )
        return cls(process, report)

    def snapshot(self) -> dict[str, Any]:
        if not self.report.exists():
            return {}
        return dict(json.loads(self.report.read_text()))

    async def stop(self) -> dict[str, Any]:
        """Stop gracefully and give the last report."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self.process.wait(), 30)
        return self.snapshot()


SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "llm"},
    "spec": {
        "selector": {"app": "llm"},
        "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
    },
}


def target_manifest(
    image: str,
    replicas: int,
    args: tuple[str, ...],
    env: Mapping[str, str],
    min_ready_seconds: int,
) -> dict[str, Any]:
    """A Deployment of simulated vLLM servers, selected by `app`."""
    container = {
        "name": "vllm",
        "image": image,
        "args": ["--model", "m", "--port", "8000", *args],
        "env": [
            {"name": name, "value": value}
            for name, value in {"SIM_LOAD_SECONDS": "0.2", **env}.items()
        ],
        "ports": [{"name": "http", "containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llm"},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": min_ready_seconds,
            "selector": {"matchLabels": {"app": "llm"}},
            "template": {
                "metadata": {"labels": {"app": "llm", "team": "a"}},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [container]},
            },
        },
    }


async def run(*command: str, seconds: float = 60.0) -> str:
    """Run a command and give its output; it must succeed."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await asyncio.wait_for(process.communicate(), seconds)
    assert process.returncode == 0, f"{command}: {output.decode()}"
    return output.decode()


# Limits that a healthy canary is shown to keep within some fifty requests.
WIDE: list[dict[str, Any]] = [
    {"name": "rejections", "max": "10%"},
    {"name": "errors", "max": "10%"},
    {"name": "preemptions", "max": 1},
    {"name": "ttft-p99", "quantile": "p50", "max": "20s", "maxIncrease": "900%"},
    {"name": "itl-p99", "quantile": "p50", "maxIncrease": "900%"},
    {"name": "e2e-p99", "quantile": "p50", "maxIncrease": "900%"},
]


def wide(*changes: Mapping[str, Any], off: Collection[str] = ()) -> list[dict[str, Any]]:
    """Give those limits with some changed, some added and some checks disabled."""
    found: dict[str, dict[str, Any]] = {str(check["name"]): dict(check) for check in WIDE}
    for change in changes:
        found[change["name"]] = {**found.get(change["name"], {}), **change}
    for name in off:
        found[name] = {"name": name, "mode": "Disabled"}
    return list(found.values())


def quick_spec() -> dict[str, Any]:
    """An upgrade from 0.28 to 0.29 whose waits are seconds."""
    return {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
        "candidate": {
            "image": "sim/vllm:0.29.0",
            "version": "0.29.0",
            "env": [{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"}],
        },
        "runner": {"expected": "V2", "onMismatch": "Halt"},
        "strategy": {
            "steps": [{"replicas": 1, "hold": "5s"}],
            "bake": "3s",
            "scheduleDeadline": "30s",
            "startDeadline": "40s",
            "haltTimeout": "60s",
        },
        "analysis": {
            "interval": "1s",
            "warmup": {"duration": "2s", "requests": 5},
            "minRequests": 30,
            "maxDuration": "60s",
            "checks": WIDE,
        },
    }


def condition(status: Mapping[str, Any], type_: str) -> tuple[str, str] | None:
    """Status and reason of a condition, None where it is absent."""
    for found in status.get("conditions", []):
        if found["type"] == type_:
            return found["status"], found["reason"]
    return None


async def delete_namespace(client: Client, name: str) -> None:
    """Delete a namespace without waiting for it."""
    try:
        await client.delete(f"/api/v1/namespaces/{name}")
    except ApiError as error:
        if error.status != 409:
            raise
