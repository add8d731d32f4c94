"""`python -m benchmarks.judge`: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.judge import report
from benchmarks.judge.cases import CASES
from benchmarks.judge.running import OURS, QUICK, WHOLE, run
from benchmarks.judge.targets import judged

if TYPE_CHECKING:
    from benchmarks.judge.rows import Row


def main() -> None:
    """Run the cases, write the figures down, and say what was reached."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.judge", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer cases, fewer upgrades")
    parser.add_argument("--runs", type=int, help="most upgrades of a case")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--processes", type=int, default=2, help="at the same time")
    parser.add_argument("--results", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--page", type=Path, help="Markdown page to write; plots go beside it")
    options = parser.parse_args()
    cases = [c for c in CASES if options.only in c.name and (c.quick or not options.quick)]
    if not cases:
        parser.error(f"--only {options.only!r}: no case has this in its name")
    size = QUICK if options.quick else WHOLE
    if options.runs is not None:
        size = replace(size, runs=options.runs)
    rows: list[Row] = []
    began = time.monotonic()
    with get_context("spawn").Pool(options.processes) as pool:
        for found in run(cases, size, pool):
            rows += found
            print(f"{time.monotonic() - began:6.0f} s  {_line(found[0])}", flush=True)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n")
    if options.page is not None:
        report.write(rows, options.page)
    ours = {row["case"]: row for row in rows if row["rule"] == OURS}
    for target, value, reached in judged(ours):
        print(
            f"{'reached    ' if reached else 'NOT REACHED'} {target.case}: {target.what}: "
            f"{'never' if value is None else f'{value:g}'}, at most {target.most:g}"
        )
    print(f"written to {options.results}")


def _line(row: Row) -> str:
    keys = ("false_rollback", "missed", "median_s", "p95_s", "bound_ratio", "inconclusive")
    figures = ", ".join(f"{key} {row[key]:g}" for key in keys if row[key] is not None)
    return f"{row['case']} ({row['runs']}): {figures}"


if __name__ == "__main__":
    main()
