"""A namespace that serves, and upgrades in it that have reached `Canary`."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.kit import Serving, quick_spec, target_manifest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from vllm_upgrade_operator.cluster.client import Client

INTERVAL_SECONDS = 2.0

CANDIDATE = "sim/vllm:0.29.0"


@dataclass(frozen=True, slots=True)
class Canary:
    """The one canary pod of an upgrade."""

    name: str
    address: str


@asynccontextmanager
async def serving(client: Client, directory: Path) -> AsyncIterator[Serving]:
    """Make a namespace; load stops and the namespace goes at the end."""
    namespace = f"bench-{uuid.uuid4().hex[:8]}"
    await client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
    scene = Serving(client, namespace, directory)
    account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
    try:
        # Pods need it, and a controller makes it.
        await scene.until(lambda: client.find(account), "the default ServiceAccount")
        yield scene
    finally:
        for load in scene.loads:
            await load.stop()
        await client.delete(f"/api/v1/namespaces/{namespace}")


async def in_canary(scene: Serving, name: str) -> Canary:
    """Begin an upgrade that will stay in `Canary`, and wait until its canary is judged."""
    spec = quick_spec()
    spec["strategy"]["steps"] = [{"replicas": 1, "hold": "1h"}]
    spec["analysis"]["interval"] = f"{INTERVAL_SECONDS:.0f}s"
    # The limit that is broken is a hard one, and it is the only check.
    spec["analysis"]["checks"] = [
        {"name": "errors", "max": "1%"},
        *({"name": name, "mode": "Disabled"} for name in _OTHERS),
    ]
    await scene.upgrade(name, **{k: v for k, v in spec.items() if k != "targetRef"})
    await scene.phase("Canary", name=name)

    async def judged() -> bool:
        checks = (await scene.status(name)).get("checks", [])
        return any(c["name"] == "errors" and c["requests"] > 0 for c in checks)

    await scene.until(judged, "the canary judged")
    (pod,) = await scene.canaries()
    return Canary(pod["metadata"]["name"], pod["status"]["podIP"])


_OTHERS = (
    *("rejections", "queue", "ttft-p99", "itl-p99", "e2e-p99", "kv", "preemptions"),
    *("kv-capacity", "draft-acceptance"),
)


async def clear(scene: Serving, name: str) -> None:
    """Delete an upgrade and wait until it is gone."""
    await scene.client.delete(scene.path(name))

    async def gone() -> bool:
        return await scene.client.find(scene.path(name)) is None

    await scene.until(gone, f"upgrade {name} gone")


async def last_request(scene: Serving, pod: str) -> float:
    """When the last request was sent that a pod accepted; nothing sends it any more."""
    load = scene.loads[0]
    while True:
        before = load.snapshot()["pods"][pod]["last_accepted"]
        await asyncio.sleep(2.5)
        if load.snapshot()["pods"][pod]["last_accepted"] == before:
            return float(before)


def small_target(name: str) -> Mapping[str, Any]:
    """A Deployment of one server that nothing calls."""
    manifest = target_manifest("sim/vllm:0.28.0", 1, (), {}, 0)
    template = manifest["spec"]["template"]
    template["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = 5
    template["metadata"]["labels"] = {"app": name}
    manifest["metadata"] = {"name": name}
    manifest["spec"]["selector"]["matchLabels"] = {"app": name}
    return manifest
