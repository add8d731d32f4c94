"""The ready endpoints of a Service, as kube-proxy knows them: from its EndpointSlices."""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vllm_upgrade_operator.cluster.client import ApiError

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from vllm_upgrade_operator.cluster.client import Client

_ALLOWED = (ipaddress.ip_network("10.244.0.0/16"), ipaddress.ip_network("127.0.0.0/8"))
_AGAIN_SECONDS = 0.5


class EndpointError(Exception):
    """The Service's endpoints cannot be used for load; the text says why."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One ready pod and where it listens."""

    pod: str
    address: str
    port: int


class Endpoints:
    """The present ready endpoints; kept up to date by `watch`."""

    def __init__(self, ready: Iterable[Endpoint] = ()) -> None:
        self._ready = tuple(ready)
        self._pods = {(e.address, e.port): e.pod for e in self._ready}

    @property
    def ready(self) -> tuple[Endpoint, ...]:
        """All that may be chosen now."""
        return self._ready

    def choose(self, randomness: random.Random) -> Endpoint | None:
        """Choose one by chance, as kube-proxy does for a new connection; None if none is ready."""
        return randomness.choice(self._ready) if self._ready else None

    def pod(self, address: str, port: int) -> str:
        """Name the pod of an address, also after it has left; the address itself if unknown."""
        return self._pods.get((address, port), f"{address}:{port}")

    def replace(self, slices: Iterable[dict[str, Any]]) -> None:
        """Take over what the EndpointSlices say now. Raises `EndpointError`."""
        self._ready = tuple(sorted(ready_endpoints(slices), key=lambda e: e.pod))
        self._pods.update({(e.address, e.port): e.pod for e in self._ready})

    async def watch(self, client: Client, namespace: str, service: str) -> None:
        """Follow a Service's EndpointSlices for ever; through errors the last known ones hold."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        selector = f"kubernetes.io/service-name={service}"
        while True:
            try:
                found = await client.get(path, labelSelector=selector)
                slices = {item["metadata"]["name"]: item for item in found["items"]}
                self.replace(slices.values())
                async for kind, item in client.watch(
                    path,
                    labelSelector=selector,
                    resourceVersion=found["metadata"]["resourceVersion"],
                ):
                    if kind == "DELETED":
                        slices.pop(item["metadata"]["name"], None)
                    else:
                        slices[item["metadata"]["name"]] = item
                    self.replace(slices.values())
            except (ApiError, OSError, TimeoutError) as error:
                print(f"endpoints of {namespace}/{service}: {error!r}", file=sys.stderr, flush=True)
                await asyncio.sleep(_AGAIN_SECONDS)


def ready_endpoints(slices: Iterable[dict[str, Any]]) -> set[Endpoint]:
    """Give the ready endpoints of EndpointSlices. Raises `EndpointError`."""
    found = set()
    for item in slices:
        port = _port(item)
        if port is None:
            continue
        for endpoint in item.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            for address in endpoint["addresses"]:
                refuse_foreign(address)
                pod = (endpoint.get("targetRef") or {}).get("name", address)
                found.add(Endpoint(pod, address, port))
    return found


def refuse_foreign(address: str) -> None:
    """Refuse an address that is none of a local cluster's pods. Raises `EndpointError`."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise EndpointError(f"endpoint {address!r} is no IP address") from None
    if not any(parsed in network for network in _ALLOWED):
        allowed = " or ".join(str(network) for network in _ALLOWED)
        raise EndpointError(
            f"endpoint {address} is no address of a local cluster: load goes only to {allowed}"
        )


def _port(item: dict[str, Any]) -> int | None:
    """The port of a slice: its only one, or the one named `http`; None where it has none yet."""
    ports = [p for p in item.get("ports") or () if p.get("port") is not None]
    if not ports:
        return None
    named = [p for p in ports if p.get("name") == "http"]
    chosen = named if len(ports) > 1 else ports
    if not chosen:
        names = ", ".join(str(p.get("name")) for p in ports)
        raise EndpointError(
            f"EndpointSlice {item['metadata']['name']} has the ports {names}: "
            "name the one for load http"
        )
    return int(chosen[0]["port"])
