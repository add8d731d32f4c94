"""Bringing an upgrade into a phase and keeping it there, without traffic where none is needed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.cluster.kit import DOMAIN, quick_spec
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.upgrade.names import UPGRADE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.cluster.kit import Serving

PINNED_TO_V1 = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
LONG = "300s"


def candidate(**env: str) -> dict[str, Any]:
    """The quick default's candidate with further variables."""
    found = quick_spec()["candidate"]
    found["env"] += [{"name": name, "value": value} for name, value in env.items()]
    return dict(found)


def strategy(**changes: Any) -> dict[str, Any]:
    """The quick default's strategy, changed."""
    return {**quick_spec()["strategy"], "haltTimeout": LONG, **changes}


_STAYS: dict[str, dict[str, Any]] = {
    "Pending": {"paused": True},
    "Preflight": {},
    "Starting": {"candidate": candidate(SIM_LOAD_SECONDS="600")},
    # It answers nothing that could be its version.
    "Verifying": {"candidate": candidate(SIM_FAULT_GARBAGE="1")},
    "Canary": {"strategy": strategy(steps=[{"replicas": 1, "hold": LONG}])},
    # The target pins the old runner, and the candidate leaves that as it is.
    "Halted": {"candidate": {"image": "sim/vllm:0.29.0"}},
    "Promoting": {"strategy": strategy(steps=[{"replicas": 1, "hold": LONG}])},
    "Baking": {"strategy": strategy(steps=[{"replicas": 1, "hold": LONG}], bake=LONG)},
}


async def deploy(serving: Serving, phase: str) -> dict[str, Any]:
    """Make a target of two pods with which an upgrade can stay in a phase; give its template."""
    await serving.deploy(
        env=PINNED_TO_V1, replicas=2, min_ready_seconds=20 if phase == "Promoting" else 0
    )
    return await template(serving)


async def reach(serving: Serving, phase: str, name: str = "up", **spec: Any) -> None:
    """Apply an upgrade that stays in a phase, and wait until it is there.

    It is promoted by a person: that needs no traffic.
    """
    await serving.upgrade(name, **{**_STAYS[phase], **spec})
    if phase not in ("Promoting", "Baking"):
        await serving.phase(phase, name=name)
        return
    await serving.phase("Canary", name=name)
    attempt = (await serving.status(name))["attempt"]["id"]
    person = {f"{DOMAIN}/approved-by": "admin"}
    await serving.annotate({f"{DOMAIN}/promote": attempt, **person}, name)
    await serving.phase(phase, name=name)

    async def replaced() -> bool:
        return image(await template(serving)) == "sim/vllm:0.29.0"

    await serving.until(replaced, "the candidate's template on the target")


async def template(serving: Serving) -> dict[str, Any]:
    """The target's pod template."""
    found: dict[str, Any] = (await serving.target())["spec"]["template"]
    return found


def image(pod_template: Mapping[str, Any]) -> str:
    return str(pod_template["spec"]["containers"][0]["image"])


def reasons(status: Mapping[str, Any]) -> list[str]:
    """Reasons of the timeline, oldest first."""
    return [e["reason"] for e in status.get("timeline", [])]


def said(status: Mapping[str, Any], reason: str) -> str:
    """The newest message of the timeline with a reason."""
    return str(next(e["message"] for e in reversed(status["timeline"]) if e["reason"] == reason))


async def revisions(serving: Serving) -> list[str]:
    """Names of the ControllerRevisions that upgrades keep."""
    found = await serving.client.get(paths.revisions(serving.namespace), labelSelector=UPGRADE)
    return sorted(str(r["metadata"]["name"]) for r in found["items"])


async def canary_is_gone(serving: Serving) -> None:
    """Wait until neither the canary's Deployment nor any pod of it is there."""
    path = paths.deployment(serving.namespace, "llm-canary")

    async def gone() -> bool:
        return await serving.client.find(path) is None and await serving.canaries() == []

    await serving.until(gone, "the canary to go")


async def is_gone(serving: Serving, name: str = "up", seconds: float = 60.0) -> None:
    """Wait until a deleted upgrade is gone."""

    async def gone() -> bool:
        return await serving.client.find(serving.path(name)) is None

    await serving.until(gone, f"upgrade {name} to go", seconds)


async def delete(serving: Serving, name: str = "up") -> None:
    await serving.client.delete(serving.path(name))


async def delete_by_force(serving: Serving, name: str = "up") -> None:
    """Delete an upgrade and take its finalizer off: the operator has no time to put in order."""
    await asyncio.gather(
        delete(serving, name),
        serving.client.patch(serving.path(name), {"metadata": {"finalizers": None}}),
    )
    await serving.client.delete(serving.path(name))
    if await serving.client.find(serving.path(name)) is not None:
        await serving.client.patch(serving.path(name), {"metadata": {"finalizers": None}})
    await is_gone(serving, name, seconds=5)
