"""Specs of a VLLMUpgrade that are accepted, and those that are refused with what must be said.

Held against the models (fast) and against a real API server (tests/cluster/test_crd.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]


def spec(**parts: Any) -> Spec:
    """A minimal spec; the given parts come on top."""
    return {"targetRef": {"name": "llm"}, "candidate": {"image": "vllm/vllm-openai:v0.29.0"}} | (
        parts
    )


def candidate(**parts: Any) -> Spec:
    return spec(candidate=parts)


def check(**parts: Any) -> Spec:
    return spec(analysis={"checks": [parts]})


def steps(*given: Spec) -> Spec:
    return spec(strategy={"steps": list(given)})


def exception(**parts: Any) -> Spec:
    whole = {"feature": "triton", "reason": "r", "owner": "o", "retestAfter": "2026-12-14"} | parts
    return spec(runner={"exceptions": [whole]})


EVERYTHING = {
    "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama-70b"},
    "reason": "MRV1 goes away",
    "container": "vllm",
    "candidate": {
        "image": "vllm/vllm-openai:v0.29.0",
        "version": "0.29.0",
        "args": [
            {"flag": "max-num-queued-reqs", "value": "256"},
            {"flag": "enable-prefix-caching"},
        ],
        "unsetArgs": ["disable-log-requests"],
        "env": [
            {"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "1"},
            {
                "name": "HF_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}},
            },
            {"name": "with.dots and spaces", "value": ""},
        ],
        "unsetEnv": ["VLLM_ATTENTION_BACKEND"],
        "templatePatch": {
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"volumes": [{"$patch": "delete", "name": "old"}]},
        },
    },
    "runner": {
        "expected": "V2",
        "onMismatch": "Rollback",
        "exceptions": [
            {
                "feature": "custom logits processors",
                "reason": "not there yet",
                "owner": "platform",
                "retestAfter": "2026-12-14",
            }
        ],
    },
    "strategy": {
        "steps": [
            {"replicas": 1, "hold": "15m"},
            {"percent": 25, "hold": "1h30m", "approval": True},
            {"replicas": 1, "hold": "500ms"},
            {"percent": 25, "hold": "0s"},
        ],
        "bake": "15m",
        "scheduleDeadline": "15m",
        "startDeadline": "30m",
        "haltTimeout": "4h",
        "trafficLabels": ["app.kubernetes.io/name", "tier"],
    },
    "analysis": {
        "interval": "1s",
        "warmup": {"duration": "60s", "requests": 20},
        "minRequests": 100,
        "onInconclusive": "Rollback",
        "maxDuration": "1h",
        "checks": [
            {"name": "rejections", "max": "0.5%", "maxIncrease": "50%"},
            {"name": "queue", "metric": "QueueDepth", "max": 64},
            {"name": "ttft-p99", "mode": "Observe", "quantile": "p95", "max": "750ms"},
            {"name": "kv-capacity", "maxDecrease": "100%"},
            {"name": "e2e-p50", "metric": "EndToEndLatency", "quantile": "p50", "max": "1m30s"},
            {"name": "preemptions", "max": 0},
            {"name": "draft-acceptance", "mode": "Disabled"},
        ],
    },
}

ACCEPTED: dict[str, Spec] = {
    "least": spec(),
    "everything": EVERYTHING,
    "only a flag": candidate(args=[{"flag": "max-num-seqs", "value": "8"}]),
    "only a flag less": candidate(unsetArgs=["enforce_eager"]),
    "only a variable": candidate(env=[{"name": "VLLM_USE_V2_MODEL_RUNNER", "value": "0"}]),
    "only a variable less": candidate(unsetEnv=["VLLM_USE_V2_MODEL_RUNNER"]),
    "only a patch": candidate(templatePatch={"spec": {"priorityClassName": "high"}}),
    "parts of objects": spec(runner={"expected": "Any"}, strategy={"bake": "1m"}, analysis={}),
    "longest target": spec(targetRef={"name": "a" * 235}),
    "no hold, no bake": spec(strategy={"steps": [{"replicas": 1, "hold": "0s"}], "bake": "0s"}),
    "an image of everything": candidate(
        image="[2001:db8::1]:5000/Team_a/vllm-openai:v0.29.0_x@sha256:" + "a" * 64
    ),
    "target with dots": spec(targetRef={"name": "llama-3.1-70b"}),
}


_CHECK = "spec.analysis.checks[0]"


@dataclass(frozen=True)
class Refused:
    """A spec that is refused, by which field, and what the message says."""

    spec: Spec
    field: str
    says: tuple[str, ...]
    by_models: bool = True


def _unit(name: str, limit: object, *says: str) -> Refused:
    """A limit whose form is right, but not for its metric: only a rule can tell."""
    return Refused(check(name=name, max=limit), f"{_CHECK}.max", says, by_models=False)


REFUSED: dict[str, Refused] = {
    "no target": Refused({"candidate": {"image": "x"}}, "spec.targetRef", ("Required value",)),
    "another kind": Refused(
        spec(targetRef={"kind": "StatefulSet", "name": "llm"}),
        "spec.targetRef.kind",
        ("StatefulSet", "Deployment"),
    ),
    "a path as target": Refused(
        spec(targetRef={"name": "x/../../secrets/y"}), "spec.targetRef.name", ("x/../..",)
    ),
    "dots as target": Refused(spec(targetRef={"name": ".."}), "spec.targetRef.name", ('".."',)),
    "target too long": Refused(
        spec(targetRef={"name": "a" * 236}), "spec.targetRef.name", ("235",)
    ),
    "no change": Refused(
        candidate(),
        "spec.candidate",
        ("spec.candidate changes nothing", "give at least one of image, args"),
        by_models=False,
    ),
    "no change but a version": Refused(
        candidate(version="0.29.0", args=[], env=[]),
        "spec.candidate",
        ("spec.candidate changes nothing",),
        by_models=False,
    ),
    "an empty patch": Refused(
        candidate(templatePatch={}), "spec.candidate.templatePatch", ("at least 1 properties",)
    ),
    "a flag with dashes": Refused(
        candidate(args=[{"flag": "--max-num-seqs"}]),
        "spec.candidate.args[0].flag",
        ("--max-num-seqs",),
    ),
    "a flag twice": Refused(
        candidate(args=[{"flag": "max_num_seqs"}, {"flag": "max-num-seqs"}]),
        "spec.candidate.args",
        ("spec.candidate.args has flag max_num_seqs twice", "keep one"),
        by_models=False,
    ),
    "a flag and its opposite": Refused(
        candidate(args=[{"flag": "x"}, {"flag": "no_async_output"}, {"flag": "async-output"}]),
        "spec.candidate.args",
        ("spec.candidate.args has flag async-output twice", "no-x sets x too", "keep one"),
        by_models=False,
    ),
    "the same flag": Refused(
        candidate(args=[{"flag": "max-num-seqs"}, {"flag": "max-num-seqs", "value": "8"}]),
        "spec.candidate.args[1]",
        ("Duplicate value", "max-num-seqs"),
        by_models=False,
    ),
    "an image with a space": Refused(
        candidate(image="vllm/vllm-openai :v0.29.0"),
        "spec.candidate.image",
        ('"vllm/vllm-openai :v0.29.0"', "[registry/]repository[:tag][@digest], without spaces"),
        by_models=False,
    ),
    "a flag set and unset": Refused(
        candidate(args=[{"flag": "max_num_seqs"}], unsetArgs=["max-num-seqs"]),
        "spec.candidate",
        ("flag max_num_seqs is both in spec.candidate.args and in unsetArgs", "keep one"),
        by_models=False,
    ),
    "a variable set and unset": Refused(
        candidate(env=[{"name": "B"}, {"name": "A", "value": "1"}], unsetEnv=["C", "A"]),
        "spec.candidate",
        ("variable A is both in spec.candidate.env and in unsetEnv", "keep one"),
        by_models=False,
    ),
    "a variable with two values": Refused(
        candidate(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {}}}]),
        "spec.candidate.env[0]",
        ("variable A has both value and valueFrom",),
        by_models=False,
    ),
    "a variable with = in its name": Refused(
        candidate(env=[{"name": "A=B"}]), "spec.candidate.env[0].name", ("A=B",)
    ),
    "an unknown runner": Refused(
        spec(runner={"expected": "V3"}), "spec.runner.expected", ('"V3"', '"V1", "V2", "Any"')
    ),
    "a day that is none": Refused(
        exception(retestAfter="2026-02-30"),
        "spec.runner.exceptions[0].retestAfter",
        ("2026-02-30", "date"),
    ),
    "an exception of nobody": Refused(
        spec(runner={"exceptions": [{"feature": "f", "reason": "r", "retestAfter": "2026-12-14"}]}),
        "spec.runner.exceptions[0].owner",
        ("Required value",),
    ),
    "no steps": Refused(steps(), "spec.strategy.steps", ("at least 1 items",)),
    "a step of nothing": Refused(
        steps({"hold": "1m"}),
        "spec.strategy.steps[0]",
        ("exactly one of replicas and percent",),
        by_models=False,
    ),
    "a step of two sizes": Refused(
        steps({"replicas": 1, "percent": 10}),
        "spec.strategy.steps[0]",
        ("exactly one of replicas and percent",),
        by_models=False,
    ),
    "replicas descend": Refused(
        steps({"replicas": 2}, {"percent": 10}, {"replicas": 1}),
        "spec.strategy.steps",
        ("descends", "replicas of a step must be at least that of the step before"),
        by_models=False,
    ),
    "percent descends": Refused(
        steps({"percent": 50}, {"percent": 10}),
        "spec.strategy.steps",
        ("descends", "percent of a step must be at least that of the step before"),
        by_models=False,
    ),
    "a step of no pods": Refused(
        steps({"replicas": 0}),
        "spec.strategy.steps[0].replicas",
        ("greater than or equal to 1",),
    ),
    "a step of no percent": Refused(
        steps({"percent": 0}),
        "spec.strategy.steps[0].percent",
        ("greater than or equal to 1",),
    ),
    "more than all": Refused(
        steps({"percent": 101}), "spec.strategy.steps[0].percent", ("101", "100")
    ),
    "a number as duration": Refused(
        steps({"replicas": 1, "hold": "90"}), "spec.strategy.steps[0].hold", ('"90"',)
    ),
    "a label of ours": Refused(
        spec(strategy={"trafficLabels": ["vllmupgrade.dev/role"]}),
        "spec.strategy.trafficLabels",
        ("vllmupgrade.dev", "keys that your routers select by"),
        by_models=False,
    ),
    "no label": Refused(
        spec(strategy={"trafficLabels": ["a b"]}), "spec.strategy.trafficLabels[0]", ("a b",)
    ),
    "looks without a pause": Refused(
        spec(analysis={"interval": "0s"}),
        "spec.analysis.interval",
        ("spec.analysis.interval is 0s, the least is 1s",),
        by_models=False,
    ),
    "looks that are too rare": Refused(
        spec(analysis={"interval": "11m"}),
        "spec.analysis.interval",
        ("spec.analysis.interval is 11m, the most is 10m", "harm is seen when pods are looked at"),
        by_models=False,
    ),
    "looks that come after the deadline": Refused(
        spec(analysis={"interval": "10s", "maxDuration": "9s", "warmup": {"duration": "1s"}}),
        "spec.analysis",
        ("spec.analysis.interval is 10s, longer than maxDuration, 9s", "look more often"),
        by_models=False,
    ),
    "a warm-up without an end": Refused(
        spec(analysis={"warmup": {"duration": "1h"}}),
        "spec.analysis",
        ("spec.analysis.warmup.duration is 1h", "due by maxDuration, 1h", "make warmup.duration"),
        by_models=False,
    ),
    "a warm-up of days": Refused(
        spec(analysis={"warmup": {"duration": "25h"}, "maxDuration": "30h"}),
        "spec.analysis.warmup.duration",
        ("spec.analysis.warmup.duration is 25h, the most is 24h",),
        by_models=False,
    ),
    "a hold of years": Refused(
        steps({"replicas": 1, "hold": "99999h"}),
        "spec.strategy.steps[0].hold",
        ("hold of a step is 99999h, the most is 720h",),
        by_models=False,
    ),
    "a bake of years": Refused(
        spec(strategy={"bake": "721h"}),
        "spec.strategy.bake",
        ("spec.strategy.bake is 721h, the most is 720h",),
        by_models=False,
    ),
    **{
        f"a {name} of nothing": Refused(
            spec(strategy={name: "0s"}),
            f"spec.strategy.{name}",
            (f"spec.strategy.{name} is 0s, the least is 1s: a deadline must leave time",),
            by_models=False,
        )
        for name in ("scheduleDeadline", "startDeadline", "haltTimeout")
    },
    "a deadline of years": Refused(
        spec(strategy={"haltTimeout": "9999h"}),
        "spec.strategy.haltTimeout",
        ("spec.strategy.haltTimeout is 9999h, the most is 720h",),
        by_models=False,
    ),
    "a maxDuration of nothing": Refused(
        spec(analysis={"maxDuration": "999ms"}),
        "spec.analysis.maxDuration",
        ("spec.analysis.maxDuration is 999ms, the least is 1s",),
        by_models=False,
    ),
    "an unknown metric": Refused(
        check(name="mine", metric="Latency", max="2s"),
        f"{_CHECK}.metric",
        ('"Latency"', '"TimeToFirstToken"', '"QueueDepth"'),
    ),
    "a check without metric": Refused(
        check(name="mine", max="2s"),
        _CHECK,
        ("check mine is not one of the default checks (rejections, queue,", "needs a metric"),
        by_models=False,
    ),
    "a check without limit": Refused(
        check(name="mine", metric="Errors"),
        _CHECK,
        ("check mine is not one of", "max, maxIncrease and maxDecrease"),
        by_models=False,
    ),
    "another metric under a default name": Refused(
        check(name="queue", metric="Errors", max="1%"),
        _CHECK,
        ("check queue is a default check and measures QueueDepth", "check of Errors another name"),
        by_models=False,
    ),
    "a quantile of a count": Refused(
        check(name="queue", quantile="p99"),
        f"{_CHECK}.quantile",
        ("check queue has the quantile p99", "QueueDepth is no latency"),
        by_models=False,
    ),
    "an unknown quantile": Refused(
        check(name="ttft-p99", quantile="p42"), f"{_CHECK}.quantile", ('"p42"', '"p99"')
    ),
    "shorter latency as harm": Refused(
        check(name="ttft-p99", maxDecrease="10%"),
        f"{_CHECK}.maxDecrease",
        ("check ttft-p99 has maxDecrease", "TimeToFirstToken is no harm"),
        by_models=False,
    ),
    "a decrease below nothing": Refused(
        check(name="kv-capacity", maxDecrease="101%"), f"{_CHECK}.maxDecrease", ("101%",)
    ),
    "an increase that is no percentage": Refused(
        check(name="queue", maxIncrease="2"), f"{_CHECK}.maxIncrease", ('"2"',)
    ),
    "a check twice": Refused(
        spec(analysis={"checks": [{"name": "queue", "max": 1}, {"name": "queue", "max": 2}]}),
        "spec.analysis.checks[1]",
        ("Duplicate value", "queue"),
        by_models=False,
    ),
    "queue depth in seconds": _unit(
        "queue",
        "2s",
        "max of check queue is 2s",
        "limit of QueueDepth is a whole number such as 64",
    ),
    "queue depth in percent": _unit(
        "queue", "50%", "max of check queue is 50%", "a whole number such as 64"
    ),
    "time to first token as a number": _unit(
        "ttft-p99",
        2,
        "max of check ttft-p99 is 2,",
        "limit of TimeToFirstToken is a duration such as 2s",
    ),
    "time to first token in percent": _unit(
        "ttft-p99", "2%", "max of check ttft-p99 is 2%", "a duration such as 2s"
    ),
    "rejections as a number": _unit(
        "rejections",
        1,
        "max of check rejections is 1,",
        "limit of Rejections is a percentage such as 1%",
    ),
    "rejections in seconds": _unit(
        "rejections", "1s", "max of check rejections is 1s", "such as 1%"
    ),
    "a unit of a check of one's own": Refused(
        check(name="mine", metric="Errors", max=3),
        f"{_CHECK}.max",
        ("max of check mine is 3,", "limit of Errors is a percentage such as 1%"),
        by_models=False,
    ),
    "a limit that is none": Refused(
        check(name="ttft-p99", max="fast"), f"{_CHECK}.max", ('"fast"',)
    ),
    "a negative limit": Refused(
        check(name="queue", max=-1), f"{_CHECK}.max", ("-1", "greater than or equal to 0")
    ),
    "an unknown field": Refused(
        spec(stratgy={}), 'unknown field "spec.stratgy"', ("strict decoding error",)
    ),
    "an unknown field within": Refused(
        steps({"replicas": 1, "wait": "1m"}),
        'unknown field "spec.strategy.steps[0].wait"',
        ("strict decoding error",),
    ),
}
