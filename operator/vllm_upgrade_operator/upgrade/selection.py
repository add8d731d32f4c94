"""Who selects pods by their labels: Services, InferencePools and the target itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """One of `matchExpressions`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy it; as in Kubernetes, `NotIn` holds where the key is not there."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """What selects pods, and by which labels.

    Attributes:
        owner: Kind and name, as in `Service llm`.
        labels: Labels that a pod must have with these values.
        expressions: What else must hold of its labels.
    """

    owner: str
    labels: Mapping[str, str]
    expressions: tuple[Expression, ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Every label key that it looks at."""
        return frozenset(self.labels) | {e.key for e in self.expressions}

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels."""
        return all(labels.get(k) == v for k, v in self.labels.items()) and all(
            e.matches(labels) for e in self.expressions
        )


def traffic_keys(
    labels: Mapping[str, str], selectors: Iterable[Selector], further: Iterable[str]
) -> frozenset[str]:
    """Give the keys by which anything selects the target's pods.

    Args:
        labels: Of the target's pod template.
        selectors: Of the target itself, and of what routes in its namespace.
        further: Keys that the user names.
    """
    return frozenset(further).union(*(s.keys for s in selectors if s.matches(labels)))
