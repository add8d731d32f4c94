"""The ready endpoints of a Service, watched."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    from vllm_upgrade_operator.cluster.client import Client

# Load must never leave this machine: these are the addresses of a local cluster's pods.
_ALLOWED = tuple(ipaddress.ip_network(n) for n in ("10.244.0.0/16", "127.0.0.0/8"))
_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One pod behind a Service."""

    pod: str
    address: str
    port: int

    @property
    def url(self) -> str:
        """Base address of its server."""
        return f"http://{self.address}:{self.port}"


class Endpoints:
    """Keeps the ready endpoints of one Service, from its EndpointSlices."""

    def __init__(self, client: Client, namespace: str, service: str) -> None:
        self._client = client
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        self._selector = f"kubernetes.io/service-name={service}"
        self._slices: dict[str, list[Endpoint]] = {}

    @property
    def ready(self) -> list[Endpoint]:
        """The endpoints that take traffic now."""
        return [e for endpoints in self._slices.values() for e in endpoints]

    async def watch(self) -> None:
        """Follow the slices for ever."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError, TimeoutError, ValueError):
                await self._follow()
            await asyncio.sleep(_RETRY_SECONDS)

    async def _follow(self) -> None:
        found = await self._client.get(self._path, labelSelector=self._selector)
        self._slices = {s["metadata"]["name"]: read_slice(s) for s in found["items"]}
        version = found["metadata"]["resourceVersion"]
        async for kind, piece in self._client.watch(
            self._path, labelSelector=self._selector, resourceVersion=version
        ):
            name = piece["metadata"]["name"]
            if kind == "DELETED":
                self._slices.pop(name, None)
            elif kind in ("ADDED", "MODIFIED"):
                self._slices[name] = read_slice(piece)


def read_slice(piece: dict[str, Any]) -> list[Endpoint]:
    """Read the ready endpoints of an EndpointSlice. Raises ValueError for a foreign address."""
    ports = [p["port"] for p in piece.get("ports") or [] if p.get("port")]
    if not ports:
        return []
    found = []
    for endpoint in piece.get("endpoints") or []:
        if not (endpoint.get("conditions") or {}).get("ready"):
            continue
        address = endpoint["addresses"][0]
        if not any(ipaddress.ip_address(address) in network for network in _ALLOWED):
            raise ValueError(
                f"{address} is no address of a local cluster: load goes to 10.244.0.0/16 and "
                "127.0.0.0/8 only"
            )
        pod = (endpoint.get("targetRef") or {}).get("name", address)
        found.append(Endpoint(pod, address, ports[0]))
    return found
