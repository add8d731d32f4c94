"""One upgrade per target: which of several goes first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENDED = frozenset({Phase.SUCCEEDED, Phase.ROLLED_BACK, Phase.BLOCKED})
_WAITING = frozenset({"", Phase.PENDING})


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

    @property
    def ended(self) -> bool:
        """Whether it has nothing to do with its target any more."""
        return self.phase in _ENDED


def conflict(mine: Rival, others: Iterable[Rival]) -> Rival | None:
    """Find the upgrade that this one has to wait for, or None.

    One that has begun holds the target until it ends; among those that wait the oldest is first.
    Two that were made in the same second may both find themselves first, as long as neither sees
    that the other has begun. So it is asked again in Preflight, before anything is kept or made:
    there, too, the older one goes on, by its UID where the time is the same. Whoever came to
    Preflight without seeing the other sees it now, as it was there before.
    """
    not_begun = _WAITING if mine.phase in _WAITING else _WAITING | {Phase.PREFLIGHT}
    rivals = sorted(
        (o for o in others if o.uid != mine.uid and o.target == mine.target and not o.ended),
        key=_age,
    )
    for other in rivals:
        if other.phase not in not_begun or _age(other) < _age(mine):
            return other
    return None


def _age(rival: Rival) -> tuple[str, str]:
    return rival.created, rival.uid
