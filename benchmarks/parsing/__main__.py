"""`python -m benchmarks.parsing`: see benchmarks/README.md."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.reaction import figures
from vllm_upgrade_operator.vllm import exposition, metrics
from vllm_upgrade_operator.vllm.model import read_model
from vllm_upgrade_operator.vllm.runner import observe
from vllm_upgrade_operator.vllm.startup import startup_phase
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORDED = Path(__file__).parents[2] / "tests" / "fixtures" / "vllm" / "0.32.0-v1-ngram-kv-full"
_LOG_LINES = 10_000
_GOAL = 20.0

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def main() -> None:
    """Measure, and write the figures down."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parsing", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="times that each page is read")
    parser.add_argument("--results", type=Path, required=True, help="JSON file to write")
    options = parser.parse_args()
    found = _measure(options.runs)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(found, indent=2) + "\n")
    ratio = found["metrics_page"]["times_faster"]
    print(f"{'met   ' if ratio >= _GOAL else 'MISSED'} times_faster: goal {_GOAL:g}, is {ratio:g}")
    print(f"written to {options.results}")


def _measure(runs: int) -> dict[str, Any]:
    machine = figures.machine("")
    del machine["kubernetes"]
    machine["packages"] = {
        name: version(name) for name in ("vllm-upgrade-operator", "prometheus-client")
    }
    before = os.getloadavg()[0]
    return {
        "metrics_page": _page(runs),
        "log": _log(max(3, runs // 20)),
        "goals": {"times_faster": _GOAL},
        "context": {
            **machine,
            "load_average_before": round(before, 1),
            "load_average_after": round(os.getloadavg()[0], 1),
            "runs": runs,
        },
    }


def _page(runs: int) -> dict[str, Any]:
    """Read one recorded page in turns, so that a busy moment hits all readers alike."""
    text = (_RECORDED / "metrics-burst.txt").read_text(encoding="utf-8")
    assert _ours(text) == _theirs(text), "the two parsers read different values"
    taken: dict[str, list[float]] = {"theirs": [], "first": [], "again": [], "sample": []}
    for _ in range(runs):
        taken["theirs"].append(_milliseconds(lambda: list(text_string_to_metric_families(text))))
        exposition.forget_labels()
        taken["first"].append(_milliseconds(lambda: _series(text)))
        taken["again"].append(_milliseconds(lambda: _series(text)))
        taken["sample"].append(
            _milliseconds(lambda: metrics.parse(text, taken_at=1.0, version=Version(0, 32)))
        )
    medians = {name: statistics.median(values) for name, values in taken.items()}
    return {
        "lines": text.count("\n"),
        "bytes": len(text.encode()),
        "series_needed": len(_ours(text)),
        "same_values": True,
        "prometheus_client_ms": round(medians["theirs"], 3),
        "first_time_ms": round(medians["first"], 3),
        "again_ms": round(medians["again"], 3),
        "to_a_sample_ms": round(medians["sample"], 3),
        "times_faster_first_time": round(medians["theirs"] / medians["first"], 1),
        "times_faster": round(medians["theirs"] / medians["again"], 1),
        "times_faster_to_a_sample": round(medians["theirs"] / medians["sample"], 1),
    }


def _log(runs: int) -> dict[str, Any]:
    """Read a long log as a look does: its start, and then the lines of its traffic again."""
    recorded = (_RECORDED / "server.log").read_text(encoding="utf-8").split("\n")
    start, traffic = recorded[:125], recorded[125:260]
    repeated = traffic * (_LOG_LINES // len(traffic) + 1)
    log = "\n".join([*start, *repeated][:_LOG_LINES])
    readers: dict[str, Callable[[str], object]] = {
        "runner": observe,
        "startup_phase": startup_phase,
        "model": read_model,
    }
    found = {
        name: round(statistics.median(_milliseconds(partial(r, log)) for _ in range(runs)), 2)
        for name, r in readers.items()
    }
    return {
        "lines": _LOG_LINES,
        "bytes": len(log.encode()),
        "ms": found,
        "lines_per_second": {name: round(_LOG_LINES / ms * 1000) for name, ms in found.items()},
    }


def _series(text: str) -> dict[str, list[exposition.Series]]:
    return exposition.read_series(text, metrics.NAMES)


def _ours(text: str) -> Values:
    return {
        (name, frozenset(one.labels.items())): one.value
        for name, series in _series(text).items()
        for one in series
    }


def _theirs(text: str) -> Values:
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
        if one.name in metrics.NAMES
    }


def _milliseconds(read: Callable[[], object]) -> float:
    """Take the processor time of one call: what others do on the machine is not in it."""
    began = time.process_time()
    read()
    return (time.process_time() - began) * 1000


if __name__ == "__main__":
    main()
