"""What containers read out of the API: ConfigMaps, Secrets and ServiceAccount tokens."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_upgrade_operator.cluster.client import Client


class ConfigError(Exception):
    """A container's configuration names something that is not there."""


class Sources:
    """Reads what the pods of one namespace refer to."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace

    async def config_map(self, name: str, *, optional: bool) -> dict[str, bytes]:
        """The entries of a ConfigMap; none where it is missing and optional.

        Raises:
            ConfigError: It is missing.
            ApiError: The API server did not answer.
        """
        found = await self._find("configmaps", name, optional=optional)
        data = {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
        binary = found.get("binaryData") or {}
        return data | {key: base64.b64decode(value) for key, value in binary.items()}

    async def secret(self, name: str, *, optional: bool) -> dict[str, bytes]:
        """The entries of a Secret; as for a ConfigMap."""
        found = await self._find("secrets", name, optional=optional)
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}

    async def token(self, pod: Mapping[str, Any], source: Mapping[str, Any]) -> bytes:
        """A fresh token of the pod's ServiceAccount, bound to the pod.

        Args:
            pod: The pod.
            source: The `serviceAccountToken` of a projected volume.
        """
        metadata = pod["metadata"]
        spec: dict[str, Any] = {
            "expirationSeconds": source.get("expirationSeconds") or 3600,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            },
            "audiences": [source["audience"]] if source.get("audience") else [],
        }
        account = pod["spec"].get("serviceAccountName") or "default"
        answer = await self._client.create(
            f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return str(answer["status"]["token"]).encode()

    async def _find(self, plural: str, name: str, *, optional: bool) -> dict[str, Any]:
        found = await self._client.find(f"/api/v1/namespaces/{self._namespace}/{plural}/{name}")
        if found is None:
            if optional:
                return {}
            raise ConfigError(f'{plural.removesuffix("s")} "{name}" not found')
        return found
