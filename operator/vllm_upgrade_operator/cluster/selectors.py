"""Selectors as the API server gives them, read into values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.selection import Expression, Selector

if TYPE_CHECKING:
    from collections.abc import Mapping


def deployment_selector(deployment: Mapping[str, Any]) -> Selector:
    """The selector of a Deployment."""
    owner = f"Deployment {deployment['metadata']['name']}"
    return _label_selector(owner, deployment["spec"]["selector"])


def budget_selector(budget: Mapping[str, Any]) -> Selector:
    """The selector of a PodDisruptionBudget; in policy/v1 one that is empty or left out differs.

    Empty selects all pods of the namespace; left out selects none (PodDisruptionBudgetSpec).
    """
    owner = f"PodDisruptionBudget {budget['metadata']['name']}"
    selector = budget["spec"].get("selector")
    if selector is None:
        nothing = Expression(key="", operator="Exists")
        return Selector(owner=owner, labels={}, expressions=(nothing,))
    return _label_selector(owner, selector)


def _label_selector(owner: str, selector: Mapping[str, Any]) -> Selector:
    return Selector(
        owner=owner,
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
