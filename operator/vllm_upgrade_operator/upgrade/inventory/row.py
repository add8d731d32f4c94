"""What the inventory says of one workload, and of many together."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from vllm_upgrade_operator.vllm.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.upgrade.observation import Pod


class Severity(StrEnum):
    """How much stands against the upgrade of a workload, the most severe first."""

    CANNOT_START = "CannotStart"
    FALLS_BACK = "FallsBack"
    ADMISSION = "Admission"
    ADVICE = "Advice"
    NOTHING = "None"


ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that stands against it, with what to do."""

    severity: Severity
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Ready pods, by the runner that they were seen to have.

    `V1` is what is fallen back to.
    """

    v1: int = 0
    v2: int = 0
    unknown: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.v1 + self.v2 + self.unknown

    @property
    def fallback_ratio(self) -> float | None:
        """Endpoints seen on the fallback, of those whose runner was seen; None where none was."""
        seen = self.v1 + self.v2
        return None if seen == 0 else self.v1 / seen

    def __add__(self, other: Endpoints) -> Endpoints:
        return Endpoints(
            v1=self.v1 + other.v1, v2=self.v2 + other.v2, unknown=self.unknown + other.unknown
        )


def counted(pods: Iterable[Pod]) -> Endpoints:
    """Count pods by their runner."""
    seen = [Runner.UNKNOWN if p.runner is None else p.runner.runner for p in pods]
    return Endpoints(
        v1=seen.count(Runner.V1), v2=seen.count(Runner.V2), unknown=seen.count(Runner.UNKNOWN)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one workload.

    Attributes:
        namespace: Where it is.
        kind: Of the workload.
        name: Of the workload.
        version: Of vLLM; empty where it is not known.
        version_from: `observed` where pods said it, `tag` where only the image's tag does, else
            `unknown`.
        endpoints: Its ready pods, by runner.
        predicted: The runner for the target version; `Unknown` where it would not start.
        predicted_certain: All that the rules ask was known.
        architecture: Of its model; empty where it is not known.
        features: What it uses that a runner lacks, in its own version or in the target.
        limits: Its admission limits, as `max-num-queued-reqs=256`; empty without any.
        findings: What stands against the target version, the most severe first.
    """

    namespace: str
    kind: str
    name: str
    version: str
    version_from: str
    endpoints: Endpoints
    predicted: Runner
    predicted_certain: bool
    architecture: str
    features: tuple[str, ...]
    limits: str
    findings: tuple[Finding, ...]

    @property
    def severity(self) -> Severity:
        """Of the most severe finding."""
        return self.findings[0].severity if self.findings else Severity.NOTHING

    @property
    def next_step(self) -> str:
        """What to do first."""
        if self.findings:
            return self.findings[0].message
        return "nothing stands against it: write a VLLMUpgrade and ask `vllm-upgrade preflight`"


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort by severity, then by place."""
    return sorted(rows, key=lambda r: (ORDER.index(r.severity), r.namespace, r.kind, r.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Of several workloads."""

    workloads: int
    endpoints: Endpoints
    severities: dict[Severity, int]


def totals(rows: Iterable[Row]) -> Totals:
    """Add up."""
    found = list(rows)
    return Totals(
        workloads=len(found),
        endpoints=sum((r.endpoints for r in found), Endpoints()),
        severities={s: sum(r.severity is s for r in found) for s in ORDER},
    )
