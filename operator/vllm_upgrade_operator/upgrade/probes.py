"""How long a container's own probes let it take to start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# Defaults of a probe (Kubernetes API reference, Probe v1 core).
_DEFAULT_PERIOD = 10
_DEFAULT_THRESHOLD = 3


def start_seconds(container: Mapping[str, Any]) -> float:
    """Seconds that a container's own probes let pass before it may be expected to be ready."""
    readiness = container.get("readinessProbe") or {}
    delay = float(readiness.get("initialDelaySeconds") or 0)
    return max(startup_budget(container), delay)


def startup_budget(container: Mapping[str, Any]) -> float:
    """Seconds that a container's probes let it take to start before it is killed; 0 if none do.

    A liveness probe only begins once the startup probe has succeeded, so the first of the two
    that is there counts.
    """
    probe = container.get("startupProbe") or container.get("livenessProbe")
    if not probe:
        return 0.0
    period = probe.get("periodSeconds") or _DEFAULT_PERIOD
    threshold = probe.get("failureThreshold") or _DEFAULT_THRESHOLD
    return float((probe.get("initialDelaySeconds") or 0) + period * threshold)
