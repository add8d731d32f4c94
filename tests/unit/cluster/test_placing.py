from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from vllm_upgrade_operator.cluster.placing import free_of, requests_of, unfit

GPU = "nvidia.com/gpu"


def node(
    labels: dict[str, str] | None = None, *, ready: str = "True", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "labels": labels or {}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "7910m", "memory": "31Gi", GPU: "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def asking(**parts: Any) -> dict[str, Any]:
    return {"resources": parts}


def test_a_pod_asks_for_what_its_containers_ask_together() -> None:
    spec = {
        "containers": [
            asking(requests={"cpu": "500m", "memory": "1Gi"}, limits={"cpu": "2", GPU: "2"}),
            asking(limits={"cpu": "1"}),
            {},
        ],
        "initContainers": [
            asking(requests={"memory": "4Gi"}),
            {"restartPolicy": "Always", **asking(requests={"cpu": "100m"})},
        ],
        "overhead": {"memory": "120Mi"},
    }
    assert requests_of(spec) == {
        "cpu": Decimal("1.6"),
        "memory": 4 * Decimal(2) ** 30 + 120 * Decimal(2) ** 20,
        GPU: Decimal(2),
        "pods": Decimal(1),
    }


def test_free_is_what_is_allocatable_less_what_pods_ask_for() -> None:
    pods = [{"spec": {"containers": [asking(limits={GPU: "3", "cpu": "1"})]}}] * 2
    free = free_of(node(), pods)
    assert (free[GPU], free["cpu"], free["pods"]) == (
        Decimal(2),
        Decimal("5.91"),
        Decimal(108),
    )


TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("found", "spec", "says"),
    [
        (node(), {}, None),
        (node(unschedulable=True), {}, "cordoned"),
        (node(ready="Unknown"), {}, "not ready"),
        (node({"a": "b"}), {"nodeSelector": {"a": "b"}}, None),
        (node({"a": "c"}), {"nodeSelector": {"a": "b"}}, "nodeSelector a=b does not match"),
        (node(taints=[TAINT]), {}, "taint nvidia.com/gpu is not tolerated"),
        (node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), {}, None),
        (node(taints=[TAINT]), {"tolerations": [{"operator": "Exists"}]}, None),
        (node(taints=[TAINT]), {"tolerations": [{"key": GPU, "operator": "Exists"}]}, None),
        (node(taints=[TAINT]), {"tolerations": [{"key": GPU, "value": "present"}]}, None),
        (node(taints=[TAINT]), {"tolerations": [{"key": GPU, "value": "x"}]}, "taint"),
        (
            node(taints=[TAINT]),
            {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
            "taint",
        ),
    ],
)
def test_which_nodes_take_a_pod(
    found: dict[str, Any], spec: dict[str, Any], says: str | None
) -> None:
    why = unfit(found, spec)
    assert why is None if says is None else says in (why or "")


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"nodeAffinity": {key: required}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ([expression("gpu", "In", "h100", "a100")], True),
        ([expression("gpu", "In", "h200")], False),
        ([expression("gpu", "In", "h200"), expression("gpu", "Exists")], True),
        ([expression("gpu", "NotIn", "h100")], False),
        ([expression("spot", "DoesNotExist")], True),
        ([expression("memory", "Gt", "79")], True),
        ([expression("memory", "Gt", "80")], False),
        ([expression("memory", "Lt", "81")], True),
        ([expression("none", "Gt", "1")], False),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}], True),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}], False),
        ([{}], False),
    ],
)
def test_required_node_affinity(terms: list[dict[str, Any]], *, fits: bool) -> None:
    found = node({"gpu": "h100", "memory": "80"})
    assert (unfit(found, affinity(*terms)) is None) == fits
