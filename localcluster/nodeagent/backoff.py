"""The kubelet's restart delay: none the first time, then doubling, forgotten after a calm while."""

from __future__ import annotations

from dataclasses import dataclass

FORGET_FACTOR = 2
CAP_FACTOR = 30


@dataclass
class Backoff:
    """Delays for one container; times are seconds of one clock.

    Attributes:
        base: The first delay that is not zero. Kubernetes uses 10 seconds. The longest is 30 times
            as much, and after a calm twice as long as that the count starts again.
    """

    base: float
    _delay: float = 0.0
    _updated: float = 0.0

    @property
    def cap(self) -> float:
        """The longest delay, in seconds."""
        return self.base * CAP_FACTOR

    def after_exit(self, finished: float) -> float:
        """How long to wait after an exit at `finished` before the next start, in seconds."""
        if self._delay and finished - self._updated > self.cap * FORGET_FACTOR:
            self._delay = 0.0
        return self._delay

    def started(self, now: float) -> None:
        """Count one more restart, made at `now`."""
        self._delay = min(self._delay * 2, self.cap) if self._delay else self.base
        self._updated = now
