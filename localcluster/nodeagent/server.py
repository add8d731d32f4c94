"""What the API server asks a kubelet for: the logs of containers."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from localcluster.nodeagent.logs import Log, LogOptions
from localcluster.nodeagent.status import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from localcluster.nodeagent.pod import Pod

CERTIFICATE_DAYS = 3650


class LogServer:
    """Serves `/containerLogs/<namespace>/<pod>/<container>` over HTTPS.

    One port serves all nodes, so who asks for a pod that is not here asks a node that is lost: the
    connection breaks, which the API server answers with 500.

    Args:
        find: Finds a pod by namespace and name.
    """

    def __init__(self, find: Callable[[str, str], Pod | None]) -> None:
        self._find = find

    async def start(self, port: int, directory: Path) -> web.AppRunner:
        """Listen on 127.0.0.1; the certificate is kept in `directory`.

        Raises:
            OSError: The port is taken.
        """
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        # Whoever follows a log must not hold the agent up when it ends.
        runner = web.AppRunner(app, shutdown_timeout=1.0, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=_tls(directory)).start()
        return runner

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        match = request.match_info
        try:
            options = log_options(dict(request.query))
        except ValueError as error:
            raise web.HTTPBadRequest(text=str(error)) from error
        pod = self._find(match["namespace"], match["pod"])
        if pod is None and request.transport is not None:
            request.transport.close()
        container = None if pod is None else pod.containers.get(match["container"])
        if container is None:
            raise web.HTTPNotFound(
                text=f'pod "{match["pod"]}" with container "{match["container"]}" not found'
            )
        previous = request.query.get("previous") == "true"
        log = _choose(container.logs, previous=previous)
        if log is None:
            if previous:
                text = f'previous terminated container "{match["container"]}" not found'
            else:
                state = container.state.state
                reason = state.reason if isinstance(state, Waiting) else "unknown"
                text = (
                    f'container "{match["container"]}" in pod "{match["pod"]}" '
                    f"is waiting to start: {reason}"
                )
            raise web.HTTPBadRequest(text=text)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for piece in log.read(options):
            await response.write(piece)
        return response


def log_options(query: dict[str, str]) -> LogOptions:
    """Read the options of a request for a log.

    Raises:
        ValueError: One of them cannot be read.
    """

    def number(name: str) -> int | None:
        if name not in query:
            return None
        if not query[name].isdigit():
            raise ValueError(f"{name}: {query[name]!r} must be a whole number, not negative")
        return int(query[name])

    since = None
    if (seconds := number("sinceSeconds")) is not None:
        since = datetime.now(UTC) - timedelta(seconds=seconds)
    elif "sinceTime" in query:
        since = datetime.fromisoformat(query["sinceTime"])
    return LogOptions(
        follow=query.get("follow") == "true",
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
        since=since,
        timestamps=query.get("timestamps") == "true",
    )


def _choose(logs: list[Log], *, previous: bool) -> Log | None:
    if previous:
        return logs[-2] if len(logs) > 1 else None
    return logs[-1] if logs else None


def _tls(directory: Path) -> ssl.SSLContext:
    """A server context with a fresh certificate; the API server does not look at it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "nodeagent")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=CERTIFICATE_DAYS))
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
