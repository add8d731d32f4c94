"""Is there time to start, and time to end?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.preflight.answer import passed, unknown, warn
from vllm_upgrade_operator.upgrade.probes import startup_budget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.upgrade.preflight.answer import Answer
    from vllm_upgrade_operator.upgrade.preflight.subject import Subject, Trial

# The first start of a version compiles anew, which a start of the stable pods did not have to.
_FIRST_START = 1.5
# Kubernetes API reference, PodSpec v1 core.
_DEFAULT_GRACE_SECONDS = 30
_SLEEP = re.compile(r"(?:^|[\s;&/])sleep\s+(\d+(?:\.\d+)?)")


def startup(t: Trial) -> Answer:
    """Probes that kill a start which the stable pods needed would kill the candidate's too."""
    budget = startup_budget(t.candidate.container)
    if budget == 0:
        return passed("no probe limits how long a start may take")
    taken = quickest_start(t)
    if taken is None:
        return unknown(
            "NoStartSeen",
            f"its probes let a start take {budget:.0f} s; how long a start of the stable pods took "
            "is not known, as none is ready that was not restarted",
        )
    if taken * _FIRST_START > budget:
        return warn(
            "StartupBudgetTight",
            f"its probes let a start take {budget:.0f} s, and the quickest of the stable pods took "
            f"{taken:.0f} s; the first start of a new version compiles anew: raise "
            "failureThreshold of the startup probe, or add one",
        )
    return passed(f"its probes let a start take {budget:.0f} s; stable pods took {taken:.0f} s")


def quickest_start(s: Subject) -> float | None:
    """Seconds that the quickest stable pod took to become ready.

    The quickest: a pod that was not ready for a while since tells of a later time.
    """
    return min(
        (
            pod.ready_at - pod.started_at
            for pod in s.target.pods
            if is_ready(pod)
            and pod.restarts == 0
            and pod.ready_at is not None
            and pod.started_at is not None
        ),
        default=None,
    )


def ending(t: Trial) -> Answer:
    """A pod that is killed before it has finished cuts answers off, in each rollout."""
    grace = int(t.pod.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))
    before = prestop_seconds(t.candidate.container)
    drain = _drain_seconds(t)
    if before is None or drain is None:
        return unknown(
            "EndUnknown",
            f"terminationGracePeriodSeconds is {grace}; how long preStop and --shutdown-timeout "
            "take cannot be read from the template",
        )
    needed = before + drain
    if grace < needed:
        return warn(
            "GraceTooShort",
            f"terminationGracePeriodSeconds is {grace}, and a pod takes up to {needed:.0f} s to "
            f"end (preStop {before:.0f} s, --shutdown-timeout {drain:.0f} s): it would be "
            f"killed with answers unfinished; set {needed + 5:.0f} at least",
        )
    if drain == 0:
        return warn(
            "NoDrain",
            "--shutdown-timeout is 0, which is vLLM's default: requests in flight are aborted when "
            "a pod ends, also at promotion; set it to what the longest answer takes, and "
            "terminationGracePeriodSeconds above it",
        )
    return passed(f"a pod has {grace} s to end and takes up to {needed:.0f} s")


def prestop_seconds(container: Mapping[str, Any]) -> float | None:
    """Seconds that the preStop hook takes: 0 without one, None where it cannot be told."""
    hook = (container.get("lifecycle") or {}).get("preStop") or {}
    if not hook:
        return 0.0
    if "sleep" in hook:
        return float(hook["sleep"].get("seconds", 0))
    words = " ".join(str(w) for w in (hook.get("exec") or {}).get("command") or ())
    found = [float(s) for s in _SLEEP.findall(words)]
    return sum(found) if found else None


def _drain_seconds(t: Trial) -> int | None:
    """Seconds for what is in flight: 0 without the flag; None where it cannot be read."""
    options = t.candidate.options
    if options.is_unread("shutdown-timeout"):
        return None
    text = options.text("shutdown-timeout")
    return 0 if text is None else options.number("shutdown-timeout")
