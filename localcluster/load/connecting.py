"""Connections as kube-proxy makes them: each goes to an endpoint chosen by chance, and stays there.

aiohttp keeps its connections per host name. Here the name is the Service's, and a resolver chooses
the endpoint anew for each connection that is opened.
"""

from __future__ import annotations

import socket
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

if TYPE_CHECKING:
    import random

    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

    from localcluster.load.endpoints import Endpoints
    from localcluster.load.options import Options

# Far beyond what a server allows: it is the server that closes idle connections, as in real life.
_KEEP_ALIVE_SECONDS = 3600.0


@dataclass(slots=True)
class Route:
    """Where one request went.

    Attributes:
        pod: The pod that was chosen; None while there is none.
        connected: Whether there was a connection to it.
        reused: Whether that connection had served another request before.
    """

    pod: str | None = None
    connected: bool = False
    reused: bool = False


CURRENT: ContextVar[Route] = ContextVar("route of the request of this task")


class NoEndpointError(OSError):
    """No endpoint is ready."""


class Resolver(AbstractResolver):
    """Resolves every name to one ready endpoint, chosen by chance."""

    def __init__(self, endpoints: Endpoints, randomness: random.Random) -> None:
        self._endpoints = endpoints
        self._randomness = randomness

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Choose an endpoint; its port replaces the Service's."""
        del port, family
        endpoint = self._endpoints.choose(self._randomness)
        if endpoint is None:
            raise NoEndpointError(f"no endpoint of {host} is ready")
        CURRENT.get().pod = endpoint.pod
        return [
            ResolveResult(
                hostname=host,
                host=endpoint.address,
                port=endpoint.port,
                family=socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Connector(aiohttp.TCPConnector):
    """A connector that notes in the task's `Route` where a request goes."""

    def __init__(self, endpoints: Endpoints, randomness: random.Random, options: Options) -> None:
        self._endpoints = endpoints
        resolver = Resolver(endpoints, randomness)
        if options.keep_alive:
            super().__init__(
                resolver=resolver,
                use_dns_cache=False,
                limit=options.connections,
                keepalive_timeout=_KEEP_ALIVE_SECONDS,
            )
        else:
            super().__init__(resolver=resolver, use_dns_cache=False, limit=0, force_close=True)

    async def connect(
        self,
        req: ClientRequest,
        traces: list[Trace],
        timeout: ClientTimeout,  # noqa: ASYNC109 - the signature is aiohttp's
    ) -> Connection:
        """Take a connection that is free, or open one."""
        connection = await super().connect(req, traces, timeout)
        route = CURRENT.get()
        route.connected = True
        route.reused = route.pod is None
        if route.reused and connection.transport is not None:
            address, port = connection.transport.get_extra_info("peername")[:2]
            route.pod = self._endpoints.pod(address, port)
        return connection
