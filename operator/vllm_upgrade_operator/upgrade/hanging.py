"""An engine that has requests and makes nothing of them, while its server says that it is healthy.

vLLM's `/health` answers 200 while the engine hangs, and no latency is observed of a request that
never ends: what shows is only that requests are running or waiting and nothing comes of them.
A long prefill is none of it: its prompt takes up more of the KV cache from step to step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_upgrade_operator.api.v1alpha1 import Stall
from vllm_upgrade_operator.judge.words import plural
from vllm_upgrade_operator.upgrade.flow import remember
from vllm_upgrade_operator.upgrade.times import rfc3339, seconds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.judge.counters import Delta
    from vllm_upgrade_operator.upgrade.observation import Pod

LOOKS = 6
"""Looks in a row that must show it: compiling kernels at the first requests takes a while."""
SECONDS = 10.0
"""How long it must last, however short the interval is."""
_REMEMBERED = 64


def watch(
    pods: Iterable[Pod], status: VLLMUpgradeStatus, now: float
) -> tuple[VLLMUpgradeStatus, tuple[str, str] | None]:
    """Follow pods over the looks; give reason and message of the first one that hangs.

    A look that failed says nothing: neither that a pod hangs nor that it does not.

    Args:
        pods: The candidate's pods that serve, as looked at now.
        status: What is remembered of them.
        now: The time.
    """
    known = {stall.pod: stall for stall in status.progress.stalls}
    stalls: list[Stall] = []
    found: tuple[str, str] | None = None
    for pod in pods:
        before = known.get(pod.uid)
        stall = before if pod.delta is None else _next(pod.uid, pod.delta, before, now)
        if stall is None:
            continue
        stalls.append(stall)
        lasted = now - seconds(stall.since)
        if found is None and stall.looks >= LOOKS and lasted >= SECONDS:
            found = "EngineHung", _words(pod, lasted)
    return remember(status, stalls=tuple(stalls[:_REMEMBERED])), found


def _next(uid: str, delta: Delta, before: Stall | None, now: float) -> Stall | None:
    if delta.running is None or delta.waiting is None or delta.running + delta.waiting <= 0:
        return None
    tokens = (delta.generation_tokens, delta.prompt_tokens)
    if None in tokens or any(tokens):
        return None
    cache = round(1000 * (delta.kv_usage or 0.0))
    if before is None:
        # The span of this look may have begun without a request: it counts from now on.
        return Stall(pod=uid, since=rfc3339(now), looks=1, cache=cache)
    if cache > before.cache:
        return None
    return before.model_copy(update={"looks": before.looks + 1})


def _words(pod: Pod, lasted: float) -> str:
    running = 0.0 if pod.delta is None else pod.delta.running or 0.0
    waiting = 0.0 if pod.delta is None else pod.delta.waiting or 0.0
    return (
        f"{pod.name} has {plural(running, 'request')} running and {waiting:.0f} waiting and made "
        f"no token for {lasted:.0f} s, though its server answers: its engine hangs; look at its log"
    )
