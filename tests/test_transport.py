"""The transport of the tests' client: it returns responses and detects incomplete ones like httpx's own transport."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import httpx
import pytest

from tests import loopback

BOUND: Final = 30
OK: Final = b"HTTP/1.1 200 OK\r\n"


class Scripted:
    """A server that answers the requests of each connection with the given bytes in turn, and then closes the
    connection.
    """

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.requests: list[bytes] = []
        self.connections = 0
        self.hung_up = asyncio.Event()
        """Set when a client has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for answer in self.answers:
            self.requests.append(await self._request(reader))
            if not self.requests[-1]:
                break
            writer.write(answer)
            await writer.drain()
        else:
            writer.close()
            return
        self.hung_up.set()
        writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> bytes:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"transfer-encoding: chunked" in head.lower():
                return head + await reader.readuntil(b"0\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
            return head + await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


@asynccontextmanager
async def scripted(*answers: bytes) -> AsyncGenerator[tuple[Scripted, httpx.AsyncClient]]:
    script = Scripted(*answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, loopback.client(base_url=url, timeout=httpx.Timeout(BOUND)) as http:
        yield script, http


CHUNKED: Final = OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nTrailer: x\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 5\r\n\r\nhello",
        CHUNKED,
        OK + b"\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        + OK
        + b"Content-Length: 5\r\n\r\nhello",
    ],
    ids=["a length", "chunks", "the end", "HTTP/1.0", "after hints"],
)
async def test_a_response_with_any_kind_of_end_is_returned(answer: bytes) -> None:
    async with scripted(answer) as (script, http):
        response = await http.post("/a%20b?c=d", json={"e": "é"})
    assert (response.status_code, response.reason_phrase, response.text) == (200, "OK", "hello")
    assert {"link", "trailer"}.isdisjoint(response.headers)
    head, _, body = script.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /a%20b?c=d HTTP/1.1\r\nHost: 127.0.0.1:")
    assert body == '{"e":"é"}'.encode()


@pytest.mark.parametrize(
    ("method", "answer", "status"),
    [
        ("HEAD", OK + b"Content-Length: 5\r\n\r\n", 200),
        ("HEAD", OK + b"Transfer-Encoding: chunked\r\n\r\n", 200),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", 204),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304),
    ],
)
async def test_a_connection_is_reused_after_an_empty_response(method: str, answer: bytes, status: int) -> None:
    async with scripted(answer, CHUNKED) as (script, http):
        response = await http.request(method, "/")
        assert (response.status_code, response.content) == (status, b"")
        assert (await http.get("/")).text == "hello"
        assert script.connections == 1


async def test_pieces_of_a_request_are_sent_as_chunks() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"", b"two"):
            yield piece

    async with scripted(CHUNKED) as (script, http):
        await http.post("/", content=pieces())
    assert script.requests[0].partition(b"\r\n\r\n")[2] == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 2",
        OK + b"Content-Length: 6\r\n\r\nhello",
        CHUNKED[:-20],
        b"hello",
        OK + b"Content-Length: x\r\n\r\n",
        OK + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["no head", "too short", "no last chunk", "no HTTP", "a length of letters", "two lengths"],
)
async def test_an_incomplete_or_invalid_response_is_an_error(answer: bytes) -> None:
    async with scripted(answer) as (_, http):
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")


async def test_the_start_of_a_cut_response_is_returned() -> None:
    received = b""
    async with scripted(OK + b"Content-Length: 6\r\n\r\nhello") as (_, http), http.stream("GET", "/") as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            async for chunk in answer.aiter_raw():
                received += chunk
    assert received == b"hello"


async def test_leaving_a_stream_closes_its_connection() -> None:
    async with scripted(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"") as (script, http):
        async with http.stream("GET", "/") as answer:
            assert await anext(answer.aiter_raw()) == b"he"
            assert not script.hung_up.is_set()
        async with asyncio.timeout(BOUND):
            await script.hung_up.wait()


async def test_unread_data_is_not_received() -> None:
    """Send more than the buffers of both ends hold."""
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK + b"Content-Length: 100000000\r\n\r\n")
        for _ in range(1000):
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server, loopback.client(timeout=httpx.Timeout(BOUND)) as http:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with http.stream("GET", url) as answer:
            before, turns = -1, 0
            while turns < 1000:  # both ends are in this loop
                turns = turns + 1 if sent == before else 0
                before = sent
                await asyncio.sleep(0)
            assert 0 < sent < 50_000_000
            assert sum([len(chunk) async for chunk in answer.aiter_raw()]) == 100_000_000


async def test_a_connection_closed_by_the_server_is_not_reused() -> None:
    async with scripted(OK + b"Content-Length: 5\r\n\r\nhello") as (script, http):
        for _ in range(3):
            assert (await http.get("/")).text == "hello"
    assert script.connections == 3


async def test_silence_is_a_timeout() -> None:
    async with scripted(b"", b"") as (_, http):
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/", timeout=httpx.Timeout(BOUND, read=0.01))


async def test_a_closed_port_is_a_connect_error() -> None:
    server = await asyncio.start_server(Scripted().serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    async with loopback.client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)
