"""From what happens to the last request that the canary accepts."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import aiohttp

from benchmarks.reaction import scene
from tests.cluster.kit import DOMAIN, GROUP
from vllm_upgrade_operator.upgrade.times import seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from tests.cluster.kit import Serving
    from vllm_upgrade_operator.cluster.client import Client

    Moments = dict[str, float]
    Trigger = Callable[[Serving, str, scene.Canary], Awaitable[Moments]]

_RATE = 45.0
_LIMIT_PERCENT = 1.0


async def measure(client: Client, directory: Path, runs: int) -> dict[str, list[float]]:
    """Seconds of every run, by what happens; negative where nothing came any more by then."""
    found: dict[str, list[float]] = {}
    async with scene.serving(client, directory) as serving:
        await serving.deploy(replicas=2)
        await serving.load(_RATE)
        found["reference"] = [await _reference(serving, i) for i in range(runs)]
        _tell("reference", found)
        for number, trigger in enumerate(_TRIGGERS):
            for run in range(runs):
                for what, taken in (await _once(serving, f"up-{number}-{run}", trigger)).items():
                    found.setdefault(what, []).append(taken)
                    _tell(what, found)
    return found


def _tell(what: str, found: dict[str, list[float]]) -> None:
    print(f"{what}: {', '.join(f'{s:.2f}' for s in found[what])} s", flush=True)


async def _once(serving: Serving, name: str, trigger: Trigger) -> dict[str, float]:
    canary = await scene.in_canary(serving, name)
    moments = await trigger(serving, name, canary)
    await serving.phase("RolledBack", name=name)
    last = await scene.last_request(serving, canary.name)
    await scene.clear(serving, name)
    return {what: last - moment for what, moment in moments.items()}


async def _abort(serving: Serving, name: str, _: scene.Canary) -> Moments:
    """The API server's answer to whoever aborts."""
    await serving.annotate({f"{DOMAIN}/abort": "now"}, name)
    return {"abort": time.time()}


async def _hard_limit(serving: Serving, name: str, canary: scene.Canary) -> Moments:
    """The first look that finds more errors than the limit allows, and the one that is harm.

    They are not the same where the judge wants to see it again.
    """
    moments: Moments = {}
    writes = _watch(serving, f"{GROUP}/namespaces/{serving.namespace}/vllmupgrades", name)
    await _fault(canary, "ERROR_FRACTION", "1")
    async for upgrade in writes:
        status = upgrade["status"]
        look = status.get("progress", {}).get("lookAt")
        for check in status.get("checks", []):
            if check["name"] == "errors" and _percent(check.get("canary")) > _LIMIT_PERCENT:
                moments.setdefault("limit_exceeded", seconds(look))
        if status["phase"] == "RollingBack":
            return {**moments, "harm_found": seconds(look)}
    raise AssertionError("the watch ended before harm was found")


async def _restart(serving: Serving, _: str, canary: scene.Canary) -> Moments:
    """When a watch shows that the container was started again."""
    pods = _watch(serving, f"/api/v1/namespaces/{serving.namespace}/pods", canary.name)
    await _fault(canary, "EXIT_CODE", "1")
    async for pod in pods:
        if any(s["restartCount"] > 0 for s in pod["status"].get("containerStatuses", [])):
            return {"restart": time.time()}
    raise AssertionError("the watch ended before the container was started again")


_TRIGGERS: tuple[Trigger, ...] = (_abort, _hard_limit, _restart)


async def _reference(serving: Serving, number: int) -> float:
    """From a patch that takes a pod's label to its last request: no operator has a part in it."""
    name = f"reference-{number}"
    template = (await serving.target())["spec"]["template"]
    pods = f"/api/v1/namespaces/{serving.namespace}/pods"
    await serving.client.create(
        pods, {"metadata": {"name": name, "labels": {"app": "llm"}}, "spec": template["spec"]}
    )

    async def serves() -> bool:
        return name in serving.loads[0].snapshot().get("pods", {})

    await serving.until(serves, f"requests for {name}")
    await serving.client.patch(f"{pods}/{name}", {"metadata": {"labels": {"app": None}}})
    began = time.time()
    last = await scene.last_request(serving, name)
    await serving.client.delete(f"{pods}/{name}")
    return last - began


def _watch(serving: Serving, collection: str, name: str) -> AsyncIterator[dict[str, Any]]:
    """All that is written to one object from now on."""

    async def events() -> AsyncIterator[dict[str, Any]]:
        watch = serving.client.watch(collection, fieldSelector=f"metadata.name={name}")
        async for _, found in watch:
            yield found

    return events()


async def _fault(canary: scene.Canary, name: str, value: str) -> None:
    url = f"http://{canary.address}:8000/sim/fault/{name}?value={value}"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        try:
            async with session.post(url) as answer:
                answer.raise_for_status()
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            # A process that is told to exit may do so before it answers.
            await asyncio.sleep(0)


def _percent(text: str | None) -> float:
    return float(text.rstrip("%")) if text is not None and text.endswith("%") else 0.0
