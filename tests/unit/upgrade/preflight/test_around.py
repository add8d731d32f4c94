"""What lies around the target: volumes, room, host ports, budgets, referenced objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.unit.upgrade.preflight.asking import BLOCK, PASS, UNKNOWN, WARN, ask, new
from vllm_upgrade_operator.upgrade.selection import Selector
from vllm_upgrade_operator.upgrade.surroundings import Budget, Claim, Node, Reference, Unread

FORBIDDEN = Unread(why="this may not be read: grant the right to list nodes")


def node(name: str = "n1", gpus: int | None = 8, **parts: Any) -> Node:
    free = None if gpus is None else {"nvidia.com/gpu": Decimal(gpus), "pods": Decimal(100)}
    return Node(**({"name": name, "labels": {}, "unfit": None, "free": free} | parts))


def claim(*modes: str) -> dict[str, Any]:
    return {"claims": (Claim(name="models", access_modes=modes),)}


@pytest.mark.parametrize(
    ("around", "result", "reason", "says"),
    [
        ({}, PASS, "NotApplicable", "mounts no PersistentVolumeClaim"),
        (claim("ReadWriteMany"), PASS, "Passed", "models"),
        (claim("ReadOnlyMany", "ReadWriteOnce"), PASS, "Passed", "models"),
        (claim("ReadWriteOncePod"), BLOCK, "VolumeNotShared", "only one pod may use it"),
        (claim(), BLOCK, "ClaimNotFound", "models of the candidate's template does not exist"),
        ({"claims": FORBIDDEN}, UNKNOWN, "ClaimsUnread", "grant the right"),
    ],
)
def test_volumes(around: dict[str, Any], result: str, reason: str, says: str) -> None:
    check = ask("volumes", around=around)
    assert (check.result, check.reason) == (result, reason)
    assert says in check.message


def test_a_volume_of_one_node_blocks_unless_all_pods_stay_there() -> None:
    two = {**claim("ReadWriteOnce"), "nodes": (node("n1"), node("n2"))}
    check = ask("volumes", around=two)
    assert (check.result, check.reason) == (BLOCK, "VolumeNotShared")
    assert "models has access mode ReadWriteOnce" in check.message
    assert "use a claim with ReadWriteMany or ReadOnlyMany" in check.message
    pinned = new(pod={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    assert ask("volumes", around=two, candidate=pinned).result == PASS
    one = {**two, "nodes": (node("n1"), node("n2", unfit="cordoned"))}
    assert ask("volumes", around=one).result == PASS
    assert ask("volumes", around={**two, "nodes": FORBIDDEN}).result == BLOCK


def room(*nodes: Node) -> dict[str, Any]:
    requests = {"nvidia.com/gpu": Decimal(4), "pods": Decimal(1)}
    return {"requests": requests, "nodes": nodes}


@pytest.mark.parametrize(
    ("nodes", "result", "reason", "says"),
    [
        ((node(gpus=8),), PASS, "Passed", "room for 2 more pods of nvidia.com/gpu 4, pods 1"),
        ((node("a", 4), node("b", 7)), PASS, "Passed", "room for 2"),
        ((node("a", 4), node("b", 3)), WARN, "NoRoom", "2 nodes have room for 1 of 2 more pods"),
        ((node("a", 4, unfit="cordoned"),), WARN, "NoSuitableNode", "(cordoned)"),
        ((), WARN, "NoSuitableNode", "none of 0 nodes"),
        ((node("a", 4), node("b", None)), UNKNOWN, "TooManyNodes", "first 1 of 2 nodes"),
    ],
)
def test_room(nodes: tuple[Node, ...], result: str, reason: str, says: str) -> None:
    """The largest step of the spec has half of four pods: two."""
    check = ask("capacity", around=room(*nodes))
    assert (check.result, check.reason) == (result, reason)
    assert says in check.message


def test_too_little_room_says_what_becomes_of_it() -> None:
    message = ask("capacity", around=room(node(gpus=1))).message
    assert "given up after spec.strategy.scheduleDeadline (60s)" in message


def test_nodes_that_may_not_be_read_are_unknown_with_what_to_grant() -> None:
    check = ask("capacity", around={"nodes": FORBIDDEN})
    assert (check.result, check.reason) == (UNKNOWN, "NodesUnread")
    assert "grant the right to list nodes" in check.message


@pytest.mark.parametrize(
    ("nodes", "result"),
    [
        ((node("a", stable_pods=4), node("b"), node("c")), PASS),
        ((node("a", stable_pods=2), node("b", stable_pods=2), node("c")), WARN),
        ((node("a"), node("b", unfit="cordoned")), WARN),
    ],
)
def test_host_ports_need_a_node_without_a_pod_of_the_target(
    nodes: tuple[Node, ...], result: str
) -> None:
    candidate = new(ports=[{"containerPort": 8000, "hostPort": 8000}])
    check = ask("host-ports", candidate=candidate, around=room(*nodes))
    assert check.result == result
    assert "host port 8000" in check.message
    assert ask("host-ports", around=room(*nodes)).reason == "NotApplicable"


def budget(labels: dict[str, str], **limits: str) -> dict[str, Any]:
    found = Budget(
        name="pdb",
        selector=Selector(owner="PodDisruptionBudget pdb", labels=labels),
        min_available=limits.get("min"),
        max_unavailable=limits.get("max"),
    )
    return {"budgets": (found,)}


@pytest.mark.parametrize(
    ("around", "result", "reason"),
    [
        ({}, PASS, "NotApplicable"),
        (budget({"app": "other"}, max="0"), PASS, "NotApplicable"),
        (budget({"app": "llm"}, max="1"), PASS, "Passed"),
        (budget({"app": "llm"}, min="75%"), PASS, "Passed"),
        (budget({"app": "llm"}, max="0"), WARN, "BudgetNeverMet"),
        (budget({"app": "llm"}, max="0%"), WARN, "BudgetNeverMet"),
        (budget({"app": "llm"}, min="4"), WARN, "BudgetNeverMet"),
        (budget({"app": "llm"}, min="5"), WARN, "BudgetNeverMet"),
        # Kubernetes rounds up: three quarters and a bit of four pods are all four.
        (budget({"app": "llm"}, min="76%"), WARN, "BudgetNeverMet"),
        (budget({"team": "a"}, max="1"), WARN, "BudgetCountsCanary"),
        ({"budgets": FORBIDDEN}, UNKNOWN, "BudgetsUnread"),
    ],
)
def test_budgets(around: dict[str, Any], result: str, reason: str) -> None:
    check = ask("disruption-budget", around=around)
    assert (check.result, check.reason) == (result, reason)


def reference(kind: str, version: str | None, *, optional: bool = False) -> Reference:
    return Reference(kind=kind, name="x", optional=optional, resource_version=version)


@pytest.mark.parametrize(
    ("references", "result", "reason"),
    [
        ((), PASS, "NotApplicable"),
        ((reference("ConfigMap", "7"), reference("Secret", "8")), PASS, "Passed"),
        ((reference("Secret", None, optional=True),), PASS, "Passed"),
        ((reference("Secret", None),), BLOCK, "ReferenceNotFound"),
        (FORBIDDEN, UNKNOWN, "ReferencesUnread"),
    ],
)
def test_references(references: Any, result: str, reason: str) -> None:
    check = ask("references", around={"references": references})
    assert (check.result, check.reason) == (result, reason)


def test_a_reference_that_is_missing_is_named() -> None:
    found = (reference("ConfigMap", "7"), reference("Secret", None))
    message = ask("references", around={"references": found}).message
    assert message.startswith("Secret x, which the candidate's template refers to, does not exist")
