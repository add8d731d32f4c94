"""What can be read out of a histogram's buckets."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def quantile(bounds: Sequence[float], counts: Sequence[float], q: float) -> float | None:
    """Interpolate a quantile; None where nothing was observed.

    Args:
        bounds: Upper bounds, ascending; the last is infinity.
        counts: Observations per bucket (not cumulative).
        q: 0 to 1.

    Returns:
        Linear within the bucket, as Prometheus does; the highest finite bound where the quantile
        lies beyond it.
    """
    total = sum(counts)
    if total <= 0:
        return None
    rank = q * total
    below = 0.0
    for index, count in enumerate(counts):
        if count > 0 and below + count >= rank:
            if index == len(bounds) - 1:
                return bounds[-2] if len(bounds) > 1 else None
            low = bounds[index - 1] if index else 0.0
            return low + (bounds[index] - low) * (rank - below) / count
        below += count
    return bounds[-2] if len(bounds) > 1 else None


def above(counts: Sequence[float], index: int) -> float:
    """Count the observations above the bound at `index`."""
    return sum(counts[index + 1 :])


def per_bucket(cumulative: Sequence[float]) -> list[float]:
    """Turn cumulative counts into counts per bucket."""
    return [count - (cumulative[i - 1] if i else 0.0) for i, count in enumerate(cumulative)]
