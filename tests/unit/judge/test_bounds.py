"""Where in the buckets a limit on a quantile is counted."""

from __future__ import annotations

from math import exp, inf, log
from random import Random

import pytest

from vllm_upgrade_operator.judge.bounds import of_limit, of_stable

BOUNDS = (0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, inf)


def buckets(median: float, number: int = 20_000) -> list[float]:
    """Log-normal latencies with sigma 0.5."""
    random = Random(1)  # noqa: S311 - no secrets here
    counts = [0.0] * len(BOUNDS)
    for _ in range(number):
        value = exp(random.gauss(log(median), 0.5))
        counts[next(i for i, bound in enumerate(BOUNDS) if value <= bound)] += 1
    return counts


@pytest.mark.parametrize(
    ("limit", "bound"), [(2.0, 2.5), (2.5, 2.5), (2.51, 2.5), (0.01, 0.05), (60.0, 5.0)]
)
def test_a_limit_is_counted_at_the_first_bound_that_is_not_below_it(
    limit: float, bound: float
) -> None:
    place = of_limit(BOUNDS, 0.99, limit)
    assert BOUNDS[place.index] == bound
    assert place.allowed == pytest.approx(0.01)


@pytest.mark.parametrize("median", [0.03, 0.08, 0.15, 0.3, 0.6])
@pytest.mark.parametrize("q", [0.5, 0.9, 0.99])
def test_as_slow_as_stable_is_within_and_twice_the_limit_is_beyond(median: float, q: float) -> None:
    place = of_stable(BOUNDS, buckets(median), q, 0.3)
    assert place is not None

    def above(counts: list[float]) -> float:
        return sum(counts[place.index + 1 :]) / sum(counts)

    assert above(buckets(median)) <= place.allowed
    assert above(buckets(median * 1.3 * 2)) > 1.5 * place.allowed
    assert place.margin >= 1.3


def test_nothing_can_be_told_of_pods_that_had_no_request() -> None:
    assert of_stable(BOUNDS, [0.0] * len(BOUNDS), 0.99, 0.3) is None
    assert of_stable((inf,), [10.0], 0.99, 0.3) is None


def test_what_lies_beyond_the_last_bound_is_counted_there() -> None:
    place = of_stable(BOUNDS, [0.0] * 8 + [100.0], 0.99, 0.3)
    assert place is not None
    assert BOUNDS[place.index] == 5.0
    assert place.allowed == 0.95
