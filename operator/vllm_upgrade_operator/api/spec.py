"""`spec` of a VLLMUpgrade: what is wanted."""

from __future__ import annotations

from datetime import date
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from vllm_upgrade_operator.api import durations
from vllm_upgrade_operator.api.model import Model

# Names become parts of the API's paths: what is no name must never come so far.
SUBDOMAIN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
LABEL_KEY = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"

# 253 characters, less `-canary` and what a ReplicaSet's name has beyond its Deployment's.
TargetName = Annotated[str, Field(pattern=SUBDOMAIN, min_length=1, max_length=235)]
ContainerName = Annotated[
    str, Field(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", min_length=1, max_length=63)
]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY, min_length=1, max_length=317)]
Duration = Annotated[str, Field(pattern=durations.PATTERN, max_length=24)]
Text = Annotated[str, Field(max_length=1024)]
Flag = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]
VariableName = Annotated[str, Field(pattern="^[ -<>-~]+$", min_length=1, max_length=256)]
Increase = Annotated[str, Field(pattern="^[0-9]+([.][0-9]+)?%$", max_length=12)]
Decrease = Annotated[str, Field(pattern="^(100|[0-9]{1,2}([.][0-9]+)?)%$", max_length=12)]
Confidence = Annotated[str, Field(pattern="^[5-9][0-9]([.][0-9]{1,2})?%$", max_length=6)]
LIMIT_PATTERN = "^([0-9]+([.][0-9]+)?%|([0-9]{1,5}(h|m|s|ms)){1,4})$"
Limit = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=LIMIT_PATTERN, max_length=24)]
"""A whole number, a percentage or a duration: which of them, the metric says."""


def _a_day(text: str) -> str:
    """Refuse what looks like a date and is none, as the API server does."""
    date.fromisoformat(text)
    return text


Day = Annotated[
    str,
    Field(
        pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
        max_length=10,
        json_schema_extra={"format": "date"},
    ),
    AfterValidator(_a_day),
]


class TargetRef(Model):
    """The workload to upgrade, in the namespace of the VLLMUpgrade."""

    api_version: Literal["apps/v1"] = Field("apps/v1", description="API version of the workload.")
    kind: Literal["Deployment"] = Field("Deployment", description="Kind of the workload.")
    name: TargetName = Field(description="Name of the workload.")


class Argument(Model):
    """A command line flag of vLLM."""

    flag: Flag = Field(description="Flag without its dashes; a-b and a_b are the same flag.")
    value: Annotated[str, Field(max_length=4096)] | None = Field(
        None, description="Its value; without one it is a bare flag."
    )


class EnvVar(Model):
    """An environment variable, as in a container."""

    name: VariableName = Field(description="Name of the variable.")
    value: Annotated[str, Field(max_length=32768)] | None = Field(
        None, description="Literal value."
    )
    value_from: Annotated[dict[str, Any], Field(min_length=1, max_length=1)] | None = Field(
        None, description="Source of the value, as in a container."
    )


class Candidate(Model):
    """What changes in the target's pod template; all else stays as it is."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        None, description="Image of the vLLM container."
    )
    version: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="What GET /version of the new pods must answer."
    )
    args: Annotated[tuple[Argument, ...], Field(max_length=64)] = Field(
        (), description="Flags to set.", json_schema_extra={"x-kubernetes-list-map-keys": ["flag"]}
    )
    unset_args: Annotated[tuple[Flag, ...], Field(max_length=64)] = Field(
        (), description="Flags to remove.", json_schema_extra={"x-kubernetes-list-type": "set"}
    )
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64)] = Field(
        (),
        description="Environment variables to set.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["name"]},
    )
    unset_env: Annotated[tuple[VariableName, ...], Field(max_length=64)] = Field(
        (),
        description="Environment variables to remove.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    template_patch: Annotated[dict[str, Any], Field(min_length=1, max_length=16)] | None = Field(
        None,
        description="Strategic merge patch of the pod template, for what no other field of "
        "candidate sets; labels that route traffic stay as they are.",
    )


class RunnerException(Model):
    """A decided fallback: a feature still needs Model Runner V1."""

    feature: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="The feature, as vLLM names it in its log."
    )
    reason: Text = Field(description="Why it is accepted.")
    owner: Annotated[str, Field(min_length=1, max_length=128)] = Field(
        description="Who decided and will look again."
    )
    retest_after: Day = Field(description="Date (UTC) through which the exception holds.")


class Runner(Model):
    """Which model runner the candidate has to run."""

    expected: Literal["V1", "V2", "Any"] = Field("V2", description="The runner that is wanted.")
    on_mismatch: Literal["Halt", "Rollback", "Allow"] = Field(
        "Halt", description="What to do when another runner is seen."
    )
    exceptions: Annotated[tuple[RunnerException, ...], Field(max_length=32)] = Field(
        (),
        description="Decided fallbacks.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["feature"]},
    )


class Step(Model):
    """One step of the canary."""

    replicas: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="Canary pods, as a number."
    )
    percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None,
        description="Canary pods, in percent of the target's replicas when the step begins, "
        "rounded up.",
    )
    hold: Duration = Field("15m", description="How long to watch at least.")
    approval: bool = Field(False, description="Whether a person has to approve before going on.")


class Strategy(Model):
    """How the canary is rolled."""

    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=20)] = Field(
        (Step(replicas=1),),
        description="Steps in order.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    promotion: Literal["Automatic", "Manual"] = Field(
        "Automatic",
        description="Whether the last step's evidence is enough to promote, or a person says so by "
        "the annotation vllmupgrade.dev/promote.",
    )
    bake: Duration = Field("15m", description="How long to watch on after promotion.")
    schedule_deadline: Duration = Field(
        "15m", description="How long a pod may wait for a node or its image."
    )
    start_deadline: Duration = Field(
        "30m",
        description="How long a pod may take from scheduled to ready; grows to its own start-up "
        "budget.",
    )
    halt_timeout: Duration = Field(
        "4h", description="How long to wait for a person before rolling back."
    )
    traffic_labels: Annotated[tuple[LabelKey, ...], Field(max_length=32)] = Field(
        (),
        description="Further label keys that route traffic, beside those of Services and of the "
        "target.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )


class Rollback(Model):
    """How known-good is restored."""

    pin_digest: bool = Field(
        False,
        description="Whether to set the image by its recorded digest where its tag has moved "
        "meanwhile.",
    )


class Warmup(Model):
    """When a pod counts, after it was admitted."""

    duration: Duration = Field("60s", description="Not before this time has passed.")
    requests: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        20, description="Nor before it was offered so many requests."
    )


class Metric(StrEnum):
    """What a check measures."""

    REJECTIONS = "Rejections"
    ERRORS = "Errors"
    QUEUE_DEPTH = "QueueDepth"
    TIME_TO_FIRST_TOKEN = "TimeToFirstToken"  # noqa: S105 - a token of text
    INTER_TOKEN_LATENCY = "InterTokenLatency"  # noqa: S105 - the same
    END_TO_END_LATENCY = "EndToEndLatency"
    KV_CACHE_USAGE = "KVCacheUsage"
    KV_CAPACITY = "KVCapacity"
    PREEMPTIONS = "Preemptions"
    DRAFT_ACCEPTANCE = "DraftAcceptance"


class Mode(StrEnum):
    """Whether a check acts."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"
    DISABLED = "Disabled"


class CheckSpec(Model):
    """A check; one with the name of a default check is merged onto it."""

    name: Annotated[str, Field(pattern="^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=63)] = Field(
        description="Name of the check."
    )
    metric: Metric | None = Field(None, description="What it measures.")
    quantile: Literal["p50", "p90", "p95", "p99"] | None = Field(
        None, description="Quantile of a latency."
    )
    max: Limit | None = Field(None, description="Hard limit, in the metric's unit: 1%, 64 or 2s.")
    max_increase: Increase | None = Field(
        None, description="How much more than stable's the canary's value may be: 30%."
    )
    max_decrease: Decrease | None = Field(
        None, description="How much less than stable's the canary's value may be: 10%."
    )
    mode: Mode | None = Field(
        None, description="Enforce acts (so it is if left out), Observe reports, Disabled does not."
    )


class Analysis(Model):
    """How the canary is judged."""

    interval: Duration = Field("10s", description="Time between two looks.")
    warmup: Warmup = Field(default=Warmup(), description="When a pod begins to count.")
    min_requests: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        100, description="Requests without which a check does not pass."
    )
    confidence: Confidence = Field(
        "99%",
        description="Chance that a harmless canary is not rolled back by what is counted, over the "
        "whole upgrade with all its checks and looks; from 50% to 99.99%.",
    )
    on_inconclusive: Literal["Hold", "Rollback"] = Field(
        "Hold", description="What to do when maxDuration passes without a verdict."
    )
    max_duration: Duration = Field("1h", description="How long a step may go without a verdict.")
    checks: Annotated[tuple[CheckSpec, ...], Field(max_length=32)] = Field(
        (),
        description="Changes to the default checks, and further ones.",
        json_schema_extra={"x-kubernetes-list-map-keys": ["name"]},
    )


class VLLMUpgradeSpec(Model):
    """Spec of a VLLMUpgrade."""

    target_ref: TargetRef = Field(description="The workload to upgrade.")
    reason: Text | None = Field(None, description="Why this upgrade is wanted.")
    container: ContainerName | None = Field(
        None, description="Name of the vLLM container; found by command or image if left out."
    )
    candidate: Candidate = Field(description="What changes.")
    runner: Runner = Field(default=Runner(), description="Which model runner it has to run.")
    strategy: Strategy = Field(default=Strategy(), description="How it is rolled.")
    analysis: Analysis = Field(default=Analysis(), description="How it is judged.")
    rollback: Rollback = Field(default=Rollback(), description="How it is rolled back.")
    paused: bool = Field(
        False,
        description="Whether to stay where it is: nothing new is begun, admitted or promoted. "
        "Watching goes on, and harm is still acted on. What is rolled back is rolled back.",
    )
