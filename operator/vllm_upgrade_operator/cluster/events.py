"""Kubernetes Events: one for the upgrade and one for its target.

By the rules of events.k8s.io/v1: what repeats within six minutes grows the series of the Event
that is there. Events are for people: one that cannot be posted is logged, and nothing else stops.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import structlog

from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.upgrade.decision import Notice

CONTROLLER = f"{GROUP}/operator"

# client-go's defaults (tools/events/event_broadcaster.go): the same Event within this time is one.
_SERIES_SECONDS = 360.0
_NOTE_BYTES = 1024
_INSTANCE_LIMIT = 128
_NAME_LIMIT = 200

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Posted:
    name: str
    count: int
    last: float


class Events:
    """Posts Events."""

    def __init__(self, client: Client, instance: str) -> None:
        self._client = client
        self._instance = instance[:_INSTANCE_LIMIT]
        self._posted: dict[tuple[str, ...], _Posted] = {}

    async def post(
        self,
        upgrade: Mapping[str, Any],
        target: tuple[str, str] | None,
        notices: Iterable[Notice],
    ) -> None:
        """Post notices.

        Args:
            upgrade: The VLLMUpgrade, as the API server gives it.
            target: Name and UID of the Deployment, where there is one.
            notices: What to say.
        """
        metadata = upgrade["metadata"]
        namespace = metadata["namespace"]
        mine = _reference(f"{GROUP}/{VERSION}", KIND, namespace, metadata["name"], metadata["uid"])
        theirs = None if target is None else _reference("apps/v1", "Deployment", namespace, *target)
        for notice in notices:
            await self._post(mine, theirs, notice)
            if theirs is not None:
                await self._post(theirs, mine, notice)

    async def _post(
        self, regarding: dict[str, str], related: dict[str, str] | None, notice: Notice
    ) -> None:
        try:
            await self._send(regarding, related, notice)
        except ApiError as error:
            log.warning(
                "event not posted",
                reason=notice.reason,
                kind=regarding["kind"],
                namespace=regarding["namespace"],
                name=regarding["name"],
                error=str(error),
            )

    async def _send(
        self, regarding: dict[str, str], related: dict[str, str] | None, notice: Notice
    ) -> None:
        note = notice.message.encode()[:_NOTE_BYTES].decode(errors="ignore")
        now = time.time()
        self._posted = {k: p for k, p in self._posted.items() if now - p.last < _SERIES_SECONDS}
        key = (regarding["uid"], notice.type, notice.reason, note)
        stamp = datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds")
        stamp = stamp.replace("+00:00", "Z")
        collection = paths.events(regarding["namespace"])
        before = self._posted.get(key)
        if before is not None:
            series = {"count": before.count + 1, "lastObservedTime": stamp}
            await self._client.patch(f"{collection}/{before.name}", {"series": series})
            before.count, before.last = before.count + 1, now
            return
        name = f"{regarding['name'][:_NAME_LIMIT].rstrip('-.')}.{uuid.uuid4().hex[:16]}"
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": regarding["namespace"]},
            "eventTime": stamp,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": "Upgrade",
            "type": notice.type,
            "reason": notice.reason,
            "note": note,
            "regarding": regarding,
        }
        if related is not None:
            event["related"] = related
        await self._client.create(collection, event)
        self._posted[key] = _Posted(name, 1, now)


def _reference(api_version: str, kind: str, namespace: str, name: str, uid: str) -> dict[str, str]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "namespace": namespace,
        "name": name,
        "uid": uid,
    }
