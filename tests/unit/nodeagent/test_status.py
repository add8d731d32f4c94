from typing import Any

import pytest

from localcluster.nodeagent.status import (
    ContainerState,
    PodState,
    Running,
    State,
    Terminated,
    Waiting,
    phase,
    pod_status,
)

THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
RUN, WAIT = Running(THEN), Waiting("ContainerCreating")


def end(code: int) -> Terminated:
    return Terminated(code, 0, "Completed" if code == 0 else "Error", THEN, THEN, "local://1")


def container(state: State, name: str = "c", **fields: Any) -> ContainerState:
    return ContainerState(name=name, image="i", state=state, **fields)


def pod(policy: str = "Always", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 3}, "spec": {"restartPolicy": policy, **spec}, "status": {}}


def of(*containers: ContainerState, stopped: bool = False) -> PodState:
    return PodState(containers, THEN, "127.0.0.1", "10.244.0.2", stopped)


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Always", [WAIT], "Pending"),
        ("Always", [RUN], "Running"),
        ("Always", [RUN, WAIT], "Running"),
        ("Always", [end(1)], "Running"),
        ("Never", [end(0)], "Succeeded"),
        ("Never", [end(0), end(1)], "Failed"),
        ("Never", [end(1), RUN], "Running"),
        ("OnFailure", [end(0)], "Succeeded"),
        ("OnFailure", [end(1)], "Running"),
    ],
)
def test_phase(policy: str, states: list[State], expected: str) -> None:
    containers = [container(state, str(at)) for at, state in enumerate(states)]
    assert phase(pod(policy), of(*containers)) == expected


def test_a_container_that_backs_off_has_run_so_the_pod_is_not_pending() -> None:
    waiting = container(Waiting("CrashLoopBackOff"), last=end(1))
    assert phase(pod(), of(waiting)) == "Running"


@pytest.mark.parametrize(
    ("state", "expected"), [(end(0), "Succeeded"), (end(137), "Failed"), (WAIT, "Failed")]
)
def test_a_pod_that_was_ended_has_a_final_phase(state: State, expected: str) -> None:
    assert phase(pod(), of(container(state), stopped=True)) == expected


def test_init_containers_come_first() -> None:
    waiting = container(Waiting("PodInitializing"))
    init = container(RUN, "init", is_init=True)
    assert phase(pod(), of(init, waiting)) == "Pending"
    init.state = end(1)
    assert phase(pod("Never"), of(init, waiting)) == "Failed"
    assert phase(pod("Always"), of(init, waiting)) == "Pending"


def conditions(of_pod: dict[str, Any], state: PodState) -> dict[str, Any]:
    status = pod_status(of_pod, state, NOW)
    return {condition["type"]: condition for condition in status["conditions"]}


def test_ready_needs_all_containers() -> None:
    one, two = container(RUN, "one", ready=True), container(RUN, "two")
    ready = conditions(pod(), of(one, two))["Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "ContainersNotReady")
    assert ready["message"] == "containers with unready status: [two]"
    two.ready = True
    ready = conditions(pod(), of(one, two))["Ready"]
    assert (ready["status"], ready["reason"]) == ("True", None)
    assert ready["observedGeneration"] == 3


def test_the_time_of_a_condition_changes_only_with_its_status() -> None:
    given = pod()
    given["status"]["conditions"] = [
        {"type": "Ready", "status": "True", "lastTransitionTime": THEN},
        {"type": "ContainersReady", "status": "False", "lastTransitionTime": THEN},
    ]
    found = conditions(given, of(container(RUN, ready=True)))
    assert found["Ready"]["lastTransitionTime"] == THEN
    assert found["ContainersReady"]["lastTransitionTime"] == NOW


def test_readiness_gates_are_honoured() -> None:
    given = pod(readinessGates=[{"conditionType": "example.com/gate"}])
    state = of(container(RUN, ready=True))
    found = conditions(given, state)
    assert found["ContainersReady"]["status"] == "True"
    assert found["Ready"]["reason"] == "ReadinessGatesNotReady"
    given["status"]["conditions"] = [{"type": "example.com/gate", "status": "True"}]
    assert conditions(given, state)["Ready"]["status"] == "True"


def test_a_pod_that_has_ended_is_not_ready_and_says_why() -> None:
    found = conditions(pod("Never"), of(container(end(0))))
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", "PodCompleted")
    assert found["Initialized"]["status"] == "True"


def test_initialized_waits_for_init_containers_and_started_sidecars() -> None:
    init = container(end(0), "init", is_init=True, ready=True)
    sidecar = container(RUN, "side", is_init=True, is_sidecar=True)
    waiting = container(Waiting("PodInitializing"))
    found = conditions(pod(), of(init, sidecar, waiting))["Initialized"]
    assert found["status"] == "False"
    assert found["message"] == "containers with incomplete status: [side]"
    sidecar.started = True
    assert conditions(pod(), of(init, sidecar, waiting))["Initialized"]["status"] == "True"


def test_a_container_is_reported_with_both_its_states() -> None:
    state = container(Waiting("CrashLoopBackOff", "back-off"), last=end(1), restarts=2)
    body = pod_status(pod(), of(state), NOW)["containerStatuses"][0]
    assert body["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert body["lastState"]["terminated"]["exitCode"] == 1
    assert body["restartCount"] == 2
