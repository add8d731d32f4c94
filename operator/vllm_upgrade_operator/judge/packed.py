"""Evidence as text that fits into a status: JSON with numbers of six digits."""

from __future__ import annotations

import json
import math
from typing import Any

State = dict[str, Any]
"""Plain lists, mappings, strings and numbers, by name."""

FORMAT = 2


def pack(signature: str, state: State) -> str:
    """Write a state down."""
    raw = {"v": FORMAT, "of": signature, "s": _short(state)}
    return json.dumps(raw, separators=(",", ":"), allow_nan=False)


def unpack(text: str | None, signature: str) -> State | None:
    """Read what `pack` wrote; None where it is of another format or of another check.

    Evidence that is lost begins again, which can only delay a verdict.
    """
    try:
        raw = json.loads(text) if text else None
    except json.JSONDecodeError:
        return None
    if not isinstance(raw, dict) or raw.get("v") != FORMAT or raw.get("of") != signature:
        return None
    state = raw.get("s")
    return state if isinstance(state, dict) else None


def _short(value: object) -> object:
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_short(item) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 1e15 else float(f"{value:.6g}")
    return value
