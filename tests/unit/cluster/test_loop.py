from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.loop import STUCK_SECONDS, UpgradeLoop
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.cluster.reconcile import Outcome, Reconciler
from vllm_upgrade_operator.cluster.wake import Loops, fingerprint
from vllm_upgrade_operator.telemetry.metrics import Telemetry

if TYPE_CHECKING:
    from vllm_upgrade_operator.cluster.memory import Memory

UPGRADE: dict[str, Any] = {
    "metadata": {
        "namespace": "serving",
        "name": "up",
        "uid": "uid-up",
        "generation": 1,
        "resourceVersion": "7",
    },
    "spec": {"targetRef": {"name": "llm"}, "candidate": {"image": "i"}},
    "status": {"phase": "Canary", "message": "holding"},
}
STATUS = paths.upgrade("serving", "up") + "/status"
FORBIDDEN = ApiError(403, "Forbidden", "services is forbidden")


class Scripted(Reconciler):
    """Answers with one outcome, or error, after the other; the last one again and again."""

    def __init__(self, client: StubClient, *script: Outcome | Exception) -> None:
        unused: Any = None
        super().__init__(client, unused, unused, Telemetry())
        self.script = list(script)
        self.running = 0
        self.most = 0

    async def reconcile(self, namespace: str, name: str, uid: str, memory: Memory) -> Outcome:
        del namespace, name, uid, memory
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        result = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(result, Exception):
            raise result
        return result


def loop_of(*script: Outcome | Exception) -> tuple[UpgradeLoop, StubClient, Scripted]:
    client = StubClient({paths.upgrade("serving", "up"): UPGRADE})
    reconciler = Scripted(client, *script)
    made = UpgradeLoop(
        namespace="serving",
        name="up",
        uid="uid-up",
        client=client,
        reconciler=reconciler,
        telemetry=Telemetry(),
    )
    return made, client, reconciler


async def test_failures_are_tried_again_ever_more_slowly() -> None:
    loop, _, _ = loop_of(FORBIDDEN)
    waits = [(await loop.tick()).requeue_seconds for _ in range(7)]
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


async def test_a_failure_that_lasts_is_told_in_status_and_the_phase_stays() -> None:
    loop, client, _ = loop_of(FORBIDDEN)
    await loop.tick()
    await loop.tick()
    assert client.named("PATCH") == []
    await loop.tick()
    ((_, where, body),) = [c for c in client.calls if c[0] == "PATCH"]
    assert where == STATUS
    assert body[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    told = body[1]["value"]
    assert told["phase"] == "Canary"
    assert "services is forbidden" in told["message"]
    (condition,) = told["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "Reconciling",
        "True",
        "ApiError",
    )


async def test_a_permission_that_the_operator_lacks_is_told_as_that() -> None:
    words = 'User "system:serviceaccount:s:op" cannot patch resource "pods" in API group ""'
    loop, client, _ = loop_of(ApiError(403, "Forbidden", f"pods is forbidden: {words}"))
    for _ in range(3):
        await loop.tick()
    (body,) = client.named("PATCH")
    message = body[1]["value"]["message"]
    assert words in message
    assert "The operator itself lacks this permission, which its chart grants" in message


async def test_a_success_forgets_the_failures() -> None:
    loop, client, _ = loop_of(FORBIDDEN, FORBIDDEN, Outcome(), FORBIDDEN, FORBIDDEN)
    for _ in range(4):
        await loop.tick()
    assert loop.outcome.requeue_seconds == 1.0
    assert client.named("PATCH") == []


async def test_a_defect_is_a_failure_like_another(caplog: pytest.LogCaptureFixture) -> None:
    del caplog
    loop, _, _ = loop_of(KeyError("surprise"), Outcome(requeue_seconds=5.0))
    assert (await loop.tick()).requeue_seconds == 1.0
    assert (await loop.tick()).requeue_seconds == 5.0


async def test_an_outdated_look_is_no_failure() -> None:
    loop, client, _ = loop_of(OutdatedError("changed"))
    for _ in range(9):
        await loop.tick()
    assert loop.outcome.requeue_seconds == pytest.approx(0.2)
    assert client.named("PATCH") == []


async def test_an_outdated_look_that_never_ends_is_one() -> None:
    loop, client, _ = loop_of(OutdatedError("changed"))
    for _ in range(23):
        await loop.tick()
    assert loop.outcome.requeue_seconds == 4.0
    assert len(client.named("PATCH")) == 1


async def test_a_failure_keeps_what_wakes() -> None:
    loop, _, _ = loop_of(Outcome(pods=frozenset({"uid-pod"})), FORBIDDEN)
    await loop.tick()
    await loop.tick()
    assert loop.outcome.pods == {"uid-pod"}


async def test_there_is_one_reconcile_at_a_time() -> None:
    loop, _, reconciler = loop_of(Outcome())
    await asyncio.gather(*(loop.tick() for _ in range(5)))
    assert reconciler.most == 1


async def test_it_waits_until_woken() -> None:
    loop, _, _ = loop_of(Outcome())
    await loop.tick()
    waiting = asyncio.create_task(loop.wait())
    await asyncio.sleep(0.05)
    assert not waiting.done()
    loop.wake()
    await asyncio.wait_for(waiting, 5)


async def test_it_stops_waiting_when_the_operator_ends() -> None:
    loop, _, _ = loop_of(Outcome())
    await loop.tick()
    stopped = asyncio.Event()
    waiting = asyncio.create_task(loop.wait(stopped))
    await asyncio.sleep(0.05)
    stopped.set()
    await asyncio.wait_for(waiting, 5)


async def test_a_loop_that_nobody_runs_any_more_is_found() -> None:
    loop, _, _ = loop_of(Outcome(requeue_seconds=1.0))
    loops = Loops()
    loops.add(loop)
    await loop.tick()
    now = asyncio.get_running_loop().time()
    assert loops.problem(now) is None
    assert loops.problem(now + STUCK_SECONDS + 5) == "not reconciled any more: serving/up\n"


def test_what_of_an_upgrade_a_person_changes() -> None:
    base = fingerprint(UPGRADE)
    assert fingerprint({**UPGRADE, "status": {"phase": "Baking"}}) == base

    def changed(**metadata: Any) -> object:
        return fingerprint({**UPGRADE, "metadata": {**UPGRADE["metadata"], **metadata}})

    assert changed(resourceVersion="8") == base
    assert changed(generation=2) != base
    assert changed(annotations={"vllmupgrade.dev/approve": "abc-1.0"}) != base
    assert changed(deletionTimestamp="2026-01-01T00:00:00Z") != base


async def woken(loop: UpgradeLoop) -> bool:
    try:
        await asyncio.wait_for(loop.wait(), 0.3)
    except TimeoutError:
        return False
    await loop.tick()
    return True


async def test_which_changes_wake_an_upgrade() -> None:
    outcome = Outcome(pods=frozenset({"uid-pod"}), deployments=frozenset({"llm", "llm-canary"}))
    loop, _, _ = loop_of(outcome)
    loops = Loops()
    loops.add(loop)
    await loop.tick()
    loops.pod_changed({"metadata": {"uid": "uid-other", "namespace": "serving"}})
    loops.deployment_changed({"metadata": {"name": "llm", "namespace": "elsewhere"}})
    loops.deployment_changed({"metadata": {"name": "web", "namespace": "serving"}})
    assert not await woken(loop)
    loops.pod_changed({"metadata": {"uid": "uid-pod"}})
    assert await woken(loop)
    born = {"uid": "uid-new", "labels": {"vllmupgrade.dev/canary": "uid-up"}}
    loops.pod_changed({"metadata": born})
    assert await woken(loop)
    loops.deployment_changed({"metadata": {"name": "llm-canary", "namespace": "serving"}})
    assert await woken(loop)


async def test_own_status_writes_wake_nothing() -> None:
    loop, _, _ = loop_of(Outcome())
    loops = Loops()
    loops.add(loop)
    await loop.tick()
    loops.upgrade_changed(UPGRADE)
    assert await woken(loop)
    loops.upgrade_changed({**UPGRADE, "status": {"phase": "Baking"}})
    assert not await woken(loop)
