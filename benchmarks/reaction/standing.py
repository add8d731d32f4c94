"""What it costs that upgrades are there while nothing happens: memory and writes."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.reaction import scene
from localcluster.paths import state_dir
from localcluster.release import NAME, NAMESPACE
from tests.cluster.kit import DOMAIN, quick_spec

if TYPE_CHECKING:
    from tests.cluster.kit import Serving
    from vllm_upgrade_operator.cluster.client import Client

_USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
_WRITING = frozenset({"create", "update", "patch", "delete"})
_WINDOW_SECONDS = 60.0
_SETTLE_SECONDS = 45.0
# So many begin at the same time.
_AT_ONCE = 5


async def writes(client: Client, directory: Path) -> dict[str, float]:
    """Writes of the operator in a minute: an upgrade in `Canary` under even load, and its end."""
    async with scene.serving(client, directory) as serving:
        await serving.deploy(replicas=2)
        await serving.load(20)
        await scene.in_canary(serving, "up")
        await asyncio.sleep(10)
        holding = await _written(serving)
        print(f"writes in Canary: {holding:.1f} a minute", flush=True)
        await serving.annotate({f"{DOMAIN}/abort": "now"})
        await serving.phase("RolledBack")
        await asyncio.sleep(10)
        ended = await _written(serving)
        print(f"writes of a finished one: {ended:.1f} a minute", flush=True)
    return {"canary": holding, "finished": ended}


async def _written(serving: Serving) -> float:
    """Count them in the audit log, which has every request."""
    audit = state_dir() / "logs" / "audit.log"
    offset, began = audit.stat().st_size, time.monotonic()
    await asyncio.sleep(_WINDOW_SECONDS)
    minutes = (time.monotonic() - began) / 60
    with audit.open("rb") as file:
        file.seek(offset)
        lines = file.read().splitlines()
    return sum(_is_write(json.loads(line), serving.namespace) for line in lines) / minutes


def _is_write(entry: dict[str, Any], namespace: str) -> bool:
    return (
        entry["user"]["username"] == _USER
        and entry["verb"] in _WRITING
        and entry.get("objectRef", {}).get("namespace") == namespace
        and "dryRun" not in entry["requestURI"]
    )


async def memory(client: Client, directory: Path, counts: list[int]) -> dict[int, float]:
    """Resident MiB of the operator with so many upgrades that hold in `Canary`, by their number."""
    found: dict[int, float] = {}
    async with scene.serving(client, directory) as serving:
        made = 0
        for count in counts:
            while made < count:
                some = range(made, min(count, made + _AT_ONCE))
                await asyncio.gather(*(_held(serving, f"llm-{number}") for number in some))
                made = some.stop
                print(f"memory: {made} upgrades hold, {_resident():.0f} MiB", flush=True)
            await asyncio.sleep(_SETTLE_SECONDS)
            found[count] = _resident()
            print(f"memory with {count} upgrades: {found[count]:.1f} MiB", flush=True)
    return found


async def _held(serving: Serving, name: str) -> None:
    """Serve, and begin an upgrade that gets as far as `Canary` and has no traffic to judge."""
    deployments = f"/apis/apps/v1/namespaces/{serving.namespace}/deployments"
    await serving.client.create(deployments, scene.small_target(name))

    async def ready() -> bool:
        target = await serving.client.get(f"{deployments}/{name}")
        return bool(target.get("status", {}).get("readyReplicas"))

    await serving.until(ready, f"{name} ready", seconds=300)
    strategy = {**quick_spec()["strategy"], "steps": [{"replicas": 1, "hold": "2h"}]}
    strategy |= {"startDeadline": "10m", "scheduleDeadline": "10m"}
    # All else, the interval and the checks too, is as it comes.
    await serving.upgrade(
        name,
        targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        strategy=strategy,
        analysis={},
    )
    await serving.phase("Canary", name=name, seconds=300)


def _resident() -> float:
    """Of the one operator process, from its pod's process."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        command = (entry / "cmdline").read_bytes().split(b"\0")
        if b"vllm_upgrade_operator" in command:
            lines = (entry / "status").read_text().splitlines()
            resident = next(line for line in lines if line.startswith("VmRSS:"))
            return int(resident.split()[1]) / 1024
    raise AssertionError("the operator does not run")
