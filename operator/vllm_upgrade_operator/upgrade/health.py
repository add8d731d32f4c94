"""What a pod's state says about the candidate: it failed, it is on its way, or it is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.times import clock

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Pod

# The kubelet never retries an image name that cannot be parsed.
_HOPELESS = frozenset({"InvalidImageName"})
_PULLING = frozenset({"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"})


def failure(pod: Pod) -> str | None:
    """Say why a pod has failed for good, or None.

    A container that has ended counts even when the kubelet has started it again: a restart loses
    every request in flight, and a candidate that ends on its own is harm.
    """
    if pod.terminating:
        return None
    if pod.waiting_reason in _HOPELESS:
        return f"{pod.name}: {pod.waiting_reason}: {pod.waiting_message or 'no message'}"
    if pod.exit_code is not None:
        again = f", restarted {pod.restarts} times" if pod.restarts else ""
        return (
            f"{pod.name}: its vLLM container ended with exit code {pod.exit_code}"
            f" ({pod.exit_reason or 'no reason given'}{again})"
        )
    return None


def is_ready(pod: Pod) -> bool:
    """Whether a pod serves: ready, and not on its way out."""
    return pod.ready_at is not None and not pod.terminating


def progress(pod: Pod) -> str:
    """Say in a clause what a pod that is not ready is doing."""
    if pod.unschedulable is not None:
        return f"{pod.name} cannot be scheduled: {pod.unschedulable}"
    if pod.scheduled_at is None:
        return f"{pod.name} waits for a node"
    if pod.waiting_reason is not None and pod.waiting_reason not in (
        "ContainerCreating",
        "PodInitializing",
    ):
        return f"{pod.name}: {pod.waiting_reason}: {pod.waiting_message or 'no message'}"
    if pod.started_at is None:
        return f"{pod.name} is being created"
    return f"{pod.name}: {pod.startup_phase or 'starting'}"


def lateness(
    pod: Pod, *, schedule_deadline: float, start_deadline: float, now: float
) -> tuple[str, str] | None:
    """Give reason and message for a pod that is past its deadline, or None.

    Until a pod has a node and its image, `schedule_deadline` counts from its creation: a cluster
    autoscaler or a registry may need that long. From then on it has `start_deadline`, or its own
    start-up budget where its probes allow more.
    """
    if is_ready(pod) or pod.terminating:
        return None
    if pod.scheduled_at is None or pod.waiting_reason in _PULLING:
        if now - pod.created_at <= schedule_deadline:
            return None
        reason = "ImagePull" if pod.waiting_reason in _PULLING else "NoCapacity"
        return reason, f"{progress(pod)} (for {now - pod.created_at:.0f} s)"
    began = _unready_from(pod, pod.scheduled_at)
    if now - began <= start_budget(pod, start_deadline):
        return None
    return "StartDeadlineExceeded", f"{progress(pod)} (for {now - began:.0f} s)"


def _unready_from(pod: Pod, scheduled_at: float) -> float:
    """A pod that was ready and lost it has its time anew; what bounds flapping is the step's."""
    return max(scheduled_at, pod.unready_since or 0.0)


def start_budget(pod: Pod, start_deadline: float) -> float:
    """Seconds from being scheduled to being ready that a pod is given."""
    return max(start_deadline, pod.startup_seconds)


def waiting_until(
    pods: list[Pod], *, schedule_deadline: float, start_deadline: float, now: float
) -> str:
    """Say when the first of the pods that are not ready will be given up."""
    ends = [
        pod.created_at + schedule_deadline
        if pod.scheduled_at is None or pod.waiting_reason in _PULLING
        else _unready_from(pod, pod.scheduled_at) + start_budget(pod, start_deadline)
        for pod in pods
        if not is_ready(pod)
    ]
    return clock(min(ends, default=now))
