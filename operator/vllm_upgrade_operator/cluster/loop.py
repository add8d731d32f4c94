"""The life of one upgrade in this process: woken, reconciled, and never silent about a failure."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

import structlog

from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.cluster.gather import UnreadableError, read_upgrade
from vllm_upgrade_operator.cluster.memory import Memory
from vllm_upgrade_operator.cluster.outdated import OutdatedError
from vllm_upgrade_operator.cluster.reconcile import Outcome
from vllm_upgrade_operator.upgrade.trouble import (
    PERSISTENT_FAILURES,
    backoff_seconds,
    troubled,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.reconcile import Reconciler
    from vllm_upgrade_operator.telemetry.metrics import Telemetry

# Events come in bursts: one pod that becomes ready is several writes.
DEBOUNCE_SECONDS = 0.2

# Only for events that were never delivered: everything else wakes or has a time of its own.
RESYNC_SECONDS = 300.0

# Every call has a time limit of its own; a reconcile that takes longer than all of them hangs.
STUCK_SECONDS = 180.0

# Somebody wrote at the same time; where that goes on it is a failure like another.
_OUTDATED_SECONDS = 0.2
_OUTDATED_LIMIT = 20

log = structlog.get_logger(__name__)


class Stopping(Protocol):
    """Something that is set when the loop is to end."""

    def wait(self) -> Awaitable[object]:
        """Wait until it is set."""


def _words(error: Exception) -> str:
    """What a person should read of an error."""
    text = str(error) or type(error).__name__
    if isinstance(error, ApiError) and error.unauthorized:
        return (
            f"{text}. The operator itself lacks this permission, which its chart grants: upgrade "
            "the release of the chart, and where it watches single namespaces, name this one in "
            "watchNamespaces"
        )
    return text


class UpgradeLoop:
    """Reconciles one upgrade; at most one reconcile at a time."""

    def __init__(  # noqa: PLR0913 - what it is about, and what it works with
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        client: Client,
        reconciler: Reconciler,
        telemetry: Telemetry,
    ) -> None:
        self.namespace = namespace
        self.name = name
        self.uid = uid
        self.outcome = Outcome()
        self._client = client
        self._reconciler = reconciler
        self._telemetry = telemetry
        self._memory = Memory()
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._failures = 0
        self._outdated = 0
        self._refused_since: float | None = None
        self._error = ""
        self._began: float | None = None
        self._due: float | None = None

    def wake(self) -> None:
        """Reconcile soon."""
        self._wake.set()

    def stuck(self, now: float) -> bool:
        """Whether a reconcile hangs, or is overdue because nobody waits for it any more.

        Args:
            now: `time.monotonic()`.
        """
        if self._began is not None:
            return now - self._began > STUCK_SECONDS
        return self._due is not None and now - self._due > STUCK_SECONDS

    def refused(self, now: float) -> tuple[float, str]:
        """For how many seconds nothing works any more, and the last error.

        An API server that does not answer, or is in trouble itself, does not count: the upgrade
        cannot be let go then either.

        Args:
            now: `time.monotonic()`.
        """
        since = now if self._refused_since is None else self._refused_since
        return now - since, self._error

    async def wait(self, stopped: Stopping | None = None) -> None:
        """Wait until something has happened, the next reconcile is due, or `stopped` is set."""
        seconds = self.outcome.requeue_seconds
        seconds = RESYNC_SECONDS if seconds is None else min(seconds, RESYNC_SECONDS)
        waiters: list[asyncio.Future[object]] = [asyncio.ensure_future(self._wake.wait())]
        if stopped is not None:
            waiters.append(asyncio.ensure_future(stopped.wait()))
        try:
            await asyncio.wait(waiters, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
        if self._wake.is_set():
            await asyncio.sleep(DEBOUNCE_SECONDS)

    async def tick(self) -> Outcome:
        """Reconcile once. An error is logged, counted and tried again; it is never raised."""
        async with self._one_at_a_time:
            self._wake.clear()
            self._began = time.monotonic()
            try:
                with self._telemetry.reconcile_seconds.time():
                    self.outcome = await self._reconciler.reconcile(
                        self.namespace, self.name, self.uid, self._memory
                    )
                self._failures = 0
                self._outdated = 0
                self._refused_since = None
            except OutdatedError as error:
                await self._look_again(error)
            except (ApiError, UnreadableError) as error:
                await self._failed(error)
            except Exception as error:
                # A defect that one upgrade brings to light must not end the care for it.
                log.exception("reconcile failed unexpectedly", **self._about())
                await self._failed(error)
            finally:
                self._began = None
                wait = self.outcome.requeue_seconds
                self._due = time.monotonic() + (RESYNC_SECONDS if wait is None else wait)
            return self.outcome

    async def _look_again(self, error: OutdatedError) -> None:
        self._outdated += 1
        if self._outdated > _OUTDATED_LIMIT:
            await self._failed(error)
            return
        log.info("outdated", **self._about(), error=str(error))
        self.outcome = self._again(_OUTDATED_SECONDS)

    async def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._error = str(error) or type(error).__name__
        if not _is_server_in_trouble(error):
            self._refused_since = self._refused_since or time.monotonic()
        seconds = backoff_seconds(self._failures)
        self._telemetry.reconcile_errors.labels(type(error).__name__).inc()
        if isinstance(error, ApiError):
            self._telemetry.api_errors.labels(str(error.status)).inc()
        log.warning(
            "reconcile failed",
            **self._about(),
            error=str(error),
            failures=self._failures,
            again_in_seconds=seconds,
        )
        self.outcome = self._again(seconds)
        if self._failures >= PERSISTENT_FAILURES:
            await self._say(error)

    async def _say(self, error: Exception) -> None:
        """Tell in status. Where even that fails, the log and the counter have it."""
        try:
            upgrade = await read_upgrade(self._client, self.namespace, self.name)
            if upgrade is None or upgrade.metadata["uid"] != self.uid:
                return
            status = troubled(
                upgrade.status,
                error=_words(error),
                generation=int(upgrade.metadata["generation"]),
                now=time.time(),
            )
            await self._reconciler.write_status(upgrade, status)
        except (ApiError, OutdatedError, UnreadableError) as second:
            log.warning("the failure cannot be told in status", **self._about(), error=str(second))

    def _again(self, seconds: float) -> Outcome:
        """What is depended on stays as last seen."""
        return Outcome(
            requeue_seconds=seconds,
            pods=self.outcome.pods,
            deployments=self.outcome.deployments,
        )

    def _about(self) -> Mapping[str, str]:
        return {"namespace": self.namespace, "upgrade": self.name}


def _is_server_in_trouble(error: Exception) -> bool:
    return isinstance(error, ApiError) and (
        error.status in (0, HTTPStatus.TOO_MANY_REQUESTS)
        or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )
