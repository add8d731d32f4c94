"""What came of the requests, pod by pod."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from localcluster.load.histogram import Histogram


class Outcome(StrEnum):
    """How a request ended that was given to a pod."""

    OK = "ok"
    """Answered in full."""
    REJECTED = "rejected"
    """503: the pod had no room."""
    ERROR = "error"
    """Another 5xx, or an error within a stream."""
    CLIENT_ERROR = "client_error"
    """4xx, or an answer that is none of this API's."""
    REFUSED = "refused"
    """No connection, or it ended before the pod had answered anything."""
    CUT = "cut"
    """The answer began and did not end."""
    TIMEOUT = "timeout"
    """Given up after the timeout."""
    ABANDONED = "abandoned"
    """Still under way when the load had ended and its time to drain was over."""


@dataclass(slots=True)
class PodTally:
    """What one pod did with its requests. Times are seconds since 1970.

    A request is accepted when the pod answered anything at all; its time is when it was sent.

    Attributes:
        outcomes: Number of requests per outcome.
        first_accepted: When the first accepted request was sent.
        last_accepted: When the last accepted request was sent.
        last_accepted_new: The same, of requests for which a connection was opened.
        connections: Connections opened to this pod.
        reused: Requests sent on a connection that had served another before.
    """

    outcomes: dict[Outcome, int] = field(default_factory=lambda: dict.fromkeys(Outcome, 0))
    first_accepted: float | None = None
    last_accepted: float | None = None
    last_accepted_new: float | None = None
    connections: int = 0
    reused: int = 0
    ttft: Histogram = field(default_factory=Histogram)
    itl: Histogram = field(default_factory=Histogram)
    e2e: Histogram = field(default_factory=Histogram)

    def connected(self, *, reused: bool) -> None:
        """Count a request that has a connection."""
        if reused:
            self.reused += 1
        else:
            self.connections += 1

    def accepted(self, sent: float, *, reused: bool) -> None:
        """Note a request that the pod answered anything to."""
        self.first_accepted = min(sent, self.first_accepted or sent)
        self.last_accepted = max(sent, self.last_accepted or sent)
        if not reused:
            self.last_accepted_new = max(sent, self.last_accepted_new or sent)

    def report(self) -> dict[str, Any]:
        """Give all of it as JSON values."""
        return {
            "outcomes": {str(outcome): count for outcome, count in self.outcomes.items()},
            "first_accepted": self.first_accepted,
            "last_accepted": self.last_accepted,
            "last_accepted_new": self.last_accepted_new,
            "connections": self.connections,
            "reused": self.reused,
            "ttft": self.ttft.report(),
            "itl": self.itl.report(),
            "e2e": self.e2e.report(),
        }


@dataclass(slots=True)
class Tally:
    """What came of all arrivals.

    Attributes:
        arrivals: Requests that were due.
        dropped: Not sent: too many were under way.
        unserved: Not sent: no endpoint was ready.
        pods: The rest, by pod.
    """

    arrivals: int = 0
    dropped: int = 0
    unserved: int = 0
    pods: dict[str, PodTally] = field(default_factory=dict)

    def pod(self, name: str) -> PodTally:
        """Give a pod's part."""
        return self.pods.setdefault(name, PodTally())

    def report(self) -> dict[str, Any]:
        """Give all of it as JSON values."""
        return {
            "arrivals": self.arrivals,
            "dropped": self.dropped,
            "unserved": self.unserved,
            "pods": {name: self.pods[name].report() for name in sorted(self.pods)},
        }
