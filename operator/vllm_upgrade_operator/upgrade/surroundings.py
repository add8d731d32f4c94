"""What lies around the target and matters before a candidate is started: nodes, volumes, budgets.

Only Preflight asks for it. What could not be read is `Unread`, never "there is none".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from decimal import Decimal

    from vllm_upgrade_operator.upgrade.selection import Selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Something could not be read; the text says why and what to grant."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node, as far as a pod of the candidate may have to go there."""

    name: str
    labels: Mapping[str, str]
    unfit: str | None
    """Why the candidate's pods cannot go there whatever is free; None where they can."""
    free: Mapping[str, Decimal] | None
    """Allocatable less what its pods ask for, by resource; None where its pods were not counted."""
    stable_pods: int = 0
    """Pods of the target on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A PersistentVolumeClaim that the candidate's template mounts."""

    name: str
    access_modes: tuple[str, ...]
    """Of the bound volume where there is one, else as asked for; empty: there is no such claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A PodDisruptionBudget in the target's namespace."""

    name: str
    selector: Selector
    min_available: str | None
    """A number or a percentage."""
    max_unavailable: str | None
    """A number or a percentage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A ConfigMap or Secret that a pod template refers to."""

    kind: str
    name: str
    optional: bool
    resource_version: str | None
    """None where it does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What lies around the target, for one candidate's template."""

    requests: Mapping[str, Decimal]
    """What one pod of the candidate asks of a node, by resource."""
    nodes: tuple[Node, ...] | Unread
    claims: tuple[Claim, ...] | Unread
    budgets: tuple[Budget, ...] | Unread
    references: tuple[Reference, ...] | Unread
    """Of the candidate's template."""
    stable_references: tuple[Reference, ...] | Unread
    """Of the target's template: recorded with known-good."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Data of the ConfigMaps that either template refers to, by name; none where unread."""
