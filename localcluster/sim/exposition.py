"""`/metrics` as a version of vLLM writes it: names, labels, buckets and quirks.

`families.json` holds the families of 0.32.0 as recorded from a real server, with what older
versions lack. The engine fills in what it knows; the rest stays at zero, as on a server that does
not use it.
"""

from __future__ import annotations

import json
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from localcluster.sim.engine import Engine, Histogram

Labels = dict[str, str]


class HttpFigures:
    """What the HTTP server counts: `http_requests_total`, by handler, method and status group."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], int] = {}

    def add(self, handler: str, method: str, status: int) -> None:
        """Count an answer."""
        key = (handler, method, f"{status // 100}xx")
        self.requests[key] = self.requests.get(key, 0) + 1


def render(version: str, model: str, engine: Engine, http: HttpFigures, started_at: float) -> str:
    """Give the text of `/metrics`.

    Args:
        version: The version that is played.
        model: First served name: the label `model_name`.
        engine: Whose figures.
        http: The HTTP server's figures.
        started_at: When the process started, seconds since the epoch.
    """
    lines: list[str] = []
    _process(lines, started_at)
    values = _values(engine)
    histograms = _histograms(engine)
    for family in families(version):
        _family(lines, family, model, values, histograms, engine, started_at)
    _http(lines, http, started_at)
    return "\n".join(lines) + "\n"


@cache
def families(version: str) -> tuple[dict[str, Any], ...]:
    """Give the metric families of a version."""
    data = json.loads((Path(__file__).parent / "families.json").read_text())
    found = []
    for family in data:
        since = family.get("since")
        if since is not None and not at_least(version, since):
            continue
        if not at_least(version, "0.32.0") and "labels_before_032" in family:
            family = {**family, "labels": family["labels_before_032"]}  # noqa: PLW2901
        found.append(family)
    return tuple(found)


def _values(engine: Engine) -> dict[str, float | Mapping[str, float]]:
    """Values by family; by the value of its own label where it has one."""
    figures = engine.figures
    return {
        "vllm:num_requests_running": len(engine.running),
        "vllm:num_requests_waiting": len(engine.waiting),
        "vllm:num_requests_waiting_by_reason": {"capacity": len(engine.waiting)},
        "vllm:engine_sleep_state": {"awake": 1},
        "vllm:kv_cache_usage_perc": engine.kv_usage,
        "vllm:prefix_cache_queries_total": figures.prompt_tokens,
        "vllm:num_preemptions_total": figures.preemptions,
        "vllm:prompt_tokens_total": figures.prompt_tokens,
        "vllm:prompt_tokens_by_source_total": {"local_compute": figures.prompt_tokens},
        "vllm:generation_tokens_total": figures.generation_tokens,
        # vLLM does not count a client that goes away as `abort` (seen on 0.32).
        "vllm:request_success_total": {"length": figures.finished},
        "vllm:admission_rejections_total": {
            str(reason): count for reason, count in figures.rejections.items()
        },
        "vllm:cache_config_info": 1,
    }


def _histograms(engine: Engine) -> dict[str, Histogram]:
    figures = engine.figures
    return {
        "vllm:time_to_first_token_seconds": figures.ttft,
        "vllm:inter_token_latency_seconds": figures.itl,
        "vllm:request_time_per_output_token_seconds": figures.tpot,
        "vllm:e2e_request_latency_seconds": figures.e2e,
        "vllm:request_queue_time_seconds": figures.queue,
        "vllm:request_inference_time_seconds": figures.inference,
        "vllm:request_prefill_time_seconds": figures.prefill,
        "vllm:request_decode_time_seconds": figures.decode,
    }


def _family(  # noqa: PLR0913, PLR0917 - what a family is made of
    lines: list[str],
    family: dict[str, Any],
    model: str,
    values: Mapping[str, float | Mapping[str, float]],
    histograms: Mapping[str, Histogram],
    engine: Engine,
    started_at: float,
) -> None:
    name, kind = family["name"], family["type"]
    lines += [f"# HELP {name} {name}", f"# TYPE {name} {kind}"]
    labelled = [_labels(family, own, model, engine) for own in family["labels"]]
    if kind == "histogram":
        for labels in labelled:
            _histogram(lines, family, labels, histograms.get(name))
    else:
        value = values.get(name, 0)
        for own, labels in zip(family["labels"], labelled, strict=True):
            found = value if isinstance(value, int | float) else value.get(_only(own), 0)
            lines.append(f"{name}{_braces(labels)} {float(found)}")
    if kind in ("counter", "histogram"):
        created = f"{name.removesuffix('_total')}_created"
        lines += [f"# HELP {created} {name}", f"# TYPE {created} gauge"]
        lines += [f"{created}{_braces(labels)} {started_at!r}" for labels in labelled]


def _labels(family: dict[str, Any], own: Labels, model: str, engine: Engine) -> Labels:
    labels = dict(own)
    if family["engine"]:
        labels["engine"] = "0"
    if family["model"]:
        labels["model_name"] = model
    if family["name"] == "vllm:cache_config_info":
        limits = engine.limits
        labels["block_size"] = str(limits.block_size)
        labels["num_gpu_blocks"] = str(limits.kv_blocks)
        labels["kv_cache_size_tokens"] = str(limits.kv_blocks * limits.block_size)
    return labels


def _histogram(
    lines: list[str], family: dict[str, Any], labels: Labels, histogram: Histogram | None
) -> None:
    name = family["name"]
    bounds = [*family["bounds"], "+Inf"]
    counts = [0] * len(bounds) if histogram is None else histogram.counts
    running = 0
    for bound, count in zip(bounds, counts, strict=True):
        running += count
        lines.append(f"{name}_bucket{_braces({**labels, 'le': bound})} {float(running)}")
    total = 0.0 if histogram is None else histogram.total
    lines.append(f"{name}_count{_braces(labels)} {float(running)}")
    lines.append(f"{name}_sum{_braces(labels)} {total!r}")


def _http(lines: list[str], http: HttpFigures, started_at: float) -> None:
    name = "http_requests"
    labelled = [
        (_braces({"handler": handler, "method": method, "status": status}), count)
        for (handler, method, status), count in http.requests.items()
    ]
    lines += [f"# HELP {name}_total Total number of requests.", f"# TYPE {name}_total counter"]
    lines += [f"{name}_total{labels} {float(count)}" for labels, count in labelled]
    lines += [f"# HELP {name}_created Total.", f"# TYPE {name}_created gauge"]
    lines += [f"{name}_created{labels} {started_at!r}" for labels, _ in labelled]


def _process(lines: list[str], started_at: float) -> None:
    for name, kind, value in (
        ("process_resident_memory_bytes", "gauge", 1.09e9),
        ("process_start_time_seconds", "gauge", started_at),
        ("process_cpu_seconds_total", "counter", time.process_time()),
    ):
        lines += [f"# HELP {name} {name}", f"# TYPE {name} {kind}", f"{name} {value!r}"]


def _only(own: Labels) -> str:
    return next(iter(own.values()), "")


def _braces(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(_pairs(labels)) + "}" if labels else ""


def _pairs(labels: Mapping[str, str]) -> Iterable[str]:
    return (f'{key}="{value}"' for key, value in sorted(labels.items()))
