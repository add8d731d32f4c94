"""A thin Kubernetes client: paths and plain dicts in, plain dicts out.

The typed models of the official client drop every field that they do not know, so an object must
never be read and written through them. This client keeps the official client's authentication,
TLS and connection pool and leaves the bodies alone. Every call has a time limit.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client as official
from kubernetes.aio import config as official_config

from vllm_upgrade_operator.cluster import kubeconfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_ANY_JSON = "application/json, */*"

REQUEST_SECONDS = 15.0

_PAGE = 500

# A value as field.Error writes it, Go-quoted: k8s.io/apimachinery/pkg/util/validation/field.
_INVALID_VALUE = re.compile(r'Invalid value: ("(?:[^"\\]|\\.)*"): ')
_SHOWN_VALUE = 200

# How the API server words what the authorizer forbids, unlike an admission policy: forbiddenMessage
# in k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/errors.go.
_UNAUTHORIZED = re.compile(r'User "[^"]*" cannot \S+ (?:resource|path) "')


class ApiError(Exception):
    """The API server refused a request, or could not be reached (`status` 0).

    Attributes:
        status: HTTP status code; 0 when there was no answer.
        reason: The machine-readable reason of the `Status` body, such as `NotFound` or `Conflict`.
        message: The `Status` body's message: what a person should read.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def unauthorized(self) -> bool:
        """Whether we lack the permission; an object that a policy does not like is another 403."""
        return self.status == 403 and _UNAUTHORIZED.search(self.message) is not None


class Client:
    """A client for one API server, safe to share between tasks of one event loop."""

    def __init__(self, configuration: official.Configuration) -> None:
        self._api = official.ApiClient(configuration)
        self._host = configuration.host.rstrip("/")

    @classmethod
    async def from_kubeconfig(
        cls, path: Path | str | None = None, context: str | None = None
    ) -> Self:
        """Connect as a kubeconfig says; without a path, as kubectl would find it.

        Raises:
            KubeconfigError: The file or the context is not there, or cannot be used.
        """
        return cls(await kubeconfig.load(path, context))

    @classmethod
    def in_cluster(cls) -> Self:
        """Connect with the ServiceAccount of the pod that this process runs in."""
        configuration = official.Configuration()
        official_config.load_incluster_config(client_configuration=configuration)
        return cls(configuration)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def get(self, path: str, **query: object) -> dict[str, Any]:
        """Read one object, or a list. Raises `ApiError`."""
        return await self._json("GET", path, query)

    async def find(self, path: str) -> dict[str, Any] | None:
        """Read one object; None only where the API server says that there is none."""
        try:
            return await self.get(path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def items(self, path: str, **query: object) -> list[Mapping[str, Any]]:
        """Read a collection, however large, a page at a time. Raises `ApiError`."""
        found: list[Mapping[str, Any]] = []
        following: str | None = ""
        while following is not None:
            more = {"continue": following} if following else {}
            page = await self.get(path, limit=_PAGE, **query, **more)
            found += page["items"]
            following = (page.get("metadata") or {}).get("continue") or None
        return found

    async def find_metadata(self, path: str) -> dict[str, Any] | None:
        """Read the metadata of one object: its content does not leave the API server."""
        try:
            return await self._json("GET", path, {}, accept=METADATA_ONLY)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(self, path: str, body: Mapping[str, Any], **query: object) -> dict[str, Any]:
        """Create an object in a collection. Raises `ApiError`."""
        return await self._json("POST", path, query, body=body)

    async def replace(self, path: str, body: Mapping[str, Any], **query: object) -> dict[str, Any]:
        """Replace an object; its resourceVersion, where given, must be current."""
        return await self._json("PUT", path, query, body=body)

    async def patch(
        self, path: str, body: object, content_type: str = MERGE, **query: object
    ) -> dict[str, Any]:
        """Patch an object; `content_type` is one of this module's constants."""
        return await self._json("PATCH", path, query, body=body, content_type=content_type)

    async def delete(
        self, path: str, body: Mapping[str, Any] | None = None, **query: object
    ) -> dict[str, Any] | None:
        """Delete an object; None where there was none."""
        try:
            return await self._json("DELETE", path, query, body=body)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def text(
        self, path: str, *, limit_bytes: int, seconds: float = REQUEST_SECONDS, **query: object
    ) -> str:
        """Read plain text, such as a pod's log: at most `limit_bytes` of it."""
        response = await self._send("GET", path, query, seconds=seconds)
        try:
            chunks: list[bytes] = []
            size = 0
            async for chunk in response.content.iter_chunked(65536):
                chunks.append(chunk)
                size += len(chunk)
                if size >= limit_bytes:
                    break
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"GET {path}: {error!r}") from error
        finally:
            response.close()
        return b"".join(chunks)[:limit_bytes].decode("utf-8", errors="replace")

    async def watch(
        self, path: str, *, seconds: int = 240, **query: object
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Watch a collection for at most `seconds`: pairs of event type and object.

        Without a `resourceVersion` the present objects come first, as `ADDED`.
        """
        query = {**query, "watch": "true", "timeoutSeconds": seconds}
        response = await self._send("GET", path, query, seconds=seconds + REQUEST_SECONDS)
        try:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    status = event["object"]
                    raise ApiError(
                        int(status.get("code", 0)),
                        str(status.get("reason", "")),
                        str(status.get("message", "")),
                    )
                yield event["type"], event["object"]
        finally:
            response.close()

    async def _json(  # noqa: PLR0913
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        body: object = None,
        content_type: str = "application/json",
        accept: str = _ANY_JSON,
    ) -> dict[str, Any]:
        response = await self._send(
            method, path, query, body=body, content_type=content_type, accept=accept
        )
        try:
            result: dict[str, Any] = json.loads(await response.read())
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ApiError(0, "BadAnswer", f"{method} {path}: {error!r}") from error
        finally:
            response.release()
        return result

    async def _send(  # noqa: PLR0913
        self,
        method: str,
        path: str,
        query: Mapping[str, object],
        *,
        body: object = None,
        content_type: str = "application/json",
        accept: str = _ANY_JSON,
        seconds: float = REQUEST_SECONDS,
    ) -> aiohttp.ClientResponse:
        headers = {"Content-Type": content_type, "Accept": accept}
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        url = self._host + path
        if query:
            url += "?" + urlencode({name: str(value) for name, value in query.items()})
        try:
            answer = await self._api.call_api(
                method,
                url,
                header_params=headers,
                body=body,
                _request_timeout=aiohttp.ClientTimeout(total=seconds),
            )
            response: aiohttp.ClientResponse = answer.response
            if response.status < 400:
                return response
            raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path}: {error!r}") from error
        try:
            status = json.loads(raw)
            reason, message = str(status.get("reason", "")), str(status.get("message", ""))
        except (ValueError, AttributeError):
            reason, message = "", raw[:500].decode("utf-8", errors="replace")
        raise ApiError(response.status, reason, _brief(message))


def _brief(message: str) -> str:
    """Leave out an invalid value that is a whole object.

    That is what the API server shows of a JSON patch that it cannot decode: the reason would be
    lost behind it, and the environment of all containers, keys among it, be told on.
    """
    return _INVALID_VALUE.sub(
        lambda found: found[0] if len(found[1]) <= _SHOWN_VALUE else "", message
    )
