"""What the judge must reach, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.judge.bounds import interval

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.judge.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One figure that is asked for.

    Attributes:
        case: The case.
        figure: Key of its row.
        most: The largest value that is good enough; a figure of None is not.
        what: What it is, in words; the case's name is said beside it.
    """

    case: str
    figure: str
    most: float
    what: str

    def value(self, row: Row) -> float | None:
        """Give the figure."""
        found: float | None = row[self.figure]
        return found

    def reached(self, row: Row) -> bool:
        """Whether it is good enough."""
        value = self.value(row)
        return value is not None and value <= self.most


_UPPER_END = "false_rollback_high"
_RATIO = "median over Wald's bound and a look"


def _false(case: str, most: float) -> Target:
    return Target(case=case, figure="false_rollback", most=most, what="rolled back")


_CALM = (
    "Poisson",
    "day curve",
    "unequal shares",
    "shared bursts, cv 1",
    "shared bursts, cv 2",
    "independent bursts, cv 1",
    "independent bursts, cv 2",
    "default checks, Poisson",
)
_LASTING = (
    "bursts that persist, cv 1",
    "bursts that persist, cv 2",
    "pods that differ",
)
_LASTING_DEFAULT = (
    "default checks, bursts that persist, cv 2",
    "default checks, pods that differ",
)
_SAFE = (
    "safe: Poisson",
    "safe: shared bursts, cv 1",
    "safe: shared bursts, cv 2",
    "safe: 1 canary, 16 stable",
    "safe: 2 canary, 3 stable",
    "safe: 4 canary, 16 stable",
)
_BOUNDED = (
    "3x rejections",
    "4x rejections",
    "10x rejections",
    "5 % tail doubled",
    "5 % tail 4x",
)

TARGETS: tuple[Target, ...] = (
    *(_false(case, 0.01) for case in _CALM),
    *(_false(case, 0.02) for case in (*_LASTING, *_LASTING_DEFAULT)),
    *(
        Target(case=case, figure=_UPPER_END, most=0.025, what="rolled back, upper end")
        for case in _LASTING
    ),
    _false("pods that differ, anew per check", 0.05),
    _false("cold cache for 2 min", 0.01),
    _false("default checks, cold cache for 2 min", 0.01),
    *(
        Target(case=case, figure="inconclusive", most=0.05, what="not found safe in 15 min")
        for case in _SAFE
    ),
    Target(case="4x rejections", figure="median_s", most=240, what="median time, s"),
    Target(case="4x rejections", figure="p95_s", most=480, what="95th percentile of the time, s"),
    Target(case="10x rejections", figure="median_s", most=50, what="median time, s"),
    Target(case="5 % tail doubled", figure="median_s", most=200, what="median time, s"),
    *(
        Target(
            case=case, figure="bound_ratio", most=1.6, what="median over Wald's bound and a look"
        )
        for case in _BOUNDED
    ),
    Target(case="4x rejections from minute 60", figure="median_s", most=400, what="median time, s"),
)
"""In the order in which they are asked for."""


def judged(rows: Mapping[str, Row]) -> list[tuple[Target, float | None, bool]]:
    """Hold the rows of our judge, by case, against the targets of the cases that were run.

    An upper end that so few runs could not have brought below the target is left out.
    """
    return [
        (target, target.value(rows[target.case]), target.reached(rows[target.case]))
        for target in TARGETS
        if target.case in rows
        and (target.figure != _UPPER_END or interval(0, rows[target.case]["runs"])[1] < target.most)
    ]
