"""The operator's own metrics. Labels are bounded: series of an upgrade go when it goes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from vllm_upgrade_operator.api.v1alpha1 import Phase

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """Counts what the operator does, and knows when it last did something."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._duration = Histogram(
            "vllm_upgrade_reconcile_duration_seconds",
            "Time that a reconcile took.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._errors = Counter(
            "vllm_upgrade_reconcile_errors",
            "Reconciles that failed, by kind of error.",
            ["kind"],
            registry=self.registry,
        )
        self._transitions = Counter(
            "vllm_upgrade_transitions",
            "Phases that were entered.",
            ["phase"],
            registry=self.registry,
        )
        self._phase = Gauge(
            "vllm_upgrade_phase",
            "1 for the phase that an upgrade is in.",
            ["namespace", "upgrade", "phase"],
            registry=self.registry,
        )
        self._phases: dict[tuple[str, str], Phase] = {}
        self._ticks: dict[tuple[str, str], float] = {}

    def reconciled(self, namespace: str, upgrade: str, seconds: float) -> None:
        """Note that a reconcile ended, well or not."""
        self._duration.observe(seconds)
        self._ticks[namespace, upgrade] = time.monotonic()

    def failed(self, kind: str) -> None:
        """Count a reconcile that failed."""
        self._errors.labels(kind=kind).inc()

    def transition(self, status: VLLMUpgradeStatus) -> None:
        """Count a phase that was entered."""
        self._transitions.labels(phase=str(status.phase)).inc()

    def seen(self, namespace: str, upgrade: str, status: VLLMUpgradeStatus) -> None:
        """Show the phase of an upgrade."""
        old = self._phases.get((namespace, upgrade))
        if old == status.phase:
            return
        if old is not None:
            self._phase.remove(namespace, upgrade, str(old))
        self._phases[namespace, upgrade] = status.phase
        self._phase.labels(namespace, upgrade, str(status.phase)).set(1)

    def gone(self, namespace: str, upgrade: str) -> None:
        """Forget an upgrade that is no more."""
        self._ticks.pop((namespace, upgrade), None)
        old = self._phases.pop((namespace, upgrade), None)
        if old is not None:
            self._phase.remove(namespace, upgrade, str(old))

    def busy(self, namespace: str, upgrade: str) -> None:
        """Note that a reconcile of an upgrade is due, so that one that never ends is found."""
        self._ticks.setdefault((namespace, upgrade), time.monotonic())

    def idle(self, namespace: str, upgrade: str) -> None:
        """Note that nothing is due for an upgrade until it is woken."""
        self._ticks.pop((namespace, upgrade), None)

    def silence(self) -> float:
        """Seconds since the upgrade that has waited longest was reconciled; 0 if none waits."""
        now = time.monotonic()
        return max((now - tick for tick in self._ticks.values()), default=0.0)

    def exposition(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        return generate_latest(self.registry)
