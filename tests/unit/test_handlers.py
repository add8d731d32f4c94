"""The deletion of an upgrade, as kopf calls it."""

from __future__ import annotations

import time
from typing import Any

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster.events import Events
from vllm_upgrade_operator.cluster.reconcile import Outcome, Reconciler
from vllm_upgrade_operator.cluster.wake import Loops
from vllm_upgrade_operator.handlers import RELEASE_SECONDS, Handlers
from vllm_upgrade_operator.telemetry.metrics import Telemetry
from vllm_upgrade_operator.upgrade.times import rfc3339


class Scripted(Reconciler):
    def __init__(self, *script: Outcome) -> None:
        unused: Any = None
        super().__init__(unused, unused, unused, Telemetry())
        self.script = list(script)

    async def reconcile(self, *_: object) -> Outcome:
        return self.script.pop(0)


async def release(script: list[Outcome], deleted_seconds_ago: float) -> tuple[StubClient, Scripted]:
    client, reconciler, loops = StubClient(), Scripted(*script), Loops()
    handlers = Handlers(
        client=client,
        reconciler=reconciler,
        events=Events(client, "pod-1"),
        telemetry=Telemetry(),
        loops=loops,
    )
    meta: Any = {"deletionTimestamp": rfc3339(time.time() - deleted_seconds_ago)}
    await handlers.release(namespace="serving", name="up", uid="uid-up", meta=meta)
    assert list(loops) == []
    return client, reconciler


async def test_it_goes_when_everything_is_in_order() -> None:
    script = [Outcome(requeue_seconds=0.0), Outcome(requeue_seconds=0.01), Outcome(released=True)]
    client, reconciler = await release(script, deleted_seconds_ago=0)
    assert reconciler.script == []
    assert client.calls == []


async def test_one_that_is_already_gone_holds_nothing_up() -> None:
    client, _ = await release([Outcome(gone=True)], deleted_seconds_ago=0)
    assert client.calls == []


async def test_it_is_let_go_in_bounded_time_and_that_is_said() -> None:
    client, _ = await release([Outcome(requeue_seconds=1.0)], RELEASE_SECONDS + 1)
    (event,) = client.named("POST")
    assert (event["type"], event["reason"]) == ("Warning", "ReleasedUnfinished")
