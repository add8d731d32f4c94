"""kopf wiring, nothing else: one daemon per upgrade, and what wakes it.

Nothing here decides, and nothing is handed to kopf to write: a failed write of kopf's own would
end a daemon for good, while an error inside a handler is retried.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import kopf
import structlog

from vllm_upgrade_operator.api.v1alpha1 import GROUP, PLURAL, VERSION
from vllm_upgrade_operator.cluster.reconcile import Reconciler
from vllm_upgrade_operator.upgrade.names import CANARY, DOMAIN, FINALIZER, ROLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.probe import Prober
    from vllm_upgrade_operator.telemetry.metrics import Telemetry

_log = structlog.get_logger(__name__)

_DEBOUNCE_SECONDS = 0.1
# A deletion that cannot be completed must not hold the object, and its namespace, for ever.
_DELETION_SECONDS = 600.0
_DELETION_POLL_SECONDS = 1.0
_WATCH_SECONDS = 300

Key = tuple[str, str]


class Wiring:
    """The daemons' shared state: what to work with, and whom to wake."""

    def __init__(
        self, client: Client, prober: Prober, telemetry: Telemetry, *, instance: str
    ) -> None:
        self._client = client
        self._prober = prober
        self._telemetry = telemetry
        self._instance = instance
        self._wake: dict[Key, asyncio.Event] = defaultdict(asyncio.Event)
        self._targets: dict[Key, str] = {}
        self._uids: dict[str, Key] = {}
        self._seen: dict[Key, object] = {}

    def registry(self) -> kopf.OperatorRegistry:
        """Give kopf's registry with all handlers."""
        registry = kopf.OperatorRegistry()
        upgrades = (GROUP, VERSION, PLURAL)
        kopf.on.startup(registry=registry)(self.startup)
        kopf.on.event(*upgrades, registry=registry)(self.upgrade_changed)
        kopf.daemon(
            *upgrades, registry=registry, cancellation_timeout=5.0, backoff=5.0, id="upgrade"
        )(self.upgrade)
        kopf.on.delete(*upgrades, registry=registry, id="delete")(self.deleted)
        kopf.on.event("", "v1", "pods", labels={ROLE: kopf.PRESENT}, registry=registry)(
            self.pod_changed
        )
        kopf.on.event("apps", "v1", "deployments", registry=registry)(self.deployment_changed)
        return registry

    async def startup(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        """Set kopf up for an operator that keeps all state in status."""
        settings.persistence.finalizer = FINALIZER
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=DOMAIN)
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=DOMAIN)
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.watching.server_timeout = _WATCH_SECONDS
        settings.watching.client_timeout = _WATCH_SECONDS + 10
        settings.networking.error_backoffs = _Endless()

    async def upgrade(
        self, namespace: str | None, name: str, stopped: kopf.DaemonStopped, **_: Any
    ) -> None:
        """Reconcile one upgrade for as long as it is there and not being deleted."""
        key = (namespace or "", name)
        reconciler = self._reconciler(key)
        while not stopped:
            self._wake[key].clear()
            self._telemetry.busy(*key)
            requeue, _released = await reconciler.reconcile()
            if requeue is None:
                self._telemetry.idle(*key)
            await self._sleep(key, requeue, stopped)
        self._telemetry.idle(*key)

    async def _sleep(
        self, key: Key, seconds: float | None, stopped: kopf.DaemonStopped
    ) -> None:
        """Wait until it is time, or something woke the upgrade, or the daemon is to stop."""
        wake = asyncio.create_task(self._wake[key].wait())
        stop = asyncio.create_task(stopped.wait())
        try:
            done, _ = await asyncio.wait(
                {wake, stop}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            wake.cancel()
            stop.cancel()
        if wake in done:
            # What belongs together comes together: a few pods change, one reconcile.
            await asyncio.sleep(_DEBOUNCE_SECONDS)

    async def deleted(
        self, namespace: str | None, name: str, meta: kopf.Meta, **_: Any
    ) -> None:
        """Put everything in order before a deleted upgrade goes, in bounded time."""
        key = (namespace or "", name)
        reconciler = self._reconciler(key)
        end = time.monotonic() + _DELETION_SECONDS
        while time.monotonic() < end:
            requeue, released = await reconciler.reconcile()
            if released:
                break
            pause = _DELETION_POLL_SECONDS if requeue is None else requeue
            await asyncio.sleep(min(max(pause, 0.1), _DELETION_POLL_SECONDS))
        else:
            _log.error(
                "deletion given up: the canary or the target may need a person",
                namespace=namespace,
                upgrade=name,
                seconds=_DELETION_SECONDS,
            )
        self._telemetry.gone(*key)
        self._targets.pop(key, None)
        self._wake.pop(key, None)
        self._seen.pop(key, None)
        self._uids.pop(str(meta.get("uid")), None)

    async def upgrade_changed(
        self, namespace: str | None, name: str, body: kopf.Body, **_: Any
    ) -> None:
        """Wake on what a person changed; our own writes of status are none of that."""
        key = (namespace or "", name)
        meta = body["metadata"]
        self._targets[key] = body["spec"]["targetRef"]["name"]
        self._uids[meta["uid"]] = key
        ours = {k: v for k, v in (meta.get("annotations") or {}).items() if k.startswith(DOMAIN)}
        seen = (meta.get("generation"), ours, meta.get("deletionTimestamp"))
        if self._seen.get(key) != seen:
            self._seen[key] = seen
            # Also those that wait for this one: it may have ended or gone.
            self._wake_target(key[0], self._targets[key])

    async def pod_changed(
        self, namespace: str | None, labels: kopf.Labels, meta: kopf.Meta, **_: Any
    ) -> None:
        """Wake the upgrades of a labelled pod's canary or target."""
        key = self._uids.get(labels.get(CANARY, ""))
        if key is not None:
            self._wake[key].set()
            return
        owners = [o["name"] for o in meta.get("ownerReferences") or []]
        # A ReplicaSet is called after its Deployment, with a hash.
        for owner in owners:
            self._wake_target(namespace or "", str(owner).rpartition("-")[0])

    async def deployment_changed(self, namespace: str | None, name: str, **_: Any) -> None:
        """Wake the upgrades of a target, or of a canary's target."""
        self._wake_target(namespace or "", name)
        self._wake_target(namespace or "", name.removesuffix("-canary"))

    def _wake_target(self, namespace: str, target: str) -> None:
        for key, name in self._targets.items():
            if key[0] == namespace and name == target:
                self._wake[key].set()

    def _reconciler(self, key: Key) -> Reconciler:
        return Reconciler(
            self._client,
            self._prober,
            self._telemetry,
            namespace=key[0],
            name=key[1],
            instance=self._instance,
        )


class _Endless:
    """Back-off of kopf's own requests that never gives up: 1, 2, 4 ... 30 seconds."""

    def __iter__(self) -> Any:
        delay = 1.0
        while True:
            yield delay
            delay = min(30.0, delay * 2)


