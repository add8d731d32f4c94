"""What the operator's preflight would see of an upgrade that is not there: nothing is created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.api.v1alpha1 import Phase, VLLMUpgradeStatus
from vllm_upgrade_operator.cluster import paths
from vllm_upgrade_operator.cluster.client import APPLY, ApiError
from vllm_upgrade_operator.cluster.gather import Upgrade, gather
from vllm_upgrade_operator.cluster.memory import Memory
from vllm_upgrade_operator.upgrade.decision import Needs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.api.v1alpha1 import VLLMUpgradeSpec
    from vllm_upgrade_operator.cluster.client import Client
    from vllm_upgrade_operator.cluster.look import Looks
    from vllm_upgrade_operator.upgrade.observation import Observation

_FIELD_MANAGER = "vllm-upgrade"
_REFUSED = frozenset({400, 403, 422})

# Sorts behind every real creation time: whatever is there goes first.
_NOT_YET = "9999-12-31T23:59:59Z"


class RefusedError(Exception):
    """The API server would not take the VLLMUpgrade; the text is its own."""


async def rehearse(
    client: Client,
    looker: Looks,
    namespace: str,
    manifest: Mapping[str, Any],
    spec: VLLMUpgradeSpec,
) -> Observation:
    """See what preflight would see, were this VLLMUpgrade applied.

    Args:
        client: The API server.
        looker: Who asks the pods.
        namespace: Where it would be applied.
        manifest: The VLLMUpgrade as it would be applied.
        spec: Its spec.

    Raises:
        ApiError: Something could not be read.
        RefusedError: The API server would refuse it.
    """
    name = manifest["metadata"]["name"]
    path = paths.upgrade(namespace, name)
    await _try(client, path, namespace, manifest)
    present = await client.find(path)
    metadata = {
        "creationTimestamp": _NOT_YET,
        "uid": f"{name}.not-yet",
        "generation": 1,
        **(present["metadata"] if present is not None else {}),
        "name": name,
        "namespace": namespace,
    }
    raw = {**manifest, "metadata": metadata, "status": {"phase": str(Phase.PREFLIGHT)}}
    upgrade = Upgrade(raw=raw, spec=spec, status=VLLMUpgradeStatus(phase=Phase.PREFLIGHT))
    return await gather(client, looker, Memory(), upgrade, Needs(look=False, proposal=True))


async def _try(client: Client, path: str, namespace: str, manifest: Mapping[str, Any]) -> None:
    """Let the API server check it by its schema, rules and policies, in a dry run.

    Where the CustomResourceDefinition is not installed there is nobody to ask.
    """
    body = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    body.pop("status", None)
    try:
        await client.patch(
            path, body, APPLY, dryRun="All", fieldManager=_FIELD_MANAGER, force="true"
        )
    except ApiError as error:
        if error.status == 404:
            return
        if error.status not in _REFUSED or error.unauthorized:
            raise
        raise RefusedError(error.message) from error
