"""Ask the pods themselves: version, log, metrics. All bounded in size, time and number at once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.judge.counters import delta
from vllm_upgrade_operator.upgrade.names import ACTIVE_RUNNER, RUNNER_EVIDENCE
from vllm_upgrade_operator.vllm import containers, metrics
from vllm_upgrade_operator.vllm.client import VLLMError
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, observe
from vllm_upgrade_operator.vllm.startup import startup_phase
from vllm_upgrade_operator.vllm.versions import VersionError, parse_version

if TYPE_CHECKING:
    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.memory import Memory, Process
    from vllm_upgrade_operator.upgrade.observation import Pod
    from vllm_upgrade_operator.vllm.client import VLLMClient
    from vllm_upgrade_operator.vllm.versions import Version

    Object = dict[str, Any]

_AT_ONCE = 16
_LOG_BYTES = 1024 * 1024
_LOG_SECONDS = 5.0


class Prober:
    """Probes pods, a bounded number at once over all upgrades."""

    def __init__(self, client: Client, vllm: VLLMClient) -> None:
        self._client = client
        self._vllm = vllm
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def probe(  # noqa: PLR0913 - what a probe is made of
        self, memory: Memory, pod: Pod, raw: Object, container: str, *, look: bool, now: float
    ) -> Pod:
        """Give the pod with what it says of itself. What it does not say stays None."""
        if pod.started_at is None or pod.terminating:
            return pod
        process = memory.process(pod.uid, pod.started_at)
        if process.runner is None or process.runner.runner is Runner.UNKNOWN:
            _recall(process, pod)
        async with self._slots:
            if process.runner is None or process.runner.runner is Runner.UNKNOWN:
                await self._read_log(process, pod, raw, container)
            address = _address(raw, container)
            if pod.ready_at is None or address is None:
                return _with(pod, process)
            if process.version is None:
                await self._ask_version(process, address)
            if not look:
                return _with(pod, process)
            return await self._scrape(process, pod, address, now)

    async def _read_log(self, process: Process, pod: Pod, raw: Object, container: str) -> None:
        path = paths.core(raw["metadata"]["namespace"], "pods", f"{pod.name}/log")
        try:
            text = await self._client.text(
                path,
                limit_bytes=_LOG_BYTES,
                seconds=_LOG_SECONDS,
                container=container,
                limitBytes=_LOG_BYTES,
            )
        except ApiError as error:
            how = f"its log could not be read ({error.status} {error.reason})"
            process.runner = RunnerEvidence(runner=Runner.UNKNOWN, how=how)
            return
        process.runner = observe(text)
        process.startup_phase = startup_phase(text)

    async def _ask_version(self, process: Process, address: tuple[str, int]) -> None:
        try:
            process.version = await self._vllm.version(*address)
        except VLLMError:
            # Asked again at the next look; until then it is not known, and that is shown.
            process.version = None

    async def _scrape(
        self, process: Process, pod: Pod, address: tuple[str, int], now: float
    ) -> Pod:
        before, process.sample = process.sample, None
        try:
            text = await self._vllm.metrics(*address)
            sample = await asyncio.to_thread(
                metrics.parse, text, taken_at=now, version=_version(process.version)
            )
        except (VLLMError, MalformedExpositionError) as error:
            # The older sample is kept, so that what happened in between is counted next time.
            process.sample = before
            return replace(_with(pod, process), scrape_error=str(error)[:200])
        process.sample = sample
        busy = [n for n in (sample.running, sample.waiting) if n is not None]
        return replace(
            _with(pod, process),
            delta=None if before is None else delta(before, sample),
            offered=sample.offered,
            in_flight=sum(busy) if busy else None,
        )


def _with(pod: Pod, process: Process) -> Pod:
    sample = process.sample
    return replace(
        pod,
        version=process.version,
        runner=process.runner,
        startup_phase=process.startup_phase,
        offered=None if sample is None else sample.offered,
    )


def _recall(process: Process, pod: Pod) -> None:
    """Take the runner from our own label: after hours, a log may have lost its beginning.

    Only for a container that has never been restarted: the label was put on for that process.
    """
    label, how = pod.labels.get(ACTIVE_RUNNER), pod.annotations.get(RUNNER_EVIDENCE)
    if pod.restarts == 0 and how is not None and label in ("v1", "v2"):
        process.runner = RunnerEvidence(runner=Runner(label.upper()), how=how)


def _address(raw: Object, container: str) -> tuple[str, int] | None:
    """Where a pod serves: its own address, a declared port; never on the host's network."""
    spec, ip = raw["spec"], (raw.get("status") or {}).get("podIP")
    if not ip or spec.get("hostNetwork"):
        return None
    return str(ip), containers.port(spec, container)


def _version(text: str | None) -> Version | None:
    try:
        return None if text is None else parse_version(text)
    except VersionError:
        return None
