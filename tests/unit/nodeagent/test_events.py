import asyncio
from typing import Any

from localcluster.nodeagent.events import MAX_QUEUED, Recorder
from vllm_upgrade_operator.cluster.client import ApiError

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n", "uid": "u"},
    "spec": {"nodeName": "node-0"},
}


class FakeClient:
    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.lost = False

    async def create(self, _: str, body: dict[str, Any]) -> None:
        self.created.append(body)

    async def patch(self, path: str, body: dict[str, Any], _: str) -> None:
        if self.lost:
            raise ApiError(404, "NotFound", "gone")
        self.patched.append((path, body))


async def write_all(recorder: Recorder) -> None:
    running = asyncio.create_task(recorder.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()


async def test_a_repeated_event_is_counted_up() -> None:
    client = FakeClient()
    recorder = Recorder(client)  # type: ignore[arg-type]
    for message in ("one", "one", "other", "one"):
        recorder.record(POD, "Warning", "Unhealthy", message, container="c")
    await write_all(recorder)
    assert [event["message"] for event in client.created] == ["one", "other"]
    name = client.created[0]["metadata"]["name"]
    assert [(path.rpartition("/")[2], body["count"]) for path, body in client.patched] == [
        (name, 2),
        (name, 3),
    ]
    assert client.created[0]["involvedObject"]["fieldPath"] == "spec.containers{c}"


async def test_an_event_that_has_expired_is_made_anew() -> None:
    client = FakeClient()
    client.lost = True
    recorder = Recorder(client)  # type: ignore[arg-type]
    for _ in range(2):
        recorder.record(POD, "Normal", "Pulled", "x")
    await write_all(recorder)
    assert [event["count"] for event in client.created] == [1, 1]
    assert client.created[0]["metadata"]["name"] != client.created[1]["metadata"]["name"]


async def test_a_flood_is_cut_off_not_kept() -> None:
    recorder = Recorder(FakeClient())  # type: ignore[arg-type]
    for number in range(MAX_QUEUED + 5):
        recorder.record(POD, "Normal", "Pulled", str(number))
    assert recorder._queue.qsize() == MAX_QUEUED
