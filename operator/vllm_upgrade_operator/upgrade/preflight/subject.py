"""What the checks of preflight look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.observation import Observation, Target
    from vllm_upgrade_operator.upgrade.preflight.server import Server
    from vllm_upgrade_operator.upgrade.surroundings import Surroundings


class Sides(Protocol):
    """What runs and what would run instead: all that the facts about versions are asked for."""

    @property
    def stable(self) -> Server:
        """What runs."""

    @property
    def candidate(self) -> Server:
        """What would run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A target that is to be upgraded."""

    o: Observation
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial(Subject):
    """A target, and the template that the API server made of it for the candidate."""

    now: float
    """Seconds since the Unix epoch: exceptions have a last day."""
    template: Mapping[str, Any]
    stable: Server
    candidate: Server
    surroundings: Surroundings

    @property
    def pod(self) -> Mapping[str, Any]:
        """The spec of the candidate's pods."""
        found: Mapping[str, Any] = self.template.get("spec") or {}
        return found
