from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cluster.objects import pod
from tests.unit.cluster.stub import StubClient
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.ends import explained
from vllm_upgrade_operator.cluster.look import SeenPod
from vllm_upgrade_operator.cluster.memory import Memory
from vllm_upgrade_operator.cluster.pods import parse_pod

LOG = paths.log("serving", "llm-1")
EVENTS = paths.events("serving")
UNKNOWN_FLAG = "vllm serve: error: unrecognized arguments: --x"


def ended(code: int = 2, started: str = "2026-11-30T10:00:05Z", **more: Any) -> dict[str, Any]:
    return {
        "terminated": {
            "exitCode": code,
            "reason": "Error",
            "startedAt": started,
            "finishedAt": "2026-11-30T10:01:40Z",
            "containerID": "c://1",
            **more,
        }
    }


def killing(note: str, at: str) -> dict[str, Any]:
    return {"reason": "Killing", "note": note, "deprecatedLastTimestamp": at, "eventTime": None}


def stamped(text: str, at: str = "2026-11-30T10:01:40.123456789Z") -> str:
    return "".join(f"{at} {line}\n" for line in text.splitlines())


class Logs(StubClient):
    """Two logs of a container: of the process that runs or ran last, and of the one before."""

    present = ""
    before: str | None = None

    async def text(
        self, path: str, *, limit_bytes: int, seconds: float = 0, **query: object
    ) -> str:
        await super().text(path, limit_bytes=limit_bytes, seconds=seconds, **query)
        assert query["timestamps"] == "true"
        if query["previous"] == "false":
            return self.present
        if self.before is None:
            raise ApiError(400, "BadRequest", "previous terminated container not found")
        return self.before


class Scene:
    """The run that ended is the present one, and said `log` shortly before its end."""

    def __init__(self, *events: dict[str, Any], log: str = "") -> None:
        self.client = Logs({LOG: {"text": ""}, EVENTS: {"items": list(events)}})
        self.client.present = stamped(log)
        self.memory = Memory()

    async def look(self, raw: dict[str, Any]) -> tuple[str, bool] | None:
        seen = SeenPod(parse_pod(raw, "vllm"), raw, "vllm")
        cause = (await explained(self.client, seen, self.memory)).pod.end
        return None if cause is None else (cause.reason, cause.may_heal)


async def test_of_a_container_that_runs_nothing_is_asked() -> None:
    scene = Scene()
    assert await scene.look(pod()) is None
    assert scene.client.calls == []


async def test_each_end_is_looked_into_once() -> None:
    scene = Scene(log=UNKNOWN_FLAG)
    for _ in range(3):
        assert await scene.look(pod(state=ended())) == ("UnknownFlag", False)
    assert len(scene.client.named("TEXT")) == 2
    again = pod(state=ended(containerID="c://2"))
    scene.client.present = ""
    assert await scene.look(again) == ("BadCommandLine", False)


@pytest.mark.parametrize("seen_as", ["state", "lastState"])
async def test_the_log_is_that_of_the_run_that_ended(seen_as: str) -> None:
    """Whatever was started since: what was read of the pod may be older than its logs."""
    scene = Scene()
    scene.client.before = stamped(UNKNOWN_FLAG)
    scene.client.present = stamped("CUDA out of memory", "2026-11-30T10:01:42Z")
    raw = pod(state=ended()) if seen_as == "state" else pod(lastState=ended())
    assert await scene.look(raw) == ("UnknownFlag", False)


async def test_a_run_before_it_says_nothing_of_it() -> None:
    scene = Scene(log="vllm serve: error: argument --y: expected one argument")
    scene.client.before = stamped(UNKNOWN_FLAG, "2026-11-30T10:00:04+00:00")
    assert await scene.look(pod(state=ended())) == ("BadFlagValue", False)


async def test_what_has_no_time_says_nothing() -> None:
    scene = Scene()
    scene.client.present = UNKNOWN_FLAG
    assert await scene.look(pod(state=ended())) == ("BadCommandLine", False)


async def test_a_pod_that_goes_anyway_is_not_looked_into() -> None:
    scene = Scene()
    raw = pod(state=ended())
    raw["metadata"]["deletionTimestamp"] = "2026-11-30T10:02:00Z"
    assert await scene.look(raw) is None
    raw = pod(state=ended())
    raw["status"]["phase"] = "Failed"
    assert await scene.look(raw) is None
    assert scene.client.calls == []


@pytest.mark.parametrize(
    ("note", "at", "reason"),
    [
        ("Container vllm failed startup probe, will be restarted", "10:01:35Z", "StartupTooSlow"),
        ("Container vllm failed liveness probe, will be restarted", "10:01:35Z", "StartupTooSlow"),
        ("Container vllm failed startup probe, will be restarted", "09:58:00Z", "KilledBySignal"),
        ("Container proxy failed startup probe, will be restarted", "10:01:35Z", "KilledBySignal"),
        ("Stopping container vllm", "10:01:35Z", "KilledBySignal"),
    ],
)
async def test_a_probe_is_told_from_the_event_about_this_run(
    note: str, at: str, reason: str
) -> None:
    scene = Scene(killing(note, f"2026-11-30T{at}"), log="loading\n")
    found = await scene.look(pod(state=ended(137)))
    assert found is not None
    assert found[0] == reason


async def test_a_log_that_is_gone_leaves_the_exit_code() -> None:
    scene = Scene()
    scene.client.failures["TEXT", LOG] = ApiError(400, "BadRequest", "previous container not found")
    assert await scene.look(pod(lastState=ended(7))) == ("ContainerExited", False)


@pytest.mark.parametrize("call", [("TEXT", LOG), ("GET", EVENTS)])
async def test_what_may_not_be_read_is_an_error(call: tuple[str, str]) -> None:
    scene = Scene()
    scene.client.failures[call] = ApiError(403, "Forbidden", "not allowed")
    with pytest.raises(ApiError, match="not allowed"):
        await scene.look(pod(state=ended()))
    assert scene.memory.end("uid-llm-1", "c://1/2026-11-30T10:01:40Z") is None
