"""CEL rules of the CRD: what a schema cannot say.

Each message names the field and what would be right, and the value where the API server can bound
the cost of an expression for it (tried: for an element of `map`, not of `filter` or `join`, nor for
a number made text). The rules of a check are
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


def _canonical(flag: str) -> str:
    """A flag in the one spelling that vLLM gives it."""
    return f"{flag}.replace('_', '-')"


def _same(one: str, other: str) -> str:
    """Whether two flags are one to vLLM."""
    return f"{_canonical(one)} == {_canonical(other)}"


_SINGLE = (
    f"self.exists_one(b, {_same('b.flag', 'a.flag')}"
    f" || {_canonical('b.flag')} == 'no-' + {_canonical('a.flag')})"
)
_TWICE = "to vLLM a_b is a-b, and no-x sets x too: keep one of the two"

ARGS: tuple[Rule, ...] = (
    {
        "rule": f"self.all(a, {_SINGLE})",
        "messageExpression": "'spec.candidate.args has flag ' + "
        f"self.map(a, !{_SINGLE}, a.flag)[0] + ' twice ({_TWICE})'",
        "message": f"spec.candidate.args has one flag twice ({_TWICE})",
    },
)

IMAGE: tuple[Rule, ...] = (
    {
        # Not the whole grammar of a reference: what a kubelet refuses is told from the pod.
        "rule": "self.matches('^[][A-Za-z0-9._:/@+-]+$')",
        "messageExpression": "'spec.candidate.image is \"' + self + '\": an image is "
        "[registry/]repository[:tag][@digest], without spaces'",
        "message": "spec.candidate.image is no image: [registry/]repository[:tag][@digest]",
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
_IS_UNSET = f"self.unsetArgs.exists(u, {_same('u', 'a.flag')})"
CANDIDATE: tuple[Rule, ...] = (
    {
        "rule": " || ".join(_CHANGES),
        "message": "spec.candidate changes nothing: give at least one of image, args, unsetArgs, "
        "env, unsetEnv and templatePatch",
    },
    {
        "rule": f"!has(self.args) || !has(self.unsetArgs) || !self.args.exists(a, {_IS_UNSET})",
        "messageExpression": f"'flag ' + self.args.map(a, {_IS_UNSET}, a.flag)[0] + ' is both in "
        "spec.candidate.args and in unsetArgs: keep one of them'",
        "message": "a flag is both in spec.candidate.args and in unsetArgs: keep one of them",
    },
    {
        "rule": "!has(self.env) || !has(self.unsetEnv) || "
        "!self.env.exists(e, e.name in self.unsetEnv)",
        "messageExpression": "'variable ' + self.env.map(e, e.name in self.unsetEnv, e.name)[0] + "
        "' is both in spec.candidate.env and in unsetEnv: keep one of them'",
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


def _bounded(field: str, least: str | None, most: str, why: str) -> tuple[Rule, ...]:
    """Bounds of a duration, each with what is wrong beyond it."""
    bounds = [(">=", "least", least)] if least is not None else []
    return tuple(
        {
            "rule": f"duration(self) {operator} duration('{bound}')",
            "messageExpression": f"'{field} is ' + self + ', the {word} is {bound}: {why}'",
            "message": f"{field}: the {word} is {bound}: {why}",
        }
        for operator, word, bound in (*bounds, ("<=", "most", most))
    )


_LONGEST = "720h"
_FORGOTTEN = "nobody remembers after a month what was being tried"

INTERVAL: tuple[Rule, ...] = _bounded(
    "spec.analysis.interval", "1s", "10m", "harm is seen when pods are looked at"
)
HOLD: tuple[Rule, ...] = _bounded("hold of a step", None, _LONGEST, _FORGOTTEN)
BAKE: tuple[Rule, ...] = _bounded("spec.strategy.bake", None, _LONGEST, _FORGOTTEN)
WARMUP: tuple[Rule, ...] = _bounded(
    "spec.analysis.warmup.duration", None, "24h", "the requests before its end do not count"
)


def deadline(field: str) -> tuple[Rule, ...]:
    """Rules of a deadline, given by the path of its field."""
    why = "a deadline must leave time for what it waits for, and end"
    return _bounded(field, "1s", _LONGEST, why)


ANALYSIS: tuple[Rule, ...] = (
    {
        "rule": "duration(self.warmup.duration) < duration(self.maxDuration)",
        "messageExpression": "'spec.analysis.warmup.duration is ' + self.warmup.duration + "
        "', but a verdict is due by maxDuration, ' + self.maxDuration + ', and no request before "
        "the end of warmup counts: make warmup.duration shorter or maxDuration longer'",
        "message": "spec.analysis.warmup.duration must be shorter than maxDuration",
    },
    {
        "rule": "duration(self.interval) <= duration(self.maxDuration)",
        "messageExpression": "'spec.analysis.interval is ' + self.interval + ', longer than "
        "maxDuration, ' + self.maxDuration + ': look more often, or make maxDuration longer'",
        "message": "spec.analysis.interval must not be longer than maxDuration",
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
