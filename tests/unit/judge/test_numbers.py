from __future__ import annotations

from math import inf

import pytest

from vllm_upgrade_operator.judge.histograms import above, per_bucket, quantile
from vllm_upgrade_operator.judge.words import count, percent, plural, seconds

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
