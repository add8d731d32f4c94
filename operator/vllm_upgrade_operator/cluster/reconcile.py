"""One reconcile: read the upgrade, look, decide, act, write status, tell."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
from vllm_upgrade_operator.cluster import events, paths
from vllm_upgrade_operator.cluster.client import JSON_PATCH, ApiError
from vllm_upgrade_operator.cluster.execute import Executor
from vllm_upgrade_operator.cluster.gather import gather, read_status
from vllm_upgrade_operator.cluster.memory import Memory
from vllm_upgrade_operator.upgrade.decide import decide, needs
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER
from vllm_upgrade_operator.upgrade.trouble import troubled

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.probe import Prober
    from vllm_upgrade_operator.telemetry.metrics import Telemetry
    from vllm_upgrade_operator.upgrade.decision import Decision

_log = structlog.get_logger(__name__)

_NOT_FOUND = 404
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0
# A few errors in a row are an API server that restarts, or two writers that met.
_TELL_AFTER = 3


class Reconciler:
    """Reconciles one upgrade. It remembers nothing that a restart may not lose."""

    def __init__(  # noqa: PLR0913 - what it works with
        self,
        client: Client,
        prober: Prober,
        telemetry: Telemetry,
        *,
        namespace: str,
        name: str,
        instance: str,
    ) -> None:
        self._client = client
        self._prober = prober
        self._telemetry = telemetry
        self._namespace = namespace
        self._name = name
        self._instance = instance
        self._memory = Memory()
        self._failures = 0
        self._log = _log.bind(namespace=namespace, upgrade=name)

    async def reconcile(self) -> tuple[float | None, bool]:
        """Reconcile once.

        Returns:
            Seconds until the next time (None: only when woken), and whether a deleted upgrade may
            go. An error is logged, counted and retried with a growing delay, and after a few in a
            row it is in status.
        """
        began = time.monotonic()
        try:
            requeue, released = await self._once()
        except (ApiError, ValidationError, ValueError) as error:
            return await self._failed(error), False
        finally:
            self._telemetry.reconciled(self._namespace, self._name, time.monotonic() - began)
        self._failures = 0
        return requeue, released

    async def _once(self) -> tuple[float | None, bool]:
        upgrade = await self._client.find(paths.upgrade(self._namespace, self._name))
        if upgrade is None:
            return None, True
        before = read_status(upgrade)
        now = time.time()
        wanted = needs(_spec(upgrade), before, now)
        observation = await gather(
            self._client, self._prober, self._memory, upgrade, wanted, now
        )
        decision = decide(observation, before, time.time())
        executor = Executor(self._client, observation)
        for action in decision.actions:
            self._log.info("acting", action=type(action).__name__)
            await executor.run(action)
        await self._write(upgrade, before, decision)
        for notice in decision.notices:
            await events.post(
                self._client, observation, notice, instance=self._instance, now=time.time()
            )
        self._tell(observation.looked, before, decision)
        return decision.requeue_seconds, decision.released

    async def _write(
        self, upgrade: dict[str, Any], before: VLLMUpgradeStatus, decision: Decision
    ) -> None:
        """Write status if it changed, unless somebody wrote the object since it was read."""
        if decision.status == before and "status" in upgrade:
            return
        version = upgrade["metadata"]["resourceVersion"]
        body = decision.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        await self._client.patch(
            f"{paths.upgrade(self._namespace, self._name)}/status",
            [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/status", "value": body},
            ],
            JSON_PATCH,
            fieldManager=FIELD_MANAGER,
        )

    def _tell(self, looked: bool, before: VLLMUpgradeStatus, decision: Decision) -> None:  # noqa: FBT001
        after = decision.status
        self._telemetry.seen(self._namespace, self._name, after)
        if before.phase != after.phase:
            self._telemetry.transition(after)
            self._log.info("phase", old=before.phase, new=after.phase, message=after.message)
        elif looked:
            self._log.debug("looked", verdict=after.verdict)

    async def _failed(self, error: Exception) -> float:
        self._failures += 1
        delay = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2 ** min(self._failures - 1, 10))
        self._telemetry.failed(type(error).__name__)
        self._log.warning(
            "reconcile failed", error=str(error)[:500], failures=self._failures, retry_in=delay
        )
        if self._failures >= _TELL_AFTER:
            await self._tell_trouble(error, delay)
        return delay

    async def _tell_trouble(self, error: Exception, delay: float) -> None:
        path = paths.upgrade(self._namespace, self._name)
        try:
            upgrade = await self._client.get(path)
            status = troubled(
                read_status(upgrade),
                str(error),
                failures=self._failures,
                generation=upgrade["metadata"]["generation"],
                now=time.time(),
                retry_seconds=delay,
            )
            body = status.model_dump(mode="json", by_alias=True, exclude_none=True)
            await self._client.patch(
                f"{path}/status",
                [{"op": "add", "path": "/status", "value": body}],
                JSON_PATCH,
                fieldManager=FIELD_MANAGER,
            )
        except (ApiError, ValidationError) as second:
            if not (isinstance(second, ApiError) and second.status == _NOT_FOUND):
                self._log.warning("status not written", error=str(second)[:500])


def _spec(upgrade: dict[str, Any]) -> VLLMUpgradeSpec:
    return VLLMUpgradeSpec.model_validate(upgrade["spec"])
