"""What came of the load, by pod."""

from __future__ import annotations

import bisect
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Bounds in seconds, fine enough to tell a tail.
BOUNDS = (
    *(0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0),
    *(15.0, 20.0, 30.0, 60.0),
)

OUTCOMES = ("ok", "rejected", "client_error", "error", "refused", "cut", "timeout")


@dataclass(slots=True)
class PodReport:
    """What happened at one pod. Times are seconds since the epoch."""

    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    first_accepted: float | None = None
    """When the first request was sent that the pod answered in any way."""
    last_accepted: float | None = None
    """When the last such request was sent."""
    last_accepted_new: float | None = None
    """The same, of requests on a connection that was opened for them."""
    ttft: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    e2e: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def accepted(self, at: float, *, new_connection: bool) -> None:
        """Note a request that the pod answered."""
        if self.first_accepted is None or at < self.first_accepted:
            self.first_accepted = at
        self.last_accepted = max(at, self.last_accepted or at)
        if new_connection:
            self.last_accepted_new = max(at, self.last_accepted_new or at)

    def timed(self, ttft: float, e2e: float) -> None:
        """Note how long a good answer took."""
        self.ttft[bisect.bisect_left(BOUNDS, ttft)] += 1
        self.e2e[bisect.bisect_left(BOUNDS, e2e)] += 1

    def as_dict(self) -> dict[str, Any]:
        """Give it for JSON."""
        return {
            **self.outcomes,
            "first_accepted": self.first_accepted,
            "last_accepted": self.last_accepted,
            "last_accepted_new": self.last_accepted_new,
            "ttft": self.ttft,
            "e2e": self.e2e,
        }


@dataclass(slots=True)
class Report:
    """What happened altogether."""

    pods: dict[str, PodReport] = field(default_factory=dict)
    sent: int = 0
    no_endpoint: int = 0
    """Arrivals that found no ready endpoint."""
    dropped: int = 0
    """Arrivals beyond the bound on requests in flight."""

    def pod(self, name: str) -> PodReport:
        """Give the report of a pod."""
        return self.pods.setdefault(name, PodReport())

    def as_dict(self) -> dict[str, Any]:
        """Give it for JSON."""
        return {
            "sent": self.sent,
            "no_endpoint": self.no_endpoint,
            "dropped": self.dropped,
            "bounds": list(BOUNDS),
            "pods": {name: pod.as_dict() for name, pod in sorted(self.pods.items())},
        }

    def write(self, path: Path) -> None:
        """Write it whole: a reader never sees half of it."""
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(self.as_dict()))
        scratch.replace(path)
