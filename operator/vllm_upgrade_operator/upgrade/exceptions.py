"""Decided fallbacks: which feature has an exception, and whether its day has passed."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import RunnerException


def holding(
    feature: str, exceptions: Iterable[RunnerException], now: float
) -> RunnerException | None:
    """Find the exception that covers a feature and has not expired (it holds through its day)."""
    return next((e for e in _of(feature, exceptions) if _holds(e, now)), None)


def expired(feature: str, exceptions: Iterable[RunnerException], now: float) -> bool:
    """Whether a feature had an exception, and none holds any more."""
    found = _of(feature, exceptions)
    return bool(found) and not any(_holds(e, now) for e in found)


def _of(feature: str, exceptions: Iterable[RunnerException]) -> list[RunnerException]:
    return [e for e in exceptions if e.feature.casefold() == feature.casefold()]


def _holds(exception: RunnerException, now: float) -> bool:
    today = datetime.fromtimestamp(now, UTC).date()
    return date.fromisoformat(exception.retest_after) >= today
