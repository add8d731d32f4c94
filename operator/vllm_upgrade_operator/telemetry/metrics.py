"""The operator's own metrics. Every label has few values, and none is a name that a user chose."""

from __future__ import annotations

from collections import Counter as Count

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from vllm_upgrade_operator.api.v1alpha1 import Phase, RunnersStatus

_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """What the operator counts about itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self.reconcile_seconds = Histogram(
            "vllm_upgrade_reconcile_duration_seconds",
            "Time that a reconcile took.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.reconcile_errors = self._counter(
            "reconcile_errors", "Reconciles that failed, by kind of error.", "kind"
        )
        self.api_errors = self._counter(
            "api_errors", "Reconciles that the API server failed, by HTTP status.", "status"
        )
        self.transitions = self._counter(
            "transitions", "Phases that upgrades went to.", "phase", "reason"
        )
        self.scrapes = self._counter("scrapes", "Scrapes of vLLM pods, by result.", "result")
        self.lost_looks = self._counter(
            "lost_looks",
            "Scrapes of vLLM pods that could only be a new baseline, since counters began anew.",
            "reason",
        )
        self.log_reads = self._counter("log_reads", "Reads of vLLM logs, by result.", "result")
        self._upgrades = Gauge(
            "vllm_upgrades", "Upgrades by phase.", ["phase"], registry=self.registry
        )
        self._pods = Gauge(
            "vllm_upgrade_pods",
            "Pods of upgrades that have not ended, by side and by the model runner seen.",
            ["role", "runner"],
            registry=self.registry,
        )
        self._phases: dict[str, str] = {}
        self._runners: dict[str, RunnersStatus] = {}
        self._count()

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(f"vllm_upgrade_{name}", words, labels, registry=self.registry)

    def phase(self, uid: str, phase: str) -> None:
        """Note the phase of an upgrade."""
        if self._phases.get(uid) != phase:
            self._phases[uid] = phase
            self._count()

    def runners(self, uid: str, seen: RunnersStatus | None) -> None:
        """Note the runners of an upgrade's pods; None: it has ended."""
        if self._runners.get(uid) == seen:
            return
        if seen is None:
            del self._runners[uid]
        else:
            self._runners[uid] = seen
        self._count()

    def forget(self, uid: str) -> None:
        """Stop counting an upgrade that is gone."""
        self.runners(uid, None)
        if self._phases.pop(uid, None) is not None:
            self._count()

    def exposition(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        return generate_latest(self.registry)

    def _count(self) -> None:
        counts = Count(self._phases.values())
        for phase in Phase:
            self._upgrades.labels(str(phase)).set(counts[str(phase)])
        seen = self._runners.values()
        for role, sides in (
            ("stable", [s.stable for s in seen]),
            ("canary", [s.canary for s in seen]),
        ):
            self._pods.labels(role, "v1").set(sum(s.v1 for s in sides))
            self._pods.labels(role, "v2").set(sum(s.v2 for s in sides))
            self._pods.labels(role, "unknown").set(sum(s.unknown for s in sides))
