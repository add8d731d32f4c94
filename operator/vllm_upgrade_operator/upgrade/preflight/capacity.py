"""Is there room for the canary's pods beside the stable ones?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.preflight.answer import (
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.upgrade.steps import replicas_of
from vllm_upgrade_operator.upgrade.surroundings import Unread

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Subject, Trial


def most_canary_pods(s: Subject) -> int:
    """Canary pods of the largest step."""
    most = 1
    for step in s.o.spec.strategy.steps:
        most = replicas_of(step, s.target.replicas, most)
    return most


def pods_that_fit(requests: Mapping[str, Decimal], free: Mapping[str, Decimal]) -> int:
    """How many pods with these requests a node with so much free has room for."""
    rooms = [int(free.get(name, 0) // amount) for name, amount in requests.items() if amount > 0]
    return max(0, min(rooms, default=0))


def room(t: Trial) -> Answer:
    """Free room is a snapshot, and an autoscaler may add nodes: a lack of it warns."""
    nodes = t.surroundings.nodes
    if isinstance(nodes, Unread):
        return unknown("NodesUnread", nodes.why)
    most = most_canary_pods(t)
    wanted = ", ".join(f"{name} {_short(v)}" for name, v in sorted(t.surroundings.requests.items()))
    suitable = [n for n in nodes if n.unfit is None]
    late = (
        "the canary stays Pending until there is room, and is given up after "
        f"spec.strategy.scheduleDeadline ({t.o.spec.strategy.schedule_deadline})"
    )
    if not suitable:
        why = sorted({n.unfit for n in nodes if n.unfit is not None})
        return warn(
            "NoSuitableNode",
            f"none of {len(nodes)} nodes takes the candidate's pods ({'; '.join(why[:4])}): "
            f"{late}; correct nodeSelector, affinity or tolerations, or add nodes",
        )
    counted = [n for n in suitable if n.free is not None]
    room_for = sum(pods_that_fit(t.surroundings.requests, n.free or {}) for n in counted)
    if room_for >= most:
        return passed(f"there is room for {most} more pods of {wanted} now")
    if len(counted) < len(suitable):
        return unknown(
            "TooManyNodes",
            f"in the first {len(counted)} of {len(suitable)} nodes there is room for {room_for} of "
            f"{most} canary pods; the others were not counted",
        )
    return warn(
        "NoRoom",
        f"{len(suitable)} nodes have room for {room_for} of {most} more pods of {wanted}: {late}; "
        "add nodes, or free some, or make the steps smaller",
    )


def host_ports(t: Trial) -> Answer:
    """Two pods with the same host port cannot be on one node."""
    found = sorted(
        int(port["hostPort"])
        for container in t.pod.get("containers") or ()
        for port in container.get("ports") or ()
        if port.get("hostPort")
    )
    if not found:
        return not_applicable("the candidate takes no port of its node")
    ports = ", ".join(str(p) for p in found)
    nodes = t.surroundings.nodes
    if isinstance(nodes, Unread):
        return unknown("NodesUnread", f"the candidate takes host port {ports}; {nodes.why}")
    empty = sum(n.unfit is None and n.stable_pods == 0 for n in nodes)
    most = most_canary_pods(t)
    if empty >= most:
        return passed(f"host port {ports} is free of this workload on {empty} nodes")
    return warn(
        "HostPortTaken",
        f"the candidate takes host port {ports}, and only {empty} suitable nodes have no pod of "
        f"{t.target.name}, for {most} canary pods: take hostPort out, or add nodes",
    )


def _short(value: Decimal) -> str:
    return f"{value.normalize():f}"
