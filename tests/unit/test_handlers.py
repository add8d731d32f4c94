"""The deletion of an upgrade, as kopf calls it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator import handlers
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.events import Events
from vllm_upgrade_operator.cluster.reconcile import Outcome, Reconciler
from vllm_upgrade_operator.cluster.wake import Loops
from vllm_upgrade_operator.handlers import Handlers
from vllm_upgrade_operator.telemetry.metrics import Telemetry


class Scripted(Reconciler):
    def __init__(self, *script: Outcome | Exception) -> None:
        unused: Any = None
        super().__init__(unused, unused, unused, Telemetry())
        self.script = list(script)

    async def reconcile(self, *_: object) -> Outcome:
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


async def release(script: list[Outcome | Exception]) -> tuple[StubClient, Scripted]:
    client, reconciler, loops = StubClient(), Scripted(*script), Loops()
    found = Handlers(
        client=client,
        reconciler=reconciler,
        events=Events(client, "pod-1"),
        telemetry=Telemetry(),
        loops=loops,
    )
    await found.release(namespace="serving", name="up", uid="uid-up")
    assert list(loops) == []
    return client, reconciler


async def test_it_goes_when_everything_is_in_order() -> None:
    client, reconciler = await release(
        [Outcome(requeue_seconds=0.0), Outcome(requeue_seconds=0.01), Outcome(released=True)]
    )
    assert reconciler.script == []
    assert client.calls == []


async def test_one_that_is_already_gone_holds_nothing_up() -> None:
    client, _ = await release([Outcome(gone=True)])
    assert client.calls == []


async def test_where_nothing_works_it_is_let_go_in_bounded_time_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "RELEASE_SECONDS", 0.0)
    client, _ = await release([ApiError(403, "Forbidden", "by a policy")])
    event = client.named("POST")[-1]
    assert (event["type"], event["reason"]) == ("Warning", "ReleasedUnfinished")
    assert event["note"].endswith("403 Forbidden: by a policy")


@pytest.mark.parametrize("status", [0, 429, 500, 503])
async def test_a_server_in_trouble_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """It could not take the finalizer off either; and then there is work left to do."""
    monkeypatch.setattr(handlers, "RELEASE_SECONDS", 0.0)
    _, reconciler = await release([ApiError(status, "", ""), Outcome(released=True)])
    assert reconciler.script == []
