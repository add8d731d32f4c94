"""A reader of the Prometheus text format for a few chosen metrics.

A vLLM server exposes hundreds of series and is read every few seconds, while a look needs some
dozens of them: lines of other metrics are recognised by their name alone and left unparsed, which
is what makes this much cheaper than a general parser.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')
_ESCAPE = re.compile(r'\\([\\"n])')
_LABELS_AND_VALUE = re.compile(r"\s*(?:\{(?P<labels>.*)\})?\s*(?P<value>[^\s{]\S*)(?:\s+-?\d+)?\s*")


class MalformedExpositionError(ValueError):
    """A line cannot be read.

    Attributes:
        line: Its number, from 1.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"/metrics line {line}: {problem}")
        self.line = line


@dataclass(frozen=True, slots=True)
class Series:
    """One line of an exposition.

    Attributes:
        labels: Label values by name.
        value: A finite number; for the bounds of a histogram the label `le` says which bucket.
        line: Number of the line, from 1: for error messages.
    """

    labels: dict[str, str]
    value: float
    line: int


def read_series(text: str, names: AbstractSet[str]) -> dict[str, list[Series]]:
    """Read the series of the metrics that are asked for.

    Returns:
        By metric name. A metric that is declared (`# TYPE`) and has no series yet has an empty
        list; one that is not exposed at all has no entry.

    Raises:
        MalformedExpositionError: A line of a metric that was asked for cannot be read.
    """
    found: dict[str, list[Series]] = {}
    # Not splitlines(): that would also split at characters that may stand in a label's value.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith("#"):
            words = line.split(maxsplit=3)
            if len(words) > 2 and words[1] == "TYPE" and words[2] in names:
                found.setdefault(words[2], [])
            continue
        name = line.partition("{")[0].partition(" ")[0]
        if name in names:
            found.setdefault(name, []).append(_series(line[len(name) :], number))
    return found


def _series(rest: str, line: int) -> Series:
    match = _LABELS_AND_VALUE.fullmatch(rest)
    if match is None:
        raise MalformedExpositionError(line, "not of the form name{labels} value")
    try:
        value = float(match["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise MalformedExpositionError(
            line, f"value {match['value'][:40]!r}, where a finite number is expected"
        )
    return Series(labels=_labels(match["labels"] or "", line), value=value, line=line)


def _labels(text: str, line: int) -> dict[str, str]:
    labels: dict[str, str] = {}
    position = 0
    while position < len(text):
        match = _LABEL.match(text, position)
        if match is None:
            raise MalformedExpositionError(
                line, f"labels cannot be read at {text[position : position + 40]!r}"
            )
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else str(m[1]), value)
        labels[match[1]] = value
        position = match.end()
    return labels
