"""What prometheus_client says of the process itself."""

from __future__ import annotations

import gc
import os
import platform
import resource
import time
from pathlib import Path

from localcluster.sim import wire


def lines(started_at: float) -> list[str]:
    """Give the `python_*` and `process_*` lines of `/metrics`: this process's own."""
    found: list[str] = []
    generations = gc.get_stats()
    for name, key in (
        ("python_gc_objects_collected_total", "collected"),
        ("python_gc_objects_uncollectable_total", "uncollectable"),
        ("python_gc_collections_total", "collections"),
    ):
        found += wire.head(name, "counter", f"Garbage collector: {key}.")
        for index, stats in enumerate(generations):
            labels = wire.braces({"generation": str(index)})
            found.append(f"{name}{labels} {wire.number(stats[key])}")
    found += wire.head("python_info", "gauge", "Python platform information.")
    found.append(f"python_info{wire.braces(_python())} 1.0")
    pages = [int(n) for n in Path("/proc/self/statm").read_text(encoding="ascii").split()[:2]]
    size = os.sysconf("SC_PAGE_SIZE")
    for name, kind, value in (
        ("process_virtual_memory_bytes", "gauge", pages[0] * size),
        ("process_resident_memory_bytes", "gauge", pages[1] * size),
        ("process_start_time_seconds", "gauge", started_at),
        ("process_cpu_seconds_total", "counter", time.process_time()),
        ("process_open_fds", "gauge", sum(1 for _ in Path("/proc/self/fd").iterdir())),
        ("process_max_fds", "gauge", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ):
        found += [*wire.head(name, kind, f"{name}."), f"{name} {wire.number(value)}"]
    return found


def _python() -> dict[str, str]:
    major, minor, patchlevel = platform.python_version_tuple()
    return {
        "implementation": platform.python_implementation(),
        "major": major,
        "minor": minor,
        "patchlevel": patchlevel,
        "version": platform.python_version(),
    }
