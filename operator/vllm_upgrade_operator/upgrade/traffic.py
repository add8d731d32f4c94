"""Which labels make a pod part of the traffic, and a pod template without them.

A canary pod is born without every label key by which the target or a Service selects, so nothing
routes to it, counts it or adopts it before it is admitted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.names import CANARY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Pod


def withdrawn_template(template: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    """Give the pod template without the traffic labels; the rest is the same object."""
    metadata = dict(template.get("metadata") or {})
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in keys}
    return {**template, "metadata": {**metadata, "labels": labels}}


def traffic_labels(template: Mapping[str, Any], keys: frozenset[str]) -> dict[str, str]:
    """Give the labels that make a pod of this template part of the traffic."""
    labels: Mapping[str, str] = (template.get("metadata") or {}).get("labels") or {}
    return {k: v for k, v in labels.items() if k in keys}


def is_admitted(pod: Pod, keys: frozenset[str]) -> bool:
    """Whether any traffic label is on a canary pod: even one may be enough for some selector."""
    return CANARY in pod.labels and any(key in pod.labels for key in keys)


def is_fully_admitted(pod: Pod, labels: Mapping[str, str]) -> bool:
    """Whether a canary pod carries all the traffic labels."""
    return all(pod.labels.get(key) == value for key, value in labels.items())
