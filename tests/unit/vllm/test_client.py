from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from vllm_upgrade_operator.vllm.client import (
    BadAnswerError,
    BadStatusError,
    RedirectedError,
    RefusedError,
    TimedOutError,
    TooLargeError,
    TruncatedError,
    VLLMClient,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

HOST = "127.0.0.1"


class Server:
    """A pod that answers what a test tells it to."""

    def __init__(self) -> None:
        self.answers: dict[str, web.StreamResponse] = {}
        self.asked: list[web.Request] = []
        self.silent = False
        self.handler: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
        self.port = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        if self.silent:
            await asyncio.sleep(60)
        if self.handler is not None:
            return await self.handler(request)
        return self.answers.get(request.path) or web.Response(status=404)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async for served in _serving(None):
        yield served


async def _serving(context: ssl.SSLContext | None) -> AsyncIterator[Server]:
    served = Server()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", served.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0, ssl_context=context)
    await site.start()
    served.port = runner.addresses[0][1]
    yield served
    await runner.cleanup()


@pytest.fixture
async def tls_server(tmp_path: Path) -> AsyncIterator[Server]:
    """With a certificate that names something else, as a pod's does."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "llm.serving.svc")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (tmp_path / "pem").write_bytes(
        certificate.public_bytes(pem)
        + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    async for served in _serving(context):
        yield served


@pytest.fixture
async def client() -> AsyncIterator[VLLMClient]:
    async with VLLMClient(seconds=2.0, limit_bytes=1000) as made:
        yield made


async def test_a_server_with_a_certificate(tls_server: Server, client: VLLMClient) -> None:
    tls_server.answers = {
        "/metrics": web.Response(text="a 1\n"),
        "/version": web.json_response({"version": "0.29.0"}),
    }
    assert await client.metrics(HOST, tls_server.port, scheme="https") == "a 1\n"
    assert await client.version(HOST, tls_server.port, scheme="https") == "0.29.0"
    with pytest.raises((RefusedError, BadAnswerError)):
        await client.metrics(HOST, tls_server.port)


async def test_a_server_without_one_is_not_asked_by_https(
    server: Server, client: VLLMClient
) -> None:
    with pytest.raises(RefusedError):
        await client.metrics(HOST, server.port, scheme="https")


async def test_what_a_server_answers(server: Server, client: VLLMClient) -> None:
    server.answers = {
        "/metrics": web.Response(text="a 1\n"),
        "/version": web.json_response({"version": "0.29.0"}),
        "/v1/models": web.json_response({"data": [{"id": "tiny"}, {"id": "lora"}]}),
    }
    assert await client.metrics(HOST, server.port) == "a 1\n"
    assert await client.version(HOST, server.port) == "0.29.0"
    assert await client.models(HOST, server.port, api_key="k") == ("tiny", "lora")
    assert server.asked[-1].headers["Authorization"] == "Bearer k"
    assert "Authorization" not in server.asked[0].headers


async def test_a_redirect_is_not_followed(server: Server, client: VLLMClient) -> None:
    server.answers = {
        "/version": web.Response(status=302, headers={"Location": "/metrics"}),
        "/metrics": web.Response(text="a 1\n"),
    }
    with pytest.raises(RedirectedError, match="answered 302"):
        await client.version(HOST, server.port)
    assert len(server.asked) == 1


async def test_another_status(server: Server, client: VLLMClient) -> None:
    with pytest.raises(BadStatusError, match="/metrics answered 404") as caught:
        await client.metrics(HOST, server.port)
    assert caught.value.status == 404


async def test_too_large_an_answer(server: Server, client: VLLMClient) -> None:
    server.answers = {"/metrics": web.Response(text="x" * 1001)}
    with pytest.raises(TooLargeError, match="more than 1000 bytes"):
        await client.metrics(HOST, server.port)
    server.answers = {"/metrics": web.Response(text="x" * 999 + "\n")}
    assert len(await client.metrics(HOST, server.port)) == 1000


async def test_a_compressed_answer_is_measured_as_it_unfolds(
    server: Server, client: VLLMClient
) -> None:
    answer = web.Response(text="x" * 100_000)
    answer.enable_compression(web.ContentCoding.gzip)
    server.answers = {"/metrics": answer}
    with pytest.raises(TooLargeError):
        await client.metrics(HOST, server.port)


async def test_no_answer_in_time(server: Server) -> None:
    server.silent = True
    async with VLLMClient(seconds=0.2) as hasty:
        with pytest.raises(TimedOutError, match=r"did not answer in 0\.2 s"):
            await hasty.metrics(HOST, server.port)


async def test_bytes_that_are_no_text(server: Server, client: VLLMClient) -> None:
    server.answers = {"/metrics": web.Response(body=bytes(range(256)))}
    with pytest.raises(BadAnswerError, match="/metrics is not text"):
        await client.metrics(HOST, server.port)


async def test_a_last_line_without_an_end(server: Server, client: VLLMClient) -> None:
    """Of `12345` only `123` may have come, which would be believed."""
    server.answers = {"/metrics": web.Response(text="a 1\nb 123")}
    with pytest.raises(TruncatedError, match="ends within a line"):
        await client.metrics(HOST, server.port)


@pytest.mark.parametrize(
    ("sent", "error", "words"),
    [
        (b"", RefusedError, "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\na 1\n", TruncatedError, "broke off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na 1\n", TruncatedError, "off"),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", BadAnswerError, "is not HTTP"),
    ],
    ids=["nothing", "too short", "chunks without an end", "another protocol"],
)
async def test_a_connection_that_is_closed(
    client: VLLMClient, sent: bytes, error: type[Exception], words: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent)
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(answer, HOST, 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        with pytest.raises(error, match=words) as caught:
            await client.metrics(HOST, port)
    assert "OpenSSH" not in str(caught.value)


async def test_an_answer_that_never_ends(server: Server) -> None:
    async def drip(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"a 1\n")
            await asyncio.sleep(0.01)

    server.handler = drip
    async with VLLMClient(seconds=0.3) as hasty:
        with pytest.raises(TimedOutError, match=r"did not answer in 0\.3 s"):
            await hasty.metrics(HOST, server.port)


async def test_nobody_listens(client: VLLMClient) -> None:
    # Port 1 of loopback: nothing of this test's can be there.
    with pytest.raises(RefusedError, match=r"127\.0\.0\.1:1"):
        await client.version(HOST, 1)


BODIES = {
    "not JSON": "{",
    "no object": "[]",
    "no version": "{}",
    "a number": '{"version": 3}',
    "empty": '{"version": ""}',
    "not like a version": '{"version": "0.29.0 is what <b>runs</b>"}',
    "too long": f'{{"version": "{"1" * 65}"}}',
    "too deep": "[" * 60_000,
}


@pytest.mark.parametrize("body", BODIES.values(), ids=list(BODIES))
async def test_an_answer_of_another_form(server: Server, client: VLLMClient, body: str) -> None:
    server.answers = {"/version": web.Response(text=body)}
    with pytest.raises(BadAnswerError):
        await client.version(HOST, server.port)


@pytest.mark.parametrize("body", ["{}", '{"data": {}}', '{"data": [1]}', '{"data": [{"id": 1}]}'])
async def test_no_list_of_models(server: Server, client: VLLMClient, body: str) -> None:
    server.answers = {"/v1/models": web.Response(text=body)}
    with pytest.raises(BadAnswerError):
        await client.models(HOST, server.port)


async def test_a_proxy_of_the_environment_is_not_used(
    server: Server, client: VLLMClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.answers = {"/metrics": web.Response(text="a 1\n")}
    assert await client.metrics(HOST, server.port) == "a 1\n"
