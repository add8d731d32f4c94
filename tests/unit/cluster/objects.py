"""Objects as an API server gives them, for tests of what reads them."""

from __future__ import annotations

from typing import Any

STARTED = "2026-11-30T10:00:05Z"


def pod(  # noqa: PLR0913 - parts of a manifest
    name: str = "llm-1",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    state: dict[str, Any] | None = None,
    ready: bool = True,
    owner: str = "uid-set",
    **container_status: Any,
) -> dict[str, Any]:
    """A pod whose container `vllm` runs, unless another state is given."""
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-30T10:00:00Z",
            "labels": {"pod-template-hash": "abc", **(labels or {})},
            "annotations": annotations or {},
            "ownerReferences": [{"kind": "ReplicaSet", "uid": owner, "controller": True}],
        },
        "spec": {
            "containers": [
                {"name": "proxy", "image": "proxy:1"},
                {
                    "name": "vllm",
                    "image": "vllm/vllm-openai:v0.29.0",
                    "ports": [{"name": "http", "containerPort": 8000}],
                },
            ]
        },
        "status": {
            "podIP": "10.244.0.9",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "True",
                    "lastTransitionTime": "2026-11-30T10:00:01Z",
                },
                {
                    "type": "Ready",
                    "status": str(ready),
                    "lastTransitionTime": "2026-11-30T10:00:30Z",
                },
            ],
            "containerStatuses": [
                {"name": "proxy", "restartCount": 9, "state": {}},
                {
                    "name": "vllm",
                    "restartCount": 0,
                    "imageID": "docker.io/vllm/vllm-openai@sha256:aa",
                    "state": {"running": {"startedAt": STARTED}} if state is None else state,
                    **container_status,
                },
            ],
        },
    }
