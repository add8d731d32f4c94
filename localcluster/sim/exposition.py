"""`/metrics` as a version of vLLM writes it: names, labels, buckets and quirks.

`families.json` holds the families of 0.32.0 as recorded from a real server, with what older
versions lack. The engine fills in what it knows; the rest stays at zero, as on a server that does
not use it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from localcluster.sim import process, wire
from localcluster.sim.figures import Histogram
from localcluster.sim.versions import at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localcluster.sim.engine import Engine
    from localcluster.sim.figures import Figures
    from localcluster.sim.httpfigures import HttpFigures
    from localcluster.sim.speculation import Speculation

_Value = float | dict[str, float]

# Their buckets end at --max-model-len.
_LENGTHS = frozenset(
    {
        "vllm:request_prompt_tokens",
        "vllm:request_generation_tokens",
        "vllm:request_max_num_generation_tokens",
        "vllm:request_params_max_tokens",
        "vllm:request_prefill_kv_computed_tokens",
    }
)


@dataclass(frozen=True, slots=True)
class Source:
    """What `/metrics` is about.

    Attributes:
        version: The version that is played.
        model: First served name: the label `model_name`.
        max_model_len: Most tokens of one request.
        engine: Whose figures.
        http: The HTTP server's figures.
        started_at: When the process started, seconds since the epoch.
        speculation: Its speculative decoding; None without it.
    """

    version: str
    model: str
    max_model_len: int
    engine: Engine
    http: HttpFigures
    started_at: float
    speculation: Speculation | None = None


def render(source: Source) -> str:
    """Give the text of `/metrics`."""
    lines = process.lines(source.started_at)
    values = _values(source.engine)
    histograms = _histograms(source.engine.figures)
    for family in families(source.version):
        if family["type"] == "histogram":
            lines += _histogram(family, source, histograms[family["name"]])
        else:
            lines += _family(family, source, values.get(family["name"], 0.0))
    if source.speculation is not None:
        lines += _speculation(source, source.speculation)
    lines += source.http.lines()
    return "\n".join(lines) + "\n"


@cache
def families(version: str) -> tuple[dict[str, Any], ...]:
    """Give the metric families of a version."""
    path = Path(__file__).parent / "families.json"
    found = []
    for family in json.loads(path.read_text(encoding="utf-8")):
        since = family.get("since")
        if since is not None and not at_least(version, since):
            continue
        older = None if at_least(version, "0.32.0") else family.get("labels_before_032")
        found.append(family if older is None else {**family, "labels": older})
    return tuple(found)


def _values(engine: Engine) -> dict[str, _Value]:
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
        "vllm:request_success_total": {"length": figures.finished, "error": figures.failed},
        "vllm:admission_rejections_total": {
            str(reason): count for reason, count in figures.rejections.items()
        },
        "vllm:cache_config_info": 1,
    }


def _histograms(figures: Figures) -> dict[str, Histogram]:
    """Histograms by family. Every request asks for one output of the length that it gets."""
    ones = Histogram((1.0, 2.0, 5.0, 10.0, 20.0))
    ones.add(1.0, figures.finished)
    return {
        "vllm:time_to_first_token_seconds": figures.ttft,
        "vllm:inter_token_latency_seconds": figures.itl,
        "vllm:request_time_per_output_token_seconds": figures.tpot,
        "vllm:e2e_request_latency_seconds": figures.e2e,
        "vllm:request_queue_time_seconds": figures.queue,
        "vllm:request_inference_time_seconds": figures.inference,
        "vllm:request_prefill_time_seconds": figures.prefill,
        "vllm:request_decode_time_seconds": figures.decode,
        "vllm:request_prompt_tokens": figures.prompt_lengths,
        "vllm:request_prefill_kv_computed_tokens": figures.prompt_lengths,
        "vllm:request_generation_tokens": figures.output_lengths,
        "vllm:request_max_num_generation_tokens": figures.output_lengths,
        "vllm:request_params_max_tokens": figures.output_lengths,
        "vllm:request_params_n": ones,
        "vllm:iteration_tokens_total": figures.iterations,
        "vllm:request_num_preemptions": figures.preemptions_per_request,
    }


def _family(family: dict[str, Any], source: Source, value: _Value) -> list[str]:
    name = family["name"]
    lines = wire.head(name, family["type"], _help(name))
    series = _series(family, source)
    for own, labels in zip(family["labels"], series, strict=True):
        found = value.get(next(iter(own.values())), 0) if isinstance(value, dict) else value
        lines.append(f"{name}{wire.braces(labels)} {wire.number(found)}")
    if family["type"] == "counter":
        name = name.removesuffix("_total")
        lines += wire.created(name, _help(name), series, source.started_at)
    return lines


def _speculation(source: Source, found: Speculation) -> list[str]:
    """Give the families that exist only with --speculative-config (v1/spec_decode/metrics.py)."""
    common = {"engine": "0", "model_name": source.model}
    accepted = found.accepted_by_position
    places = [{**common, "position": str(place)} for place in range(found.tokens)]
    lines: list[str] = []
    for name, series, values in (
        ("num_drafts", [common], [found.drafts]),
        ("num_draft_tokens", [common], [found.draft_tokens]),
        ("num_accepted_tokens", [common], [sum(accepted)]),
        ("num_accepted_tokens_per_pos", places, accepted),
    ):
        family = f"vllm:spec_decode_{name}"
        text = _help(family)
        lines += wire.head(f"{family}_total", "counter", text)
        for labels, value in zip(series, values, strict=True):
            lines.append(f"{family}_total{wire.braces(labels)} {wire.number(value)}")
        lines += wire.created(family, text, series, source.started_at)
    return lines


def _histogram(family: dict[str, Any], source: Source, histogram: Histogram) -> list[str]:
    name = family["name"]
    longest = source.max_model_len if name in _LENGTHS else float("inf")
    bounds = [bound for bound in histogram.bounds if bound <= longest]
    lines = wire.head(name, "histogram", _help(name))
    series = _series(family, source)
    for labels in series:
        lines += wire.histogram(name, labels, bounds, histogram.counts, histogram.total)
    return lines + wire.created(name, _help(name), series, source.started_at)


def _series(family: dict[str, Any], source: Source) -> list[dict[str, str]]:
    """Give the labels of each series of a family."""
    common: dict[str, str] = {}
    if family["engine"]:
        common["engine"] = "0"
    if family["model"]:
        common["model_name"] = source.model
    if family["name"] == "vllm:cache_config_info":
        common |= _cache_config(source)
    return [{**own, **common} for own in family["labels"]]


def _cache_config(source: Source) -> Mapping[str, str]:
    limits = source.engine.limits
    return {
        "block_size": str(limits.block_size),
        "num_gpu_blocks": str(limits.kv_blocks),
        "kv_cache_size_tokens": str(limits.kv_tokens),
        "kv_cache_max_concurrency": str(limits.kv_tokens / source.max_model_len),
    }


def _help(name: str) -> str:
    return name.removeprefix("vllm:").replace("_", " ").capitalize() + "."
