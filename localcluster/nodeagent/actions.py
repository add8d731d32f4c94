"""The actions of probes and lifecycle hooks: HTTP GET, TCP connect, a command, a sleep."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp

from localcluster.nodeagent.processes import Process, StartError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OUTPUT_LIMIT = 10 * 1024
_BODY_LIMIT = 10 * 1024


@dataclass(frozen=True)
class Target:
    """A running container, as its probes see it.

    Attributes:
        container: As in the pod's spec.
        pod_ip: The pod's address.
        pid: The process whose mount namespace commands run in.
        env: The container's environment.
        cwd: Its working directory.
        http: A session without connection reuse.
    """

    container: Mapping[str, Any]
    pod_ip: str
    pid: int
    env: Mapping[str, str]
    cwd: str
    http: aiohttp.ClientSession

    def port(self, port: int | str) -> int:
        """The number of a port that is given by number or name.

        Raises:
            LookupError: The container has no port of that name.
        """
        if isinstance(port, int):
            return port
        for declared in self.container.get("ports", []):
            if declared.get("name") == port:
                return int(declared["containerPort"])
        raise LookupError(f"couldn't find port: {port!r}")


async def act(action: Mapping[str, Any], target: Target, seconds: float) -> str:
    """Do what a probe or hook says within `seconds`; empty for success, else what was wrong."""
    try:
        async with asyncio.timeout(seconds):
            return await _act(action, target)
    except TimeoutError:
        return _timed_out(action, target, seconds)
    except LookupError as error:
        return str(error)


def _timed_out(action: Mapping[str, Any], target: Target, seconds: float) -> str:
    """Say in the kubelet's words that an action took too long."""
    if "httpGet" in action:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return f'Get "{_url(action["httpGet"], target)}": {late}'
    if "tcpSocket" in action:
        check = action["tcpSocket"]
        host = check.get("host") or target.pod_ip
        return f"dial tcp {host}:{target.port(check['port'])}: i/o timeout"
    command = " ".join(action.get("exec", {}).get("command", []))
    return f'command timed out: "{command}" timed out after {seconds:g}s'


async def _act(action: Mapping[str, Any], target: Target) -> str:
    if "httpGet" in action:
        return await _http_get(action["httpGet"], target)
    if "tcpSocket" in action:
        return await _connect(action["tcpSocket"], target)
    if "exec" in action:
        return await _run(action["exec"]["command"], target)
    if "sleep" in action:
        await asyncio.sleep(action["sleep"]["seconds"])
        return ""
    return f"{sorted(action)} is not supported by this node agent"


async def _http_get(action: Mapping[str, Any], target: Target) -> str:
    url = _url(action, target)
    headers = {"User-Agent": "kube-probe/1.37", "Accept": "*/*"}
    headers |= {h["name"]: h["value"] for h in action.get("httpHeaders", [])}
    try:
        async with target.http.get(url, headers=headers, ssl=False) as answer:
            await answer.content.read(_BODY_LIMIT)
            if 200 <= answer.status < 400:
                return ""
            return f"HTTP probe failed with statuscode: {answer.status}"
    except aiohttp.ClientConnectorError as error:
        return f'Get "{url}": dial tcp {error.host}:{error.port}: connect: {_reason(error)}'
    except (aiohttp.ServerDisconnectedError, ConnectionResetError):
        return f'Get "{url}": EOF'
    except (aiohttp.ClientError, OSError) as error:
        return f'Get "{url}": {error}'


def _url(action: Mapping[str, Any], target: Target) -> str:
    scheme = action.get("scheme", "HTTP").lower()
    host = action.get("host") or target.pod_ip
    path = action.get("path") or "/"
    return f"{scheme}://{host}:{target.port(action['port'])}/{path.removeprefix('/')}"


def _reason(error: OSError) -> str:
    """Give an error's text as Go writes it."""
    number = error.errno
    return os.strerror(number).lower() if number else str(error)


async def _connect(action: Mapping[str, Any], target: Target) -> str:
    host = action.get("host") or target.pod_ip
    port = target.port(action["port"])
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        return f"dial tcp {host}:{port}: connect: {_reason(error)}"
    writer.close()
    # The connection was made, which is all that was asked; how it ends says nothing.
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return ""


async def _run(command: list[str], target: Target) -> str:
    output: list[bytes] = []

    def collect(_: str, data: bytes) -> None:
        if sum(map(len, output)) < _OUTPUT_LIMIT:
            output.append(data)

    try:
        process = await Process.start(
            command, target.env, target.cwd, {"enter": target.pid}, output=collect
        )
    except StartError as error:
        return str(error)
    try:
        end = await process.wait()
    finally:
        process.kill()
    if end.code == 0:
        return ""
    said = b"".join(output).decode(errors="replace").strip()
    return said or f"command {command!r} exited with {end.code}"
