"""Pods as the API server gives them, read into the values that decisions are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.observation import Pod
from vllm_upgrade_operator.upgrade.times import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATE_HASH = "pod-template-hash"

_ENDED = ("Failed", "Succeeded")

# Defaults of a probe (Kubernetes API reference, Probe v1 core).
_DEFAULT_PERIOD = 10
_DEFAULT_THRESHOLD = 3


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
    seen = _named(status.get("containerStatuses"), container)
    state: Mapping[str, Any] = seen.get("state") or {}
    ended = state.get("terminated") or (seen.get("lastState") or {}).get("terminated") or {}
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
        exit_code=ended.get("exitCode"),
        exit_reason=ended.get("reason"),
        digest=_digest(seen.get("imageID")),
        startup_seconds=startup_budget(_named(spec.get("containers"), container)),
        pullable="@" in (seen.get("imageID") or ""),
        ended=status.get("phase") in _ENDED,
    )


def startup_budget(container: Mapping[str, Any]) -> float:
    """Seconds that a container's probes let it take to start before it is killed; 0 if none do.

    A liveness probe only begins once the startup probe has succeeded, so the first of the two
    that is there counts.
    """
    probe = container.get("startupProbe") or container.get("livenessProbe")
    if not probe:
        return 0.0
    period = probe.get("periodSeconds") or _DEFAULT_PERIOD
    threshold = probe.get("failureThreshold") or _DEFAULT_THRESHOLD
    return float((probe.get("initialDelaySeconds") or 0) + period * threshold)


def controller_uid(raw: Mapping[str, Any]) -> str | None:
    """UID of the object that controls this one."""
    for owner in raw["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner["uid"])
    return None


def _named(items: Any, name: str) -> Mapping[str, Any]:  # noqa: ANN401 - untyped JSON
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
