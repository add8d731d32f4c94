"""Evidence as text that fits into a status: JSON with numbers of six digits."""

from __future__ import annotations

import json
from typing import Any

from vllm_upgrade_operator.judge.compact import shortened

State = dict[str, Any]
"""Plain lists, mappings, strings and numbers, by name."""

FORMAT = 2
_DIGITS = 6


def pack(signature: str, state: State) -> str:
    """Write a state down."""
    raw = {"v": FORMAT, "of": signature, "s": shortened(state, _DIGITS)}
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
