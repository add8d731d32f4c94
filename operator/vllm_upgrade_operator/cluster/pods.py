"""Pods as the API server gives them, read into the values that decisions are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.observation import Pod
from vllm_upgrade_operator.upgrade.probes import start_seconds
from vllm_upgrade_operator.upgrade.times import seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TEMPLATE_HASH = "pod-template-hash"

_UNREACHABLE = "node.kubernetes.io/unreachable"

_ENDED = ("Failed", "Succeeded")


def parse_pod(raw: Mapping[str, Any], container: str) -> Pod:
    """Read a pod.

    Args:
        raw: The pod, as the API server gives it.
        container: Name of its vLLM container.
    """
    metadata, spec = raw["metadata"], raw["spec"]
    status: Mapping[str, Any] = raw.get("status") or {}
    labels: Mapping[str, str] = metadata.get("labels") or {}
    scheduled = _condition(status, "PodScheduled")
    ready = _condition(status, "Ready")
    seen = named(status.get("containerStatuses"), container)
    state: Mapping[str, Any] = seen.get("state") or {}
    ended = last_end(raw, container)
    waiting = state.get("waiting") or {}
    terminating = "deletionTimestamp" in metadata
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        labels=labels,
        annotations=metadata.get("annotations") or {},
        created_at=seconds(metadata["creationTimestamp"]),
        template_hash=labels.get(TEMPLATE_HASH, ""),
        terminating=terminating,
        scheduled_at=_since(scheduled, "True"),
        unschedulable=(
            str(scheduled.get("message", "no message"))
            if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
            else None
        ),
        ready_at=_since(ready, "True"),
        unready_since=_since(ready, "False"),
        started_at=_time((state.get("running") or {}).get("startedAt")),
        restarts=int(seen.get("restartCount", 0)),
        waiting_reason=waiting.get("reason"),
        waiting_message=waiting.get("message"),
        gone_at=_time(metadata.get("deletionTimestamp")),
        node_lost=_node_lost(spec, status, ready),
        eviction_seconds=eviction_seconds(spec.get("tolerations") or ()),
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason"),
        digest=_digest(seen.get("imageID")),
        startup_seconds=start_seconds(named(spec.get("containers"), container)),
        pullable="@" in (seen.get("imageID") or ""),
        ended=status.get("phase") in _ENDED,
    )


def last_end(raw: Mapping[str, Any], container: str) -> Mapping[str, Any]:
    """How the container's process ended, the present one or the one before; empty: it has not."""
    seen = named((raw.get("status") or {}).get("containerStatuses"), container)
    states = (seen.get("state") or {}, seen.get("lastState") or {})
    found: Mapping[str, Any] = next((s["terminated"] for s in states if s.get("terminated")), {})
    return found


def _node_lost(
    spec: Mapping[str, Any], status: Mapping[str, Any], ready: Mapping[str, Any]
) -> bool:
    """Whether somebody else than the kubelet has called the pod not ready.

    The kubelet sets Ready by ContainersReady and the readiness gates; the node controller, when a
    node has not reported for its grace period, sets Ready alone (MarkPodsNotReady in
    pkg/controller/util/node of Kubernetes 1.31 to 1.37).
    """
    containers = _condition(status, "ContainersReady").get("status") == "True"
    return containers and ready.get("status") == "False" and not spec.get("readinessGates")


def eviction_seconds(tolerations: Iterable[Mapping[str, Any]]) -> float | None:
    """How long a pod stays on a node that cannot be reached; None where it is never evicted.

    As the taint eviction controller has it: of the tolerations of the taint the shortest counts.
    """
    found = [
        t.get("tolerationSeconds")
        for t in tolerations
        if t.get("key") in (None, "", _UNREACHABLE) and t.get("effect") in (None, "", "NoExecute")
    ]
    limited = [float(seconds) for seconds in found if seconds is not None]
    return None if found and not limited else min(limited, default=0.0)


def controller_uid(raw: Mapping[str, Any]) -> str | None:
    """UID of the object that controls this one."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def named(items: Any, name: str) -> Mapping[str, Any]:  # noqa: ANN401 - untyped JSON
    """Find the one of that name in a list of containers or their statuses; empty: none is."""
    found: Mapping[str, Any] = next((i for i in items or () if i["name"] == name), {})
    return found


def _condition(status: Mapping[str, Any], type_: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        (c for c in status.get("conditions") or () if c["type"] == type_), {}
    )
    return found


def _since(condition: Mapping[str, Any], wanted: str) -> float | None:
    if condition.get("status") != wanted:
        return None
    return _time(condition.get("lastTransitionTime"))


def _time(text: str | None) -> float | None:
    return None if text is None else seconds(text)


def _digest(image_id: str | None) -> str | None:
    """The digest of an imageID such as `docker.io/vllm/vllm-openai@sha256:...`."""
    return image_id.rpartition("@")[2] if image_id else None
