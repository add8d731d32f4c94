from __future__ import annotations

from typing import Any

from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.events import Events
from vllm_upgrade_operator.upgrade.decision import Notice

UPGRADE: dict[str, Any] = {"metadata": {"namespace": "serving", "name": "up", "uid": "uid-up"}}
TARGET = ("llm", "uid-llm")


def notice(message: str = "it was") -> Notice:
    return Notice(type="Normal", reason="Promoted", message=message)


async def test_one_for_the_upgrade_and_one_for_its_target() -> None:
    client = StubClient()
    await Events(client, "pod-1").post(UPGRADE, TARGET, [notice()])
    posted = client.named("POST")
    assert [e["regarding"]["kind"] for e in posted] == ["VLLMUpgrade", "Deployment"]
    assert [e["related"]["kind"] for e in posted] == ["Deployment", "VLLMUpgrade"]
    assert {e["reportingController"] for e in posted} == {"vllmupgrade.dev/operator"}


async def test_what_repeats_grows_the_series() -> None:
    client = StubClient()
    events = Events(client, "pod-1")
    for _ in range(3):
        await events.post(UPGRADE, None, [notice()])
    await events.post(UPGRADE, None, [notice("something else")])
    assert len(client.named("POST")) == 2
    assert [body["series"]["count"] for body in client.named("PATCH")] == [2, 3]


async def test_a_note_is_cut_between_characters() -> None:
    client = StubClient()
    await Events(client, "pod-1").post(UPGRADE, None, [notice("ü" * 600)])
    (event,) = client.named("POST")
    assert event["note"] == "ü" * 512


async def test_an_event_that_cannot_be_posted_stops_nothing() -> None:
    client = StubClient()
    client.failures["POST", paths.events("serving")] = ApiError(403, "Forbidden", "no")
    await Events(client, "pod-1").post(UPGRADE, TARGET, [notice()])
    assert len(client.named("POST")) == 2


async def test_a_long_name_makes_a_legal_one() -> None:
    client = StubClient()
    upgrade = {"metadata": {**UPGRADE["metadata"], "name": "a" * 199 + "." + "b" * 53}}
    await Events(client, "pod-1").post(upgrade, None, [notice()])
    (event,) = client.named("POST")
    assert event["metadata"]["name"].startswith("a" * 199 + ".")
    assert ".." not in event["metadata"]["name"]
