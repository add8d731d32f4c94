"""What a decision may ask for. Each action is idempotent and says what should be, not what to do.

A decision's actions are executed in order, then its status is written. A transition to another
phase never carries the new phase's actions: those come in the next reconcile, after the status is
safe in the API server, so an operator killed in between goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKnownGood:
    """Create the known-good ControllerRevision, unless there is one."""

    data: Mapping[str, Any]
    target_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCandidate:
    """Create or replace the candidate's ControllerRevision."""

    attempt: str
    template: Mapping[str, Any]
    target_uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DropRevisions:
    """Delete the known-good and candidate ControllerRevisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherit:
    """Make the known-good that an upgrade left behind this upgrade's own."""

    upgrade: str
    """Name of that upgrade."""
    revisions: tuple[str, ...]
    """Its ControllerRevisions, known-good first; the others are deleted afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropOrphan:
    """Delete ControllerRevisions that an upgrade left behind and nobody needs."""

    revisions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureCanary:
    """Create the canary Deployment, or set its replica count."""

    attempt: str
    replicas: int
    template: Mapping[str, Any]
    """Pod template without the traffic labels and without our key; the executor adds our key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCanary:
    """Delete the canary Deployment, its pods with it."""

    without_pods: bool = False
    """Do not wait for pods that cannot end, as on a node that is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Give a verified canary pod the traffic labels."""

    pod: str
    pod_uid: str
    labels: Mapping[str, str]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Take the traffic labels off a canary pod, all in one patch."""

    pod: str
    pod_uid: str
    keys: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Withdraw a canary pod for good, and make it the first to go when the canary shrinks."""

    pod: str
    pod_uid: str
    keys: frozenset[str]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPod:
    """Put our own labels and annotations on a pod."""

    pod: str
    pod_uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceTemplate:
    """JSON Patch on the target: test that the template is `expected`, replace it."""

    expected: Mapping[str, Any]
    replacement: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOwnership:
    """Put the managedFields of the target's other managers back as they were recorded."""

    recorded: tuple[Mapping[str, Any], ...]


Action = (
    StoreKnownGood
    | StoreCandidate
    | DropRevisions
    | Inherit
    | DropOrphan
    | EnsureCanary
    | DeleteCanary
    | Admit
    | Withdraw
    | Release
    | LabelPod
    | ReplaceTemplate
    | RestoreOwnership
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An Event, on the upgrade and on the target."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the next observation has to contain, beyond the objects."""

    look: bool
    """Scrape the pods' metrics."""
    proposal: bool
    """Have the API server compute the candidate's template (a dry run)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome of one reconcile."""

    status: VLLMUpgradeStatus
    actions: tuple[Action, ...] = ()
    notices: tuple[Notice, ...] = ()
    requeue_seconds: float | None = None
    """When to look again, unless woken before; None: only when woken."""
    released: bool = False
    """The object is being deleted and everything is in order: the finalizer may go."""
