"""Looking at pods through the API server alone: what their logs say, and nothing else.

For who is outside the pods' network, as a command line on a laptop is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.look import (
    AT_ONCE,
    LOG_LIMIT_BYTES,
    LOG_NOT_THERE,
    LOG_SECONDS,
)
from vllm_upgrade_operator.cluster.together import together
from vllm_upgrade_operator.upgrade.evidence import recalled
from vllm_upgrade_operator.upgrade.names import VERSION
from vllm_upgrade_operator.vllm.model import read_model, read_version
from vllm_upgrade_operator.vllm.runner import Runner, RunnerEvidence, observe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.look import SeenPod
    from vllm_upgrade_operator.cluster.memory import Memory
    from vllm_upgrade_operator.upgrade.observation import Pod


class LogLooker:
    """Reads pods' logs."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def look(
        self, pods: Iterable[SeenPod], memory: Memory, *, scrape_seconds: float | None
    ) -> tuple[Pod, ...]:
        """Add what the logs of the pods say; nothing is remembered or scraped.

        Raises:
            ApiError: A log could not be read for another reason than that it is not there or may
                not be read.
        """
        del memory, scrape_seconds
        return tuple(await together(self._one(p) for p in pods))

    async def _one(self, seen: SeenPod) -> Pod:
        pod = seen.pod
        if pod.started_at is None:
            return pod
        async with self._slots:
            try:
                log = await self._client.text(
                    paths.log(seen.raw["metadata"]["namespace"], pod.name),
                    limit_bytes=LOG_LIMIT_BYTES,
                    seconds=LOG_SECONDS,
                    container=seen.container,
                    limitBytes=LOG_LIMIT_BYTES,
                )
            except ApiError as error:
                if error.status not in LOG_NOT_THERE and not error.unauthorized:
                    raise
                how = f"its log could not be read: {error.status} {error.reason}"
                missing = recalled(pod) or RunnerEvidence(runner=Runner.UNKNOWN, how=how)
                return replace(pod, runner=missing, version=pod.labels.get(VERSION))
        found = observe(log)
        if found.runner is Runner.UNKNOWN and not found.conflicting:
            found = recalled(pod) or found
        return replace(
            pod,
            runner=found,
            model=read_model(log),
            # The log is of the process that runs; a label may be of one before it.
            version=read_version(log) or pod.labels.get(VERSION),
        )
