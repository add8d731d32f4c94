from __future__ import annotations

from dataclasses import replace

import pytest

from localcluster.sim.engine import Engine, Limits, Rejection, Speed
from localcluster.sim.exposition import Source, render
from localcluster.sim.httpfigures import HttpFigures
from localcluster.sim.speculation import Speculation
from localcluster.sim.wire import number
from tests.unit.sim.reading import Sample, fixture, samples, types
from vllm_upgrade_operator.vllm.metrics import parse
from vllm_upgrade_operator.vllm.versions import parse_version

# Values that are the machine's or the configuration's; the labels' names are compared.
_FREE = frozenset({"python_info", "vllm:cache_config_info"})
# Exported by a plugin of the server that was recorded.
_FOREIGN = frozenset({"canary_vllm_runner_info"})
_SPECULATION = "vllm:spec_decode_"
LENGTH = 512


def source(version: str, engine: Engine | None = None, http: HttpFigures | None = None) -> Source:
    return Source(
        version=version,
        model="tiny",
        max_model_len=LENGTH,
        engine=engine or Engine(Limits(), Speed()),
        http=http or HttpFigures(1e9),
        started_at=1_796_072_419.5,
    )


def shape(text: str) -> set[Sample]:
    """Names and labels of what vLLM and its process export; not of the requests made."""
    found = set()
    for name, labels in samples(text):
        if name in _FOREIGN or name.startswith((_SPECULATION, "http_")):
            continue
        found.add((name, tuple((k, "") for k, _ in labels) if name in _FREE else labels))
    return found


@pytest.mark.parametrize(
    ("version", "capture"),
    [
        ("0.29.0", "0.29.0-v2-auto"),
        ("0.32.0", "0.32.0-v2-forced"),
        ("0.32.0", "0.32.0-v1-ngram-kv-full"),
    ],
)
@pytest.mark.parametrize("moment", ["metrics-idle.txt", "metrics-after.txt"])
def test_names_labels_and_buckets_are_those_of_a_real_server(
    version: str, capture: str, moment: str
) -> None:
    recorded = fixture(capture, moment)
    text = render(source(version))
    assert shape(text) == shape(recorded)
    kinds = {n: k for n, k in types(recorded).items() if not n.startswith((_SPECULATION, "http_"))}
    mine = {n: k for n, k in types(text).items() if not n.startswith("http_")}
    assert mine == {n: k for n, k in kinds.items() if n not in _FOREIGN}


@pytest.mark.parametrize("moment", ["metrics-idle.txt", "metrics-after.txt"])
def test_speculative_decoding_is_exported_as_by_a_real_server(moment: str) -> None:
    recorded = fixture("0.32.0-v1-ngram-kv-full", moment)
    text = render(replace(source("0.32.0"), speculation=Speculation(3)))

    def drafting(found: str) -> tuple[set[Sample], dict[str, str]]:
        kinds = {name: kind for name, kind in types(found).items() if name.startswith(_SPECULATION)}
        return {key for key in samples(found) if key[0].startswith(_SPECULATION)}, kinds

    assert drafting(text) == drafting(recorded)
    assert _SPECULATION not in render(source("0.32.0"))


def test_drafts_follow_from_the_tokens_decoded() -> None:
    found = Speculation(3)
    # The recorded server verified 2161 drafts of at most 3 tokens and accepted 4755.
    acceptance = 4755 / (2161 * 3)
    found.decoded(2161 + 4755, acceptance)
    assert found.drafts == pytest.approx(2161, abs=1)
    assert sum(found.accepted_by_position) == pytest.approx(4755, abs=4)
    first, second, third = found.accepted_by_position
    assert 2161 > first > second > third
    never = Speculation(2)
    never.decoded(10, 0.0)
    assert (never.drafts, never.draft_tokens, never.accepted_by_position) == (10, 20, [0, 0])


def test_the_http_server_counts_as_the_real_one() -> None:
    http = HttpFigures(1e9)
    text = fixture("0.29.0-v2-auto", "metrics-after.txt")
    recorded = samples(text)
    for (name, labels), value in recorded.items():
        if name == "http_requests_total":
            by = dict(labels)
            for _ in range(int(value)):
                status = int(by["status"][0]) * 100
                http.add(
                    by["handler"],
                    by["method"],
                    status,
                    seconds=0.2,
                    request_bytes=10,
                    response_bytes=20,
                )
    http.add("/metrics", "GET", 200, seconds=0.1, request_bytes=0, response_bytes=0)
    lines = "\n".join(http.lines())
    assert types(lines) == {n: k for n, k in types(text).items() if n.startswith("http_")}
    mine = samples(lines)
    assert set(mine) == {key for key in recorded if key[0].startswith("http_")}
    for key, value in mine.items():
        if key[0] in {"http_requests_total", "http_request_duration_seconds_count"}:
            assert value == recorded[key], key


def test_before_any_request_the_http_server_exports_what_the_real_one_does() -> None:
    text = fixture("0.29.0-v2-auto", "metrics-idle.txt")
    lines = "\n".join(HttpFigures(1e9).lines())
    assert types(lines) == {n: k for n, k in types(text).items() if n.startswith("http_")}
    assert set(samples(lines)) == {key for key in samples(text) if key[0].startswith("http_")}


def names(version: str) -> set[str]:
    return {name for name, _ in samples(render(source(version)))}


def test_what_the_versions_without_a_record_export() -> None:
    # From the packages: 0.30 adds one histogram, 0.32 two counters; nothing is renamed.
    added_in_030 = {f"vllm:request_num_preemptions_{s}" for s in ("bucket", "count", "sum")}
    added_in_032 = {
        "vllm:admission_rejections_total",
        "vllm:admission_rejections_created",
        "vllm:prompt_tokens_cached_by_source_total",
        "vllm:prompt_tokens_cached_by_source_created",
        "vllm:request_num_preemptions_created",
    }
    assert names("0.28.0") == names("0.29.0")
    assert names("0.33.0") == names("0.32.0")
    assert names("0.32.0") - names("0.29.0") == added_in_030 | added_in_032
    assert names("0.29.0") < names("0.32.0")


def test_rejections_have_no_engine_label() -> None:
    engine = Engine(Limits(max_num_queued_reqs=0), Speed())
    assert engine.admit(1, 1) is Rejection.REQUESTS
    found = samples(render(source("0.33.0", engine)))
    labels = (("model_name", "tiny"), ("reason", "max_num_queued_reqs"))
    assert found["vllm:admission_rejections_total", labels] == 1.0


def test_the_engine_s_figures_arrive() -> None:
    engine = Engine(Limits(max_num_seqs=2, kv_blocks=100), Speed())
    for _ in range(4):
        engine.admit(160, 300)
    engine.advance(0.2)
    labels = (("engine", "0"), ("model_name", "tiny"))
    found = samples(render(source("0.32.0", engine)))
    assert found["vllm:num_requests_running", labels] == 2.0
    assert found["vllm:num_requests_waiting", labels] == 2.0
    assert found["vllm:kv_cache_usage_perc", labels] == engine.kv_usage > 0.19
    engine.advance(1e4)
    found = samples(render(source("0.32.0", engine)))
    for name, value in {
        "vllm:prompt_tokens_total": 640,
        "vllm:generation_tokens_total": 1200,
        "vllm:time_to_first_token_seconds_count": 4,
        "vllm:inter_token_latency_seconds_count": 1196,
        "vllm:e2e_request_latency_seconds_count": 4,
        "vllm:request_queue_time_seconds_count": 4,
        "vllm:request_generation_tokens_sum": 1200,
        "vllm:request_params_max_tokens_sum": 1200,
        "vllm:request_params_n_sum": 4,
        "vllm:iteration_tokens_total_sum": 1840,
    }.items():
        assert found[name, labels] == value, name
    success = (("engine", "0"), ("finished_reason", "length"), ("model_name", "tiny"))
    assert found["vllm:request_success_total", success] == 4.0
    e2e = "vllm:e2e_request_latency_seconds"
    buckets = [v for (name, _), v in found.items() if name == f"{e2e}_bucket"]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4.0
    assert found[f"{e2e}_sum", labels] == pytest.approx(engine.figures.e2e.total)


@pytest.mark.parametrize("version", ["0.28.0", "0.29.0", "0.32.0", "0.33.0"])
def test_all_that_the_operator_reads_is_there(version: str) -> None:
    engine = Engine(Limits(max_num_seqs=2, kv_blocks=100), Speed())
    for _ in range(4):
        engine.admit(160, 300)
    engine.advance(1e4)
    found = parse(render(source(version, engine)), taken_at=1.0, version=parse_version(version))
    assert set(found.absent) == {"draft_tokens", "accepted_tokens"}
    assert found.prompt_lengths is not None
    assert (found.prompt_lengths.observations, found.prompt_lengths.total) == (4.0, 640.0)
    assert found.output_lengths is not None
    assert found.output_lengths.total == 1200.0
    assert found.queue is not None
    assert found.prefill is not None
    assert found.decode is not None
    assert found.e2e is not None
    parts = found.queue.total + found.prefill.total + found.decode.total
    assert parts == pytest.approx(found.e2e.total)


def test_the_buckets_of_lengths_end_at_the_model_s_length() -> None:
    def longest(length: int) -> float:
        text = render(
            Source("0.29.0", "tiny", length, Engine(Limits(), Speed()), HttpFigures(0.0), 0.0)
        )
        name = "vllm:request_prompt_tokens_bucket"
        bounds = [dict(labels)["le"] for n, labels in samples(text) if n == name]
        return float(bounds[-2])

    assert longest(512) == 500.0
    assert longest(4096) == 2000.0
    assert longest(1000) == 1000.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.0"),
        (3, "3.0"),
        (0.25, "0.25"),
        (999_999, "999999.0"),
        (1_000_000, "1e+06"),
        (1_146_068_992, "1.146068992e+09"),
        (1796072419.6642601, "1.7960724196642601e+09"),
    ],
)
def test_numbers_are_written_as_prometheus_client_does(value: float, text: str) -> None:
    assert number(value) == text
