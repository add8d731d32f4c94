"""One kind of plot: a line for each case, a dot for each rule, with the range that it has."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Distinct also for those who do not see all colours (Okabe and Ito).
_COLOURS = ("#0072b2", "#e69f00", "#d55e00", "#cc79a7", "#009e73", "#7f7f7f")
_FONT = 'font-family="sans-serif" font-size="12"'
_LEFT = 390
_WIDTH = 560
_RIGHT = 70
_STEP = 8
_GAP = 10
_TOP = 62
_BOTTOM = 46


class Mark(NamedTuple):
    """A dot and its range; infinite is drawn at the right end."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Axis:
    """A logarithmic axis.

    Attributes:
        label: What it shows.
        ticks: Where it is marked, ascending; smaller values are drawn at the first.
        endless: What an infinite value is called; None where there is none.
    """

    label: str
    ticks: Sequence[float]
    endless: str | None = None

    def at(self, value: float) -> float:
        """Give the place of a value in pixels."""
        if math.isinf(value):
            return float(_LEFT + _WIDTH)
        first, last = math.log(self.ticks[0]), math.log(self.ticks[-1])
        part = (math.log(max(value, self.ticks[0])) - first) / (last - first)
        used = _WIDTH - (40 if self.endless else 0)
        return _LEFT + used * min(1.0, part)


def dots(title: str, axis: Axis, lines: Sequence[tuple[str, Mapping[str, Mark]]]) -> str:
    """Draw a plot as SVG.

    Args:
        title: What it answers.
        axis: Of the values.
        lines: Name of a case, and its marks by rule; rules keep their colour by order of first
            appearance.
    """
    rules = list(dict.fromkeys(rule for _, marks in lines for rule in marks))
    colours = dict(zip(rules, _COLOURS, strict=False))
    height = _STEP * len(rules) + _GAP
    bottom = _TOP + height * len(lines)
    width = _LEFT + _WIDTH + _RIGHT
    box = f'viewBox="0 0 {width} {bottom + _BOTTOM}" width="{width}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" {_FONT}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{bottom + _BOTTOM}" fill="#ffffff"/>',
        f'<text x="12" y="22" font-size="15" font-weight="bold">{escape(title)}</text>',
        *_legend(colours),
        *_grid(axis, bottom),
    ]
    for number, (name, marks) in enumerate(lines):
        top = _TOP + height * number
        if number % 2 == 0:
            parts.append(
                f'<rect x="0" y="{top}" width="{width}" height="{height}" '
                'fill="#000000" fill-opacity="0.035"/>'
            )
        parts.append(
            f'<text x="{_LEFT - 12}" y="{top + height / 2 + 4:.1f}" text-anchor="end">'
            f"{escape(name)}</text>"
        )
        for place, rule in enumerate(rules):
            if rule in marks:
                y = top + _GAP / 2 + _STEP * (place + 0.5)
                parts += _mark(axis, marks[rule], y, colours[rule])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(colours: Mapping[str, str]) -> list[str]:
    parts: list[str] = []
    x = 12.0
    for rule, colour in colours.items():
        parts.append(f'<circle cx="{x + 5}" cy="42" r="4.5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="46">{escape(rule)}</text>')
        x += 32 + 6.6 * len(rule)
    return parts


def _grid(axis: Axis, bottom: int) -> list[str]:
    parts: list[str] = []
    marks = [(axis.at(tick), f"{tick:g}") for tick in axis.ticks]
    if axis.endless:
        marks.append((axis.at(math.inf), axis.endless))
    for x, text in marks:
        parts.append(
            f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" '
            'stroke="#000000" stroke-opacity="0.15"/>'
        )
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{text}</text>')
    middle = _LEFT + _WIDTH / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{bottom + 36}" text-anchor="middle">{escape(axis.label)}</text>'
    )
    return parts


def _mark(axis: Axis, mark: Mark, y: float, colour: str) -> list[str]:
    low, value, high = (axis.at(v) for v in (mark.low, mark.value, mark.high))
    ends = f'x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"'
    return [
        f'<line {ends} stroke="{colour}" stroke-width="2" stroke-opacity="0.6"/>',
        f'<circle cx="{value:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>',
    ]
