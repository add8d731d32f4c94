"""From the text that a vLLM server answers on `/metrics` to a `Sample`.

Names are those of 0.28 to 0.33 (v1/metrics/loggers.py, v1/spec_decode/metrics.py): none of the
core ones was renamed or removed in that range. The HTTP counters come from
prometheus-fastapi-instrumentator.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from vllm_upgrade_operator.judge.counters import Histogram, Sample
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError, number, read_series
from vllm_upgrade_operator.vllm.versions import AdmissionControl, admission_control

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.vllm.exposition import Series
    from vllm_upgrade_operator.vllm.versions import Version

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV_USAGE = "vllm:kv_cache_usage_perc"
CACHE_CONFIG = "vllm:cache_config_info"
PREEMPTIONS = "vllm:num_preemptions_total"
PROMPT_TOKENS = "vllm:prompt_tokens_total"
GENERATION_TOKENS = "vllm:generation_tokens_total"
FINISHED = "vllm:request_success_total"
REJECTIONS = "vllm:admission_rejections_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED_TOKENS = "vllm:spec_decode_num_accepted_tokens_total"
HTTP_REQUESTS = "http_requests_total"
PROCESS_START = "process_start_time_seconds"
TTFT = "vllm:time_to_first_token_seconds"
ITL = "vllm:inter_token_latency_seconds"
E2E = "vllm:e2e_request_latency_seconds"
QUEUE = "vllm:request_queue_time_seconds"
PREFILL = "vllm:request_prefill_time_seconds"
DECODE = "vllm:request_decode_time_seconds"
PROMPT_LENGTHS = "vllm:request_prompt_tokens"
OUTPUT_LENGTHS = "vllm:request_generation_tokens"
PREFIX_QUERIES = "vllm:prefix_cache_queries_total"
PREFIX_HITS = "vllm:prefix_cache_hits_total"
LORA = "vllm:lora_requests_info"

_PREFIX = "vllm:"
_GAUGES = (RUNNING, WAITING, KV_USAGE, CACHE_CONFIG)

_HISTOGRAMS = (TTFT, ITL, E2E, QUEUE, PREFILL, DECODE, PROMPT_LENGTHS, OUTPUT_LENGTHS)

NAMES = frozenset(
    {
        RUNNING,
        WAITING,
        KV_USAGE,
        CACHE_CONFIG,
        PREEMPTIONS,
        PROMPT_TOKENS,
        GENERATION_TOKENS,
        FINISHED,
        REJECTIONS,
        DRAFT_TOKENS,
        ACCEPTED_TOKENS,
        HTTP_REQUESTS,
        PROCESS_START,
        PREFIX_QUERIES,
        PREFIX_HITS,
        LORA,
        *(h + suffix for h in _HISTOGRAMS for suffix in ("_bucket", "_sum")),
    }
)
"""The metrics that are read of a page."""

# The routes of entrypoints/ that hand a request to the engine, as the server lists them at start.
GENERATION_HANDLERS = frozenset(
    {
        "/classify",
        "/generative_scoring",
        "/inference/v1/generate",
        "/invocations",
        "/pooling",
        "/rerank",
        "/score",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/rerank",
        "/v1/responses",
        "/v1/score",
        "/v2/embed",
        "/v2/rerank",
    }
)


class NotVLLMError(Exception):
    """An exposition without any metric of vLLM: another server's."""


def parse(text: str, *, taken_at: float, version: Version | None) -> Sample:
    """Read one answer of `/metrics`.

    Args:
        text: The body, in the Prometheus text format.
        taken_at: When it was read, in seconds by a clock that is never set.
        version: What the pod answered on `/version`; it decides where its rejections show.

    Raises:
        MalformedExpositionError: A line of a metric that is used cannot be read, or its value is
            not a number, infinite, or negative where nothing is: the scrape has then failed.
        NotVLLMError: There is no metric of vLLM in it.
    """
    families = read_series(text, NAMES)
    for gauge in _GAUGES:
        # Made with its series when the server starts: declared alone, the page was cut.
        if not families.get(gauge):
            families.pop(gauge, None)
    if not any(name.startswith(_PREFIX) for name in families):
        raise NotVLLMError("/metrics has no metric of vLLM")
    _refuse_negative(families)
    server_errors = _sum(families.get(HTTP_REQUESTS), _answered("5xx"))
    rejected, approximate = _rejected(families.get(REJECTIONS), server_errors, version)
    return Sample(
        taken_at=taken_at,
        offered=_sum(families.get(HTTP_REQUESTS), _is_generation),
        rejected=rejected,
        rejected_for_tokens=_sum(families.get(REJECTIONS), _is_for_tokens),
        errors=_errors(
            None if approximate else server_errors,
            rejected,
            _sum(families.get(FINISHED), _is_engine_error),
        ),
        client_errors=_sum(families.get(HTTP_REQUESTS), _answered("4xx")),
        preemptions=_sum(families.get(PREEMPTIONS)),
        finished=_sum(families.get(FINISHED), lambda s: not _is_engine_error(s)),
        prompt_tokens=_sum(families.get(PROMPT_TOKENS)),
        generation_tokens=_sum(families.get(GENERATION_TOKENS)),
        rejections_approximate=approximate,
        running=_sum(families.get(RUNNING)),
        waiting=_sum(families.get(WAITING)),
        kv_usage=max((s.value for s in families.get(KV_USAGE, ())), default=None),
        kv_capacity_tokens=_capacity(families.get(CACHE_CONFIG)),
        draft_tokens=_sum(families.get(DRAFT_TOKENS)),
        accepted_tokens=_sum(families.get(ACCEPTED_TOKENS)),
        ttft=_histogram(TTFT, families),
        itl=_histogram(ITL, families),
        e2e=_histogram(E2E, families),
        queue=_histogram(QUEUE, families),
        prefill=_histogram(PREFILL, families),
        decode=_histogram(DECODE, families),
        prompt_lengths=_histogram(PROMPT_LENGTHS, families),
        output_lengths=_histogram(OUTPUT_LENGTHS, families),
        prefix_queries=_sum(families.get(PREFIX_QUERIES)),
        prefix_hits=_sum(families.get(PREFIX_HITS)),
        finished_by_model=_finished_by_model(families.get(FINISHED)),
        adapters=_adapters(families.get(LORA)),
        models=_models(families),
        process_started_at=_sum(families.get(PROCESS_START)),
        absent=_absent(families, version),
    )


def rejections_by_reason(text: str) -> dict[str, float] | None:
    """Give the rejections that a server has counted, by reason; None where it does not count.

    Raises:
        MalformedExpositionError: A line of the counter cannot be read.
    """
    series = read_series(text, frozenset({REJECTIONS})).get(REJECTIONS)
    if series is None:
        return None
    found: dict[str, float] = {}
    for one in series:
        reason = one.labels.get("reason", "")
        found[reason] = found.get(reason, 0.0) + one.value
    return found


def counts_rejections(version: Version) -> bool:
    """Whether a version counts its rejections in a metric of their own."""
    return admission_control(version) is AdmissionControl.COUNTER


# By attribute of `Sample`; those of rejections depend on the version.
_SOURCES = {
    "offered": (HTTP_REQUESTS,),
    "preemptions": (PREEMPTIONS,),
    "finished": (FINISHED,),
    "waiting": (WAITING,),
    "kv_usage": (KV_USAGE,),
    "kv_capacity_tokens": (CACHE_CONFIG,),
    "draft_tokens": (DRAFT_TOKENS,),
    "accepted_tokens": (ACCEPTED_TOKENS,),
    "ttft": (TTFT,),
    "itl": (ITL,),
    "e2e": (E2E,),
    "queue": (QUEUE,),
    "prefill": (PREFILL,),
    "decode": (DECODE,),
    "prompt_lengths": (PROMPT_LENGTHS,),
    "output_lengths": (OUTPUT_LENGTHS,),
    "prefix_queries": (PREFIX_QUERIES,),
    "prefix_hits": (PREFIX_HITS,),
}


def _absent(
    families: dict[str, list[Series]], version: Version | None
) -> dict[str, tuple[str, ...]]:
    """Name the metrics that are not exposed, by what is read from them."""
    counts = REJECTIONS in families or admission_control(version) is AdmissionControl.COUNTER
    approximate = not counts and admission_control(version) is AdmissionControl.APPROXIMATE
    sources = {
        **_SOURCES,
        "rejected": (REJECTIONS,) if counts else (HTTP_REQUESTS,) if approximate else (),
        "errors": (
            FINISHED,
            *(() if approximate else (HTTP_REQUESTS,)),
            *((REJECTIONS,) if counts else ()),
        ),
    }
    exposed = {name.removesuffix("_bucket") for name in families}
    missing = {
        figure: tuple(name for name in names if name not in exposed)
        for figure, names in sources.items()
    }
    return {figure: names for figure, names in missing.items() if names}


def _refuse_negative(families: dict[str, list[Series]]) -> None:
    """Sums alone may be negative: of times, where the server's clock was set back."""
    for name, found in families.items():
        if name.endswith("_sum"):
            continue
        for series in found:
            if series.value < 0:
                raise MalformedExpositionError(series.line, "its value is negative")


def _sum(
    series: list[Series] | None, chosen: Callable[[Series], bool] = lambda _: True
) -> float | None:
    """Add up the chosen series; None where the metric is not exposed at all."""
    return None if series is None else math.fsum(s.value for s in series if chosen(s))


def _is_generation(series: Series) -> bool:
    return (
        series.labels.get("method") == "POST"
        and series.labels.get("handler") in GENERATION_HANDLERS
    )


def _answered(status: str) -> Callable[[Series], bool]:
    """Choose generation requests by the group of their status, as the server labels it."""
    return lambda s: _is_generation(s) and s.labels.get("status") == status


def _is_engine_error(series: Series) -> bool:
    return series.labels.get("finished_reason") == "error"


def _is_for_tokens(series: Series) -> bool:
    return series.labels.get("reason") == "max_num_queued_tokens"


def _rejected(
    counter: list[Series] | None, server_errors: float | None, version: Version | None
) -> tuple[float | None, bool]:
    """Give the rejections, and whether they are only approximated by the 5xx answers.

    A counter that is there is believed whatever the version says.
    """
    if counter is not None:
        return _sum(counter), False
    match admission_control(version):
        case AdmissionControl.NONE:
            return 0.0, False
        case AdmissionControl.APPROXIMATE:
            return server_errors, True
        case AdmissionControl.COUNTER:
            return None, False


def _errors(
    server_errors: float | None, rejected: float | None, engine_errors: float | None
) -> float | None:
    """Count server errors once.

    A request that the engine fails shows as a 5xx, as `finished_reason="error"`, or (when its
    answer had not begun to stream) as both; nothing tells which, so the larger number is taken:
    a sum would count the same failure twice.
    """
    if engine_errors is None or (server_errors is not None and rejected is None):
        return None
    if server_errors is None or rejected is None:
        return engine_errors
    return max(server_errors - rejected, engine_errors)


def _capacity(config: list[Series] | None) -> float | None:
    """Tokens that the KV caches of all engines hold, from the labels of the info metric."""
    if not config:
        return None
    total = 0.0
    for series in config:
        tokens = _number(series, "kv_cache_size_tokens")
        if tokens is None:
            blocks = _number(series, "num_gpu_blocks")
            size = _number(series, "block_size")
            if blocks is None or size is None:
                return None
            tokens = blocks * size
        total += tokens
    return total


def _number(series: Series, label: str) -> float | None:
    """Read a label that holds a number; vLLM writes `None` where a setting has no value."""
    text = series.labels.get(label)
    if text is None or text == "None":
        return None
    value = number(text)
    if value is None:
        raise MalformedExpositionError(series.line, f"its label {label} is not a number")
    return value


def _histogram(name: str, families: dict[str, list[Series]]) -> Histogram | None:
    """Add up a histogram over its engines and models; None where it has no series."""
    buckets = families.get(name + "_bucket")
    if not buckets:
        return None
    one: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for series in buckets:
        owner = tuple(sorted((k, v) for k, v in series.labels.items() if k != "le"))
        one.setdefault(owner, []).append((_bound(series), series.value))
    line = buckets[0].line
    bounds: tuple[float, ...] | None = None
    counts: list[float] = []
    for pairs in one.values():
        own = tuple(b for b, _ in pairs)
        values = [v for _, v in pairs]
        if bounds is None:
            bounds, counts = own, [0.0] * len(own)
        if own != bounds or own != tuple(sorted(set(own))) or own[-1] != math.inf:
            raise MalformedExpositionError(
                line, f"the buckets of {name} are not the same ascending set up to +Inf"
            )
        if values != sorted(values):
            raise MalformedExpositionError(line, f"the buckets of {name} are not cumulative")
        counts = [a + b for a, b in zip(counts, values, strict=True)]
    if bounds is None:
        return None
    total = _sum(families.get(name + "_sum"))
    if total is None:
        raise MalformedExpositionError(line, f"{name} has buckets and no sum")
    return Histogram(bounds=bounds, counts=tuple(counts), total=total)


def _bound(series: Series) -> float:
    text = series.labels.get("le", "")
    try:
        return float(text)
    except ValueError:
        raise MalformedExpositionError(series.line, "its label le is not a number") from None


def _models(families: dict[str, list[Series]]) -> tuple[str, ...]:
    gauges = [*families.get(RUNNING, ()), *families.get(WAITING, ())]
    return tuple(sorted({s.labels["model_name"] for s in gauges if "model_name" in s.labels}))


def _finished_by_model(finished: list[Series] | None) -> dict[str, float] | None:
    if finished is None:
        return None
    counts: dict[str, float] = {}
    for series in finished:
        if not _is_engine_error(series):
            model = series.labels.get("model_name", "")
            counts[model] = counts.get(model, 0.0) + series.value
    return counts


def _adapters(info: list[Series] | None) -> tuple[str, ...] | None:
    """Read the names from the newest series.

    The metric's value is the time when it was set, and its labels are what was so then; series of
    other combinations stay (v1/metrics/loggers.py, gauge lora_requests_info).
    """
    if info is None:
        return None
    if not info:
        return ()
    labels = max(info, key=lambda s: s.value).labels
    named = ",".join(labels.get(f"{state}_lora_adapters", "") for state in ("running", "waiting"))
    return tuple(sorted({name.strip() for name in named.split(",")} - {""}))
