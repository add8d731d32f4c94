"""What came of the demonstration, in a few lines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CANARY = "-canary-"


@dataclass(frozen=True, slots=True)
class Ended:
    """One upgrade at its end.

    Attributes:
        name: Its name.
        phase: The phase that it ended in.
        expected: The phase that it should have ended in.
        message: What it says.
        seconds: How long it took.
    """

    name: str
    phase: str
    expected: str
    message: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whether it ended as it should."""
        return self.phase == self.expected


def summary(ended: Iterable[Ended], report: Mapping[str, Any]) -> str:
    """Give the summary as text."""
    lines = ["What happened:"]
    for upgrade in ended:
        verdict = "" if upgrade.right else f" (it should have been {upgrade.expected})"
        lines.append(f"  {upgrade.name}: {upgrade.phase}{verdict} after {upgrade.seconds:.0f} s")
        lines.append(f"    {upgrade.message}")
    lines.append("What users saw:")
    for title, canary in (("stable and promoted pods", False), ("canary pods", True)):
        counts = outcomes(report, canary=canary)
        words = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        lines.append(f"  {title}: {words or 'nothing'}")
    unsent = report.get("dropped", 0) + report.get("unserved", 0)
    if unsent:
        lines.append(f"  {unsent} requests could not be sent")
    return "\n".join(lines)


def outcomes(report: Mapping[str, Any], *, canary: bool) -> dict[str, int]:
    """Add up the outcomes of the canary's pods, or of all others."""
    total: dict[str, int] = {}
    for name, pod in report.get("pods", {}).items():
        if (CANARY in name) == canary:
            for outcome, count in pod["outcomes"].items():
                total[outcome] = total.get(outcome, 0) + count
    return total


def checks(status: Mapping[str, Any]) -> str:
    """Give the checks of a status as a table: what was measured, and what was allowed."""
    rows = [("CHECK", "CANARY", "STABLE", "LIMIT", "REQUESTS", "VERDICT")]
    rows += [
        (c["name"], c["canary"], c["stable"], c["limit"], str(c["requests"]), c["verdict"])
        for c in status.get("checks", [])
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
