from __future__ import annotations

import math
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.judge.counters import Sample, break_between, delta, settled
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError
from vllm_upgrade_operator.vllm.metrics import GENERATION_HANDLERS, NotVLLMError, parse
from vllm_upgrade_operator.vllm.versions import parse_version

SATURATED = "0.32.0-v1-ngram-kv-full"


def of(capture: str, name: str = "burst") -> Sample:
    version = parse_version(capture.partition("-")[0])
    return parse(read(capture, f"metrics-{name}.txt"), taken_at=1.0, version=version)


def test_a_saturated_server() -> None:
    sample = of(SATURATED)
    assert sample.offered == 68.0
    assert sample.rejected == 23.0
    assert sample.rejected_for_tokens == 23.0
    assert not sample.rejections_approximate
    assert sample.errors == 0.0
    assert sample.client_errors == 3.0
    assert sample.preemptions == 9.0
    assert sample.finished == 42.0
    assert sample.prompt_tokens == 2319.0
    assert sample.generation_tokens == 3905.0
    assert sample.running == 4.0
    assert sample.waiting == 11.0
    assert sample.kv_usage == 1.0
    assert sample.kv_capacity_tokens == 1536.0
    assert sample.draft_tokens == 2503.0
    assert sample.accepted_tokens == 1790.0
    assert sample.models == ("tiny",)
    assert sample.process_started_at == 1796072674.55
    assert sample.ttft is not None
    assert sample.ttft.observations == 50.0
    assert sample.ttft.total == pytest.approx(4.597005844116211)
    assert sample.itl is not None
    assert sample.itl.observations == 2096.0
    assert sample.e2e is not None
    assert sample.e2e.bounds[0] == 0.3
    assert sample.e2e.bounds[-1] == math.inf
    assert sample.queue is not None
    assert sample.queue.total == pytest.approx(0.6619372279983509)
    assert sample.prefill is not None
    assert sample.prefill.total == pytest.approx(2.3251069799994184)
    assert sample.decode is not None
    assert sample.decode.total == pytest.approx(8.179588112001511)
    assert sample.prompt_lengths is not None
    assert (sample.prompt_lengths.observations, sample.prompt_lengths.total) == (42.0, 1883.0)
    assert sample.output_lengths is not None
    assert (sample.output_lengths.observations, sample.output_lengths.total) == (42.0, 2792.0)
    assert sample.output_lengths.bounds[-2:] == (500.0, math.inf)
    assert sample.prefix_queries == 2319.0
    assert sample.prefix_hits == 0.0
    assert sample.finished_by_model == {"tiny": 42.0}
    assert sample.adapters is None


@pytest.mark.parametrize("capture", ["0.29.0-v2-auto", SATURATED, "0.32.0-v2-forced"])
@pytest.mark.parametrize("name", ["idle", "burst", "after"])
def test_agrees_with_the_general_parser(capture: str, name: str) -> None:
    text = read(capture, f"metrics-{name}.txt")
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for one in family.samples:
            sums[one.name] = sums.get(one.name, 0.0) + one.value
    sample = of(capture, name)
    assert sample.preemptions == sums["vllm:num_preemptions_total"]
    assert sample.finished == sums["vllm:request_success_total"]
    assert sample.ttft is not None
    assert sample.ttft.observations == sums["vllm:time_to_first_token_seconds_count"]
    assert sample.itl is not None
    assert sample.itl.observations == sums["vllm:inter_token_latency_seconds_count"]


@pytest.mark.parametrize("capture", ["0.29.0-v2-auto", SATURATED, "0.32.0-v2-forced"])
def test_nothing_looks_like_a_restart_in_a_server_that_had_none(capture: str) -> None:
    names = ("idle", "burst", "after")
    version = parse_version(capture.partition("-")[0])
    samples = [
        parse(read(capture, f"metrics-{name}.txt"), taken_at=float(at), version=version)
        for at, name in enumerate(names)
    ]
    assert [break_between(a, settled(a, b)) for a, b in pairwise(samples)] == [None, None]


def test_before_0_32_rejections_are_the_5xx_answers_and_no_errors_too() -> None:
    sample = of("0.29.0-v2-auto")
    assert sample.rejections_approximate
    assert sample.rejected == 46.0
    assert sample.errors == 0.0


def test_0_28_never_rejects_and_its_5xx_answers_are_errors() -> None:
    text = read("0.29.0-v2-auto", "metrics-burst.txt")
    sample = parse(text, taken_at=1.0, version=parse_version("0.28.0"))
    assert sample.rejected == 0.0
    assert not sample.rejections_approximate
    assert sample.errors == 46.0


def test_from_0_32_on_a_missing_counter_of_rejections_is_missing() -> None:
    text = read("0.29.0-v2-auto", "metrics-burst.txt")
    sample = parse(text, taken_at=1.0, version=parse_version("0.32.0"))
    assert sample.rejected is None
    assert sample.errors is None


def test_of_an_unknown_version_5xx_answers_are_approximate_rejections() -> None:
    text = read("0.29.0-v2-auto", "metrics-burst.txt")
    assert parse(text, taken_at=1.0, version=None).rejections_approximate
    text = read(SATURATED, "metrics-burst.txt")
    assert parse(text, taken_at=1.0, version=None).rejected == 23.0


def test_a_server_that_was_never_asked_has_zero_requests() -> None:
    assert of(SATURATED, "idle").offered == 0.0


def test_a_server_without_these_metrics_has_none_and_not_zero() -> None:
    running = 'vllm:num_requests_running{engine="0"} 1\n'
    sample = parse(running, taken_at=1.0, version=parse_version("0.33.0"))
    assert sample.offered is None
    assert sample.rejected is None
    assert sample.errors is None
    assert sample.waiting is None
    assert sample.kv_usage is None
    assert sample.ttft is None
    assert sample.models == ()
    assert sample.absent["waiting"] == ("vllm:num_requests_waiting",)
    assert sample.absent["ttft"] == ("vllm:time_to_first_token_seconds",)
    assert sample.absent["offered"] == ("http_requests_total",)


def test_a_gauge_that_is_only_declared_is_not_zero() -> None:
    text = '# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_running{engine="0"} 1\n'
    sample = parse(text, taken_at=1.0, version=parse_version("0.33.0"))
    assert sample.waiting is None
    assert sample.absent["waiting"] == ("vllm:num_requests_waiting",)


def test_what_rejections_and_errors_are_read_from() -> None:
    def absent(version: str | None, *present: str) -> list[tuple[str, ...] | None]:
        text = "".join(f"{name} 1\n" for name in ("vllm:num_requests_running", *present))
        parsed = None if version is None else parse_version(version)
        found = parse(text, taken_at=1.0, version=parsed).absent
        return [found.get("rejected"), found.get("errors")]

    http, counter = "http_requests_total", "vllm:admission_rejections_total"
    finished = "vllm:request_success_total"
    assert absent("0.32.0") == [(counter,), (finished, http, counter)]
    assert absent("0.32.0", http, finished) == [(counter,), (counter,)]
    assert absent("0.32.0", http, counter) == [None, (finished,)]
    assert absent("0.29.0") == [(http,), (finished,)]
    assert absent("0.29.0", counter) == [None, (finished, http)]
    assert absent("0.28.0") == [None, (finished, http)]
    assert absent(None) == [(http,), (finished,)]


@pytest.mark.parametrize("text", ["", "up 1\n", "# TYPE a gauge\n", "http_requests_total 1\n"])
def test_metrics_of_another_server(text: str) -> None:
    with pytest.raises(NotVLLMError):
        parse(text, taken_at=1.0, version=None)


def test_nothing_is_absent_in_a_capture() -> None:
    assert of(SATURATED, "idle").absent == {}
    drafts = {"draft_tokens", "accepted_tokens"}
    assert set(of("0.32.0-v2-forced", "idle").absent) == drafts
    assert set(of("0.29.0-v2-auto", "idle").absent) == drafts


ENGINES = """
vllm:num_requests_waiting{engine="0",model_name="a"} 3
vllm:num_requests_waiting{engine="1",model_name="a"} 4
vllm:num_requests_running{engine="0",model_name="a"} 1
vllm:num_requests_running{engine="1",model_name="b"} 1
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="a"} 0.9
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="100"} 1
vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="50"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="a"} 1
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="a"} 2
vllm:time_to_first_token_seconds_bucket{engine="1",le="0.1",model_name="a"} 3
vllm:time_to_first_token_seconds_bucket{engine="1",le="+Inf",model_name="a"} 5
vllm:time_to_first_token_seconds_sum{engine="0",model_name="a"} 1.5
vllm:time_to_first_token_seconds_sum{engine="1",model_name="a"} 2.5
"""


def test_several_engines_are_added_up() -> None:
    sample = parse(ENGINES, taken_at=1.0, version=None)
    assert sample.waiting == 7.0
    assert sample.kv_usage == 0.9
    assert sample.kv_capacity_tokens == 2400.0
    assert sample.models == ("a", "b")
    assert sample.ttft is not None
    assert sample.ttft.counts == (4.0, 7.0)
    assert sample.ttft.total == 4.0


def test_when_series_were_created_is_no_count() -> None:
    created = "".join(
        f'vllm:{name}{{engine="0",model_name="a"}} 1.79e9\n'
        for name in (
            "num_preemptions_created",
            "time_to_first_token_seconds_created",
            "request_success_created",
        )
    )
    assert parse(ENGINES + created, taken_at=1.0, version=None) == parse(
        ENGINES, taken_at=1.0, version=None
    )


def test_a_sum_of_times_may_be_negative_where_the_server_s_clock_was_set_back() -> None:
    text = ENGINES.replace('seconds_sum{engine="0",model_name="a"} 1.5', "seconds_sum{} -60")
    ttft = parse(text, taken_at=1.0, version=None).ttft
    assert ttft is not None
    assert ttft.total == -57.5


def test_models_are_counted_apart_and_engine_errors_left_out() -> None:
    text = "".join(
        f'vllm:request_success_total{{engine="{engine}",finished_reason="{why}",'
        f'model_name="{model}"}} {n}\n'
        for engine, why, model, n in (
            (0, "stop", "a", 3),
            (1, "length", "a", 4),
            (0, "stop", "b", 5),
            (0, "error", "b", 9),
        )
    )
    assert parse(text, taken_at=1.0, version=None).finished_by_model == {"a": 7.0, "b": 5.0}


def lora(running: str, waiting: str, at: float) -> str:
    return (
        f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{running}",'
        f'waiting_lora_adapters="{waiting}"}} {at}\n'
    )


def test_adapters_are_those_that_the_engine_named_last() -> None:
    older, newest = lora("old", "", 1.79607e9), lora("sql, chat", "sql", 1.79608e9)
    for text in (older + newest, newest + older):
        assert parse(text, taken_at=1.0, version=None).adapters == ("chat", "sql")
    idle = lora("", "", 1.79609e9)
    assert parse(older + idle, taken_at=1.0, version=None).adapters == ()
    declared = "# TYPE vllm:lora_requests_info gauge\n"
    assert parse(declared, taken_at=1.0, version=None).adapters == ()


def test_requests_are_those_that_reach_the_engine() -> None:
    text = "".join(
        f'http_requests_total{{handler="{handler}",method="{method}",status="2xx"}} 1\n'
        for handler in (*sorted(GENERATION_HANDLERS), "/v1/models", "/tokenize", "none")
        for method in ("GET", "POST")
    )
    sample = parse(text + "vllm:num_requests_running 0\n", taken_at=1.0, version=None)
    assert sample.offered == len(GENERATION_HANDLERS)


HTTP = (
    'http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} {failed}\n'
    'vllm:admission_rejections_total{{model_name="a",reason="x"}} {rejected}\n'
    'vllm:request_success_total{{engine="0",finished_reason="error",model_name="a"}} {ended}\n'
)


@pytest.mark.parametrize(
    ("failed", "rejected", "ended", "errors"),
    [(5, 5, 0, 0), (7, 5, 0, 2), (5, 5, 3, 3), (8, 5, 3, 3), (4, 5, 0, 0)],
)
def test_a_failed_request_is_counted_once(
    failed: int, rejected: int, ended: int, errors: int
) -> None:
    text = HTTP.format(failed=failed, rejected=rejected, ended=ended)
    assert parse(text, taken_at=1.0, version=parse_version("0.32.0")).errors == errors


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('le="0.1",model_name="a"} 3', 'le="0.2",model_name="a"} 3', "same ascending set"),
        ('engine="0",le="+Inf",model_name="a"} 2', 'engine="0",le="9",model_name="a"} 2', "same"),
        ('le="0.1",model_name="a"} 3', 'le="0.1",model_name="a"} 6', "not cumulative"),
        ('le="0.1",model_name="a"} 3', 'le="x",model_name="a"} 3', "label le is not a number"),
        ('engine="0",model_name="a"} 3', 'engine="0",model_name="a"} NaN', "no number"),
        ('engine="0",model_name="a"} 3', 'engine="0",model_name="a"} +Inf', "no number"),
        ('engine="0",model_name="a"} 3', 'engine="0",model_name="a"} -1', "value is negative"),
        ('le="0.1",model_name="a"} 1', 'le="0.1",model_name="a"} -1', "value is negative"),
        ('seconds_sum{engine="0",model_name="a"} 1.5', "seconds_sum NaN", "no number"),
        ("vllm:time_to_first_token_seconds_sum", "other", "has buckets and no sum"),
        ('num_gpu_blocks="50"', 'num_gpu_blocks="x"', "num_gpu_blocks is not a number"),
    ],
)
def test_nonsense_is_an_error(old: str, new: str, problem: str) -> None:
    with pytest.raises(MalformedExpositionError, match=problem):
        parse(ENGINES.replace(old, new), taken_at=1.0, version=None)


def test_two_scrapes_of_one_server() -> None:
    before = of(SATURATED, "burst")
    text = read(SATURATED, "metrics-after.txt")
    after = parse(text, taken_at=11.0, version=parse_version("0.32.0"))
    change = delta(before, after)
    assert change is not None
    assert change.seconds == 10.0
    assert change.offered == 15.0
    assert change.preemptions == 30.0
    assert change.waiting == 0.0
    assert change.ttft is not None
    assert change.ttft.observations == 7.0
