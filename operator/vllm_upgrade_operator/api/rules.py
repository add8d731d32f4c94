"""CEL rules of the CRD: what a schema cannot say.

Each message names the field and what would be right. The rules of a check are made from the
metrics' units, so that a new metric cannot be forgotten.
"""

from __future__ import annotations

from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS, LATENCIES, RATIOS
from vllm_upgrade_operator.api.spec import Metric

Rule = dict[str, str]


def _listed(names: list[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


TARGET_REF: tuple[Rule, ...] = (
    {
        "rule": "self == oldSelf",
        "message": "spec.targetRef cannot be changed: make another VLLMUpgrade for another target",
    },
)

CANDIDATE: tuple[Rule, ...] = (
    {
        "rule": "has(self.image) || (has(self.args) && size(self.args) > 0) || "
        "(has(self.unsetArgs) && size(self.unsetArgs) > 0) || "
        "(has(self.env) && size(self.env) > 0) || "
        "(has(self.unsetEnv) && size(self.unsetEnv) > 0) || has(self.templatePatch)",
        "message": "spec.candidate changes nothing: give at least one of image, args, unsetArgs, "
        "env, unsetEnv and templatePatch",
    },
    {
        "rule": "!has(self.args) || !has(self.unsetArgs) || "
        "!self.args.exists(a, self.unsetArgs.exists(u, "
        "u.replace('_', '-') == a.flag.replace('_', '-')))",
        "message": "a flag is both in spec.candidate.args and in unsetArgs: keep one of them",
    },
    {
        "rule": "!has(self.env) || !has(self.unsetEnv) || "
        "!self.env.exists(e, e.name in self.unsetEnv)",
        "message": "a variable is both in spec.candidate.env and in unsetEnv: keep one of them",
    },
)

ENV_VAR: tuple[Rule, ...] = (
    {
        "rule": "!(has(self.value) && has(self.valueFrom))",
        "message": "a variable has value or valueFrom, not both",
    },
)

STEP: tuple[Rule, ...] = (
    {
        "rule": "has(self.replicas) != has(self.percent)",
        "message": "a step has exactly one of replicas and percent",
    },
)

STEPS: tuple[Rule, ...] = tuple(
    {
        "rule": f"self.filter(s, has(s.{field})).map(s, s.{field}).isSorted()",
        "message": f"spec.strategy.steps descend: each {field} must be at least the one before",
    }
    for field in ("replicas", "percent")
)

_DEFAULT_METRICS = (
    "{" + ", ".join(f"'{check.name}': '{check.metric}'" for check in DEFAULT_CHECKS) + "}"
)
_IS_DEFAULT = f"self.name in {_DEFAULT_METRICS}"
_METRIC = f"({_IS_DEFAULT} ? {_DEFAULT_METRICS}[self.name] : (has(self.metric) ? self.metric : ''))"


def _unit(metrics: frozenset[Metric], test: str, unit: str) -> Rule:
    names = _listed(sorted(str(metric) for metric in metrics))
    return {
        "rule": f"!has(self.max) || !({_METRIC} in {names}) || {test}",
        "messageExpression": f"'check ' + self.name + ': max has the wrong unit, that of ' + "
        f"{_METRIC} + ' is {unit}'",
        "message": f"the unit of this check's max is {unit}",
        "fieldPath": ".max",
    }


CHECK: tuple[Rule, ...] = (
    {
        "rule": f"{_IS_DEFAULT} || (has(self.metric) && "
        "(has(self.max) || has(self.maxIncrease) || has(self.maxDecrease)))",
        "messageExpression": "'check ' + self.name + ' is not one of the default checks ("
        + ", ".join(check.name for check in DEFAULT_CHECKS)
        + "): it needs a metric and one of max, maxIncrease and maxDecrease'",
        "message": "a check of your own needs a metric and a limit",
    },
    {
        "rule": f"!({_IS_DEFAULT}) || !has(self.metric) || self.metric == {_METRIC}",
        "messageExpression": "'check ' + self.name + ' is a default check and measures ' + "
         f"{_METRIC} + '; give another metric another name'",
        "message": "a default check keeps its metric; give another metric another name",
    },
    {
        "rule": "!has(self.quantile) || "
        f"{_METRIC} in {_listed(sorted(str(metric) for metric in LATENCIES))}",
        "messageExpression": "'check ' + self.name + ' has a quantile, but ' + "
         f"{_METRIC} + ' is no latency: leave it out'",
        "message": "only latencies have a quantile",
    },
    _unit(
        RATIOS,
        "(type(self.max) == string && self.max.endsWith('%'))",
        "a percentage such as 1%",
    ),
    _unit(
        LATENCIES,
        "(type(self.max) == string && !self.max.endsWith('%'))",
        "a duration such as 2s",
    ),
    _unit(
        frozenset(Metric) - RATIOS - LATENCIES,
        "type(self.max) == int",
        "a whole number such as 64",
    ),
)
