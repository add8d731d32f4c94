"""An API server of a few lines: keeps objects by path, and fails where it is told to."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster.client import ApiError, Client

if TYPE_CHECKING:
    from collections.abc import Mapping


class StubClient(Client):
    """Answers from memory. What it does not know, such as patches, it only records."""

    def __init__(self, objects: Mapping[str, dict[str, Any]] | None = None) -> None:
        self.objects = dict(objects or {})
        self.calls: list[tuple[str, str, Any]] = []
        self.failures: dict[tuple[str, str], ApiError] = {}

    def named(self, method: str) -> list[Any]:
        """Bodies of the calls with a method."""
        return [body for called, _, body in self.calls if called == method]

    def _call(self, method: str, path: str, body: Any = None) -> None:
        self.calls.append((method, path, copy.deepcopy(body)))
        failure = self.failures.get((method, path))
        if failure is not None:
            raise failure

    async def get(self, path: str, **_: object) -> dict[str, Any]:
        self._call("GET", path)
        if path not in self.objects:
            raise ApiError(404, "NotFound", path)
        return copy.deepcopy(self.objects[path])

    async def find_metadata(self, path: str) -> dict[str, Any] | None:
        return await self.find(path)

    async def create(self, path: str, body: Mapping[str, Any], **_: object) -> dict[str, Any]:
        self._call("POST", path, body)
        where = f"{path}/{body['metadata']['name']}"
        if where in self.objects:
            raise ApiError(409, "AlreadyExists", where)
        self.objects[where] = copy.deepcopy(dict(body))
        return dict(body)

    async def patch(
        self, path: str, body: object, content_type: str = "", **_: object
    ) -> dict[str, Any]:
        del content_type
        self._call("PATCH", path, body)
        return {}

    async def delete(
        self, path: str, body: Mapping[str, Any] | None = None, **_: object
    ) -> dict[str, Any] | None:
        self._call("DELETE", path, body)
        return self.objects.pop(path, None)

    async def text(self, path: str, *, limit_bytes: int, seconds: float = 0, **_: object) -> str:
        del limit_bytes, seconds
        self._call("TEXT", path)
        return str(self.objects[path]["text"])
