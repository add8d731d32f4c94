"""`status` of a VLLMUpgrade: what it does now, what it saw, and what it must remember.

The conditions are the contract; `phase` and `display` are for eyes. Everything is bounded.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vllm_upgrade_operator.api.model import Model

Name = Annotated[str, Field(max_length=253)]
Short = Annotated[str, Field(max_length=128)]
Text = Annotated[str, Field(max_length=1024)]
Time = Annotated[str, Field(max_length=40, description="RFC 3339 time.")]
Flags = Annotated[tuple[Annotated[str, Field(max_length=160)], ...], Field(max_length=96)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]


class Phase(StrEnum):
    """Where an upgrade is; for display, the conditions are the contract."""

    PENDING = "Pending"
    PREFLIGHT = "Preflight"
    STARTING = "Starting"
    VERIFYING = "Verifying"
    CANARY = "Canary"
    PROMOTING = "Promoting"
    BAKING = "Baking"
    SUCCEEDED = "Succeeded"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"
    HALTED = "Halted"
    BLOCKED = "Blocked"


class Condition(Model):
    """A condition as Kubernetes defines it."""

    type: Short = Field(description="Name of the condition.")
    status: Annotated[str, Field(pattern="^(True|False|Unknown)$", max_length=7)] = Field(
        description="True, False or Unknown."
    )
    observed_generation: Annotated[int, Field(ge=0)] = Field(
        description="The generation of spec that this was found for."
    )
    last_transition_time: Time = Field(description="When status last changed.")
    reason: Short = Field(description="Why, as one PascalCase word.")
    message: Text = Field(description="Why, for a person.")


class Attempt(Model):
    """What is being tried: it changes when candidate, container or runner do."""

    id: Short = Field(description="Name of the attempt, used to approve it.")
    number: Annotated[int, Field(ge=1)] = Field(description="Counts the attempts of this upgrade.")
    hash: Short = Field(description="Hash of candidate, container and runner.")


class StepStatus(Model):
    """The present step."""

    index: Count = Field(description="Position in spec.strategy.steps, from 0.")
    total: Count = Field(description="Number of steps.")
    replicas: Count = Field(description="Canary pods of this step, fixed when it began.")
    asked: Short = Field(
        "", description="What spec asked for when it began: a number, or a percentage."
    )


class CanaryStatus(Model):
    """Counts of canary pods."""

    desired: Count = Field(0, description="Pods that the step wants.")
    ready: Count = Field(0, description="Pods that are ready.")
    admitted: Count = Field(0, description="Pods that carry the traffic labels.")


class RunnerCounts(Model):
    """Pods by the runner that they were seen to run."""

    v1: Count = Field(0, alias="V1", description="Pods on Model Runner V1.")
    v2: Count = Field(0, alias="V2", description="Pods on Model Runner V2.")
    unknown: Count = Field(0, alias="Unknown", description="Pods whose runner is not known.")


class RunnersStatus(Model):
    """Runners of both sides."""

    stable: RunnerCounts = Field(default=RunnerCounts(), description="Pods on known-good.")
    canary: RunnerCounts = Field(default=RunnerCounts(), description="Pods on the candidate.")
    fallback_ratio: Annotated[str, Field(max_length=8)] | None = Field(
        None, description="Candidate pods seen on the fallback, of those whose runner was seen."
    )


class CheckStatus(Model):
    """What one check says."""

    name: Annotated[str, Field(max_length=63)] = Field(description="Name of the check.")
    canary: Short = Field(description="The canary's value.")
    stable: Short = Field(description="The stable pods' value over the same time.")
    limit: Short = Field(description="What is allowed.")
    requests: Annotated[int, Field(ge=0)] = Field(description="Canary requests judged so far.")
    verdict: Short = Field(description="Pass, Harm, Hold or NotApplicable.")
    reason: Text = Field(description="Why, in a sentence.")
    power: Text = Field("", description="Which harm would have been seen by now.")
    noise: Short = Field(
        "",
        description="What bad requests of stable pods are like: quiet (independent), loud (they "
        "come in bursts, or more in some pods) or unknown.",
    )


class PreflightResult(StrEnum):
    """What a check of preflight comes to."""

    PASS = "Pass"  # noqa: S105 - no password
    WARN = "Warn"
    BLOCK = "Block"
    UNKNOWN = "Unknown"


class PreflightCheck(Model):
    """What was found of one thing before anything was started."""

    name: Annotated[str, Field(max_length=63)] = Field(description="Name of the check.")
    result: PreflightResult = Field(
        description="Pass, Warn, Block or Unknown; only Block stops the upgrade."
    )
    reason: Short = Field(description="Why, as one PascalCase word.")
    message: Text = Field(description="What was found and what to do, for a person.")


class KnownGoodStatus(Model):
    """The stored configuration that a rollback restores."""

    name: Name = Field(description="Name of the ControllerRevision.")
    images: Annotated[tuple[Annotated[str, Field(max_length=512)], ...], Field(max_length=32)] = (
        Field(description="Images of its containers.")
    )
    digests: Annotated[tuple[Annotated[str, Field(max_length=512)], ...], Field(max_length=32)] = (
        Field(description="Image digests that really ran.")
    )
    version: Short | None = Field(None, description="What GET /version answered.")
    flags: Flags = Field((), description="What vLLM is told, without what may be secret.")


class CandidateStatus(Model):
    """What was seen to run as the candidate."""

    digests: Annotated[tuple[Annotated[str, Field(max_length=512)], ...], Field(max_length=32)] = (
        Field((), description="Image digests of the verified canary pods.")
    )
    version: Short | None = Field(None, description="What GET /version answered.")
    flags: Flags = Field((), description="What vLLM is told, without what may be secret.")


class TimelineEntry(Model):
    """One thing that happened."""

    time: Time = Field(description="When.")
    phase: Phase = Field(description="The phase from then on.")
    reason: Short = Field(description="What, as one PascalCase word.")
    message: Annotated[str, Field(max_length=512)] = Field(description="What, for a person.")


class Evidence(Model):
    """What the judge must keep over a restart of the operator."""

    name: Annotated[str, Field(max_length=63)] = Field(description="Name of the check.")
    value: Annotated[str, Field(max_length=16384)] = Field(description="Opaque.")


class HandledActions(Model):
    """The values of the verbs' annotations that were acted on: each acts once."""

    approve: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The last approval."
    )
    promote: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The last decision to promote."
    )
    retry: Annotated[str, Field(max_length=128)] | None = Field(
        None, description="The last decision to try again."
    )
    aborts: Annotated[tuple[Short, ...], Field(max_length=16)] = Field(
        (),
        description="The last decisions to abort, oldest first: an abort names no attempt, so an "
        "old value that comes back from Git is only known by being remembered.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )


class Stall(Model):
    """A pod that has requests and makes nothing of them."""

    pod: Short = Field(description="UID of the pod.")
    since: Time = Field(description="When it was first seen so.")
    looks: Count = Field(description="How often it was seen so, without a break.")
    cache: Count = Field(description="The most of the KV cache that was in use, in thousandths.")


class Progress(Model):
    """Working state that must outlive the operator's process. Not an interface."""

    target_uid: Short | None = Field(
        None, description="UID of the target when the attempt started."
    )
    phase_since: Time | None = Field(None, description="When the phase began.")
    wanted_since: Time | None = Field(
        None, description="When the step's pods were asked for, or last seen to be complete."
    )
    step_since: Time | None = Field(None, description="When the step's pods were all admitted.")
    approval_since: Time | None = Field(None, description="When approval was first asked for.")
    paused_since: Time | None = Field(None, description="When spec.paused was seen to be true.")
    restored: bool = Field(False, description="Inherited known-good was seen in its place.")
    decided: bool = Field(
        False, description="A person promoted it although evidence was missing; harm still acts."
    )
    passed_at: Time | None = Field(None, description="When this step's checks last passed.")
    look_at: Time | None = Field(None, description="When pods were last scraped.")
    canary_asked_at: Time | None = Field(
        None, description="When pods of the candidate were last seen to have requests."
    )
    stable_asked_at: Time | None = Field(
        None, description="When pods on known-good were last seen to have requests."
    )
    ready_high_water: Count = Field(0, description="Most promoted pods ever ready.")
    ready_since: Time | None = Field(None, description="When that number last grew.")
    released_at: Time | None = Field(
        None, description="When canary pods were last seen to be given up for promoted ones."
    )
    promoted: bool = Field(False, description="The target may have the candidate's template.")
    replaced: bool = Field(False, description="The target was seen with the candidate's template.")
    pinned: bool = Field(False, description="Known-good's image is put back by its digest.")
    baked: bool = Field(False, description="The bake is over.")
    stalls: Annotated[tuple[Stall, ...], Field(max_length=64)] = Field(
        (), description="Pods that have requests and make no tokens."
    )
    unsettled_since: Time | None = Field(
        None, description="Since when no hold has passed with all pods ready throughout."
    )
    doubt: Text | None = Field(
        None, description="What looks broken and may still be chance; a bake does not end on it."
    )
    halt_reason: Short | None = Field(None, description="Why it halted.")
    result_reason: Short | None = Field(None, description="Why it rolls back.")
    result_message: Text | None = Field(None, description="Why it rolls back, for a person.")


class Display(Model):
    """Text of the printer columns."""

    step: Short = Field("", description="Step of steps.")
    canary: Short = Field("", description="Ready of desired canary pods.")
    runner: Short = Field("", description="Runners of the candidate's pods.")
    rejections: Annotated[str, Field(max_length=260)] = Field("", description="Canary/stable.")
    queue: Annotated[str, Field(max_length=260)] = Field("", description="Canary/stable.")
    ttft: Annotated[str, Field(max_length=260)] = Field("", description="Canary/stable tail.")
    known_good: Annotated[str, Field(max_length=256)] = Field("", description="Its images.")
    candidate: Short = Field("", description="Its version.")


class VLLMUpgradeStatus(Model):
    """Status of a VLLMUpgrade."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=20)] = Field(
        (),
        description="The contract.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    observed_generation: Annotated[int, Field(ge=0)] = Field(
        0, description="The generation of spec that this status is about."
    )
    phase: Phase = Field(Phase.PENDING, description="Where it is; for display.")
    message: Text | None = Field(None, description="What it does now, or why it stopped.")
    verdict: Short | None = Field(None, description="What the checks say together.")
    attempt: Attempt | None = Field(None, description="What is being tried.")
    step: StepStatus | None = Field(None, description="The present step.")
    canary: CanaryStatus | None = Field(None, description="Canary pods.")
    runners: RunnersStatus | None = Field(None, description="Runners seen.")
    # Of the default checks and those of spec together.
    checks: Annotated[tuple[CheckStatus, ...], Field(max_length=64)] = Field(
        (),
        description="What each check says.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    preflight: Annotated[tuple[PreflightCheck, ...], Field(max_length=64)] = Field(
        (),
        description="What was found before anything was started, in order of severity.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    known_good: KnownGoodStatus | None = Field(None, description="What a rollback restores.")
    candidate: CandidateStatus | None = Field(None, description="What ran as the candidate.")
    timeline: Annotated[tuple[TimelineEntry, ...], Field(max_length=50)] = Field(
        (), description="What happened.", json_schema_extra={"x-kubernetes-list-type": "atomic"}
    )
    evidence: Annotated[tuple[Evidence, ...], Field(max_length=64)] = Field(
        (),
        description="Opaque state of the judge.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    handled_actions: HandledActions | None = Field(None, description="Verbs acted on.")
    display: Display | None = Field(None, description="Text of the printer columns.")
    progress: Progress = Field(default=Progress(), description="Working state, no interface.")
