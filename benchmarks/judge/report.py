"""The page about the benchmark, and its plots."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.judge.cases import CASES, Question
from benchmarks.judge.plot import Axis, Mark, dots
from benchmarks.judge.running import OURS
from benchmarks.judge.targets import judged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.judge.rows import Row

_FALSE = Axis("upgrades rolled back, % (line: 95 % interval)", (0.1, 0.3, 1, 3, 10, 30, 100))
_TIME = Axis(
    "seconds from the onset to the rollback: median, line to the 95th percentile",
    (10, 30, 100, 300, 1000, 3000, 10_000),
    "never",
)
_SAFE = Axis(
    "minutes until all checks are found safe: median, line to the 95th percentile",
    (1, 3, 10, 30, 60),
    "later",
)

_PAGE = """\
# How good the judge is

Written by `make bench-judge`; every row, with more figures, is in \
[benchmarks/results/judge.json](../benchmarks/results/judge.json). What the cases and the rules \
are, and what such traces cannot show, is in [benchmarks/README.md](../benchmarks/README.md).

Unless a case says otherwise: looks of 10 s, 2 h upgrades, 1 canary and 3 stable pods, 10 \
requests/s per pod, 0.5 % rejections, stable pods seen for 10 min before the canary has traffic, \
default settings, all checks together.
{short}
{targets}

{questions}
"""


def write(rows: Sequence[Row], page: Path) -> None:
    """Write the page, and the plots into the folder `judge` beside it."""
    ours = {row["case"]: row for row in rows if row["rule"] == OURS}
    plots = page.parent / "judge"
    plots.mkdir(parents=True, exist_ok=True)
    sections: list[str] = []
    for question in Question:
        asked = [row for row in rows if row["question"] == question.value]
        if not asked:
            continue
        section = [f"## {question.value}"]
        for kind, (draw, table) in _SHOWN.items():
            chosen = [row for row in asked if kind in _kinds(row, question)]
            if not chosen:
                continue
            name = f"{question.name.lower().replace('_', '-')}-{kind}.svg"
            (plots / name).write_text(draw(question.value, chosen))
            section += [f"![{question.value}](judge/{name})", table(chosen)]
        sections.append("\n\n".join(section))
    text = _PAGE.format(short=_short(ours), targets=_targets(ours), questions="\n\n".join(sections))
    page.write_text(text.rstrip() + "\n")


def _short(ours: dict[str, Row]) -> str:
    """Say where a page is of less than a whole run."""
    missing = sum(case.name not in ours for case in CASES)
    fewer = sum(case.name in ours and ours[case.name]["runs"] < case.runs for case in CASES)
    if not missing and not fewer:
        return ""
    return (
        f"\n**Of a short run:** of {len(CASES)} cases {missing} were not run, and {fewer} with "
        "fewer upgrades than in a whole run; intervals are wide, and what is missing is not held "
        "against anything.\n"
    )


def _kinds(row: Row, question: Question) -> set[str]:
    if question is Question.SAFE:
        return {"safe"} if row["rule"] == OURS else set()
    return {"time"} if row["harmful"] else {"false"}


def _targets(ours: dict[str, Row]) -> str:
    lines = ["| must reach | at most | is | |", "| --- | --- | --- | --- |"]
    for target, value, reached in judged(ours):
        share = target.figure.startswith(("false", "inconclusive"))
        shown = "never" if value is None else _number(value, percent=share)
        if target.figure == "false_rollback":
            shown += (
                f" (95 %: up to {_number(ours[target.case]['false_rollback_high'], percent=True)})"
            )
        lines.append(
            f"| {target.case}: {target.what} | {_number(target.most, percent=share)} | {shown} | "
            f"{'reached' if reached else '**not reached**'} |"
        )
    return "\n".join(lines)


def _number(value: float, *, percent: bool) -> str:
    return f"{100 * value:.3g} %" if percent else f"{value:g}"


def _by_case(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["case"], {})[row["rule"]] = row
    return found


def _plot_false(title: str, rows: Sequence[Row]) -> str:
    def mark(row: Row) -> Mark:
        ends = (row["false_rollback"], row["false_rollback_low"], row["false_rollback_high"])
        return Mark(*(100 * end for end in ends))

    return dots(title, _FALSE, _lines(rows, mark))


def _plot_time(title: str, rows: Sequence[Row]) -> str:
    def mark(row: Row) -> Mark:
        median = _or_never(row["median_s"])
        return Mark(median, median, _or_never(row["p95_s"]))

    return dots(title, _TIME, _lines(rows, mark))


def _plot_safe(title: str, rows: Sequence[Row]) -> str:
    def mark(row: Row) -> Mark:
        median = _or_never(row["safe_median_s"]) / 60
        return Mark(median, median, _or_never(row["safe_p95_s"]) / 60)

    return dots(title, _SAFE, _lines(rows, mark))


def _lines(rows: Sequence[Row], mark: Callable[[Row], Mark]) -> list[tuple[str, dict[str, Mark]]]:
    return [
        (case, {rule: mark(row) for rule, row in by_rule.items()})
        for case, by_rule in _by_case(rows).items()
    ]


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value


def _table_false(rows: Sequence[Row]) -> str:
    def cell(row: Row) -> str:
        low, high = 100 * row["false_rollback_low"], 100 * row["false_rollback_high"]
        return f"{100 * row['false_rollback']:.3g} [{low:.2g}, {high:.3g}]"

    return "Rolled back, % [95 % interval]; `n` is runs of ours:\n\n" + _table(rows, cell)


def _table_time(rows: Sequence[Row]) -> str:
    def cell(row: Row) -> str:
        if row["missed"] is None:
            return "all before the onset"
        times = " / ".join(
            "never" if row[key] is None else f"{row[key]:g}" for key in ("median_s", "p95_s")
        )
        text = f"{times}; {row['harmed_requests']:g}"
        if row["missed"]:
            text += f"; missed {100 * row['missed']:.3g} %"
        if row["false_rollback"]:
            text += f"; before onset {100 * row['false_rollback']:.3g} %"
        if row["rule"] == OURS and row["bound_ratio"] is not None:
            text += f"; {row['bound_ratio']:g} x the bound ({row['wald_s']:g} s)"
        return text

    return "Median / 95th percentile in seconds; harmed requests (median):\n\n" + _table(rows, cell)


def _table_safe(rows: Sequence[Row]) -> str:
    lines = [
        "| case | runs | median, min | 95th, min | not in 15 min, % | not in 1 h, % |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        times = [
            "later" if row[key] is None else f"{row[key] / 60:.1f}"
            for key in ("safe_median_s", "safe_p95_s")
        ]
        shares = [f"{100 * row[key]:.3g}" for key in ("inconclusive", "inconclusive_1h")]
        lines.append(f"| {row['case']} | {row['runs']} | {' | '.join([*times, *shares])} |")
    return "\n".join(lines)


def _table(rows: Sequence[Row], cell: Callable[[Row], str]) -> str:
    cases = _by_case(rows)
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    lines = [f"| case | n | {' | '.join(rules)} |", "| --- " * (len(rules) + 2) + "|"]
    for case, by_rule in cases.items():
        cells = [cell(by_rule[rule]) if rule in by_rule else "" for rule in rules]
        lines.append(f"| {case} | {by_rule[OURS]['runs']} | {' | '.join(cells)} |")
    return "\n".join(lines)


_SHOWN: dict[str, tuple[Callable[[str, Sequence[Row]], str], Callable[[Sequence[Row]], str]]] = {
    "false": (_plot_false, _table_false),
    "time": (_plot_time, _table_time),
    "safe": (_plot_safe, _table_safe),
}
