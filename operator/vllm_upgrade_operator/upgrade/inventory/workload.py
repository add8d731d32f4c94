"""A workload that runs vLLM, as it was seen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One Deployment, StatefulSet or LeaderWorkerSet, or pods that belong to none of these.

    Attributes:
        namespace: Where it is.
        kind: Such as `Deployment`; of pods that another controller makes, the kind of that one.
        name: Of the workload, or of what controls the pods.
        owner: Kind and name of what controls the workload itself; None where nothing does.
        pod_spec: Of its template, or of one of its pods.
        container: The one that runs vLLM; None where that cannot be told.
        problem: Why it cannot, or why it is no server that can be upgraded here.
        pods: Those that serve: of a LeaderWorkerSet the leaders.
        config_maps: Data of the ConfigMaps that the pod spec refers to, by name, where readable.
    """

    namespace: str
    kind: str
    name: str
    owner: str | None
    pod_spec: Mapping[str, Any]
    container: Mapping[str, Any] | None
    problem: str | None
    pods: tuple[Pod, ...]
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
