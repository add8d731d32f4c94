from __future__ import annotations

import pytest

from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError, read_series

NAMES = frozenset({"a", "b_total"})


def test_reads_only_the_metrics_that_are_asked_for() -> None:
    found = read_series('a{x="1"} 2\na_created{x="1"} 3\nab 4\nb_total 5 1700000000\n', NAMES)
    assert [(s.labels, s.value, s.line) for s in found["a"]] == [({"x": "1"}, 2.0, 1)]
    assert [(s.labels, s.value, s.line) for s in found["b_total"]] == [({}, 5.0, 4)]
    assert set(found) == {"a", "b_total"}


def test_a_declared_metric_without_series_is_not_a_missing_one() -> None:
    assert read_series("# TYPE a counter\n", NAMES) == {"a": []}
    assert read_series("# HELP a text\n", NAMES) == {}


def test_label_values_may_hold_anything() -> None:
    text = r'a{x="q\"}, y=\\ \n",z="{"} 1' + "\n"
    assert read_series(text, NAMES)["a"][0].labels == {"x": 'q"}, y=\\ \n', "z": "{"}


def test_a_unicode_line_separator_in_a_label_ends_no_line() -> None:
    found = read_series('a{x="one\u2028two"} 1\nb_total 2\n', NAMES)
    assert found["a"][0].labels == {"x": "one\u2028two"}
    assert found["b_total"][0].line == 2


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("a", "not of the form"),
        ('a{x="1" 2', "labels cannot be read"),
        ('a{x="1",', "labels cannot be read"),
        ("a{", "labels cannot be read"),
        ("a{x=1} 2", "labels cannot be read"),
        ('a{x="1} 2', "labels cannot be read"),
        ("a many", "no number that can be counted with"),
        ("a NaN", "no number that can be counted with"),
        ("a +Inf", "no number that can be counted with"),
        ("a 1e300", "no number that can be counted with"),
        ("a 1 2 3", "not of the form"),
        ("a 1 x", "not of the form"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, problem: str) -> None:
    with pytest.raises(MalformedExpositionError, match=problem) as caught:
        read_series(f"# HELP a x\nb_total 1\n{line}\n", NAMES)
    assert caught.value.line == 3
    assert "line 3" in str(caught.value)


def test_nothing_of_a_line_gets_into_the_error() -> None:
    for line in ('a{x="secret} 1', "a{secret} 1", "a secret", 'a{x="secret"} 1 secret'):
        with pytest.raises(MalformedExpositionError) as caught:
            read_series(line + "\n", NAMES)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "line", ["a{" + "}" * 500_000 + " x x", 'a{x="' + '\\"' * 250_000, "a" + " {" * 250_000]
)
def test_no_line_keeps_it_busy(line: str) -> None:
    """Time that grows with the square of the length would be minutes here."""
    with pytest.raises(MalformedExpositionError):
        read_series(line + "\n", NAMES)


def test_a_malformed_line_of_another_metric_does_not_matter() -> None:
    assert "a" in read_series("other{ 1\na 1\n", NAMES)
