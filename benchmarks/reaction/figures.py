"""What was measured, as it is written down."""

from __future__ import annotations

import os
import platform
import statistics
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_PACKAGES = ("vllm-upgrade-operator", "kopf", "kubernetes", "aiohttp", "pydantic")


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median, range and every single value, in the order in which they were measured."""
    return {
        "median": round(statistics.median(values), 3),
        "least": round(min(values), 3),
        "most": round(max(values), 3),
        "all": [round(value, 3) for value in values],
    }


def machine(kubernetes: str) -> dict[str, Any]:
    """What it was measured on; the load is that of the last minute, the benchmark's included."""
    memory = _fields("/proc/meminfo")["MemTotal"].split()[0]
    return {
        "processor": _fields("/proc/cpuinfo").get("model name", platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": int(memory) // 1024,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kubernetes": kubernetes,
        "packages": {name: version(name) for name in _PACKAGES},
    }


def _fields(file: str) -> dict[str, str]:
    lines = (line.partition(":") for line in Path(file).read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
