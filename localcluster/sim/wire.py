"""The text format of Prometheus, as prometheus_client writes it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# From here on prometheus_client writes an exponent, as Go does.
_EXPONENT_FROM = 1e6


def number(value: float) -> str:
    """Write a value: `3.0`, and `1.146068992e+09` for large ones."""
    value = float(value)
    if value < _EXPONENT_FROM:
        return repr(value)
    digits = Decimal(repr(value)).as_tuple().digits
    exponent = Decimal(repr(value)).adjusted()
    rest = "".join(map(str, digits[1:])).rstrip("0")
    return f"{digits[0]}{'.' if rest else ''}{rest}e+{exponent:02d}"


def braces(labels: Mapping[str, str]) -> str:
    """Write labels, in alphabetical order; nothing for none."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{labels[name]}"' for name in sorted(labels)) + "}"


def head(name: str, kind: str, text: str) -> list[str]:
    """Write what stands above a family's samples."""
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def created(name: str, text: str, series: Sequence[Mapping[str, str]], at: float) -> list[str]:
    """Write the gauge that tells when each series of a counter or histogram began, if any did."""
    lines = head(f"{name}_created", "gauge", text) if series else []
    return lines + [f"{name}_created{braces(labels)} {number(at)}" for labels in series]


def histogram(
    name: str,
    labels: Mapping[str, str],
    bounds: Sequence[float],
    counts: Sequence[int],
    total: float,
) -> list[str]:
    """Write one series of a histogram.

    Args:
        name: Name of the family.
        labels: Labels of the series.
        bounds: Upper bounds of the buckets, without `+Inf`.
        counts: Observations of each bucket alone; the ones beyond the last bound may be spread
            over any number of further entries.
        total: Sum of the observations.
    """
    lines, running = [], 0
    pairs = ",".join(f'{key}="{labels[key]}"' for key in sorted([*labels, "le"]) if key != "le")
    before = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels) if key < "le")
    after = ",".join(f'{key}="{labels[key]}"' for key in sorted(labels) if key > "le")
    opening = f'{name}_bucket{{{before}{"," if before else ""}le="'
    closing = f'"{"," if after else ""}{after}}} '
    for bound, count in zip(bounds, counts, strict=False):
        running += count
        lines.append(f"{opening}{number(bound)}{closing}{number(running)}")
    everything = sum(counts)
    lines.append(f"{opening}+Inf{closing}{number(everything)}")
    braced = f"{{{pairs}}}" if pairs else ""
    lines.append(f"{name}_count{braced} {number(everything)}")
    lines.append(f"{name}_sum{braced} {number(total)}")
    return lines
