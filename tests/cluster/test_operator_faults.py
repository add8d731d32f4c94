"""An operator that is killed, and an API server that refuses, fails, hangs and drops watches.

Each test has an operator of its own; between it and the API server stands a proxy that can fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.cluster.faultproxy import Call, Fault, Watches
from tests.cluster.kit import DOMAIN, Serving, condition, quick_spec, wide
from tests.cluster.ownoperator import OwnOperator, own_operator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from vllm_upgrade_operator.cluster.client import Client

OLD, NEW = "sim/vllm:0.28.0", "sim/vllm:0.29.0"

# Twenty starts of the operator take long on a busy machine.
LONG = 600.0


@pytest.fixture
async def operator(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[OwnOperator]:
    async with own_operator(client, namespace, tmp_path) as found:
        yield found


def kind_of(call: Call) -> str:
    """What a write does, in words that are the same for every attempt at it."""
    about = [call.method, call.resource]
    if call.resource == "vllmupgrades/status":
        about.append(str(call.body[1]["value"]["phase"]))
    elif call.resource == "pods":
        about.extend(sorted(call.body["metadata"]["labels"]))
    elif call.resource in ("deployments", "controllerrevisions"):
        about.append(call.name or str(call.body["metadata"]["name"]))
    if isinstance(call.body, list):
        about.extend(f"{part['op']}:{part['path']}" for part in call.body)
    return " ".join(about)


class Killer:
    """Kills the operator right after the first write of each kind, from a phase on."""

    def __init__(self, operator: OwnOperator, since: str = "") -> None:
        self.kinds: list[str] = []
        self._operator = operator
        self._since = since
        operator.proxy.fault = self

    def __call__(self, call: Call) -> Fault | None:
        if not call.is_write:
            return None
        kind = kind_of(call)
        if self._since in kind:
            self._since = ""
        if self._since or kind in self.kinds:
            return None

        def kill() -> None:
            if call.succeeded:
                self.kinds.append(kind)
                self._operator.kill()

        return Fault(then=kill)


async def image(serving: Serving) -> str:
    containers = (await serving.target())["spec"]["template"]["spec"]["containers"]
    return str(containers[0]["image"])


def reasons(status: dict[str, Any]) -> list[str]:
    return [e["reason"] for e in status["timeline"]]


def canaries_made(operator: OwnOperator) -> int:
    return sum(c.method == "POST" and c.resource == "deployments" for c in operator.proxy.writes())


def templates_written(operator: OwnOperator) -> list[str]:
    """The images that the target's template was given, in order."""
    return [
        part["value"]["spec"]["containers"][0]["image"]
        for call in operator.proxy.writes()
        if call.resource == "deployments" and isinstance(call.body, list)
        for part in call.body
        if part["op"] == "replace" and part["path"] == "/spec/template"
    ]


async def nothing_is_left(serving: Serving) -> None:
    """Wait until neither the canary nor a record of this upgrade is there."""

    async def clean() -> bool:
        names = []
        for kind in ("deployments", "controllerrevisions"):
            at = f"/apis/apps/v1/namespaces/{serving.namespace}/{kind}"
            names += [item["metadata"]["name"] for item in (await serving.client.get(at))["items"]]
        return names == ["llm"] and await serving.canaries() == []

    await serving.until(clean, "nothing left of the upgrade but the target")


async def promoted_template(serving: Serving) -> None:
    """Wait until the target rolls."""
    await serving.phase("Promoting")

    async def rolls() -> bool:
        return await image(serving) == NEW

    await serving.until(rolls, "the candidate's template in the target")


def changed(*env: tuple[str, str]) -> dict[str, Any]:
    """The quick candidate with more environment."""
    candidate = quick_spec()["candidate"]
    candidate["env"] += [{"name": name, "value": value} for name, value in env]
    return dict(candidate)


def patient(**strategy: Any) -> dict[str, Any]:
    """A strategy whose only step holds longer than any test."""
    steps = [{"replicas": 1, "hold": "10m"}]
    return {**quick_spec()["strategy"], "steps": steps, **strategy}


def counted(**analysis: Any) -> dict[str, Any]:
    """An analysis of counts alone: what is killed and failed here makes a busy machine slow."""
    checks = wide(off=("ttft-p99", "itl-p99", "e2e-p99"))
    return {**quick_spec()["analysis"], "checks": checks, **analysis}


async def end_container(serving: Serving) -> None:
    """Let the canary's server exit."""
    address = (await serving.canaries())[0]["status"]["podIP"]
    url = f"http://{address}:8000/sim/fault/EXIT_CODE?value=7"
    async with aiohttp.ClientSession() as session:
        with contextlib.suppress(aiohttp.ClientError):
            await session.post(url)


async def test_a_promotion_survives_a_kill_after_each_kind_of_write(
    serving: Serving, operator: OwnOperator
) -> None:
    killer = Killer(operator)
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(analysis=counted())
    await serving.phase("Succeeded", seconds=LONG)
    status = await serving.status()
    await nothing_is_left(serving)
    assert await image(serving) == NEW
    assert canaries_made(operator) == 1
    assert templates_written(operator) == [NEW]
    seen = reasons(status)
    assert seen == list(dict.fromkeys(seen)), "each thing happened once"
    for phase in ("Pending", "Starting", "Verifying", "Canary", "Promoting", "Baking", "Succeeded"):
        assert any(f"status {phase}" in kind for kind in killer.kinds), killer.kinds
    assert operator.killed == len(killer.kinds) > 15
    assert operator.ended == [], operator.log()[-4000:]


async def test_a_rollback_survives_a_kill_after_each_kind_of_write(
    serving: Serving, operator: OwnOperator
) -> None:
    killer = Killer(operator, since="RollingBack")
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(
        analysis=counted(), candidate=changed(("SIM_FAULT_EXIT_CODE", "7@4")), strategy=patient()
    )
    await serving.phase("RolledBack", seconds=LONG)
    status = await serving.status()
    await nothing_is_left(serving)
    assert condition(status, "RolledBack") == ("True", "ContainerExited")
    assert "exit code 7" in status["message"]
    assert reasons(status).count("ContainerExited") == 1
    assert canaries_made(operator) == 1
    assert templates_written(operator) == []
    assert await image(serving) == OLD
    assert operator.killed == len(killer.kinds) >= 4, killer.kinds


async def test_an_abort_survives_a_kill_after_each_kind_of_write_and_acts_once(
    serving: Serving, operator: OwnOperator
) -> None:
    killer = Killer(operator, since="RollingBack")
    await serving.deploy(replicas=2, min_ready_seconds=5)
    await serving.load(15)
    await serving.upgrade(analysis=counted())
    await promoted_template(serving)
    await serving.annotate({f"{DOMAIN}/abort": "once"})
    await serving.phase("RolledBack", seconds=LONG)
    status = await serving.status()
    await nothing_is_left(serving)
    assert condition(status, "RolledBack") == ("True", "Aborted")
    assert reasons(status).count("Aborted") == 1
    assert status["handledActions"]["aborts"] == ["once"]
    assert templates_written(operator) == [NEW, OLD]
    assert canaries_made(operator) == 1
    assert await image(serving) == OLD
    await serving.all_ready(2)
    assert operator.killed == len(killer.kinds) >= 4, killer.kinds


async def test_a_deletion_survives_a_kill_after_each_kind_of_write(
    serving: Serving, operator: OwnOperator
) -> None:
    killer = Killer(operator, since="RollingBack")
    await serving.deploy(replicas=2, min_ready_seconds=5)
    await serving.load(15)
    await serving.upgrade(analysis=counted())
    await promoted_template(serving)
    await serving.client.delete(serving.path())

    async def gone() -> bool:
        return await serving.client.find(serving.path()) is None

    await serving.until(gone, "the upgrade gone", seconds=LONG)
    await nothing_is_left(serving)
    assert templates_written(operator) == [NEW, OLD]
    assert await image(serving) == OLD
    await serving.all_ready(2)
    assert operator.killed == len(killer.kinds) >= 4, killer.kinds


class SoonKiller:
    """Kills every life when it has written status three times: two looks that can be compared."""

    def __init__(self, operator: OwnOperator) -> None:
        self._operator = operator
        self._written: Counter[int] = Counter()
        operator.proxy.fault = self

    def __call__(self, call: Call) -> Fault | None:
        if call.resource != "vllmupgrades/status":
            return None
        return Fault(then=self._count)

    def _count(self) -> None:
        self._written[self._operator.lives] += 1
        if self._written[self._operator.lives] == 3:
            self._operator.kill()


@pytest.mark.parametrize("end", ["Succeeded", "Halted"])
async def test_killed_again_and_again_it_makes_progress_and_keeps_deadlines(
    serving: Serving, operator: OwnOperator, end: str
) -> None:
    await serving.deploy(replicas=2)
    await serving.load(15)
    analysis = counted()
    if end == "Halted":
        # Nothing will ever be sufficient: only the deadline ends it.
        analysis = counted(minRequests=1_000_000, maxDuration="20s")
    SoonKiller(operator)
    await serving.upgrade(analysis=analysis)
    await serving.phase(end, seconds=LONG)
    status = await serving.status()
    assert operator.killed >= 3
    assert canaries_made(operator) == 1
    if end == "Halted":
        assert condition(status, "Stalled") == ("True", "Inconclusive")
        assert await image(serving) == OLD
    else:
        assert await image(serving) == NEW


class Unreliable:
    """Refuses, fails or leaves without an answer many of the writes and some of the reads."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self._random = random.Random(4)  # noqa: S311 - no secret

    def __call__(self, call: Call) -> Fault | None:
        share = 0.3 if call.is_write else 0.01
        if call.is_watch or self._random.random() >= share:
            return None
        kinds = ["429", "500", "lost", *(["409"] if call.is_write else [])]
        kind = self._random.choice(kinds)
        self.done[kind] += 1
        return Fault(lost=True) if kind == "lost" else Fault(status=int(kind))


@pytest.mark.parametrize("end", ["Succeeded", "RolledBack"])
async def test_failing_calls_change_no_outcome(
    serving: Serving, operator: OwnOperator, end: str
) -> None:
    await serving.deploy(replicas=2)
    await serving.load(15)
    unreliable = operator.proxy.fault = Unreliable()
    harm = [("SIM_FAULT_EXIT_CODE", "7@8")] if end == "RolledBack" else []
    strategy = patient() if harm else quick_spec()["strategy"]
    await serving.upgrade(analysis=counted(), candidate=changed(*harm), strategy=strategy)
    await serving.phase(end, seconds=LONG)
    status = await serving.status()
    await nothing_is_left(serving)
    assert await image(serving) == (OLD if harm else NEW)
    assert templates_written(operator) == ([] if harm else [NEW])
    if harm:
        assert condition(status, "RolledBack") == ("True", "ContainerExited")
    assert set(unreliable.done) == {"409", "429", "500", "lost"}
    assert canaries_made(operator) == 1
    assert operator.ended == [], operator.log()[-4000:]


async def test_harm_during_a_silence_of_the_api_server_is_acted_on_after_it(
    serving: Serving, operator: OwnOperator
) -> None:
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(analysis=counted(), strategy=patient())

    async def judged() -> bool:
        return any(c.get("requests") for c in (await serving.status()).get("checks", []))

    await serving.until(judged, "a judged canary")
    operator.proxy.stop()
    attempt = (await serving.status())["attempt"]
    await asyncio.sleep(2)
    await end_container(serving)
    await asyncio.sleep(28)
    assert (await serving.status())["phase"] == "Canary"
    operator.proxy.go_on()
    await serving.phase("RolledBack")
    status = await serving.status()
    assert status["attempt"] == attempt
    assert condition(status, "RolledBack") == ("True", "ContainerExited")
    assert "exit code 7" in status["message"]
    assert operator.ended == [], operator.log()[-4000:]


async def test_a_deadline_that_falls_into_a_silence_of_the_api_server_holds(
    serving: Serving, operator: OwnOperator
) -> None:
    await serving.deploy(replicas=2)
    await serving.upgrade(
        analysis=counted(),
        candidate=changed(("SIM_LOAD_SECONDS", "600")),
        strategy=patient(startDeadline="15s"),
    )
    await serving.phase("Starting")
    await serving.until(serving.canaries, "a canary pod")
    operator.proxy.stop()
    await asyncio.sleep(30)
    operator.proxy.go_on()
    await serving.phase("RolledBack")
    status = await serving.status()
    assert condition(status, "RolledBack") == ("True", "StartDeadlineExceeded")
    assert await image(serving) == OLD


async def test_watches_that_break_and_expire_hold_nothing_up(
    serving: Serving, operator: OwnOperator
) -> None:
    operator.proxy.watches = Watches(cut_after=2.0, gone_every=3)
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(analysis=counted())
    await serving.phase("Succeeded", seconds=LONG)
    await nothing_is_left(serving)
    assert await image(serving) == NEW
    assert operator.ended == [], operator.log()[-4000:]


async def test_what_watches_do_not_tell_is_found_by_looking(
    serving: Serving, operator: OwnOperator
) -> None:
    """A stale watch: it stands, and says nothing of what happens."""
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(analysis=counted(), strategy=patient())
    await serving.phase("Canary")
    operator.proxy.watches = Watches(mute=True)
    await end_container(serving)
    await serving.phase("RolledBack")
    assert condition(await serving.status(), "RolledBack") == ("True", "ContainerExited")


def refusing(method: str, resource: str, path: str | None, status: int) -> Callable[[Call], Any]:
    """Refuse one kind of write for good; `path` is one that a JSON Patch replaces."""

    def rule(call: Call) -> Fault | None:
        if (call.method, call.resource) != (method, resource) or not call.is_write:
            return None
        patched = [p["path"] for p in call.body] if isinstance(call.body, list) else []
        if path is not None and path not in patched:
            return None
        return Fault(status=status, words="not in this house")

    return rule


@pytest.mark.parametrize("status", [403, 422])
async def test_a_canary_that_is_refused_for_good_ends_the_attempt(
    serving: Serving, operator: OwnOperator, status: int
) -> None:
    await serving.deploy(replicas=2)
    operator.proxy.fault = refusing("POST", "deployments", None, status)
    await serving.upgrade(analysis=counted())
    await serving.phase("RolledBack")
    found = await serving.status()
    assert condition(found, "RolledBack") == ("True", "ActionRefused")
    assert "the API server refuses EnsureCanary: not in this house" in found["message"]
    assert await image(serving) == OLD


async def test_a_promotion_that_is_refused_for_good_is_rolled_back(
    serving: Serving, operator: OwnOperator
) -> None:
    await serving.deploy(replicas=2)
    await serving.load(15)
    operator.proxy.fault = refusing("PATCH", "deployments", "/spec/template", 403)
    await serving.upgrade(analysis=counted())
    await serving.phase("RolledBack")
    found = await serving.status()
    assert condition(found, "RolledBack") == ("True", "ActionRefused")
    assert "the API server refuses ReplaceTemplate: not in this house" in found["message"]
    await nothing_is_left(serving)
    assert await image(serving) == OLD


async def test_a_rollback_that_is_refused_for_good_asks_a_person(
    serving: Serving, operator: OwnOperator
) -> None:
    await serving.deploy(replicas=2)
    await serving.load(15)
    await serving.upgrade(analysis=counted(), strategy=patient(startDeadline="5s"))
    await serving.phase("Canary")
    operator.proxy.fault = refusing("DELETE", "deployments", None, 403)
    await serving.annotate({f"{DOMAIN}/abort": "1"})
    await serving.phase("Halted")
    found = await serving.status()
    assert condition(found, "Stalled") == ("True", "RollbackStuck")
    assert "not in this house" in found["message"]
