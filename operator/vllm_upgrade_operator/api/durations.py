"""Durations as text, in the form of the Gateway API (GEP-2257): `90s`, `10m`, `1h30m`, `500ms`."""

from __future__ import annotations

import re

PATTERN = "^([0-9]{1,5}(h|m|s|ms)){1,4}$"

_PART = re.compile(r"([0-9]+)(ms|h|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def seconds_of(text: str) -> float:
    """Read a duration, in seconds. Raises ValueError where it is none."""
    if re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"{text!r} is no duration: write it as 500ms, 90s, 10m or 1h30m")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
