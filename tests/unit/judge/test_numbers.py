from __future__ import annotations

from fractions import Fraction
from math import comb, inf

import pytest

from vllm_upgrade_operator.judge.histograms import above, bucket_of, per_bucket, quantile
from vllm_upgrade_operator.judge.tails import less_than, more_than, upper_tail
from vllm_upgrade_operator.judge.words import count, percent, plural, seconds


@pytest.mark.parametrize(("k", "n", "p"), [(3, 10, "0.1"), (9, 200, "0.01"), (40, 45, "0.5")])
def test_the_tail_is_exact(k: int, n: int, p: str) -> None:
    share = Fraction(p)
    exact = sum(comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k, n + 1))
    assert upper_tail(k, n, float(share)) == pytest.approx(float(exact), rel=1e-9)


def test_the_tail_of_many_trials_goes_on_where_the_exact_one_ends() -> None:
    assert upper_tail(240, 20_001, 0.01) == pytest.approx(upper_tail(240, 20_000, 0.01), rel=0.2)


@pytest.mark.parametrize(
    ("k", "n", "p", "chance"),
    [(0, 0, 0.1, 1.0), (0, 10, 0.1, 1.0), (1, 10, 0.5, 1.0), (1, 10, 0.0, 0.0), (2, 1, 0.5, 0.0)],
)
def test_the_edges_of_the_tail(k: float, n: float, p: float, chance: float) -> None:
    assert upper_tail(k, n, p) == chance


def test_two_rates_are_compared_by_how_the_events_are_shared_out() -> None:
    assert more_than(20, 100, 5, 100, 1.0) < 0.01
    assert more_than(20, 100, 60, 300, 1.0) == 1.0
    assert more_than(20, 100, 5, 100, 3.0) > 0.05
    assert more_than(3, 100, 0, 0, 1.0) == 1.0
    assert less_than(5, 100, 20, 100, 1.0) < 0.01
    assert less_than(20, 100, 20, 100, 0.9) == 1.0


BOUNDS = (0.1, 0.5, 1.0, inf)


@pytest.mark.parametrize(
    ("counts", "q", "value"),
    [
        ((10, 0, 0, 0), 0.5, 0.05),
        ((0, 10, 0, 0), 0.5, 0.3),
        ((5, 5, 0, 0), 0.75, 0.3),
        ((0, 0, 0, 5), 0.5, 1.0),
        ((99, 0, 1, 0), 0.99, 0.1),
        ((0, 0, 0, 0), 0.5, None),
    ],
)
def test_quantiles(counts: tuple[float, ...], q: float, value: float | None) -> None:
    assert quantile(BOUNDS, counts, q) == pytest.approx(value)


def test_buckets() -> None:
    assert per_bucket((1.0, 3.0, 3.0, 7.0)) == [1.0, 2.0, 0.0, 4.0]
    assert above((1.0, 2.0, 0.0, 4.0), 1) == 4.0
    assert bucket_of(BOUNDS, 0.1) == 0
    assert bucket_of(BOUNDS, 0.11) == 1
    assert bucket_of(BOUNDS, 9.0) == 3


def test_words() -> None:
    assert [percent(v) for v in (None, 0.0, 0.005, 0.1234, 12.0)] == [
        "-",
        "0%",
        "0.5%",
        "12.3%",
        "1200%",
    ]
    assert [seconds(v) for v in (None, 0.0851, 2.135)] == ["-", "85.1ms", "2.13s"]
    assert [count(v) for v in (None, 0.25, 12.34, 32000.0)] == ["-", "0.25", "12.3", "32000"]
    assert [plural(1, "request"), plural(2, "request")] == ["1 request", "2 requests"]
