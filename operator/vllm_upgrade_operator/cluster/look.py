"""Looking at a running pod: its version, its runner, its counters. Read-only and bounded.

A failure is a finding of its own (`scrape_error`, or a value that stays None); it never stands in
for a value.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.judge.counters import (
    Break,
    BreakReason,
    break_between,
    delta,
    settled,
)
from vllm_upgrade_operator.upgrade.evidence import recalled
from vllm_upgrade_operator.upgrade.health import is_ready
from vllm_upgrade_operator.upgrade.scrapes import ScrapeProblem, ScrapeReason
from vllm_upgrade_operator.vllm import metrics, runnermetric, versions
from vllm_upgrade_operator.vllm.client import (
    BadAnswerError,
    BadStatusError,
    RedirectedError,
    TimedOutError,
    TooLargeError,
    TruncatedError,
    VLLMError,
)
from vllm_upgrade_operator.vllm.container import metrics_port, scheme
from vllm_upgrade_operator.vllm.exposition import MalformedExpositionError
from vllm_upgrade_operator.vllm.model import read_model
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, observe
from vllm_upgrade_operator.vllm.runnermetric import agreed
from vllm_upgrade_operator.vllm.startup import startup_phase

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.memory import Memory, Process
    from vllm_upgrade_operator.judge.counters import Sample
    from vllm_upgrade_operator.telemetry.metrics import Telemetry
    from vllm_upgrade_operator.upgrade.observation import Pod
    from vllm_upgrade_operator.vllm.client import VLLMClient

LOG_LIMIT_BYTES = 1024 * 1024
"""How much of a log is read, from the container's start: vLLM says its runner early."""
LOG_SECONDS = 5.0
"""How long that may take: for a node that is gone the API server waits, and harm elsewhere must not
wait with it."""
_LEAST_SECONDS = 1.0
"""What a scrape may take in any case: on a busy node a pod answers late, not never."""
AT_ONCE = 16
"""How many pods are asked at the same time."""
LOG_NOT_THERE = frozenset({0, 400, 404, 500, 502, 503, 504})
"""Statuses of a log that cannot be had. 0 is no answer in time, as from a node that is gone; where
it is the API server that does not answer, the next call of it says so."""


@dataclass(frozen=True, slots=True)
class SeenPod:
    """A pod as read, and as the API server gave it."""

    pod: Pod
    raw: Mapping[str, Any]
    container: str


class Looks(Protocol):
    """Who asks pods."""

    async def look(
        self, pods: Iterable[SeenPod], memory: Memory, *, scrape_seconds: float | None
    ) -> tuple[Pod, ...]:
        """Add what the pods themselves say."""


class Looker:
    """Asks pods; one for the whole operator, so that what is asked at once stays bounded."""

    def __init__(self, client: Client, vllm: VLLMClient, telemetry: Telemetry) -> None:
        self._client = client
        self._vllm = vllm
        self._telemetry = telemetry
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def look(
        self, pods: Iterable[SeenPod], memory: Memory, *, scrape_seconds: float | None
    ) -> tuple[Pod, ...]:
        """Add what the pods themselves say.

        Args:
            pods: Whom to ask.
            memory: What is known of them from earlier looks.
            scrape_seconds: Ask for their counters too, and when the next look is due: a pod that
                takes longer must not put that off.

        Raises:
            ApiError: A log could not be read for another reason than that it is not there.
        """
        limit = None if scrape_seconds is None else max(_LEAST_SECONDS, scrape_seconds)
        return tuple(await together(self._one(p, memory, limit) for p in pods))

    async def _one(self, seen: SeenPod, memory: Memory, limit: float | None) -> Pod:
        pod = seen.pod
        if pod.started_at is None:
            return pod
        process = memory.process(pod.uid, pod.started_at)
        async with self._slots:
            await self._read_log(seen, process)
            pod = replace(
                pod,
                runner=process.runner,
                model=process.model,
                startup_phase=None if is_ready(pod) else process.startup_phase,
            )
            try:
                endpoint = _endpoint(seen)
            except _NotScrapedError as error:
                problem = ScrapeProblem(ScrapeReason.NOT_ALLOWED, str(error))
                return replace(pod, scrape_error=None if limit is None else problem)
            if is_ready(pod) and process.version is None:
                process.version = await self._version(endpoint)
            pod = replace(pod, version=process.version)
            if limit is None or pod.terminating:
                if is_ready(pod):
                    await self._ask_for_runner(process, endpoint)
                return replace(pod, runner=process.runner)
            return await self._scrape(pod, process, endpoint, limit)

    async def _read_log(self, seen: SeenPod, process: Process) -> None:
        now = time.time()
        pod = seen.pod
        if pod.terminating or not process.log_is_due(now):
            return
        process.log_read_at = now
        try:
            log = await self._client.text(
                paths.log(seen.raw["metadata"]["namespace"], pod.name),
                limit_bytes=LOG_LIMIT_BYTES,
                seconds=LOG_SECONDS,
                container=seen.container,
                limitBytes=LOG_LIMIT_BYTES,
            )
        except ApiError as error:
            # The pod is gone, or its node does not answer: its runner is not known (any more).
            if error.status not in LOG_NOT_THERE:
                raise
            self._telemetry.log_reads.labels("error").inc()
            how = f"its log could not be read: {error.status} {error.reason}"
            process.logged = recalled(pod) or RunnerEvidence(runner=Runner.UNKNOWN, how=how)
            process.runner = agreed(process.exported, process.logged)
            return
        self._telemetry.log_reads.labels("ok").inc()
        process.startup_phase = startup_phase(log)
        process.model = read_model(log)
        found = observe(log)
        if found.runner is not Runner.UNKNOWN:
            found = replace(found, seen_at=now)
        elif not found.conflicting:
            found = recalled(pod) or found
        process.logged = found
        process.runner = agreed(process.exported, found)

    async def _version(self, endpoint: _Endpoint) -> str | None:
        address, port, scheme = endpoint
        try:
            return await self._vllm.version(address, port, scheme=scheme)
        except VLLMError:
            return None

    async def _ask_for_runner(self, process: Process, endpoint: _Endpoint) -> None:
        """Look for our plugin's metric where the log does not say the runner (any more)."""
        if process.runner is not None and process.runner.runner is not Runner.UNKNOWN:
            return
        address, port, scheme = endpoint
        try:
            text = await self._vllm.metrics(address, port, scheme=scheme)
            _note_exported(process, text, time.time())
        except VLLMError:
            # What it says stays unknown; a scrape for its counters says what is wrong.
            return

    async def _scrape(self, pod: Pod, process: Process, endpoint: _Endpoint, limit: float) -> Pod:
        address, port, scheme = endpoint
        try:
            text = await self._vllm.metrics(address, port, seconds=limit, scheme=scheme)
            # Off the event loop: the answer of a large fleet's pod is hundreds of kilobytes.
            sample = await asyncio.to_thread(
                metrics.parse,
                text,
                taken_at=time.monotonic(),
                version=_parsed_version(process.version),
            )
        except (VLLMError, MalformedExpositionError, metrics.NotVLLMError) as error:
            problem = ScrapeProblem(_reason(error), _words(error, endpoint))
            self._telemetry.scrapes.labels(str(problem.reason)).inc()
            # The next delta reaches back over the look that failed: nothing is lost.
            return replace(pod, scrape_error=problem)
        self._telemetry.scrapes.labels("ok").inc()
        _note_exported(process, text, time.time())
        before = process.sample
        process.sample = sample = sample if before is None else settled(before, sample)
        lost = _lost(process, before, sample)
        if lost is not None:
            self._telemetry.lost_looks.labels(str(lost.reason)).inc()
        busy = (
            None
            if sample.running is None or sample.waiting is None
            else sample.running + sample.waiting
        )
        return replace(
            pod,
            runner=process.runner,
            delta=None if before is None else delta(before, sample),
            lost=lost,
            # The counter knows a request when it is answered: a server that answers none would
            # never count as having been offered any.
            offered=None if sample.offered is None else sample.offered + (busy or 0.0),
            failed=_failed(sample),
            in_flight=busy,
        )


def _note_exported(process: Process, exposition: str, now: float) -> None:
    """Note what a pod exports of its runner; it is the same for as long as its process lives."""
    if process.exported is not None or runnermetric.NAME not in exposition:
        return
    found = runnermetric.exported(exposition)
    if found is not None:
        process.exported = replace(found, seen_at=now)
        process.runner = agreed(process.exported, process.logged)


_REASONS: dict[type[Exception], ScrapeReason] = {
    TimedOutError: ScrapeReason.TIMEOUT,
    TruncatedError: ScrapeReason.TRUNCATED,
    TooLargeError: ScrapeReason.TOO_LARGE,
    RedirectedError: ScrapeReason.REDIRECTED,
    BadStatusError: ScrapeReason.BAD_STATUS,
    BadAnswerError: ScrapeReason.MALFORMED,
    MalformedExpositionError: ScrapeReason.MALFORMED,
    metrics.NotVLLMError: ScrapeReason.NOT_VLLM,
}


def _reason(error: Exception) -> ScrapeReason:
    return _REASONS.get(type(error), ScrapeReason.REFUSED)


def _words(error: Exception, endpoint: _Endpoint) -> str:
    """Say where and what; a parser's error does not know where."""
    if isinstance(error, VLLMError):
        return str(error)
    return f"{endpoint.address}:{endpoint.port}{error}"


def _lost(process: Process, before: Sample | None, sample: Sample) -> Break | None:
    """Say why nothing is known of the time since the last look; None in a pod's first one too."""
    if before is not None:
        return break_between(before, sample)
    if process.restarted:
        return Break(BreakReason.RESTARTED, "its container was started anew")
    return None


def _failed(sample: Sample) -> float | None:
    """Server errors that are not known to be rejections: without a counter of them none is."""
    if sample.errors is None or not sample.rejections_approximate:
        return sample.errors
    return max(sample.errors, sample.rejected or 0.0)


class _Endpoint(NamedTuple):
    """Where a pod is asked, by `http` or `https`."""

    address: str
    port: int
    scheme: str


class _NotScrapedError(Exception):
    """A pod may not be asked; the text says why and what would help."""


def _endpoint(seen: SeenPod) -> _Endpoint:
    """Where a pod is asked: on its own address, on a port that its vLLM container declares."""
    spec, status = seen.raw["spec"], seen.raw.get("status") or {}
    if spec.get("hostNetwork"):
        raise _NotScrapedError("pods with hostNetwork: true are not scraped")
    address = status.get("podIP")
    if not address:
        raise _NotScrapedError("the pod has no address yet")
    container = next(c for c in spec["containers"] if c["name"] == seen.container)
    port = metrics_port(container)
    declared = {int(p["containerPort"]) for p in container.get("ports") or ()}
    if port not in declared:
        raise _NotScrapedError(
            f"container {seen.container} serves on port {port} but does not declare it: add "
            f"containerPort {port} to its ports"
        )
    return _Endpoint(str(address), port, scheme(container))


def _parsed_version(text: str | None) -> versions.Version | None:
    if text is None:
        return None
    try:
        return versions.parse_version(text)
    except versions.VersionError:
        # A build of one's own: nothing may be assumed that depends on the version.
        return None
