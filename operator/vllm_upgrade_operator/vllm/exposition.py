"""A reader of the Prometheus text format for a few chosen metrics.

A vLLM server exposes hundreds of series and is read every few seconds, while a look needs some
dozens of them: one search finds these and passes over the lines of all others, which is what makes
this much cheaper than a general parser.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vllm_upgrade_operator.vllm.alternatives import alternatives

if TYPE_CHECKING:
    from collections.abc import Mapping

# How a line mostly looks. Whatever does not is read label by label.
_PLAIN = re.compile(r'\{[a-zA-Z_]\w*="[^"\\]*"(?:,[a-zA-Z_]\w*="[^"\\]*")*')
_PLAIN_LABEL = re.compile(r'(\w+)="([^"]*)"')
# One label and what follows it. Read from the left, so that no line takes more than linear time.
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|(?=}))')
_ESCAPE = re.compile(r'\\([\\"n])')
# Larger counts are not exact any more, and no vLLM comes near.
_LARGEST = 2.0**53
_TIMESTAMP = re.compile(r"-?\d+")


class MalformedExpositionError(ValueError):
    """A line cannot be read. The text says which and why, and holds nothing of the line.

    Attributes:
        line: Its number, from 1.
    """

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(f"/metrics line {line}: {problem}")
        self.line = line


class Series(NamedTuple):
    """One line of an exposition.

    Attributes:
        labels: Label values by name.
        value: A finite number; for the bounds of a histogram the label `le` says which bucket.
        line: Number of the line, from 1: for error messages.
    """

    labels: Mapping[str, str]
    value: float
    line: int


def read_series(text: str, names: frozenset[str]) -> dict[str, list[Series]]:
    """Read the series of the metrics that are asked for.

    Returns:
        By metric name. A metric that is declared (`# TYPE`) and has no series yet has an empty
        list; one that is not exposed at all has no entry.

    Raises:
        MalformedExpositionError: A line of a metric that was asked for cannot be read.
    """
    if not names:
        return {}
    # A line begins after a line feed: other separators may stand in a label's value.
    text = "\n" + text
    declared, wanted = _patterns(names)
    found: dict[str, list[Series]] = {name: [] for name in declared.findall(text)}
    line = counted = 0
    for match in wanted.finditer(text):
        name, rest = match.groups()
        start = match.start()
        line += text.count("\n", counted, start) + 1
        counted = start + 1
        series = found.get(name)
        if series is None:
            series = found[name] = []
        head, _, value = rest.rpartition("} ")
        labels = _plain_labels(head) if len(head) <= _REMEMBERED and " " not in value else None
        if labels is None:
            labels, value = _slowly(rest.lstrip(), line)
        series.append(Series(labels, _counted_with(value, line), line))
    return found


@lru_cache(maxsize=8)
def _patterns(names: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Find what declares these metrics, and their lines; the search passes over all others.

    Both begin with a line feed, which Python looks for by the fastest search that it has.
    """
    one = alternatives(names)
    return (
        re.compile(rf"\n#[^\S\n]*TYPE[^\S\n]+({one})(?=\s)"),
        re.compile(rf"\n({one})(?=[{{ \n]|\Z)([^\n]*)"),
    )


def number(text: str) -> float | None:
    """Read a number that arithmetic can be done with; None where it is none of these."""
    try:
        value = float(text)
    except ValueError:
        return None
    # Not a number fails this comparison too.
    return value if abs(value) <= _LARGEST else None


def _counted_with(text: str, line: int) -> float:
    value = number(text)
    if value is None:
        raise MalformedExpositionError(line, "its value is no number that can be counted with")
    return value


# The same labels come with every answer of a pod, and of its like. Long ones are not kept: a pod
# may answer anything.
_REMEMBERED = 256


@lru_cache(maxsize=4096)
def _plain_labels(text: str) -> Mapping[str, str] | None:
    """Read labels without escapes or unusual spaces; None for others."""
    return dict(_PLAIN_LABEL.findall(text)) if _PLAIN.fullmatch(text) else None


def forget_labels() -> None:
    """Forget the labels that were read: a benchmark of the first time needs it."""
    _plain_labels.cache_clear()


def _slowly(rest: str, line: int) -> tuple[dict[str, str], str]:
    """Read a line with escapes or unusual spaces in it: its labels, and its value's text."""
    labels, end = _labels(rest, line)
    words = rest[end:].split()
    if not words or len(words) > 2 or (len(words) == 2 and not _TIMESTAMP.fullmatch(words[1])):
        raise MalformedExpositionError(line, "not of the form name{labels} value")
    return labels, words[0]


def _labels(text: str, line: int) -> tuple[dict[str, str], int]:
    """Read the labels, if there are any, and say where they end."""
    if not text.startswith("{"):
        return {}, 0
    labels: dict[str, str] = {}
    position = 1
    while text[position : position + 1] != "}":
        match = _LABEL.match(text, position)
        if match is None:
            raise MalformedExpositionError(line, "its labels cannot be read")
        value = match[2]
        if "\\" in value:
            value = _ESCAPE.sub(lambda m: "\n" if m[1] == "n" else str(m[1]), value)
        labels[match[1]] = value
        position = match.end()
    return labels, position + 1
