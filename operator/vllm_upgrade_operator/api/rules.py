"""CEL rules of the CRD: what a schema cannot say.

Each message names the field and what would be right, and the value where the API server can bound
the cost of an expression for it (not for an element of a filtered list). The rules of a check are
made from the metrics' units, so that a new metric cannot be forgotten. Where a rule has a
`messageExpression`, its `message` is what the API server falls back on.
"""

from __future__ import annotations

from vllm_upgrade_operator.api.checks import DEFAULT_CHECKS, LATENCIES, RATIOS
from vllm_upgrade_operator.api.spec import Metric

Rule = dict[str, str]

TARGET_REF: tuple[Rule, ...] = (
    {
        "rule": "self == oldSelf",
        "messageExpression": "'spec.targetRef cannot be changed from ' + oldSelf.name + ' to ' + "
        "self.name + ': make another VLLMUpgrade for another target'",
        "message": "spec.targetRef cannot be changed: make another VLLMUpgrade for another target",
    },
)


def _same(one: str, other: str) -> str:
    """Whether two flags are one to vLLM."""
    return f"{one}.replace('_', '-') == {other}.replace('_', '-')"


ARGS: tuple[Rule, ...] = (
    {
        "rule": f"self.all(a, self.exists_one(b, {_same('b.flag', 'a.flag')}))",
        "message": "spec.candidate.args has one flag twice (to vLLM a_b is a-b): keep one of them",
    },
)

_CHANGES = (
    "has(self.image)",
    *(
        f"(has(self.{field}) && size(self.{field}) > 0)"
        for field in ("args", "unsetArgs", "env", "unsetEnv")
    ),
    "has(self.templatePatch)",
)
CANDIDATE: tuple[Rule, ...] = (
    {
        "rule": " || ".join(_CHANGES),
        "message": "spec.candidate changes nothing: give at least one of image, args, unsetArgs, "
        "env, unsetEnv and templatePatch",
    },
    {
        "rule": "!has(self.args) || !has(self.unsetArgs) || "
        f"!self.args.exists(a, self.unsetArgs.exists(u, {_same('u', 'a.flag')}))",
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
        "messageExpression": "'variable ' + self.name + ' has both value and valueFrom: "
        "keep one of them'",
        "message": "a variable has value or valueFrom, not both",
    },
)

STEP: tuple[Rule, ...] = (
    {
        "rule": "has(self.replicas) != has(self.percent)",
        "message": "a step has exactly one of replicas and percent",
    },
)


def _not_descending(field: str) -> Rule:
    # A number of pods and a percentage cannot be compared before the target is known.
    return {
        "rule": f"self.filter(s, has(s.{field})).map(s, s.{field}).isSorted()",
        "message": f"spec.strategy.steps descends: {field} of a step must be at least that of the "
        "step before",
    }


STEPS: tuple[Rule, ...] = tuple(_not_descending(field) for field in ("replicas", "percent"))

TRAFFIC_LABELS: tuple[Rule, ...] = (
    {
        "rule": "!self.exists(k, k.startsWith('vllmupgrade.dev/'))",
        "message": "spec.strategy.trafficLabels names a label of vllmupgrade.dev, which the "
        "operator itself sets: give the keys that your routers select by",
    },
)

INTERVAL: tuple[Rule, ...] = (
    {
        "rule": "duration(self) >= duration('1s')",
        "messageExpression": "'spec.analysis.interval is ' + self + ', the least is 1s'",
        "message": "spec.analysis.interval is less than 1s",
    },
)

_DEFAULT_METRICS = (
    "{" + ", ".join(f"'{check.name}': '{check.metric}'" for check in DEFAULT_CHECKS) + "}"
)
_IS_DEFAULT = f"self.name in {_DEFAULT_METRICS}"
_METRIC = f"({_IS_DEFAULT} ? {_DEFAULT_METRICS}[self.name] : (has(self.metric) ? self.metric : ''))"


def _among(metrics: frozenset[Metric]) -> str:
    names = ", ".join(f"'{metric}'" for metric in sorted(metrics))
    return f"{_METRIC} in [{names}]"


def _unit(metrics: frozenset[Metric], test: str, unit: str) -> Rule:
    return {
        "rule": f"!has(self.max) || !({_among(metrics)}) || {test}",
        "messageExpression": "'max of check ' + self.name + ' is ' + string(self.max) + "
        f"', but the limit of ' + {_METRIC} + ' is {unit}'",
        "message": f"the limit of this check's metric is {unit}",
        "fieldPath": ".max",
    }


CHECK: tuple[Rule, ...] = (
    {
        "rule": f"{_IS_DEFAULT} || (has(self.metric) && "
        "(has(self.max) || has(self.maxIncrease) || has(self.maxDecrease)))",
        "messageExpression": "'check ' + self.name + ' is not one of the default checks ("
        + ", ".join(check.name for check in DEFAULT_CHECKS)
        + "): it needs a metric and one of max, maxIncrease and maxDecrease'",
        "message": "a check of your own needs a metric and one of max, maxIncrease and maxDecrease",
    },
    {
        "rule": f"!({_IS_DEFAULT}) || !has(self.metric) || self.metric == {_METRIC}",
        "messageExpression": "'check ' + self.name + ' is a default check and measures ' + "
        f"{_METRIC} + ': give the check of ' + self.metric + ' another name'",
        "message": "a default check keeps its metric: give that of another metric another name",
    },
    {
        "rule": f"!has(self.quantile) || {_METRIC} == '' || {_among(LATENCIES)}",
        "messageExpression": "'check ' + self.name + ' has the quantile ' + self.quantile + "
        f"', but ' + {_METRIC} + ' is no latency: leave quantile out'",
        "message": "only a latency has a quantile: leave it out",
        "fieldPath": ".quantile",
    },
    {
        "rule": f"!has(self.maxDecrease) || !({_among(LATENCIES)})",
        "messageExpression": "'check ' + self.name + ' has maxDecrease, but less of ' + "
        f"{_METRIC} + ' is no harm: give max or maxIncrease'",
        "message": "a shorter latency is no harm: give max or maxIncrease",
        "fieldPath": ".maxDecrease",
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
