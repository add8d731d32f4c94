"""Writing state down in few characters, so that it fits into a status."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def write(state: Mapping[str, Any], version: int) -> str:
    """Write numbers, strings, lists and mappings of them; numbers keep nine digits."""
    return json.dumps({"v": version, **_short(state)}, separators=(",", ":"))


def read(text: str | None, version: int) -> dict[str, Any] | None:
    """Read what `write` wrote; None where there is nothing, or another version wrote it."""
    try:
        raw = json.loads(text) if text else None
    except json.JSONDecodeError:
        return None
    return raw if isinstance(raw, dict) and raw.get("v") == version else None


def _short(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can hold
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_short(one) for one in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.9g}")
    return value
