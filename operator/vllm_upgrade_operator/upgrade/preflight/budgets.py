"""PodDisruptionBudgets: is there one that can never be met, or that counts canary pods?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.names import CANARY, ROLE, ROLE_CANARY
from vllm_upgrade_operator.upgrade.preflight.answer import (
    not_applicable,
    passed,
    unknown,
    warn,
)
from vllm_upgrade_operator.upgrade.surroundings import Unread
from vllm_upgrade_operator.upgrade.traffic import withdrawn_template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Trial
    from vllm_upgrade_operator.upgrade.surroundings import Budget


def disruption_budgets(t: Trial) -> Answer:
    """A rollout is no eviction, so a budget stops no upgrade; it stops the drain of a node."""
    budgets = t.surroundings.budgets
    if isinstance(budgets, Unread):
        return unknown("BudgetsUnread", budgets.why)
    labels = _labels(t.target.template)
    mine = [b for b in budgets if b.selector.matches(labels)]
    for budget in mine:
        if _allowed(budget, t.target.replicas) <= 0:
            return warn(
                "BudgetNeverMet",
                f"PodDisruptionBudget {budget.name} ({_words(budget)}) lets none of the "
                f"{t.target.replicas} pods of {t.target.name} go: a node that is drained during "
                "the upgrade waits for ever; allow one disruption at least",
            )
    born = {
        **_labels(withdrawn_template(t.template, t.o.traffic_keys)),
        CANARY: t.o.uid,
        ROLE: ROLE_CANARY,
    }
    for budget in budgets:
        if budget.selector.matches(born):
            return warn(
                "BudgetCountsCanary",
                f"PodDisruptionBudget {budget.name} counts canary pods too, which are not ready at "
                "first: add a label of the target's traffic to its selector, or name its keys in "
                "spec.strategy.trafficLabels",
            )
    if not mine:
        return not_applicable(f"no PodDisruptionBudget selects the pods of {t.target.name}")
    return passed(f"{', '.join(b.name for b in mine)} can be met")


def _allowed(budget: Budget, replicas: int) -> int:
    """Pods that may be missing when all are healthy.

    Percentages are rounded up, as Kubernetes does (pkg/controller/disruption).
    """
    if budget.max_unavailable is not None:
        return _count(budget.max_unavailable, replicas)
    return replicas - _count(budget.min_available or "0", replicas)


def _count(text: str, replicas: int) -> int:
    if text.endswith("%"):
        return math.ceil(int(text[:-1]) * replicas / 100)
    return int(text)


def _words(budget: Budget) -> str:
    if budget.max_unavailable is not None:
        return f"maxUnavailable {budget.max_unavailable}"
    return f"minAvailable {budget.min_available}"


def _labels(template: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = (template.get("metadata") or {}).get("labels") or {}
    return found
