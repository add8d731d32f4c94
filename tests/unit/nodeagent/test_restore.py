from typing import Any

from localcluster.nodeagent.pod import _restore
from localcluster.nodeagent.status import ContainerState, Terminated, Waiting

THEN = "2026-01-01T00:00:00Z"


def ended(code: int) -> dict[str, Any]:
    return {"exitCode": code, "reason": "Error", "startedAt": THEN, "finishedAt": THEN}


def restored(
    state: dict[str, Any] | None,
    last: int | None = None,
    **spec: Any,
) -> ContainerState:
    status: dict[str, Any] = {}
    if state is not None:
        entry = {
            "name": "c",
            "containerID": "local://old",
            "imageID": "i@sha256:1",
            "restartCount": 4,
            "state": state,
            "lastState": {} if last is None else {"terminated": ended(last)},
        }
        status["containerStatuses"] = [entry]
    container = ContainerState(name="c", image="i")
    _restore(container, {"spec": spec, "status": status})
    return container


def test_a_container_that_was_running_has_been_lost() -> None:
    container = restored({"running": {"startedAt": THEN}})
    assert isinstance(container.state, Terminated)
    assert (container.state.exit_code, container.state.reason) == (255, "Unknown")
    assert container.state.started_at == THEN


def test_a_container_that_was_backing_off_keeps_its_last_end() -> None:
    container = restored({"waiting": {"reason": "CrashLoopBackOff"}}, last=3)
    assert isinstance(container.state, Waiting)
    assert container.ended == Terminated(3, 0, "Error", THEN, THEN, "local://old")
    assert container.restarts == 4


def test_a_container_that_had_ended_stays_so() -> None:
    container = restored({"terminated": ended(3)})
    assert container.restarts == 4
    assert container.state == Terminated(3, 0, "Error", THEN, THEN, "local://old")


def test_a_new_pod_waits_for_its_init_containers() -> None:
    assert restored(None).state == Waiting("ContainerCreating")
    assert restored(None, initContainers=[{}]).state == Waiting("PodInitializing")
