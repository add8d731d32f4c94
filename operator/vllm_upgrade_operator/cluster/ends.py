"""Finding out why a container ended: from its log and from the Events about it. Read once each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.look import LOG_NOT_THERE, LOG_SECONDS
from vllm_upgrade_operator.cluster.pods import last_end, named
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.upgrade.probes import startup_budget
from vllm_upgrade_operator.upgrade.times import seconds
from vllm_upgrade_operator.vllm.causes import Ending, Probe, of_end
from vllm_upgrade_operator.vllm.logs import lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.look import SeenPod
    from vllm_upgrade_operator.cluster.memory import Memory
    from vllm_upgrade_operator.vllm.causes import Cause

LOG_LINES = 4000
"""How many of the last lines are read: a traceback of each worker has to fit."""
LOG_LIMIT_BYTES = 2 * 1024 * 1024
"""How much of them is read."""
_EVENTS = 100

# The kubelet's words (pkg/kubelet/kuberuntime/kuberuntime_manager.go).
_KILLED = re.compile(r"Container (?P<name>\S+) failed (?P<probe>startup|liveness) probe")


@dataclass(frozen=True, slots=True)
class _Run:
    """One run of a container that has ended."""

    seen: SeenPod
    end: Mapping[str, Any]

    @property
    def key(self) -> str:
        """Names the run among those of its pod."""
        return f"{self.end.get('containerID')}/{self.end.get('finishedAt')}"

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return str(self.seen.raw["metadata"]["namespace"])


async def explained(client: Client, seen: SeenPod, memory: Memory) -> SeenPod:
    """Add why the vLLM container ended, where it has.

    Raises:
        ApiError: The log or the Events could not be read for another reason than that they are
            not there.
    """
    pod = seen.pod
    run = _Run(seen, last_end(seen.raw, seen.container))
    if pod.exit_code is None or pod.terminating or pod.ended:
        return seen
    cause = memory.end(pod.uid, run.key)
    if cause is None:
        cause = await _cause(client, run)
        memory.remember_end(pod.uid, run.key, cause)
    return replace(seen, pod=replace(pod, end=cause))


async def _cause(client: Client, run: _Run) -> Cause:
    containers = run.seen.raw["spec"].get("containers")
    return of_end(
        Ending(
            exit_code=int(run.end["exitCode"]),
            reason=run.end.get("reason"),
            message=run.end.get("message"),
            probe=await _probe(client, run),
            budget_seconds=startup_budget(named(containers, run.seen.container)),
            log=await _log(client, run),
        )
    )


async def _log(client: Client, run: _Run) -> str | None:
    """The end of the log of this run, and of no other.

    The kubelet may have started the container again between what was read of the pod and now, and
    again: so the run is found by the time of its lines, in the present log and the one before.
    """
    logs = await together(_read(client, run, previous) for previous in ("true", "false"))
    found = [log for log in logs if log is not None]
    if not found:
        return None
    began, ended = (_moment(run.end.get(name)) for name in ("startedAt", "finishedAt"))
    # Both times are in whole seconds.
    return "\n".join(
        line
        for log in found
        for at, line in _stamped(log)
        if (began is None or at >= began) and (ended is None or at < ended + 1.0)
    )


async def _read(client: Client, run: _Run, previous: str) -> str | None:
    try:
        return await client.text(
            paths.log(run.namespace, run.seen.pod.name),
            limit_bytes=LOG_LIMIT_BYTES,
            seconds=LOG_SECONDS,
            container=run.seen.container,
            previous=previous,
            timestamps="true",
            tailLines=LOG_LINES,
            limitBytes=LOG_LIMIT_BYTES,
        )
    except ApiError as error:
        if error.status not in LOG_NOT_THERE:
            raise
        return None


def _stamped(log: str) -> Iterator[tuple[float, str]]:
    """Give the lines of a log with their times; what has none, as a line cut off, is left out."""
    for line in lines(log):
        stamp, _, rest = line.partition(" ")
        try:
            yield seconds(stamp), rest
        except ValueError:
            continue


def _moment(text: str | None) -> float | None:
    return None if text is None else seconds(text)


async def _probe(client: Client, run: _Run) -> Probe | None:
    """The probe that the kubelet killed this run for, if it says so.

    Its Event is written before the process is ended. One of an earlier run is older than this one.
    """
    found = await client.get(
        paths.events(run.namespace),
        fieldSelector=f"regarding.uid={run.seen.pod.uid},reason=Killing",
        limit=_EVENTS,
    )
    began = _moment(run.end.get("startedAt")) or 0.0
    latest: tuple[float, Probe] | None = None
    for event in found["items"]:
        match = _KILLED.match(event.get("note") or "")
        at = _when(event)
        if match is None or match["name"] != run.seen.container or at is None or at < began:
            continue
        if latest is None or at >= latest[0]:
            latest = at, Probe(match["probe"])
    return None if latest is None else latest[1]


def _when(event: Mapping[str, Any]) -> float | None:
    """When it was last seen; an Event that is counted up keeps its first time elsewhere."""
    series = event.get("series") or {}
    text = (
        series.get("lastObservedTime")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
    )
    return _moment(text)
