"""The transport of the tests' own client tells what a server says, and whether that was all, as httpx's own would."""

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
    """A server that answers the requests of each connection with the given bytes in turn, and then hangs up."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.heard: list[bytes] = []
        self.connections = 0
        self.hung_up = asyncio.Event()
        """A client has closed its connection."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for answer in self.answers:
            self.heard.append(await self._request(reader))
            if not self.heard[-1]:
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
    said = Scripted(*answers)
    server = await asyncio.start_server(said.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, loopback.client(base_url=url, timeout=httpx.Timeout(BOUND)) as http:
        yield said, http


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
async def test_an_answer_is_told_however_its_end_is_shown(answer: bytes) -> None:
    async with scripted(answer) as (said, http):
        told = await http.post("/a%20b?c=d", json={"e": "é"})
    assert (told.status_code, told.reason_phrase, told.text) == (200, "OK", "hello")
    assert {"link", "trailer"}.isdisjoint(told.headers)
    head, _, body = said.heard[0].partition(b"\r\n\r\n")
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
async def test_an_answer_without_a_body_has_none_and_its_connection_is_used_again(
    method: str, answer: bytes, status: int
) -> None:
    async with scripted(answer, CHUNKED) as (said, http):
        told = await http.request(method, "/")
        assert (told.status_code, told.content) == (status, b"")
        assert (await http.get("/")).text == "hello"
        assert said.connections == 1


async def test_pieces_of_a_request_are_sent_as_chunks() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"one", b"", b"two"):
            yield piece

    async with scripted(CHUNKED) as (said, http):
        await http.post("/", content=pieces())
    assert said.heard[0].partition(b"\r\n\r\n")[2] == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


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
async def test_an_answer_that_is_cut_or_no_answer_is_an_error(answer: bytes) -> None:
    async with scripted(answer) as (_, http):
        with pytest.raises(httpx.RemoteProtocolError):
            await http.get("/")


async def test_what_came_before_an_answer_was_cut_is_told() -> None:
    told = b""
    async with scripted(OK + b"Content-Length: 6\r\n\r\nhello") as (_, http), http.stream("GET", "/") as answer:
        with pytest.raises(httpx.RemoteProtocolError):
            async for chunk in answer.aiter_raw():
                told += chunk
    assert told == b"hello"


async def test_who_leaves_in_the_middle_hangs_up() -> None:
    async with scripted(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", b"") as (said, http):
        async with http.stream("GET", "/") as answer:
            assert await anext(answer.aiter_raw()) == b"he"
            assert not said.hung_up.is_set()
        async with asyncio.timeout(BOUND):
            await said.hung_up.wait()


async def test_what_is_not_read_is_not_taken_from_the_server() -> None:
    """But for what fits into the buffers of both ends."""
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


async def test_a_connection_that_the_server_has_ended_is_not_used_again() -> None:
    async with scripted(OK + b"Content-Length: 5\r\n\r\nhello") as (said, http):
        for _ in range(3):
            assert (await http.get("/")).text == "hello"
    assert said.connections == 3


async def test_silence_is_a_timeout() -> None:
    async with scripted(b"", b"") as (_, http):
        with pytest.raises(httpx.ReadTimeout):
            await http.get("/", timeout=httpx.Timeout(BOUND, read=0.01))


async def test_where_nobody_listens_is_an_error() -> None:
    server = await asyncio.start_server(Scripted().serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    server.close()
    await server.wait_closed()
    async with loopback.client() as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(url)
