"""What the operator remembers between two reconciles. All of it can be found out again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade.observation import Refusal
from vllm_upgrade_operator.vllm.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.cluster.client import ApiError
    from vllm_upgrade_operator.judge.counters import Sample
    from vllm_upgrade_operator.upgrade.surroundings import Surroundings
    from vllm_upgrade_operator.vllm.causes import Cause
    from vllm_upgrade_operator.vllm.model import Model
    from vllm_upgrade_operator.vllm.runner import RunnerEvidence

# A runner shows in the log while the model loads; where it has not for this long it is not looked
# for so often, since a long log is read anew each time.
_EAGER_SECONDS = 600.0
_EAGER_INTERVAL_SECONDS = 1.0
_LAZY_INTERVAL_SECONDS = 30.0


@dataclass(slots=True)
class Process:
    """One vLLM process: a container of a pod, from its start to its end.

    `runner` is what `logged` and `exported`, by its log and by a metric, come to together.
    """

    started_at: float
    restarted: bool = False
    """Whether the pod's container ran before, in the time that is remembered."""
    version: str | None = None
    runner: RunnerEvidence | None = None
    logged: RunnerEvidence | None = None
    exported: RunnerEvidence | None = None
    model: Model | None = None
    startup_phase: str | None = None
    log_read_at: float | None = None
    sample: Sample | None = None

    def log_is_due(self, now: float) -> bool:
        """Whether the log should be read for the runner."""
        if self.runner is not None and self.runner.runner is not Runner.UNKNOWN:
            return False
        if self.log_read_at is None:
            return True
        eager = now - self.started_at < _EAGER_SECONDS
        interval = _EAGER_INTERVAL_SECONDS if eager else _LAZY_INTERVAL_SECONDS
        return now - self.log_read_at >= interval


# A refusal may be of the moment: a role that is being replaced, a webhook that restarts. With the
# loop's growing waits this many take about 15 s.
_REFUSALS = 5
_REFUSED_STATUS = frozenset({400, 403, 409, 413, 422})


_SURROUNDINGS_SECONDS = 10.0


@dataclass(slots=True)
class Memory:
    """What is remembered for one upgrade: its pods' processes, and what was refused."""

    _processes: dict[str, Process] = field(default_factory=dict)
    _ends: dict[str, tuple[str, Cause]] = field(default_factory=dict)
    _refusals: int = 0
    _refusal: Refusal | None = None
    _around: tuple[float, object, Surroundings] | None = None

    @property
    def refused(self) -> Refusal | None:
        """Why actions are refused; None unless it has happened again and again."""
        return self._refusal if self._refusals >= _REFUSALS else None

    def action_failed(self, action: str, error: ApiError) -> None:
        """Note that an action failed; only a refusal counts, not a server that is in trouble.

        A `Conflict` is none: somebody wrote at the same time.
        """
        if error.status not in _REFUSED_STATUS or error.reason == "Conflict":
            return
        self._refusals += 1
        self._refusal = Refusal(
            reason="ActionRefused",
            message=f"the API server refuses {action}: {error.message}",
        )

    def actions_done(self) -> None:
        """Note that nothing was refused."""
        self._refusals, self._refusal = 0, None

    def surroundings(self, template: object, now: float) -> Surroundings | None:
        """What was read around a target for this template a moment ago: each pod event asks."""
        if self._around is None:
            return None
        read_at, of, found = self._around
        return found if of == template and now - read_at < _SURROUNDINGS_SECONDS else None

    def remember_surroundings(self, template: object, now: float, found: Surroundings) -> None:
        """Keep what was read around a target."""
        self._around = now, template, found

    def process(self, uid: str, started_at: float) -> Process:
        """The process of a pod that started at this time; a new one knows nothing."""
        known = self._processes.get(uid)
        if known is None or known.started_at != started_at:
            known = Process(started_at, restarted=known is not None)
            self._processes[uid] = known
        return known

    def end(self, uid: str, run: str) -> Cause | None:
        """Why a run of a pod's container ended; None where it was not found out yet."""
        known = self._ends.get(uid)
        return known[1] if known is not None and known[0] == run else None

    def remember_end(self, uid: str, run: str, cause: Cause) -> None:
        """Keep why the latest run of a pod's container ended."""
        self._ends[uid] = run, cause

    def keep(self, uids: Iterable[str]) -> None:
        """Forget all pods but these."""
        kept = set(uids)
        self._ends = {u: e for u, e in self._ends.items() if u in kept}
        self._processes = {u: p for u, p in self._processes.items() if u in kept}
