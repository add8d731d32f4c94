"""Numbers as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def relation(*, clear: bool, beyond: bool) -> str:
    """Say how a value stands to its limits: `beyond` may be chance, `clear` is hardly."""
    return "beyond" if clear else "not clearly beyond" if beyond else "within"


def phrase(value: str, relation: str, limits: Sequence[str]) -> str:
    """Put a value and its limits into words."""
    return f"{value}, {relation} {' and '.join(limits)}" if limits else f"{value}, without a limit"


def over_stable(show: Callable[[float | None], str], stable: float | None, factor: float) -> str:
    """Name a limit that follows from the stable pods' value."""
    if stable is None:
        return "a limit by stable pods, of which none was read"
    if stable == 0:
        return f"what stable pods have ({show(stable)})"
    limit = show(stable * factor)
    return f"the limit of {limit} (stable {show(stable)} {factor - 1:+.0%})"
