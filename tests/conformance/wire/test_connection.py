"""Connections of the judge: one for each request, with the exceptions of httpx."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from babelgate.conformance.wire import tls as judge_tls
from babelgate.conformance.wire.connection import ConnectionPool
from tests.certificate import self_signed
from tests.gateway.command import bound_socket

ANSWER = b"HTTP/1.1 200 Fine\r\nX-Case: Kept\r\nContent-Length: 2\r\n\r\nhi"


@asynccontextmanager
async def answering(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Yield the port and the received requests. With None, the connection stays open without an answer."""
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        if answer is not None:
            writer.write(answer)
            await writer.drain()
            writer.close()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], requests


def client(tls: ssl.SSLContext | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=ConnectionPool(tls or ssl.create_default_context()), timeout=30)


async def test_requests_use_separate_connections_and_keep_header_case() -> None:
    async with answering(ANSWER) as (port, requests), client() as http:
        for _ in range(2):
            answer = await http.get(f"http://127.0.0.1:{port}/a%20b?c=d")
            assert (answer.status_code, answer.reason_phrase, answer.text) == (200, "Fine", "hi")
            assert (b"X-Case", b"Kept") in answer.headers.raw
    assert len(requests) == 2
    assert requests[0].startswith(b"GET /a%20b?c=d HTTP/1.1\r\nHost: 127.0.0.1:")


async def test_answer_before_the_end_of_the_request_counts() -> None:
    async def body() -> AsyncGenerator[bytes]:
        for _ in range(200):
            yield b"x" * 2**16

    early = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n"
    async with answering(early) as (port, _), client() as http:
        answer = await http.post(
            f"http://127.0.0.1:{port}/", content=body(), headers={"Content-Length": str(200 << 16)}
        )
        assert answer.status_code == 413


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", httpx.RemoteProtocolError),
        (b"no HTTP\r\n\r\n", httpx.RemoteProtocolError),
        (ANSWER[:-1], httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, httpx.RemoteProtocolError),
    ],
    ids=("nothing", "no HTTP", "half", "a long head"),
)
async def test_malformed_answer_is_a_protocol_error(data: bytes, error: type[Exception]) -> None:
    async with answering(data) as (port, _), client() as http:
        with pytest.raises(error):
            await http.get(f"http://127.0.0.1:{port}/")


async def test_refused_connection_and_missing_answer_are_different_errors() -> None:
    with bound_socket() as unused:
        async with client() as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f"http://127.0.0.1:{unused.getsockname()[1]}/")
    async with answering(None) as (port, _), client() as http:
        with pytest.raises(httpx.ReadTimeout):
            await http.get(f"http://127.0.0.1:{port}/", timeout=0.1)


async def test_untrusted_certificate_is_refused(tmp_path: Path) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    async with answering(ANSWER, tls) as (port, _):
        async with client(ssl.create_default_context(cafile=str(certificate))) as http:
            assert (await http.get(f"https://localhost:{port}/")).text == "hi"
        async with client() as http:
            with pytest.raises(httpx.ConnectError):
                await http.get(f"https://localhost:{port}/")


async def test_certificates_of_the_environment_are_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = self_signed(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    trusted = judge_tls._open.__wrapped__(None, None)  # pyright: ignore[reportPrivateUsage]
    async with answering(ANSWER, tls) as (port, _), client(trusted) as http:
        assert (await http.get(f"https://localhost:{port}/")).text == "hi"
