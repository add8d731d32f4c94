"""`python -m benchmarks.reaction`, within a local cluster of its own: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.reaction import figures, standing, stopping
from benchmarks.reaction.scene import INTERVAL_SECONDS
from vllm_upgrade_operator.cluster.client import Client

_GOALS = {
    "limit_exceeded_seconds": INTERVAL_SECONDS + 1.0,
    "harm_found_seconds": INTERVAL_SECONDS + 1.0,
    "abort_seconds": 2.0,
    "memory_mib": 150.0,
    "writes_per_interval_in_canary": 1.0,
    "writes_per_minute_finished": 0.0,
}


def main() -> None:
    """Measure, and write the figures down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reaction", description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="runs of each reaction")
    parser.add_argument("--idle", type=int, default=50, help="upgrades that the memory is taken of")
    parser.add_argument("--results", type=Path, required=True, help="JSON file to write")
    options = parser.parse_args()
    found = asyncio.run(_measure(options.runs, options.idle))
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(found, indent=2) + "\n")
    for name, met in found["goals_met"].items():
        print(f"{'met   ' if met else 'MISSED'} {name}: goal {found['goals'][name]:g}")
    print(f"written to {options.results}")


async def _measure(runs: int, idle: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        async with await Client.from_kubeconfig() as client:
            version = (await client.get("/version"))["gitVersion"]
            before = os.getloadavg()[0]
            reactions = await stopping.measure(client, Path(scratch), runs)
            busy = os.getloadavg()[0]
            written = await standing.writes(client, Path(scratch))
            memory = await standing.memory(client, Path(scratch), [1, idle])
    return _report(reactions, written, memory) | {
        "context": {
            **figures.machine(version),
            "load_average_before": round(before, 1),
            "load_average_during_reactions": round(busy, 1),
            "interval_seconds": INTERVAL_SECONDS,
            "runs": runs,
        }
    }


def _report(
    reactions: dict[str, list[float]], written: dict[str, float], memory: dict[int, float]
) -> dict[str, Any]:
    per_interval = round(written["canary"] * INTERVAL_SECONDS / 60, 1)
    reached = {
        "limit_exceeded_seconds": statistics.median(reactions["limit_exceeded"]),
        "harm_found_seconds": statistics.median(reactions["harm_found"]),
        "abort_seconds": statistics.median(reactions["abort"]),
        "memory_mib": memory[max(memory)],
        "writes_per_interval_in_canary": per_interval,
        "writes_per_minute_finished": written["finished"],
    }
    return {
        "seconds_to_last_request": {
            what: figures.spread(values) for what, values in reactions.items()
        },
        "intervals_to_last_request": {
            what: figures.spread([value / INTERVAL_SECONDS for value in values])
            for what, values in reactions.items()
        },
        "writes": {
            "per_interval_in_canary": per_interval,
            "per_minute_in_canary": round(written["canary"], 1),
            "per_minute_finished": round(written["finished"], 1),
        },
        "operator_memory_mib": {str(count): round(mib, 1) for count, mib in memory.items()},
        "goals": _GOALS,
        "goals_met": {name: reached[name] <= goal for name, goal in _GOALS.items()},
    }


if __name__ == "__main__":
    main()
