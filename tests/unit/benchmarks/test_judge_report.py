"""The page about the judge's benchmark."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.judge import report
from benchmarks.judge.cases import CASES
from benchmarks.judge.plot import Axis, Mark, dots
from benchmarks.judge.rows import Row, row
from benchmarks.judge.running import OURS
from benchmarks.judge.traces import Outcome

if TYPE_CHECKING:
    from pathlib import Path

AXIS = Axis("seconds", (1, 10, 100), "never")
SVG = "{http://www.w3.org/2000/svg}"


def rows() -> list[Row]:
    by_name = {case.name: case for case in CASES}
    never, soon = np.full(40, math.inf), np.full(40, 200.0)
    return [
        row(by_name["Poisson"], OURS, Outcome(acted=never, safe=soon), soon, None),
        row(by_name["Poisson"], "Kayenta", Outcome(acted=soon), soon, None),
        row(by_name["4x rejections"], OURS, Outcome(acted=soon, safe=never), soon, 150.0),
        row(by_name["4x rejections"], "Kayenta", Outcome(acted=never), soon, 150.0),
        row(by_name["safe: Poisson"], OURS, Outcome(acted=never, safe=soon), soon, None),
    ]


def test_the_page_has_what_must_be_reached_at_its_top_and_a_plot_for_each_table(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page.md"
    report.write(rows(), page)
    text = page.read_text()
    top, _, rest = text.partition("\n## ")
    assert "| Poisson: rolled back | 1 % | 0 % (95 %: up to 8.81 %) | reached |" in top
    assert "| 4x rejections: median time, s | 240 | 200 | reached |" in top
    assert "| 4x rejections: median over Wald's bound and a look | 1.6 | 1.25 | reached |" in top
    assert "| 200 / 200; 200; 1.25 x the bound (150 s) | never / never; 200; missed 100 % |" in rest
    assert "| Poisson | 40 | 0 [0, 8.81] | 100 [91, 100] |" in rest
    assert "| safe: Poisson | 40 | 3.3 | 3.3 | 0 | 0 |" in rest
    plots = sorted(file.name for file in (tmp_path / "judge").iterdir())
    assert plots == ["harm-time.svg", "noise-false.svg", "safe-safe.svg"]
    assert all(f"(judge/{name})" in text for name in plots)


def test_a_page_of_a_short_run_says_so(tmp_path: Path) -> None:
    report.write(rows(), tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert f"of {len(CASES)} cases {len(CASES) - 3} were not run, and 3 with fewer" in text


def test_what_is_not_reached_stands_out(tmp_path: Path) -> None:
    late = [r | {"median_s": None, "bound_ratio": None} for r in rows()]
    report.write(late, tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text()
    assert "| 4x rejections: median time, s | 240 | never | **not reached** |" in text


def test_an_axis_is_logarithmic_and_keeps_what_is_too_small_at_its_first_tick() -> None:
    assert AXIS.at(10) - AXIS.at(1) == AXIS.at(100) - AXIS.at(10)
    assert AXIS.at(0) == AXIS.at(1)
    assert AXIS.at(math.inf) > AXIS.at(1000) == AXIS.at(100)


def test_a_plot_has_a_dot_for_each_mark_and_names_in_full() -> None:
    lines = [
        ("p < 1 & cv 2", {"ours": Mark(3, 2, 5), "theirs": Mark(50, 20, math.inf)}),
        ("other", {"ours": Mark(3, 2, 5)}),
    ]
    drawn = ET.fromstring(dots("Who & when?", AXIS, lines))  # noqa: S314 - our own
    texts = [element.text for element in drawn.iter(f"{SVG}text")]
    assert {"Who & when?", "p < 1 & cv 2", "other", "ours", "theirs", "never"} <= set(texts)
    # Two of the legend, three of the marks.
    assert len(list(drawn.iter(f"{SVG}circle"))) == 5
