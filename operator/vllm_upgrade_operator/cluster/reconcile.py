"""One reconcile: needs, gather, decide, execute, status, Events. One decision and one write."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog

from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import JSON_PATCH, ApiError
from vllm_upgrade_operator.cluster.execute import Executor
from vllm_upgrade_operator.cluster.gather import gather, read_upgrade
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.upgrade.decide import ENDED, decide, needs
from vllm_upgrade_operator.upgrade.names import FIELD_MANAGER, canary_name

if TYPE_CHECKING:
    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeStatus
    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.events import Events
    from vllm_upgrade_operator.cluster.gather import Upgrade
    from vllm_upgrade_operator.cluster.look import Looker
    from vllm_upgrade_operator.cluster.memory import Memory
    from vllm_upgrade_operator.telemetry.metrics import Telemetry
    from vllm_upgrade_operator.upgrade.decision import Decision
    from vllm_upgrade_operator.upgrade.observation import Observation

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a reconcile came to."""

    gone: bool = False
    """The VLLMUpgrade is not there any more."""
    released: bool = False
    """It is being deleted, and nothing of it is left in the cluster."""
    requeue_seconds: float | None = None
    """When to come back without being woken."""
    pods: frozenset[str] = frozenset()
    """UIDs of the pods that it depends on."""
    deployments: frozenset[str] = frozenset()
    """Names of the Deployments that it depends on."""


class Reconciler:
    """Reconciles upgrades, one call each."""

    def __init__(
        self, client: Client, looker: Looker, events: Events, telemetry: Telemetry
    ) -> None:
        self._client = client
        self._looker = looker
        self._events = events
        self._telemetry = telemetry

    async def reconcile(self, namespace: str, name: str, uid: str, memory: Memory) -> Outcome:
        """Look at an upgrade once and do what is due.

        Raises:
            ApiError: The API server refused something or did not answer.
            OutdatedError: Something changed meanwhile; look again.
            UnreadableError: The object is of another version than this operator.
        """
        upgrade = await read_upgrade(self._client, namespace, name)
        if upgrade is None or upgrade.metadata["uid"] != uid:
            return Outcome(gone=True)
        needed = needs(upgrade.spec, upgrade.status, time.time())
        observation = await gather(self._client, self._looker, memory, upgrade, needed)
        decision = decide(observation, upgrade.status, time.time())
        self._telemetry.phase(uid, str(upgrade.status.phase))
        over = decision.status.phase in ENDED
        self._telemetry.runners(uid, None if over else decision.status.runners)
        executor = Executor(self._client, upgrade.raw)
        for action in decision.actions:
            log.info(
                "action",
                namespace=namespace,
                upgrade=name,
                phase=str(decision.status.phase),
                action=type(action).__name__,
                pod=getattr(action, "pod", None),
            )
            try:
                await executor.execute(action)
            except ApiError as error:
                memory.action_failed(type(action).__name__, error)
                raise
        memory.actions_done()
        await self.write_status(upgrade, decision.status)
        await self._tell(upgrade, observation, decision)
        return _outcome(observation, decision)

    async def write_status(self, upgrade: Upgrade, status: VLLMUpgradeStatus) -> None:
        """Write a status that differs from the present one.

        Raises:
            ApiError: It could not be written.
            OutdatedError: The object changed since it was read.
        """
        if status == upgrade.status:
            return
        metadata = upgrade.metadata
        path = paths.upgrade(metadata["namespace"], metadata["name"])
        version = metadata["resourceVersion"]
        try:
            await self._client.patch(
                path + "/status",
                [
                    {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                    {
                        "op": "add",
                        "path": "/status",
                        "value": status.model_dump(mode="json", by_alias=True, exclude_none=True),
                    },
                ],
                JSON_PATCH,
                fieldManager=FIELD_MANAGER,
            )
        except ApiError as error:
            # A failed `test` and a refused status are both a 422: only a look can tell.
            if error.status in (409, 422):
                present = await self._client.find(path)
                if present is None or present["metadata"]["resourceVersion"] != version:
                    raise OutdatedError("the VLLMUpgrade was written meanwhile") from error
            raise

    async def _tell(self, upgrade: Upgrade, o: Observation, decision: Decision) -> None:
        if decision.status.phase != upgrade.status.phase:
            for notice in decision.notices:
                log.info(
                    "transition",
                    namespace=o.namespace,
                    upgrade=o.name,
                    phase=str(decision.status.phase),
                    reason=notice.reason,
                    message=notice.message,
                )
                self._telemetry.transitions.labels(str(decision.status.phase), notice.reason).inc()
        target = None if o.target is None else (o.target.name, o.target.uid)
        await self._events.post(upgrade.raw, target, decision.notices)


def _outcome(o: Observation, decision: Decision) -> Outcome:
    if decision.requeue_seconds is None:
        # It has ended: what its target does from now on is no concern of it.
        return Outcome(released=decision.released)
    pods: list[Any] = [*(o.target.pods if o.target else ()), *(o.canary.pods if o.canary else ())]
    target = o.spec.target_ref.name
    return Outcome(
        released=decision.released,
        requeue_seconds=decision.requeue_seconds,
        pods=frozenset(p.uid for p in pods),
        deployments=frozenset({target, canary_name(target)}),
    )
