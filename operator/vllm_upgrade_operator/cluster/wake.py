"""Which upgrade a change in the cluster concerns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.names import CANARY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_upgrade_operator.cluster.loop import UpgradeLoop

Fingerprint = tuple[int, tuple[tuple[str, str], ...], bool]


def fingerprint(upgrade: Mapping[str, Any]) -> Fingerprint:
    """What of a VLLMUpgrade a person can change: spec, annotations, and that it be deleted.

    Writes of status, the operator's own, leave it as it is and wake nothing.
    """
    metadata = upgrade["metadata"]
    annotations = tuple(sorted((metadata.get("annotations") or {}).items()))
    return int(metadata.get("generation", 0)), annotations, "deletionTimestamp" in metadata


class Loops:
    """The upgrades that this process looks after, by UID."""

    def __init__(self) -> None:
        self._loops: dict[str, UpgradeLoop] = {}
        self._fingerprints: dict[str, Fingerprint] = {}

    def __iter__(self) -> Iterator[UpgradeLoop]:
        return iter(list(self._loops.values()))

    def add(self, loop: UpgradeLoop) -> None:
        """Look after one more."""
        self._loops[loop.uid] = loop

    def find(self, uid: str) -> UpgradeLoop | None:
        """The loop of an upgrade."""
        return self._loops.get(uid)

    def remove(self, uid: str) -> None:
        """Forget one."""
        self._loops.pop(uid, None)
        self._fingerprints.pop(uid, None)

    def problem(self, now: float) -> str | None:
        """Say which upgrade is no longer reconciled; `now` is `time.monotonic()`."""
        stuck = [f"{loop.namespace}/{loop.name}" for loop in self if loop.stuck(now)]
        return f"not reconciled any more: {', '.join(stuck)}\n" if stuck else None

    def upgrade_changed(self, upgrade: Mapping[str, Any]) -> None:
        """Wake an upgrade that a person has changed."""
        uid = upgrade["metadata"]["uid"]
        loop = self._loops.get(uid)
        if loop is None:
            return
        now = fingerprint(upgrade)
        if self._fingerprints.get(uid) != now:
            self._fingerprints[uid] = now
            loop.wake()

    def pod_changed(self, pod: Mapping[str, Any]) -> None:
        """Wake the upgrades that a pod belongs to."""
        metadata = pod["metadata"]
        canary_of = (metadata.get("labels") or {}).get(CANARY)
        for loop in self:
            if loop.uid == canary_of or metadata["uid"] in loop.outcome.pods:
                loop.wake()

    def deployment_changed(self, deployment: Mapping[str, Any]) -> None:
        """Wake the upgrades that a Deployment is the target or the canary of."""
        metadata = deployment["metadata"]
        for loop in self:
            if (
                loop.namespace == metadata["namespace"]
                and metadata["name"] in loop.outcome.deployments
            ):
                loop.wake()
