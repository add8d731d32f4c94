"""Writing state down in few characters, so that it fits into a status."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIGITS = 9
# Whole numbers up to here are the same as an integer and as a float.
_EXACT = 1e15


def write(state: Mapping[str, Any], version: int) -> str:
    """Write numbers, strings, lists and mappings of them; numbers keep nine digits."""
    short = {key: shortened(one, _DIGITS) for key, one in state.items()}
    return json.dumps({"v": version, **short}, separators=(",", ":"), allow_nan=False)


def read(text: str | None, version: int) -> dict[str, Any] | None:
    """Read what `write` wrote; None where there is nothing, or another version wrote it."""
    try:
        raw = json.loads(text) if text else None
    except json.JSONDecodeError:
        return None
    return raw if isinstance(raw, dict) and raw.get("v") == version else None


def shortened(value: object, digits: int) -> object:
    """Give lists and mappings with their numbers rounded; None for what is no finite number."""
    if isinstance(value, dict):
        return {key: shortened(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(one, digits) for one in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        whole = value.is_integer() and abs(value) < _EXACT
        return int(value) if whole else float(f"{value:.{digits}g}")
    return value
