"""A check's limits in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.checks import LATENCIES, RATIOS
from vllm_upgrade_operator.judge.words import count, percent, seconds

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.checks import Check


def compares(check: Check) -> bool:
    """Whether the check holds the canary against stable pods."""
    return check.max_increase is not None or check.max_decrease is not None


def write_limit(check: Check) -> str:
    """Write what a check allows, such as `1%, stable +50%`."""
    show = seconds if check.metric in LATENCIES else percent if check.metric in RATIOS else count
    parts = [] if check.max is None else [show(check.max)]
    if check.max_increase is not None:
        parts.append(f"stable +{percent(check.max_increase)}")
    if check.max_decrease is not None:
        parts.append(f"stable -{percent(check.max_decrease)}")
    return ", ".join(parts)


def signature(check: Check) -> str:
    """Write down what evidence belongs to: a check that is changed begins again."""
    return (
        f"{check.metric}/{check.quantile}/{check.max}/{check.max_increase}"
        f"/{check.max_decrease}/{check.floor}"
    )
