"""One upgrade per target: which of several goes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENDED = frozenset({Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """Another upgrade, as far as the order needs it."""

    name: str
    uid: str
    created: str
    """creationTimestamp: RFC 3339 in UTC, so it sorts as text."""
    target: str
    phase: str
    """Empty where the operator has not seen it yet."""


def conflict(mine: Rival, others: Iterable[Rival]) -> str | None:
    """Name the upgrade that this one has to wait for, or None.

    One that has begun holds the target until it ends; among those that wait the oldest is first.
    """
    rivals = sorted(
        (o for o in others if o.uid != mine.uid and o.target == mine.target),
        key=lambda o: (o.created, o.uid),
    )
    for other in rivals:
        if other.phase in _ENDED:
            continue
        waiting = other.phase in ("", Phase.PENDING)
        if not waiting or (other.created, other.uid) < (mine.created, mine.uid):
            return other.name
    return None
