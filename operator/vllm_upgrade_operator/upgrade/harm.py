"""What of the candidate does harm now: a pod that failed, an engine that hangs, a check.

The surest and plainest first: whoever reads the reason should read the cause, not its effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.upgrade import failing, hanging, judging
from vllm_upgrade_operator.upgrade.health import failure

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.judge.model import Judgement
    from vllm_upgrade_operator.upgrade.observation import Observation, Pod


def find(
    o: Observation, status: VLLMUpgradeStatus, judgement: Judgement | None, now: float
) -> tuple[VLLMUpgradeStatus, tuple[str, str] | None]:
    """Give what has to be remembered, and reason and message of the harm, if there is any."""
    serving = judging.candidates_in_traffic(o, status)
    hung = None
    if o.looked and status.phase in judging.JUDGED:
        status, hung = hanging.watch(serving, status, now)
    failed = next((f for f in map(failure, _candidate_pods(o, status)) if f is not None), None)
    checked = None if judgement is None else judging.harm(judgement)
    return status, failed or hung or failing.found(serving, o.spec) or checked


def _candidate_pods(o: Observation, status: VLLMUpgradeStatus) -> list[Pod]:
    pods = [] if o.canary is None else list(o.canary.pods)
    if status.progress.promoted and o.target is not None:
        pods += [p for p in o.target.pods if judging.is_promoted(o, p)]
    return pods
