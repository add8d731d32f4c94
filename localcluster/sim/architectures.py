"""Which architectures a version of vLLM knows; others end its start.

`architectures.json` holds those that the registries of 0.29.0 and 0.32.0 list, with what reading
the packages showed of 0.28 and 0.33. What 0.30 and 0.31 added counts as of 0.32.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from localcluster.sim.versions import at_least


def refusal(version: str, architecture: str) -> str | None:
    """Say in vLLM's words why a model cannot be served (models/registry.py 0.32:1177), or None."""
    known = supported(version)
    if architecture in known:
        return None
    last = _data()["formerly"].get(architecture)
    if last is not None:
        return (
            f"Model architecture {architecture} was supported in vLLM until v{last}, and is not "
            "supported anymore. Please use an older version of vLLM if you want to use this model "
            "architecture."
        )
    return (
        f"Model architectures {[architecture]} are not supported for now. Supported "
        f"architectures: dict_keys({list(known)})"
    )


@cache
def supported(version: str) -> tuple[str, ...]:
    """Give the architectures of a version."""
    data = _data()

    def has(name: str) -> bool:
        since, until = data["since"].get(name), data["until"].get(name)
        return (since is None or at_least(version, since)) and (
            until is None or not at_least(version, until)
        )

    return tuple(name for name in data["architectures"] if has(name))


@cache
def _data() -> dict[str, Any]:
    path = Path(__file__).with_name("architectures.json")
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
