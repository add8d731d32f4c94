"""What a sequence of probe results means: the kubelet's thresholds, without any I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


class Kind(Enum):
    """The three probes of a container."""

    STARTUP = "Startup"
    READINESS = "Readiness"
    LIVENESS = "Liveness"

    @property
    def field(self) -> str:
        """The container's field that holds this probe."""
        return f"{self.value.lower()}Probe"


@dataclass(frozen=True)
class Timing:
    """A probe's numbers, with the API's defaults; times in seconds."""

    initial_delay: float
    period: float
    timeout: float
    success_threshold: int
    failure_threshold: int

    @classmethod
    def of(cls, probe: Mapping[str, Any]) -> Timing:
        """Read the numbers of a probe as the API server stores it."""
        return cls(
            initial_delay=probe.get("initialDelaySeconds") or 0,
            period=probe.get("periodSeconds") or 10,
            timeout=probe.get("timeoutSeconds") or 1,
            success_threshold=probe.get("successThreshold") or 1,
            failure_threshold=probe.get("failureThreshold") or 3,
        )


class Tally:
    """Turns single results into the state that a container is taken to be in."""

    def __init__(self, timing: Timing, *, healthy: bool) -> None:
        self._timing = timing
        self._last: bool | None = None
        self._run = 0
        self.healthy = healthy
        """The present state."""

    def add(self, *, success: bool) -> bool:
        """Count one result; says whether a threshold has been reached with it."""
        self._run = self._run + 1 if success == self._last else 1
        self._last = success
        threshold = self._timing.success_threshold if success else self._timing.failure_threshold
        if self._run < threshold:
            return False
        self.healthy = success
        return True
