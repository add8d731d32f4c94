"""Reads expositions, and what real servers gave."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2] / "fixtures" / "vllm"
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Sample = tuple[str, tuple[tuple[str, str], ...]]


def fixture(capture: str, name: str) -> str:
    return (_ROOT / capture / name).read_text(encoding="utf-8")


def samples(text: str) -> dict[Sample, float]:
    """Every sample by name and labels, labels in the order in which they are written."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line)
        assert match is not None, line
        labels = tuple(_LABEL.findall(match["labels"] or ""))
        assert (match["name"], labels) not in found, line
        found[match["name"], labels] = float(match["value"])
    return found


def types(text: str) -> dict[str, str]:
    """The type of each family."""
    words = (line.split() for line in text.splitlines() if line.startswith("# TYPE"))
    return {name: kind for _, _, name, kind in words}
