"""A pod that answers nearly all with a server error, from its start on: no need to wait for more.

The check of errors judges warm pods against the stable ones. This is for what cannot be mistaken
before that: a canary that has answered almost nothing but 5xx since it was started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import resolve_checks
from vllm_upgrade_operator.api.spec import Metric, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.upgrade.observation import Pod

_ANSWERS = 20.0
"""Answers of which that many must be errors: fewer may be one client's bad luck."""
_SHARE = 0.95


def found(pods: Iterable[Pod], spec: VLLMUpgradeSpec) -> tuple[str, str] | None:
    """Give reason and message of the first pod that does so, unless errors are not to act."""
    if not any(
        check.metric is Metric.ERRORS and check.mode is Mode.ENFORCE
        for check in resolve_checks(spec.analysis.checks)
    ):
        return None
    for pod in pods:
        if pod.failed is None or pod.offered is None or pod.in_flight is None:
            continue
        answered = pod.offered - pod.in_flight
        if answered >= _ANSWERS and pod.failed >= _SHARE * answered:
            message = (
                f"{pod.name} answered {pod.failed:.0f} of {answered:.0f} requests with a server "
                "error since it started: look at its log"
            )
            return "RequestsFail", message
    return None
