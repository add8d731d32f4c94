"""What was seen of the cluster in one look: the only input of a decision besides status and time.

Everything here is a value. `cluster/gather.py` fills it; nothing here calls anything. Times are
seconds since the Unix epoch. What could not be read is an `Unknown`-like value (None, or the text
of the failure), never a zero and never "as before".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.judge.counters import Break, Delta
    from vllm_upgrade_operator.upgrade.conflicts import Rival
    from vllm_upgrade_operator.upgrade.scrapes import ScrapeProblem
    from vllm_upgrade_operator.upgrade.selection import Selector
    from vllm_upgrade_operator.upgrade.surroundings import Reference, Surroundings
    from vllm_upgrade_operator.vllm.causes import Cause
    from vllm_upgrade_operator.vllm.model import Model
    from vllm_upgrade_operator.vllm.runner import RunnerEvidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod of the target or of the canary."""

    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    created_at: float
    template_hash: str
    """Label `pod-template-hash`: which ReplicaSet the pod belongs to."""
    terminating: bool
    scheduled_at: float | None
    """When PodScheduled became true; None while the pod has no node."""
    unschedulable: str | None
    """The scheduler's message while PodScheduled is false with reason Unschedulable."""
    ready_at: float | None
    """When Ready became true; None while it is not."""
    unready_since: float | None
    """When Ready became false; None while it is true, or before the kubelet has said anything."""
    started_at: float | None
    """When the present vLLM container process started."""
    restarts: int
    """restartCount of the vLLM container."""
    waiting_reason: str | None
    """Why the vLLM container waits, such as `ImagePullBackOff` or `CrashLoopBackOff`."""
    waiting_message: str | None
    exit_code: int | None
    """Exit code of the vLLM container's last end, of this or the previous process."""
    exit_reason: str | None
    """Reason of that end, such as `Error` or `OOMKilled`."""
    digest: str | None
    """The image digest that really runs: the part of imageID after `@`, or all of it."""
    startup_seconds: float
    """The pod's own start-up budget: what its probes allow before they would kill it; 0 if none."""
    pullable: bool = False
    """Whether `digest` is one that a registry knows, and not that of a local image."""
    end: Cause | None = None
    """Why that was, as far as its log and its Events tell; None where it was not looked for."""
    gone_at: float | None = None
    """By when a pod that terminates should be gone: its deletionTimestamp; None: not deleted."""
    node_lost: bool = False
    """Its node does not report any more: the node controller has called it not ready."""
    eviction_seconds: float | None = None
    """How long it stays on a lost node before it is evicted; None: as long as it takes."""
    ended: bool = False
    """Phase Failed or Succeeded, as of an evicted pod: it stays listed, and another replaces it."""
    version: str | None = None
    """What `GET /version` answered; None where it has not (yet)."""
    runner: RunnerEvidence | None = None
    """What the pod's log says; None before the log could be read."""
    model: Model | None = None
    """What its log says of the model that it serves; None before the log could be read."""
    startup_phase: str | None = None
    """How far a pod that is not ready has come, such as `loading weights`."""
    delta: Delta | None = None
    """Counters since the last look; None in a process's first look, or if the scrape failed."""
    lost: Break | None = None
    """Why nothing is known of the time since the last look, where it was scraped in both."""
    offered: float | None = None
    """Requests on the generation handlers since the process started, answered or not."""
    failed: float | None = None
    """Server errors among them that are not known to be rejections, since the process started."""
    in_flight: float | None = None
    """Running plus waiting requests; None where it could not be read."""
    scrape_error: ScrapeProblem | None = None
    """Why `/metrics` could not be read; None where it was, or where it was not due."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Deployment that is upgraded."""

    name: str
    uid: str
    resource_version: str
    generation: int
    observed_generation: int
    replicas: int
    """spec.replicas."""
    total: int
    """status.replicas, of all revisions."""
    updated: int
    ready: int
    available: int
    template: Mapping[str, Any]
    strategy: str
    """spec.strategy.type: RollingUpdate or Recreate."""
    managed_fields: tuple[Mapping[str, Any], ...]
    pods: tuple[Pod, ...]
    template_hash: str | None
    """pod-template-hash of the ReplicaSet of the present template; None until it exists."""
    container: str | None = None
    """Name of the vLLM container; None where it cannot be told."""
    paused: bool = False
    """spec.paused: its controller rolls nothing."""
    replica_failure: str | None = None
    """Why no pod of it can be made, such as a quota: message of the condition ReplicaFailure."""
    owner: str | None = None
    """Kind and name of what controls it, such as `VLLMRuntime llama`; None: nothing does."""
    late: str | None = None
    """Message of the condition Progressing once progressDeadlineSeconds have passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """The canary Deployment, or what is left of it: it is only gone when its pods are."""

    replicas: int
    pods: tuple[Pod, ...]
    attempt: str
    """The attempt that it was made for."""
    deleting: bool
    """The Deployment is deleted (gone or going) and only its pods remain."""
    gone: bool = False
    """The Deployment is gone; its pods are all that is left."""
    refusal: str | None = None
    """Why pods of it cannot be created, in the API server's words: its condition ReplicaFailure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownGood:
    """The stored known-good configuration (ControllerRevision `<upgrade>-known-good`)."""

    name: str
    target_uid: str
    template: Mapping[str, Any]
    template_hash: str
    replicas: int
    digests: tuple[str, ...]
    version: str | None
    managed_fields: tuple[Mapping[str, Any], ...]
    container: str | None = None
    """Name of the container that ran the images of `digests`."""
    pullable: bool = False
    """Whether all of `digests` are ones that a registry knows."""
    references: tuple[Reference, ...] = ()
    """ConfigMaps and Secrets that its template refers to, as they were: a rollback of the template
    does not bring their content back."""
    inherited: str | None = None
    """The upgrade that recorded it and is gone; None where it is this upgrade's own record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The stored template to upgrade to (ControllerRevision `<upgrade>-candidate`)."""

    attempt: str
    template: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """What an upgrade that is gone, or has ended, left behind for this target."""

    upgrade: str
    """Its name, for messages."""
    known_good: KnownGood | None
    candidate: Mapping[str, Any] | None
    """The template that it was promoting."""
    revisions: tuple[str, ...]
    """Names of the ControllerRevisions that hold these, known-good first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why something cannot be computed or was refused, for a person."""

    reason: str
    """PascalCase, for a condition."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One look at everything that a decision needs."""

    name: str
    namespace: str
    uid: str
    generation: int
    annotations: Mapping[str, str]
    deleting: bool
    spec: VLLMUpgradeSpec
    spec_hash: str
    """Hash of what is tried: `candidate`, `container`, `runner`."""
    target: Target | None
    """None where it is gone, or going."""
    canary: Canary | None
    known_good: KnownGood | None
    candidate: Candidate | None
    proposed: Mapping[str, Any] | Refusal | None = None
    """The template that the API server made of the target's and the spec's change.

    Only computed where `Needs.proposal` asked for it.
    """
    surroundings: Surroundings | None = None
    """What lies around the target; read together with `proposed`."""
    traffic_keys: frozenset[str] = field(default_factory=frozenset)
    """Label keys by which Services and the target select; what a canary pod must not carry."""
    selectors: tuple[Selector, ...] = ()
    """Of the target, the Services and the InferencePools in its namespace."""
    conflict: Rival | None = None
    """Another upgrade of the same target that goes first; looked for until known-good is kept."""
    orphan: Orphan | None = None
    """What another upgrade left behind for the target; looked for in Preflight."""
    looked_at: float | None = None
    """When pods began to be scraped; None where they were not this time."""
    deleted_at: float | None = None
    """When somebody deleted the upgrade; None while `deleting` is false."""
    refused: Refusal | None = None
    """Why the API server has refused an action again and again; None where it has not."""

    @property
    def looked(self) -> bool:
        """Whether pods were scraped this time."""
        return self.looked_at is not None
