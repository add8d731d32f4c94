from __future__ import annotations

import pytest

from localcluster.sim.options import Options, parse
from tests.unit.sim.reading import fixture


@pytest.mark.parametrize(
    "words",
    [
        ["m", "--max-num-seqs", "8"],
        ["serve", "m", "--max-num-seqs=8"],
        ["--model", "m", "--max_num_seqs", "8"],
        ["--max_num_seqs=8", "--model=m"],
        # Shortened, as argparse lets one.
        ["m", "--max-num-se", "8"],
    ],
)
def test_the_ways_to_write_a_flag(words: list[str]) -> None:
    options = parse("0.29.0", words)
    assert options.model == "m"
    assert options.number("max-num-seqs") == 8
    assert options.served_names == ["m"]


def test_a_model_may_be_called_serve_and_have_several_names() -> None:
    options = parse("0.29.0", ["serve", "serve", "--served-model-name", "a", "b", "--port", "1"])
    assert options.model == "serve"
    assert options.served_names == ["a", "b"]


def test_objects_whole_and_by_key() -> None:
    whole = parse("0.32.0", ["m", "--speculative-config", '{"method": "ngram"}'])
    keys = parse(
        "0.32.0",
        ["m", "--speculative-config.method=ngram", "--speculative-config.num_speculative_tokens=3"],
    )
    assert whole.config("speculative-config") == {"method": "ngram"}
    assert keys.config("speculative-config") == {"method": "ngram", "num_speculative_tokens": 3}


def test_short_flags() -> None:
    options = parse("0.32.0", ["m", "-tp", "2", "-sc", "{}"])
    assert options.number("tensor-parallel-size") == 2
    assert options.has("speculative-config")


def test_a_flag_that_does_nothing_here_is_accepted() -> None:
    assert parse("0.29.0", ["m", "--enable-prefix-caching", "--dtype", "half"]).model == "m"


@pytest.mark.parametrize(
    ("version", "flag", "known"),
    [
        ("0.28.0", "--max-num-queued-reqs", False),
        ("0.29.0", "--max-num-queued-reqs", True),
        ("0.28.0", "--max-num-queued-tokens", False),
        ("0.32.0", "--max-num-queued-tokens", True),
        ("0.29.0", "--watermark-config", False),
        ("0.32.0", "--watermark-config", True),
        ("0.32.0", "--sleep-mode-backend", False),
        ("0.33.0", "--sleep-mode-backend", True),
        ("0.28.0", "--shutdown-timeout", True),
    ],
)
def test_the_flags_of_each_version(
    version: str, flag: str, *, known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["m", flag, "5"]
    if known:
        assert isinstance(parse(version, words), Options)
        return
    with pytest.raises(SystemExit) as ended:
        parse(version, words)
    assert ended.value.code == 2
    assert f"error: unrecognized arguments: {flag}" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0"])
def test_an_unknown_flag_ends_as_on_a_real_server(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(version, ["m", "--no-such-flag", "3", "--port", "1"])
    assert ended.value.code == 2
    real = fixture(f"{version}-unknown-flag-exits", "startup.log").splitlines()
    assert capsys.readouterr().err.splitlines()[-1] == real[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["m", "--max-num-seqs", "many"], "argument --max-num-seqs: invalid int value: 'many'"),
        (["m", "--port"], "argument --port: expected one argument"),
        (["m", "--port", "--headless"], "argument --port: expected one argument"),
        (["m", "n"], "unrecognized arguments: n"),
        (["m", "--max-num"], "ambiguous option: --max-num could match"),
        (["m", "--speculative-config", "{"], "argument --speculative-config: invalid"),
        (["m", "--enforce-eager=yes"], "argument --enforce-eager: ignored explicit argument"),
    ],
)
def test_mistakes_end_with_usage(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse("0.29.0", words)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
