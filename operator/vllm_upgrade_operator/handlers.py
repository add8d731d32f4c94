"""kopf wiring, nothing else: one daemon per upgrade, and what wakes it.

kopf writes nothing of ours: a patch of its own that fails would end a daemon for ever, while an
error in a handler is tried again. So no handler uses kopf's `patch` or returns a value.
"""

from __future__ import annotations

import dataclasses
import os
import time
from typing import TYPE_CHECKING

import kopf
import structlog

from vllm_upgrade_operator.api.v1alpha1 import GROUP, PLURAL, VERSION
from vllm_upgrade_operator.cluster.loop import UpgradeLoop
from vllm_upgrade_operator.upgrade.decision import Notice
from vllm_upgrade_operator.upgrade.names import DOMAIN, FINALIZER, ROLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.events import Events
    from vllm_upgrade_operator.cluster.reconcile import Reconciler
    from vllm_upgrade_operator.cluster.wake import Loops
    from vllm_upgrade_operator.telemetry.metrics import Telemetry

# A finalizer must never block for ever. A decision lets a deleted upgrade go by deadlines of its
# own; where nothing can be decided or done any more it is let go as it is after so long.
RELEASE_SECONDS = 300.0

_WATCH_SECONDS = 290
_STOP_SECONDS = 30.0
_FIRST_BACKOFF_SECONDS = 1.0
_LONGEST_BACKOFF_SECONDS = 30.0

log = structlog.get_logger(__name__)


class _Backoffs:
    """Waits between kopf's own attempts: growing to a limit, without an end."""

    def __iter__(self) -> Iterator[float]:
        wait = _FIRST_BACKOFF_SECONDS
        while True:
            yield wait
            wait = min(2 * wait, _LONGEST_BACKOFF_SECONDS)


class _NoDiffBase(kopf.DiffBaseStorage):
    """Keeps no copy of the last spec in an annotation: nothing here depends on differences."""

    def fetch(self, *, body: kopf.Body) -> None:
        """There is never an earlier one."""

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Nothing is kept."""


def kopf_settings() -> kopf.OperatorSettings:
    """How kopf behaves."""
    chosen = kopf.OperatorSettings()
    chosen.scanning.disabled = True
    chosen.posting.enabled = False
    chosen.persistence.finalizer = FINALIZER
    chosen.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=DOMAIN)
    chosen.persistence.diffbase_storage = _NoDiffBase()
    chosen.networking.error_backoffs = _Backoffs()
    chosen.watching.server_timeout = _WATCH_SECONDS
    chosen.watching.client_timeout = _WATCH_SECONDS + 10
    chosen.watching.label_selectors["v1", "pods"] = ROLE
    return chosen


class Handlers:
    """The handlers, and what they work with."""

    def __init__(
        self,
        *,
        client: Client,
        reconciler: Reconciler,
        events: Events,
        telemetry: Telemetry,
        loops: Loops,
    ) -> None:
        self._client = client
        self._reconciler = reconciler
        self._events = events
        self._telemetry = telemetry
        self._loops = loops

    def registry(self) -> kopf.OperatorRegistry:
        """Give kopf its handlers."""
        registry = kopf.OperatorRegistry()
        upgrades = (GROUP, VERSION, PLURAL)
        kopf.on.login(registry=registry)(login)
        kopf.daemon(*upgrades, registry=registry, id="upgrade", cancellation_timeout=_STOP_SECONDS)(
            self.upgrade
        )
        kopf.on.delete(*upgrades, registry=registry, id="release")(self.release)
        kopf.on.event(*upgrades, registry=registry)(self.upgrade_event)
        kopf.on.event("v1", "pods", labels={ROLE: kopf.PRESENT}, registry=registry)(self.pod_event)
        kopf.on.event("apps", "v1", "deployments", registry=registry)(self.deployment_event)
        return registry

    async def upgrade(
        self,
        *,
        namespace: str | None,
        name: str,
        uid: str,
        stopped: kopf.DaemonStopped,
        **_: object,
    ) -> None:
        """Look after one upgrade until it is deleted or the operator ends."""
        loop = self._loop(namespace or "", name, uid)
        while not stopped:
            if (await loop.tick()).gone:
                self._forget(uid)
                return
            await loop.wait(stopped)

    async def release(self, *, namespace: str | None, name: str, uid: str, **_: object) -> None:
        """Put everything in order before a deleted upgrade goes; in bounded time."""
        loop = self._loop(namespace or "", name, uid)
        while True:
            outcome = await loop.tick()
            if outcome.gone or outcome.released:
                break
            refused_seconds, error = loop.refused(time.monotonic())
            if refused_seconds > RELEASE_SECONDS:
                await self._give_up(namespace or "", name, uid, error)
                break
            await loop.wait()
        self._forget(uid)

    async def _give_up(self, namespace: str, name: str, uid: str, error: str) -> None:
        message = (
            f"the deleted upgrade is let go, for nothing has worked for {RELEASE_SECONDS:.0f} s: "
            f"look at the target's template and for a Deployment of the canary. {error}"
        )
        log.error("released unfinished", namespace=namespace, upgrade=name, message=message)
        metadata = {"namespace": namespace, "name": name, "uid": uid}
        notice = Notice(type="Warning", reason="ReleasedUnfinished", message=message)
        await self._events.post({"metadata": metadata}, None, [notice])

    async def upgrade_event(
        self,
        *,
        type: str | None,  # noqa: A002 - kopf's name
        uid: str,
        body: kopf.Body,
        **_: object,
    ) -> None:
        """Wake an upgrade that was changed by a person; forget one that is gone."""
        if type == "DELETED":
            # Also where somebody took our finalizer off, so that nothing was released.
            self._forget(uid)
        else:
            self._loops.upgrade_changed(body)

    async def pod_event(self, *, body: kopf.Body, **_: object) -> None:
        """Wake the upgrade that a pod belongs to."""
        self._loops.pod_changed(body)

    async def deployment_event(self, *, body: kopf.Body, **_: object) -> None:
        """Wake the upgrade of a target or canary."""
        self._loops.deployment_changed(body)

    def _loop(self, namespace: str, name: str, uid: str) -> UpgradeLoop:
        """The loop of an upgrade: the same for its daemon and its deletion."""
        loop = self._loops.find(uid)
        if loop is None:
            loop = UpgradeLoop(
                namespace=namespace,
                name=name,
                uid=uid,
                client=self._client,
                reconciler=self._reconciler,
                telemetry=self._telemetry,
            )
            self._loops.add(loop)
        return loop

    def _forget(self, uid: str) -> None:
        self._loops.remove(uid)
        self._telemetry.forget(uid)


def login(*, settings: kopf.OperatorSettings, **_: object) -> kopf.ConnectionInfo | None:
    """In a cluster as the ServiceAccount, else as kubectl would.

    The API server's address comes from the pod's environment, as client-go takes it; kopf's own
    way needs a DNS that knows `kubernetes.default.svc`.
    """
    account = kopf.login_with_service_account(settings=settings)
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if account is None or host is None:
        return account or kopf.login_with_kubeconfig(settings=settings)
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"[{host}]" if ":" in host else host
    return dataclasses.replace(account, server=f"https://{address}:{port}")
