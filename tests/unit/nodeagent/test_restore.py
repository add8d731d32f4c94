from typing import Any

from localcluster.nodeagent.pod import _restore
from localcluster.nodeagent.status import ContainerState, Terminated, Waiting

THEN = "2026-01-01T00:00:00Z"


def restored(state: dict[str, Any] | None, **spec: Any) -> ContainerState:
    status: dict[str, Any] = {}
    if state is not None:
        entry = {
            "name": "c",
            "containerID": "local://old",
            "imageID": "i@sha256:1",
            "restartCount": 4,
            "state": state,
        }
        status["containerStatuses"] = [entry]
    container = ContainerState(name="c", image="i")
    _restore(container, {"spec": spec, "status": status})
    return container


def test_a_container_that_was_running_counts_as_restarted_and_lost() -> None:
    container = restored({"running": {"startedAt": THEN}})
    assert container.restarts == 5
    assert isinstance(container.state, Waiting)
    assert container.last is not None
    assert (container.last.exit_code, container.last.reason) == (255, "Unknown")


def test_a_container_that_had_ended_stays_so() -> None:
    container = restored(
        {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": THEN, "finishedAt": THEN}}
    )
    assert container.restarts == 4
    assert container.state == Terminated(3, 0, "Error", THEN, THEN, "local://old")


def test_a_new_pod_waits_for_its_init_containers() -> None:
    assert restored(None).state == Waiting("ContainerCreating")
    assert restored(None, initContainers=[{}]).state == Waiting("PodInitializing")
