"""A pod's status out of the state of its containers, as the kubelet reports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Waiting:
    """Not running yet, or not any more for now."""

    reason: str
    message: str = ""

    def render(self) -> dict[str, Any]:
        """As in `containerStatuses[].state`."""
        body = {"reason": self.reason}
        return {"waiting": body | ({"message": self.message} if self.message else {})}


@dataclass(frozen=True)
class Running:
    """Running since a moment, as RFC 3339."""

    started_at: str

    def render(self) -> dict[str, Any]:
        """As in `containerStatuses[].state`."""
        return {"running": {"startedAt": self.started_at}}


@dataclass(frozen=True)
class Terminated:
    """Ended. Times are RFC 3339."""

    exit_code: int
    signal: int
    reason: str
    started_at: str
    finished_at: str
    container_id: str
    message: str = ""

    def render(self) -> dict[str, Any]:
        """As in `containerStatuses[].state`."""
        body: dict[str, Any] = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": self.started_at,
            "finishedAt": self.finished_at,
            "containerID": self.container_id,
        }
        if self.signal:
            body["signal"] = self.signal
        if self.message:
            body["message"] = self.message
        return {"terminated": body}


State = Waiting | Running | Terminated


@dataclass
class ContainerState:
    """What is known of one container now."""

    name: str
    image: str
    is_init: bool = False
    is_sidecar: bool = False
    state: State = field(default_factory=lambda: Waiting("ContainerCreating"))
    last: Terminated | None = None
    image_id: str = ""
    container_id: str = ""
    restarts: int = 0
    ready: bool = False
    started: bool = False

    @property
    def ended(self) -> Terminated | None:
        """How it ended, where it is not running: now, or before the wait it is in."""
        if isinstance(self.state, Terminated):
            return self.state
        return self.last if isinstance(self.state, Waiting) else None

    def render(self) -> dict[str, Any]:
        """As in `containerStatuses`."""
        body: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "imageID": self.image_id,
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state.render(),
            "lastState": self.last.render() if self.last is not None else {},
        }
        if self.container_id:
            body["containerID"] = self.container_id
        return body


@dataclass(frozen=True)
class PodState:
    """What is known of one pod now. `start_time` is RFC 3339; the addresses are set together."""

    containers: Sequence[ContainerState]
    start_time: str
    host_ip: str
    pod_ip: str | None
    stopped: bool = False
    """Whether the pod has been ended: containers that do not run will not run again."""


def phase(pod: Mapping[str, Any], state: PodState) -> str:
    """The pod's phase."""
    policy = pod["spec"].get("restartPolicy", "Always")
    init = [c for c in state.containers if c.is_init and not c.is_sidecar]
    main = [c for c in state.containers if not c.is_init]
    failed_init = [c for c in init if c.ended is not None and c.ended.exit_code != 0]
    if failed_init and (policy == "Never" or state.stopped):
        return "Failed"
    running = any(isinstance(c.state, Running) for c in main)
    ended = [c.ended for c in main if c.ended is not None]
    if state.stopped and not running:
        good = len(ended) == len(main) and all(end.exit_code == 0 for end in ended)
        return "Succeeded" if good else "Failed"
    unfinished_init = any(not _succeeded(c) for c in init) and not (running or ended)
    if unfinished_init or (not running and len(ended) < len(main)):
        return "Pending"
    if running or policy == "Always" or len(ended) < len(main):
        return "Running"
    if all(end.exit_code == 0 for end in ended):
        return "Succeeded"
    return "Failed" if policy == "Never" else "Running"


def pod_status(pod: Mapping[str, Any], state: PodState, now: str) -> dict[str, Any]:
    """The status to be patched: what this agent owns of it, PodScheduled and the like left out."""
    at = phase(pod, state)
    init = [c for c in state.containers if c.is_init]
    main = [c for c in state.containers if not c.is_init]
    body: dict[str, Any] = {
        "phase": at,
        "startTime": state.start_time,
        "hostIP": state.host_ip,
        "hostIPs": [{"ip": state.host_ip}],
        "containerStatuses": [c.render() for c in main],
        "conditions": _conditions(pod, state, at, now),
    }
    if state.pod_ip is not None:
        body |= {"podIP": state.pod_ip, "podIPs": [{"ip": state.pod_ip}]}
    if init:
        body["initContainerStatuses"] = [c.render() for c in init]
    generation = pod["metadata"].get("generation")
    if generation:
        body["observedGeneration"] = generation
    return body


def _conditions(pod: Mapping[str, Any], state: PodState, at: str, now: str) -> list[dict[str, Any]]:
    present = {c["type"]: c for c in pod.get("status", {}).get("conditions", [])}
    containers_ready = _containers_ready(state, at)
    wanted = {
        "PodReadyToStartContainers": (state.pod_ip is not None and not state.stopped, "", ""),
        "Initialized": _initialized(state, at),
        "ContainersReady": containers_ready,
        "Ready": _ready(pod, containers_ready, present),
    }
    conditions = []
    for name, (is_true, reason, message) in wanted.items():
        status = "True" if is_true else "False"
        old = present.get(name, {})
        same = old.get("status") == status
        condition: dict[str, Any] = {
            "type": name,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": old.get("lastTransitionTime", now) if same else now,
            # None takes an entry away: a patch would keep the old one.
            "reason": reason or None,
            "message": message or None,
        }
        generation = pod["metadata"].get("generation")
        if generation:
            condition["observedGeneration"] = generation
        conditions.append(condition)
    return conditions


Verdict = tuple[bool, str, str]


def _initialized(state: PodState, at: str) -> Verdict:
    if at == "Succeeded":
        return True, "PodCompleted", ""
    missing = [
        c.name
        for c in state.containers
        if c.is_init and not (c.started if c.is_sidecar else _succeeded(c))
    ]
    if not missing or any(isinstance(c.state, Running) for c in state.containers if not c.is_init):
        return True, "", ""
    names = " ".join(missing)
    message = f"containers with incomplete status: [{names}]"
    return False, "ContainersNotInitialized", message


def _containers_ready(state: PodState, at: str) -> Verdict:
    if at == "Succeeded":
        return False, "PodCompleted", ""
    if at == "Failed":
        return False, "PodFailed", ""
    unready = [c.name for c in _serving(state.containers) if not c.ready]
    if not unready:
        return True, "", ""
    return False, "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _ready(pod: Mapping[str, Any], containers: Verdict, present: Mapping[str, Any]) -> Verdict:
    if not containers[0]:
        return containers
    for gate in pod["spec"].get("readinessGates", []):
        name = gate["conditionType"]
        if name not in present:
            message = f'corresponding condition of pod readiness gate "{name}" does not exist.'
            return False, "ReadinessGatesNotReady", message
        status = present[name]["status"]
        if status != "True":
            message = f'the status of pod readiness gate "{name}" is not "True", but {status}'
            return False, "ReadinessGatesNotReady", message
    return True, "", ""


def _serving(containers: Iterable[ContainerState]) -> list[ContainerState]:
    return [c for c in containers if not c.is_init or c.is_sidecar]


def _succeeded(container: ContainerState) -> bool:
    return container.ended is not None and container.ended.exit_code == 0
