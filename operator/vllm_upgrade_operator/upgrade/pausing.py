"""`spec.paused`: nothing new is begun, while what runs is watched on and harm is acted on.

From promotion on it has no effect: a target that is left half rolled would be worse than either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.v1alpha1 import Phase
from vllm_upgrade_operator.upgrade.flow import Turn, note, remember, roll_back, since, wait
from vllm_upgrade_operator.upgrade.times import clock, rfc3339

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.upgrade.observation import Observation

_BEFORE_THE_START = frozenset({Phase.PENDING, Phase.PREFLIGHT})
_STOPS_IN = _BEFORE_THE_START | {Phase.STARTING, Phase.VERIFYING, Phase.CANARY}


def stops(o: Observation, status: VLLMUpgradeStatus) -> bool:
    """Whether the phase must not go on."""
    return o.spec.paused and status.phase in _STOPS_IN


def paused(o: Observation, status: VLLMUpgradeStatus, now: float) -> Turn:
    """Stay; a pause with pods running is a wait for a person and ends at `haltTimeout`."""
    if status.progress.paused_since is None:
        status = note(
            remember(status, paused_since=rfc3339(now)), "Paused", "spec.paused is true", now
        )
    if status.phase in _BEFORE_THE_START:
        return wait(
            status, "paused by spec.paused before anything was started: set it to false to begin"
        )
    timeout = o.spec.strategy.halt_timeout
    end = since(status.progress.paused_since, now) + seconds_of(timeout)
    if now > end:
        return roll_back(
            status,
            "PauseTimeout",
            f"spec.paused stayed true for spec.strategy.haltTimeout ({timeout})",
            now=now,
        )
    where = f" in step {status.step.index + 1} of {status.step.total}" if status.step else ""
    verdict = f", verdict {status.verdict}" if status.verdict else ""
    return Turn(
        status=wait(
            status,
            f"paused by spec.paused{where}{verdict}; pods are watched on and harm is acted on; set "
            f"it to false to go on, else it is rolled back at {clock(end)}",
        ).status,
        at=end,
    )


def resumed(status: VLLMUpgradeStatus, now: float) -> VLLMUpgradeStatus:
    """Go on: what waited for pods, evidence or a person has its time anew."""
    if status.progress.paused_since is None:
        return status
    moment = rfc3339(now)
    again = remember(
        status,
        paused_since=None,
        wanted_since=moment,
        approval_since=None,
        unsettled_since=None,
    )
    if status.progress.step_since is not None:
        again = remember(again, passed_at=moment)
    return note(again, "Resumed", "spec.paused is false again", now)
