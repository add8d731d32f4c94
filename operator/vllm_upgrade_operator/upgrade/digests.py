"""Image digests: what was judged, what was recorded, what runs. A tag may move at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.health import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import KnownGood, Pod, Target


def differing(pods: Iterable[Pod], status: VLLMUpgradeStatus) -> str | None:
    """Say that canary pods run another image than the first ones of this attempt, or None.

    One that was not there when the others were judged would be promoted on their evidence.
    """
    judged = status.candidate.digests if status.candidate else ()
    first: Pod | None = None
    for pod in pods:
        if pod.digest is None:
            continue
        if judged:
            if pod.digest not in judged:
                return _another(pod, "the canary pods before it ran", judged)
        elif first is None:
            first = pod
        elif pod.digest != first.digest:
            return _another(pod, f"{first.name} runs", (first.digest or "",))
    return None


def not_judged(pod: Pod, status: VLLMUpgradeStatus) -> str | None:
    """Say that a promoted pod runs another image than the judged canary, or None."""
    judged = status.candidate.digests if status.candidate else ()
    if pod.digest is None or not judged or pod.digest in judged:
        return None
    return _another(pod, "the canary that was judged ran", judged)


def moved(target: Target, known: KnownGood) -> str | None:
    """Say that a pod of the restored target runs another image than was recorded, or None."""
    for pod in target.pods:
        if is_ready(pod) and pod.digest is not None and pod.digest not in known.digests:
            return _another(pod, "known-good was", known.digests)
    return None


def _another(pod: Pod, before: str, digests: Iterable[str]) -> str:
    return f"{pod.name} runs image {pod.digest}, {before} {', '.join(digests)}: the tag has moved"
