"""How far the target's own rollout has come, and what its Deployment says is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vllm_upgrade_operator.upgrade.observation import Target


def is_rolled(target: Target) -> bool:
    """Whether all pods are of the present template and ready, by a status that is current."""
    return (
        target.observed_generation >= target.generation
        and target.updated == target.total == target.ready == target.replicas
    )


def obstacles(target: Target) -> list[str]:
    """Say what keeps the rollout from going on, as far as the Deployment itself tells."""
    found: list[str] = []
    if target.paused:
        found.append(
            f"spec.paused of {target.name} is true, so that it rolls nothing: `kubectl rollout "
            f"resume deployment/{target.name}`"
        )
    if target.replica_failure is not None:
        found.append(f"{target.name} cannot make a pod: {target.replica_failure}")
    if target.late is not None:
        found.append(f"{target.name} says: {target.late}")
    return found
