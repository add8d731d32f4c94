"""What a check of preflight says."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_upgrade_operator.api.v1alpha1 import PreflightResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result, reason as one PascalCase word, and what was found with what to do about it."""

    result: PreflightResult
    reason: str
    message: str


def passed(message: str, reason: str = "Passed") -> Answer:
    """Nothing stands against it; the message says what was seen."""
    return Answer(result=PreflightResult.PASS, reason=reason, message=message)


def not_applicable(message: str) -> Answer:
    """There is nothing that this check is about."""
    return passed(message, "NotApplicable")


def warn(reason: str, message: str) -> Answer:
    """Somebody should know before it starts; it starts all the same."""
    return Answer(result=PreflightResult.WARN, reason=reason, message=message)


def block(reason: str, message: str) -> Answer:
    """It cannot work: nothing is started."""
    return Answer(result=PreflightResult.BLOCK, reason=reason, message=message)


def unknown(reason: str, message: str) -> Answer:
    """It could not be told; the message says what is missing."""
    return Answer(result=PreflightResult.UNKNOWN, reason=reason, message=message)
