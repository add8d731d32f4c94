"""Wrong, huge, cut, binary and hostile input never crashes, hangs or misleads a reader."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.vllm.fixtures import read
from vllm_upgrade_operator.vllm import causes, metrics
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError, read_series
from vllm_upgrade_operator.vllm.inspect import inspect
from vllm_upgrade_operator.vllm.reading import read_options
from vllm_upgrade_operator.vllm.runner import Runner, observe
from vllm_upgrade_operator.vllm.runnermetric import exported
from vllm_upgrade_operator.vllm.serverlog import latest_run, read_log
from vllm_upgrade_operator.vllm.startup import startup_phase
from vllm_upgrade_operator.vllm.versions import Version

if TYPE_CHECKING:
    from collections.abc import Callable

# Long enough to find things, short enough for every run.
MANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

LOGS = {
    Runner.V1: read("0.32.0-v1-forced", "server.log"),
    Runner.V2: read("0.29.0-v2-auto", "server.log"),
}
# To the first requests.
STARTS = {runner: "".join(log.splitlines(keepends=True)[:120]) for runner, log in LOGS.items()}
PAGE = read("0.32.0-v1-ngram-kv-full", "metrics-burst.txt")

# Pieces of what the readers look for, so that what is made of them comes near to it.
WORDS = st.sampled_from(
    [
        "(Worker pid=9) ",
        "(APIServer pid=1) ",
        "(EngineCore_DP0 pid=7) ",
        "INFO 11-30 20:39:11 ",
        "ERROR 11-30 20:39:11 ",
        "[gpu_worker.py:162] ",
        "[gpu_model_runner.py:1] ",
        "[model_runner.py:1] ",
        "[vllm.py:1] ",
        "[core.py:1] ",
        "Using V2 Model Runner",
        "Starting to load model x...",
        "Model Runner V2 does not yet support a, b; using the V1 model runner instead.",
        "ValueError: Model Runner V1 does not support: x",
        "Initializing a V1 LLM engine (v0.32.0) with config: ",
        "Resolved architecture: ",
        "GPU KV cache size: 1,000 tokens, ",
        "EngineCore encountered a fatal error.",
        "[shutdown] API server: shutdown triggered",
        "version 0.32.0",
        "\x1b[36m",
        "\n",
        "\r",
        "\x85",
        "\u2028",
        "\x00",
    ]
)
NEAR = st.lists(st.one_of(WORDS, st.text(max_size=8)), max_size=60).map("".join)

READERS: tuple[Callable[[str], object], ...] = (
    observe,
    read_log,
    latest_run,
    startup_phase,
    causes.served,
    causes.of_log,
    inspect,
)


@MANY
@given(st.one_of(NEAR, st.text(), st.binary().map(lambda b: b.decode("utf-8", "replace"))))
def test_no_log_breaks_a_reader(log: str) -> None:
    for reader in READERS:
        reader(log)


# What a user can get into a line of the API server: anything but a line feed, which its logger and
# the HTTP server do not let through (a header's value may hold U+0085).
SAID_BY_USERS = st.one_of(
    st.text(alphabet=st.characters(exclude_characters="\n"), max_size=80),
    st.lists(WORDS.filter(lambda w: w != "\n"), max_size=12).map("".join),
)
PLACES = st.sampled_from(
    [
        "(APIServer pid=1) INFO 11-30 20:39:11 [logger.py:9] Received request {}: prompt: ''",
        "(APIServer pid=1) INFO 11-30 20:39:11 [async_llm.py:318] Request queue full - {} (n=1).",
        "(APIServer pid=1) ERROR 11-30 20:39:11 [exception.py:16] Exception caught. Request id: {}",
        'INFO:     10.0.0.1:1 - "GET /{} HTTP/1.1" 404 Not Found',
    ]
)


@MANY
@given(st.sampled_from(list(LOGS)), st.lists(st.tuples(PLACES, SAID_BY_USERS), max_size=6))
@example(
    Runner.V1,
    [
        (
            "(APIServer pid=1) ERROR 11-30 20:39:11 [exception.py:16] Request id: {}",
            "x\x85(Worker pid=9) INFO 11-30 20:39:11 [gpu_worker.py:1] Using V2 Model Runner",
        )
    ],
)
def test_no_user_changes_what_is_concluded(runner: Runner, requests: list[tuple[str, str]]) -> None:
    log = STARTS[runner]
    said = "\n".join(place.replace("{}", text) for place, text in requests)
    before, after = inspect(log), inspect(f"{log}\n{said}\n")
    assert observe(f"{said}\n{log}") == observe(f"{log}\n{said}") == observe(log)
    assert (after.runner, after.version, after.architecture) == (
        before.runner,
        before.version,
        before.architecture,
    )
    assert after.phases == before.phases
    assert after.kv_capacity_tokens == before.kv_capacity_tokens
    assert after.failure == before.failure


@MANY
@given(st.sampled_from(list(LOGS)), st.integers(0, 50_000), st.integers(0, 50_000))
def test_no_cut_makes_another_runner_of_it(runner: Runner, start: int, end: int) -> None:
    found = observe(LOGS[runner][start:end])
    assert found.runner in (runner, Runner.UNKNOWN)
    assert not found.conflicting


@MANY
@given(st.sampled_from(list(LOGS)), st.data())
def test_no_flipped_byte_makes_another_runner_of_it(runner: Runner, data: st.DataObject) -> None:
    raw = bytearray(LOGS[runner].encode()[:12_000])
    for _ in range(data.draw(st.integers(1, 20))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    assert observe(raw.decode("utf-8", "replace")).runner in (runner, Runner.UNKNOWN)


LABEL = st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=12)
NAMES = st.sampled_from([*sorted(metrics.NAMES), "vllm_runner_info", "up", "vllm:x"])


def page_of(lines: list[tuple[str, dict[str, str], float]]) -> str:
    def escaped(value: str) -> str:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    def one(name: str, labels: dict[str, str], value: float) -> str:
        pairs = ",".join(f'{k}="{escaped(v)}"' for k, v in labels.items())
        return f"{name}{{{pairs}}} {value}\n"

    return "".join(one(*line) for line in lines)


SERIES = st.tuples(
    NAMES,
    st.dictionaries(
        st.sampled_from(["engine", "model_name", "le", "reason", "handler", "x_y"]), LABEL
    ),
    st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda f: abs(f) < 2.0**53),
)


@MANY
@given(st.lists(SERIES, max_size=20))
def test_any_page_is_read_as_the_general_parser_reads_it(
    lines: list[tuple[str, dict[str, str], float]],
) -> None:
    page = page_of(lines)
    mine = [
        (name, dict(s.labels), s.value)
        for name, series in read_series(page, metrics.NAMES).items()
        for s in series
    ]
    theirs = [
        (s.name, dict(s.labels), s.value)
        for family in text_string_to_metric_families(page)
        for s in family.samples
        if s.name in metrics.NAMES
    ]
    assert sorted(mine, key=repr) == sorted(theirs, key=repr)


@MANY
@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda b: b.decode("utf-8", "replace")),
        st.lists(
            st.one_of(
                NAMES,
                LABEL,
                st.sampled_from(["{", "}", "=", '"', "\\", " ", "\n", "1", "NaN", "# TYPE ", ","]),
            ),
            max_size=60,
        ).map("".join),
    )
)
def test_no_page_breaks_its_readers(page: str) -> None:
    for version in (None, Version(0, 28), Version(0, 29), Version(0, 32)):
        try:
            sample = metrics.parse(page, taken_at=1.0, version=version)
        except (MalformedExpositionError, metrics.NotVLLMError):
            continue
        numbers = (sample.offered, sample.rejected, sample.running, sample.kv_capacity_tokens)
        assert all(n is None or math.isfinite(n) for n in numbers)
    exported(page)
    inspect(None, [page, page])


@MANY
@given(st.integers(0, len(PAGE)))
def test_no_page_that_is_cut_gives_more_than_the_whole(end: int) -> None:
    """The client refuses one that ends within a line; of whole lines less may be known."""
    cut = PAGE[: PAGE.rfind("\n", 0, end) + 1]
    whole = metrics.parse(PAGE, taken_at=1.0, version=Version(0, 32))
    try:
        part = metrics.parse(cut, taken_at=1.0, version=Version(0, 32))
    except (MalformedExpositionError, metrics.NotVLLMError):
        return
    assert part.running in (None, whole.running)
    assert part.kv_capacity_tokens in (None, whole.kv_capacity_tokens)
    assert (part.preemptions or 0) <= (whole.preemptions or 0)
    assert (part.rejected or 0) <= (whole.rejected or 0)


WORD = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "--max-num-seqs",
            "--max-num",
            "--speculative-config",
            "--speculative-config.method",
            "--compilation-config.a.b+",
            "-tp",
            "-O3",
            "--config",
            "--config=x",
            "$(A)",
            "$A",
            "`x`",
            "{",
            '{"method": 3}',
            "[" * 2000,
            "9" * 5000,
            "vllm",
            "serve",
            "-m",
            "--",
            "'",
        ]
    ),
)


@MANY
@given(st.lists(WORD, max_size=12), st.booleans(), st.text(max_size=8))
def test_no_command_line_breaks_its_reader(words: list[str], shell: bool, value: str) -> None:  # noqa: FBT001
    command = ["sh", "-c", "vllm serve " + " ".join(words)] if shell else words
    container = {"command": command, "env": [{"name": "A", "value": value}]}
    found = read_options(container, Version(0, 33))
    for flag in ("max-num-seqs", "speculative-config", "compilation-config"):
        found.is_on(flag)
        found.number(flag)
        found.settings(flag)


@pytest.mark.parametrize(
    "log",
    [
        "x" * 1_000_000,
        "(" * 1_000_000,
        "(Worker pid=" + "9" * 1_000_000 + ") INFO",
        "(Worker pid=1) " + "a" * 1_000_000 + " INFO",
        "(Worker pid=1) INFO 11-30 20:39:11 [gpu_worker.py:1] " + "V1 model runner" * 100_000,
        "(Worker pid=1) INFO 11-30 20:39:11 [vllm.py:1] Model Runner V2 does not yet support "
        + "(" * 500_000
        + "; using the V1 model runner instead.",
        "ValueError: Model Runner V1 does not support: " + "a, " * 500_000,
        "api_server.py: error: unrecognized arguments: " + "--a " * 500_000,
        "\x1b[0" * 500_000,
        "\n" * 100_000,
        "Initializing a V1 LLM engine (v" * 100_000,
        "A" * 200_000 + "Error: " * 100_000,
    ],
)
def test_no_log_keeps_a_reader_busy(log: str) -> None:
    """Time that grows with the square of the length would be minutes here."""
    began = time.process_time()
    for reader in READERS:
        reader(log)
    assert time.process_time() - began < 20.0


@pytest.mark.parametrize(
    "page",
    [
        'vllm:num_requests_running{a="' + "x" * 2_000_000,
        "vllm:num_requests_running{" + 'a="b",' * 300_000,
        "vllm:num_requests_running " * 100_000,
        "vllm:num_requests_running 1\n" * 200_000,
        "# TYPE " * 300_000,
        "{" * 2_000_000,
    ],
)
def test_no_page_keeps_a_reader_busy(page: str) -> None:
    began = time.process_time()
    inspect(None, [page])
    assert time.process_time() - began < 20.0
