"""Where a pod may go: what it asks for, and which nodes take it. As the scheduler has it, roughly.

The scheduler decides; this is for saying beforehand what it will say. Spreading, affinity between
pods, volumes and device plugins' own wishes are left to it.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from kubernetes.utils import parse_quantity

from vllm_upgrade_operator.upgrade.selection import Expression

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})


def requests_of(pod_spec: Mapping[str, Any]) -> dict[str, Decimal]:
    """What a pod asks of a node, by resource, itself (`pods`) among it.

    Containers and sidecars are added up; an init container that ends may have as much for itself.
    """
    together: Counter[str] = Counter()
    alone: dict[str, Decimal] = {}
    for container in pod_spec.get("containers") or ():
        together.update(_requests(container))
    for container in pod_spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            together.update(_requests(container))
        else:
            for name, value in _requests(container).items():
                alone[name] = max(alone.get(name, Decimal(0)), value)
    total = {name: Decimal(value) for name, value in together.items()}
    for name, value in alone.items():
        total[name] = max(total.get(name, Decimal(0)), value)
    for name, value in _quantities(pod_spec.get("overhead")).items():
        total[name] = total.get(name, Decimal(0)) + value
    return {**{n: v for n, v in total.items() if v > 0}, "pods": Decimal(1)}


def free_of(node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> dict[str, Decimal]:
    """Allocatable of a node, less what the pods on it ask for."""
    free = _quantities((node.get("status") or {}).get("allocatable"))
    for pod in pods:
        for name, value in requests_of(pod["spec"]).items():
            free[name] = free.get(name, Decimal(0)) - value
    return free


def unfit(node: Mapping[str, Any], pod_spec: Mapping[str, Any]) -> str | None:
    """Say why a node does not take such a pod, whatever is free on it; None where it does."""
    spec: Mapping[str, Any] = node.get("spec") or {}
    labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    conditions = (node.get("status") or {}).get("conditions") or ()
    if spec.get("unschedulable"):
        return "cordoned"
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return "not ready"
    for key, value in (pod_spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return f"nodeSelector {key}={value} does not match"
    if not _affine(node, labels, pod_spec):
        return "required node affinity does not match"
    for taint in spec.get("taints") or ():
        if taint.get("effect") in _KEEPS_OUT and not _tolerated(taint, pod_spec):
            return f"taint {taint['key']} is not tolerated"
    return None


def _requests(container: Mapping[str, Any]) -> dict[str, Decimal]:
    """A limit without a request is the request too."""
    resources = container.get("resources") or {}
    return {**_quantities(resources.get("limits")), **_quantities(resources.get("requests"))}


def _quantities(found: Mapping[str, Any] | None) -> dict[str, Decimal]:
    return {name: Decimal(parse_quantity(value)) for name, value in (found or {}).items()}


def _affine(
    node: Mapping[str, Any], labels: Mapping[str, str], pod_spec: Mapping[str, Any]
) -> bool:
    affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_holds(e, labels) for e in term.get("matchExpressions") or ())
        and all(_holds(e, fields) for e in term.get("matchFields") or ())
        for term in required.get("nodeSelectorTerms") or ()
        if term
    )


def _holds(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, operator = expression["key"], expression["operator"]
    values = tuple(expression.get("values") or ())
    if operator in ("Gt", "Lt"):
        value = labels.get(key, "")
        if not value.lstrip("-").isdecimal():
            return False
        return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return Expression(key=key, operator=operator, values=values).matches(labels)


def _tolerated(taint: Mapping[str, Any], pod_spec: Mapping[str, Any]) -> bool:
    return any(
        (not t.get("effect") or t["effect"] == taint["effect"])
        and (
            (not t.get("key") and t.get("operator") == "Exists")
            or (
                t.get("key") == taint["key"]
                and (
                    t.get("operator") == "Exists"
                    or (t.get("value") or "") == (taint.get("value") or "")
                )
            )
        )
        for t in pod_spec.get("tolerations") or ()
    )
