"""`vllmupgrade.dev/v1alpha1`: every model of the API under one name."""

from __future__ import annotations

from vllm_upgrade_operator.api.spec import (
    Analysis,
    Argument,
    Candidate,
    CheckSpec,
    EnvVar,
    Metric,
    Mode,
    Rollback,
    Runner,
    RunnerException,
    Step,
    Strategy,
    TargetRef,
    VLLMUpgradeSpec,
    Warmup,
)
from vllm_upgrade_operator.api.status import (
    Attempt,
    CanaryStatus,
    CandidateStatus,
    CheckStatus,
    Condition,
    Display,
    Evidence,
    HandledActions,
    KnownGoodStatus,
    Phase,
    Progress,
    RunnerCounts,
    RunnersStatus,
    Stall,
    StepStatus,
    TimelineEntry,
    VLLMUpgradeStatus,
)

GROUP = "vllmupgrade.dev"
VERSION = "v1alpha1"
KIND = "VLLMUpgrade"
PLURAL = "vllmupgrades"

__all__ = [
    "GROUP",
    "KIND",
    "PLURAL",
    "VERSION",
    "Analysis",
    "Argument",
    "Attempt",
    "CanaryStatus",
    "Candidate",
    "CandidateStatus",
    "CheckSpec",
    "CheckStatus",
    "Condition",
    "Display",
    "EnvVar",
    "Evidence",
    "HandledActions",
    "KnownGoodStatus",
    "Metric",
    "Mode",
    "Phase",
    "Progress",
    "Rollback",
    "Runner",
    "RunnerCounts",
    "RunnerException",
    "RunnersStatus",
    "Stall",
    "Step",
    "StepStatus",
    "Strategy",
    "TargetRef",
    "TimelineEntry",
    "VLLMUpgradeSpec",
    "VLLMUpgradeStatus",
    "Warmup",
]
