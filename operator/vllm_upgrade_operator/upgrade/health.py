"""What a pod's state says about the candidate: it failed, it is on its way, or it is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.times import clock
from vllm_upgrade_operator.vllm import causes

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Pod
    from vllm_upgrade_operator.vllm.causes import Cause

_SERVING = "serving"

LOST_SECONDS = 20.0
"""After its deletionTimestamp a pod is killed; one that is still there this much later will not go
by itself: its node does not answer, or somebody's finalizer holds it."""


def failure(pod: Pod) -> tuple[str, str] | None:
    """Give reason and message where a pod has failed for good, or None.

    A container that has ended counts even when the kubelet has started it again: a restart loses
    every request in flight, and a candidate that ends on its own is harm. A pod that is deleted
    or evicted has not failed: it ends because somebody, or its node, wants it to.
    """
    if pod.terminating or pod.ended:
        return None
    wait = causes.of_wait(pod.waiting_reason, pod.waiting_message)
    if wait is not None and not wait.may_heal:
        return wait.reason, f"{pod.name}: {wait.words}"
    end = _end(pod)
    if end is None or end.may_heal:
        return None
    again = f" (restarted {pod.restarts} times)" if pod.restarts else ""
    return end.reason, f"{pod.name}: {end.sentence}{again}: {end.advice}"


def _end(pod: Pod) -> Cause | None:
    if pod.exit_code is None or pod.end is not None:
        return pod.end
    return causes.of_end(causes.Ending(exit_code=pod.exit_code, reason=pod.exit_reason))


def is_ready(pod: Pod) -> bool:
    """Whether a pod serves: ready, and not on its way out."""
    return pod.ready_at is not None and not pod.terminating


def is_stuck(pod: Pod, now: float) -> bool:
    """Whether a pod was to be gone long ago: nothing that is done here makes it go."""
    return pod.gone_at is not None and now > pod.gone_at + LOST_SECONDS


def progress(pod: Pod) -> str:
    """Say in a clause what a pod that is not ready is doing."""
    if pod.unschedulable is not None:
        return f"{pod.name} cannot be scheduled: {pod.unschedulable}"
    if pod.scheduled_at is None:
        return f"{pod.name} waits for a node"
    if pod.node_lost:
        return f"{pod.name}: its node does not report any more"
    wait = causes.of_wait(pod.waiting_reason, pod.waiting_message)
    if wait is not None:
        return f"{pod.name}: {wait.words}"
    end = _end(pod)
    if pod.started_at is None:
        return f"{pod.name} is being created" if end is None else f"{pod.name}: {end.words}"
    if pod.startup_phase == _SERVING:
        return f"{pod.name} has started, but its readiness probe fails"
    before = "" if end is None else f"; the start before: {end.words}"
    return f"{pod.name}: {pod.startup_phase or 'starting, its log says nothing yet'}{before}"


def lateness(
    pod: Pod, *, schedule_deadline: float, start_deadline: float, now: float
) -> tuple[str, str] | None:
    """Give reason and message for a pod that is past its deadline, or None.

    Until a pod has a node and its image, `schedule_deadline` counts from its creation: a cluster
    autoscaler or a registry may need that long. From then on it has `start_deadline`, or its own
    start-up budget where its probes allow more. On a lost node it is replaced when it is evicted;
    what replaces it needs a node too.
    """
    if is_ready(pod) or pod.terminating:
        return None
    began, limit, reason, advice = _deadline(pod, schedule_deadline, start_deadline)
    if now - began <= limit:
        return None
    return reason, f"{progress(pod)} (for {now - began:.0f} s, {limit:.0f} s are given){advice}"


def _deadline(
    pod: Pod, schedule_deadline: float, start_deadline: float
) -> tuple[float, float, str, str]:
    """From when on a pod has how long, and how to call it if it takes longer."""
    if pod.scheduled_at is None:
        return (
            pod.created_at,
            schedule_deadline,
            "NoCapacity",
            ": free or add nodes, or raise spec.strategy.scheduleDeadline",
        )
    if pod.waiting_reason in causes.PULLING:
        return pod.created_at, schedule_deadline, "ImagePull", ""
    since = max(pod.scheduled_at, pod.unready_since or 0.0)
    if pod.node_lost:
        return since, schedule_deadline + (pod.eviction_seconds or 0.0), "NodeLost", ""
    limit = start_budget(pod, start_deadline)
    if pod.startup_phase == _SERVING:
        # A pod that was ready and lost it has its time anew; what bounds flapping is the step's.
        return since, limit, "NotReady", ""
    cause = causes.of_wait(pod.waiting_reason, pod.waiting_message) or _end(pod)
    if cause is not None:
        return since, limit, cause.reason, ""
    return (
        since,
        limit,
        "StartDeadlineExceeded",
        ": if it only needs longer, raise spec.strategy.startDeadline",
    )


def start_budget(pod: Pod, start_deadline: float) -> float:
    """Seconds from being scheduled to being ready that a pod is given."""
    return max(start_deadline, pod.startup_seconds)


def waiting_until(
    pods: list[Pod], *, schedule_deadline: float, start_deadline: float, now: float
) -> str:
    """Say when the first of the pods that are not ready will be given up."""
    ends = []
    for pod in pods:
        if not is_ready(pod):
            began, limit, _, _ = _deadline(pod, schedule_deadline, start_deadline)
            ends.append(began + limit)
    return clock(min(ends, default=now))
