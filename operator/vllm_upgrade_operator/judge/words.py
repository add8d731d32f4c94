"""Numbers as a person reads them."""

from __future__ import annotations

NONE = "-"


def percent(value: float | None) -> str:
    """Write a fraction as a percentage, such as `0.5%`."""
    return NONE if value is None else f"{value * 100:.3g}%" if value < 10 else f"{value * 100:.0f}%"


def seconds(value: float | None) -> str:
    """Write a duration, such as `85ms` or `2.1s`."""
    if value is None:
        return NONE
    return f"{value * 1000:.3g}ms" if value < 1 else f"{value:.3g}s"


def count(value: float | None) -> str:
    """Write a count or a mean of counts, such as `12.5`."""
    if value is None:
        return NONE
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def plural(number: float, noun: str) -> str:
    """Write a whole number with its noun."""
    return f"{number:.0f} {noun}" + ("" if round(number) == 1 else "s")
