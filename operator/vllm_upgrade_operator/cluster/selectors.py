"""Selectors as the API server gives them, read into values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.selection import Expression, Selector

if TYPE_CHECKING:
    from collections.abc import Mapping


def deployment_selector(deployment: Mapping[str, Any]) -> Selector:
    """The selector of a Deployment."""
    selector = deployment["spec"]["selector"]
    return Selector(
        owner=f"Deployment {deployment['metadata']['name']}",
        labels=selector.get("matchLabels") or {},
        expressions=tuple(
            Expression(key=e["key"], operator=e["operator"], values=tuple(e.get("values") or ()))
            for e in selector.get("matchExpressions") or ()
        ),
    )


def service_selector(service: Mapping[str, Any]) -> Selector | None:
    """The selector of a Service; None where its endpoints are managed by somebody else."""
    labels = service["spec"].get("selector")
    owner = f"Service {service['metadata']['name']}"
    return Selector(owner=owner, labels=labels) if labels else None


def pool_selector(pool: Mapping[str, Any]) -> Selector | None:
    """The selector of an InferencePool; None where it has none."""
    labels = (pool["spec"].get("selector") or {}).get("matchLabels")
    owner = f"InferencePool {pool['metadata']['name']}"
    return Selector(owner=owner, labels=labels) if labels else None
