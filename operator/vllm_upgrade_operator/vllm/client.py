"""Asking a vLLM pod: fixed paths on its pod address, bounded in size and time.

A server with a certificate (`--ssl-certfile`) is asked by HTTPS. Its certificate is not checked: it
names a Service, if anything, and never a pod's address. So this is worth what plain HTTP is.

No redirect is followed and no proxy of the environment is used: what answers is the pod or
nothing. Errors say what happened and never contain what the pod sent.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Self

import aiohttp

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 3.0
"""How long one answer may take, connecting included."""
LIMIT_BYTES = 4 * 1024 * 1024
"""How large one answer may be."""

_SMALL_BYTES = 64 * 1024
# What a version of Python packages is made of (PEP 440): it is shown to people.
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,63}")
_MODEL_CHARACTERS = 256


class VLLMError(Exception):
    """A pod did not answer as a vLLM server does."""


class RefusedError(VLLMError):
    """No connection, or it broke: while it starts, a vLLM server refuses connections."""


class TimedOutError(VLLMError):
    """No complete answer in time."""


class TruncatedError(VLLMError):
    """The answer began and broke off before its end."""


class TooLargeError(VLLMError):
    """The answer is larger than allowed."""


class BadStatusError(VLLMError):
    """Another status than 200, and no redirect.

    Attributes:
        status: The HTTP status code.
    """

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RedirectedError(VLLMError):
    """The answer points elsewhere: it is not followed."""


class BadAnswerError(VLLMError):
    """The answer is not of the form that the path has in vLLM."""


class VLLMClient:
    """Asks pods; safe to share between tasks of one event loop."""

    def __init__(self, *, seconds: float = SECONDS, limit_bytes: int = LIMIT_BYTES) -> None:
        self._seconds = seconds
        self._limit_bytes = limit_bytes
        self._session = aiohttp.ClientSession(
            # A kept connection would be one more thing that a draining pod waits for.
            connector=aiohttp.TCPConnector(limit=64, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def metrics(
        self, address: str, port: int, *, seconds: float = SECONDS, scheme: str = "http"
    ) -> str:
        """Read `/metrics`, the Prometheus text.

        Args:
            address: Of the pod.
            port: That vLLM listens on.
            seconds: How long the whole answer may take, where that is less than usual.
            scheme: `http` or `https`.

        Raises:
            VLLMError: It could not be read.
        """
        where = _where(address, port, "/metrics")
        body = await self._get(where, self._limit_bytes, seconds=seconds, scheme=scheme)
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            # Without its cause: that one holds the body.
            raise BadAnswerError(f"{where} is not text") from None
        # The last line has to end too (Prometheus text format): of one that does not, the value
        # may have lost its last digits. Not every server says how long its answer will be.
        if text and not text.endswith("\n"):
            raise TruncatedError(f"{where} ends within a line")
        return text

    async def version(self, address: str, port: int, *, scheme: str = "http") -> str:
        """Read what `/version` answers, such as `0.29.0`. Raises `VLLMError`."""
        answer = await self._json(address, port, "/version", scheme=scheme)
        version = answer.get("version")
        if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
            raise BadAnswerError(f"{_where(address, port, '/version')} has no `version`")
        return version

    async def models(self, address: str, port: int, api_key: str | None = None) -> tuple[str, ...]:
        """Read the names of the served models from `/v1/models`. Raises `VLLMError`."""
        headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        answer = await self._json(address, port, "/v1/models", headers)
        data = answer.get("data")
        names = [m.get("id") if isinstance(m, dict) else None for m in data or ()]
        if not isinstance(data, list) or not all(
            isinstance(n, str) and len(n) <= _MODEL_CHARACTERS for n in names
        ):
            where = _where(address, port, "/v1/models")
            raise BadAnswerError(f"{where} has no list of models with an `id`")
        return tuple(str(name) for name in names)

    async def _json(
        self,
        address: str,
        port: int,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        scheme: str = "http",
    ) -> dict[str, Any]:
        where = _where(address, port, path)
        body = await self._get(where, _SMALL_BYTES, headers, scheme=scheme)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            # Without its cause: that one holds the body.
            raise BadAnswerError(f"{where} is not JSON") from None
        if not isinstance(answer, dict):
            raise BadAnswerError(f"{where} is not a JSON object")
        return answer

    async def _get(
        self,
        where: str,
        limit: int,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float = SECONDS,
        scheme: str = "http",
    ) -> bytes:
        allowed = min(seconds, self._seconds)
        try:
            async with self._session.get(
                f"{scheme}://{where}",
                allow_redirects=False,
                ssl=False,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=allowed),
            ) as response:
                if 300 <= response.status < 400:
                    raise RedirectedError(f"{where} answered {response.status}, a redirect")
                if response.status != 200:
                    raise BadStatusError(f"{where} answered {response.status}", response.status)
                body = bytearray()
                async for chunk in response.content.iter_chunked(65536):
                    body += chunk
                    if len(body) > limit:
                        raise TooLargeError(f"{where} answered more than {limit} bytes")
                return bytes(body)
        except TimeoutError as error:
            raise TimedOutError(f"{where} did not answer in {allowed:g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise RefusedError(f"{where}: {error.strerror or 'cannot connect'}") from error
        except aiohttp.ClientPayloadError as error:
            raise TruncatedError(f"{where} broke off") from error
        except aiohttp.ClientResponseError as error:
            raise BadAnswerError(f"{where} is not HTTP") from error
        except aiohttp.ClientError as error:
            raise RefusedError(f"{where} closed the connection") from error


def _where(address: str, port: int, path: str) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{host}:{port}{path}"
