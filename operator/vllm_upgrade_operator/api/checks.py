"""The default checks, and what a spec makes of them.

Units: a ratio is a fraction (`1%` is 0.01), a latency is in seconds, a count is a number.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.durations import seconds_of
from vllm_upgrade_operator.api.spec import Metric, Mode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_upgrade_operator.api.spec import CheckSpec

RATIOS = frozenset(
    {Metric.REJECTIONS, Metric.ERRORS, Metric.KV_CACHE_USAGE, Metric.DRAFT_ACCEPTANCE}
)
LATENCIES = frozenset(
    {Metric.TIME_TO_FIRST_TOKEN, Metric.INTER_TOKEN_LATENCY, Metric.END_TO_END_LATENCY}
)

QUEUE_FLOOR = 8.0
"""Waiting requests below which a longer queue than stable's means nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check as it is judged.

    Attributes:
        name: Its name.
        metric: What it measures.
        quantile: Of a latency, 0 to 1; None for other metrics.
        max: Hard limit on the canary's value, in the metric's unit.
        max_increase: By which fraction the canary may be above stable.
        max_decrease: By which fraction the canary may be below stable.
        mode: Whether it acts.
        floor: Canary values up to this are never harm by comparison, in the metric's unit.
    """

    name: str
    metric: Metric
    quantile: float | None = None
    max: float | None = None
    max_increase: float | None = None
    max_decrease: float | None = None
    mode: Mode = Mode.ENFORCE
    floor: float = 0.0


DEFAULT_CHECKS: tuple[Check, ...] = (
    Check(name="rejections", metric=Metric.REJECTIONS, max=0.01, max_increase=0.5),
    Check(name="queue", metric=Metric.QUEUE_DEPTH, max=64.0, max_increase=1.0, floor=QUEUE_FLOOR),
    Check(
        name="ttft-p99",
        metric=Metric.TIME_TO_FIRST_TOKEN,
        quantile=0.99,
        max=2.0,
        max_increase=0.3,
    ),
    Check(name="itl-p99", metric=Metric.INTER_TOKEN_LATENCY, quantile=0.99, max_increase=0.3),
    Check(name="e2e-p99", metric=Metric.END_TO_END_LATENCY, quantile=0.99, max_increase=0.3),
    Check(name="kv", metric=Metric.KV_CACHE_USAGE, max=0.95),
    Check(name="errors", metric=Metric.ERRORS, max=0.01),
    Check(name="preemptions", metric=Metric.PREEMPTIONS, max_increase=1.0),
    Check(name="kv-capacity", metric=Metric.KV_CAPACITY, max_decrease=0.1),
    Check(name="draft-acceptance", metric=Metric.DRAFT_ACCEPTANCE, max_decrease=0.1),
)
DEFAULT_NAMES = frozenset(check.name for check in DEFAULT_CHECKS)


def resolve_checks(given: Sequence[CheckSpec]) -> tuple[Check, ...]:
    """Merge what a spec says onto the default set, by name; new names come after the defaults.

    Raises:
        ValueError: A check that is not a default one has no metric, or a limit has another unit
            than its metric. The API server refuses both, so this is an object older than the CRD.
    """
    by_name = {check.name: check for check in given}
    merged = [_merge(check, by_name.get(check.name)) for check in DEFAULT_CHECKS]
    merged += [_new(spec) for spec in given if spec.name not in DEFAULT_NAMES]
    return tuple(merged)


def _new(spec: CheckSpec) -> Check:
    if spec.metric is None:
        raise ValueError(
            f"check {spec.name!r} is not one of the default checks and has no metric: "
            f"give one of {', '.join(Metric)}"
        )
    floor = QUEUE_FLOOR if spec.metric is Metric.QUEUE_DEPTH else 0.0
    quantile = 0.99 if spec.metric in LATENCIES else None
    return _merge(Check(name=spec.name, metric=spec.metric, quantile=quantile, floor=floor), spec)


def _merge(check: Check, spec: CheckSpec | None) -> Check:
    if spec is None:
        return check
    metric = spec.metric or check.metric
    quantile = check.quantile if spec.quantile is None else int(spec.quantile[1:]) / 100
    return replace(
        check,
        metric=metric,
        quantile=quantile,
        max=check.max if spec.max is None else limit_of(metric, spec.max, f"{spec.name}.max"),
        max_increase=(
            check.max_increase if spec.max_increase is None else fraction_of(spec.max_increase)
        ),
        max_decrease=(
            check.max_decrease if spec.max_decrease is None else fraction_of(spec.max_decrease)
        ),
        mode=spec.mode or check.mode,
    )


def fraction_of(text: str) -> float:
    """Read a percentage as a fraction. Raises ValueError where it is none."""
    if not text.endswith("%"):
        raise ValueError(f"{text!r} is no percentage: write it as 30% or 0.5%")
    return float(text[:-1]) / 100


def limit_of(metric: Metric, value: int | str, where: str) -> float:
    """Read a limit in the metric's unit. Raises ValueError where it has another one."""
    try:
        if metric in LATENCIES and isinstance(value, str):
            return seconds_of(value)
        if metric in RATIOS and isinstance(value, str):
            return fraction_of(value)
        if metric not in LATENCIES | RATIOS:
            return float(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    unit = "a duration such as 2s" if metric in LATENCIES else "a percentage such as 1%"
    raise ValueError(f"{where} is {value!r}, but a limit of {metric} is {unit}")
