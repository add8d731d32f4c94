"""Events on the upgrade and on its target: what `kubectl describe` and `kubectl events` show."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import structlog

from vllm_upgrade_operator.api.v1alpha1 import GROUP, KIND, VERSION
from vllm_upgrade_operator.cluster.client import ApiError
from vllm_upgrade_operator.upgrade.times import rfc3339

if TYPE_CHECKING:
    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.upgrade.decision import Notice
    from vllm_upgrade_operator.upgrade.observation import Observation

_log = structlog.get_logger(__name__)

CONTROLLER = "vllmupgrade.dev/operator"
_NOTE_LIMIT = 1024
_CONFLICT = 409


async def post(
    client: Client, o: Observation, notice: Notice, *, instance: str, now: float
) -> None:
    """Post one notice on the upgrade and on its target.

    An Event's name is made of what it says and when its phase was decided, so that a decision that
    is carried out again after a crash posts it once. A failure is logged: Events are for people,
    and nothing depends on them.
    """
    for regarding in _regarding(o):
        body = {
            "metadata": {
                "name": _name(regarding, notice, now),
                "namespace": o.namespace,
            },
            "eventTime": _micro(now),
            "type": notice.type,
            "reason": notice.reason[:128],
            "action": notice.reason[:128],
            "note": notice.message[:_NOTE_LIMIT],
            "regarding": regarding,
            "reportingController": CONTROLLER,
            "reportingInstance": instance[:128],
        }
        try:
            await client.create(f"/apis/events.k8s.io/v1/namespaces/{o.namespace}/events", body)
        except ApiError as error:
            if error.status != _CONFLICT:
                _log.warning("event not posted", reason=notice.reason, error=str(error))


def _regarding(o: Observation) -> list[dict[str, Any]]:
    found = [
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "namespace": o.namespace,
            "name": o.name,
            "uid": o.uid,
        }
    ]
    if o.target is not None:
        found.append(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "namespace": o.namespace,
                "name": o.target.name,
                "uid": o.target.uid,
            }
        )
    return found


def _name(regarding: dict[str, Any], notice: Notice, now: float) -> str:
    text = f"{regarding['uid']}{notice.reason}{notice.message}{now}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{regarding['name'][:200]}.{digest}"


def _micro(now: float) -> str:
    """Write a MicroTime: six digits of a second."""
    return rfc3339(now).replace("Z", "000Z")
