"""Tests of connection limits over raw sockets.

They cover heads that are too long or never end, bodies that do not arrive, clients that do not read, and too many
connections.
"""

import asyncio
import logging
import socket
import struct
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import uvloop

from babelgate.gateway.http.connection import ConnectionTable, protocol_options
from babelgate.gateway.settings.model import Settings
from tests.gateway.command import served
from tests.gateway.conversing import PATHS
from tests.gateway.log_capture import LogCapture, capture_log
from tests.running import running
from tests.serving import serving

LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Event loops, whose sockets differ in when they write and close. `babelgate serve` uses uvloop."""
BOUND: Final = 30.0
"""Time limit of every wait in a test, in seconds."""
PATIENT: Final = 600.0
"""Timeout that never expires during a test, in seconds."""
LINGER: Final = 0.3
"""Seconds in which a client can send 100 MB, unless the gateway stops reading."""
HANDSHAKE: Final = (
    "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"
)


@dataclass
class App:
    """Application that answers a POST with the length of its body, and a GET to /wait when `go` is set."""

    go: asyncio.Event = field(default_factory=asyncio.Event)
    requests: list[str] = field(default_factory=list[str])
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requests.append(f"{scope['method']} {scope['path']}")
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.set()
                return
            size += len(message["body"])
            more = message["more_body"]
        self.headers = dict(scope["headers"])
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-size", str(size).encode())]})
        if scope["path"] == "/wait":
            await send({"type": "http.response.body", "body": b"first ", "more_body": True})
            await self.go.wait()
        if scope["path"] == "/huge":
            disconnect = asyncio.ensure_future(receive())
            while not (await asyncio.wait([disconnect], timeout=0))[0]:
                await send({"type": "http.response.body", "body": b"x" * 2**20, "more_body": True})
            self.left.set()
        await send({"type": "http.response.body", "body": b"done"})


@dataclass
class Caller:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    sent: int = 0
    """Number of bytes that `flood` has sent."""

    async def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()

    async def rest(self) -> bytes:
        """Read until the connection is closed, and return the bytes."""
        async with asyncio.timeout(BOUND):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def answer(self) -> bytes:
        """Read one complete response of the application."""
        async with asyncio.timeout(BOUND):
            return await self.reader.readuntil(b"0\r\n\r\n")

    async def flood(self, piece: bytes, most: int) -> int:
        """Send pieces until `most` bytes are sent or the connection is closed. Return the number of sent bytes."""
        async with asyncio.timeout(BOUND):
            try:
                while self.sent < most:
                    await self.send(piece)
                    self.sent += len(piece)
            except ConnectionError:
                pass
        return self.sent


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[Caller]:
    address = httpx.URL(url)
    reader, writer = await asyncio.open_connection(address.host, address.port, **options)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def listening(app: App, connections: Mapping[str, int] | None = None, **limits: Any) -> AsyncGenerator[str]:
    timeouts = {"head_timeout": PATIENT, "body_timeout": PATIENT, "send_timeout": PATIENT}
    merged = {**timeouts, **limits, "connections": connections or {}}
    settings = Settings.model_validate({"limits": merged})
    async with serving(app, **protocol_options(settings, LINGER)) as url:
        yield url


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


# Heads that are too long


LONG: Final[Sequence[tuple[str, bytes, bytes, int]]] = (
    ("a path", b"GET /", b"a" * 65536, 414),
    ("a method", b"", b"A" * 65536, 400),
    ("a header", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"a" * 65536, 431),
    ("the name of a header", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"a" * 65536, 431),
    ("headers", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X-Header: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n" * 1000, 431),
    ("empty lines", b"", b"\r\n" * 32768, 431),
    ("a trailer", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ", b"a" * 65536, 431),
    ("trailers", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-A: a\r\n" * 9000, 431),
    ("a chunk's extension", b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a" * 65536, 431),
)


@pytest.mark.parametrize(("start", "piece", "code"), [case[1:] for case in LONG], ids=[case[0] for case in LONG])
async def test_a_head_over_the_limit_is_refused(start: bytes, piece: bytes, code: int) -> None:
    app = App()
    async with listening(app) as url, opened(url) as caller:
        await caller.send(start)
        # The buffers of a socket hold some megabytes that were not read.
        assert await caller.flood(piece, 100 * 2**20) < 32 * 2**20
    async with listening(app) as url, opened(url) as caller:
        await caller.send(start, piece, piece)
        assert status(await caller.rest()) == code
    assert not [each for each in app.requests if each.startswith("GET")]


async def test_a_head_up_to_the_limit_may_arrive_in_pieces() -> None:
    app = App()
    async with listening(app, head=20_000) as url:
        head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 19_900 + b"\r\n\r\n"
        assert len(head) < 20_000
        for size in (len(head), 7_000, 64):
            async with opened(url) as caller:
                await caller.send(*(head[at : at + size] for at in range(0, len(head), size)))
                assert status(await caller.answer()) == 200
        async with opened(url) as caller:
            await caller.send(head.replace(b"X: ", b"X: " + b"a" * 100))
            assert status(await caller.rest()) == 431


async def test_a_large_body_does_not_count_as_head() -> None:
    async with listening(App(), head=1000) as url, opened(url) as caller:
        body = b"x" * 5 * 2**20
        for _ in range(2):  # the second request uses the same connection
            await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body), body)
            assert b"x-size: %d" % len(body) in await caller.answer()
        await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await caller.send(b"%x\r\n" % len(body), body, b"\r\n0\r\n\r\n")
        assert b"x-size: %d" % len(body) in await caller.answer()


async def test_bytes_after_a_body_are_not_headers() -> None:
    app = App()
    async with listening(app) as url, opened(url) as caller:
        await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await caller.send(b"2\r\nhi\r\n0\r\nX-Api-Key: secret\r\n\r\n")
        assert b"x-size: 2" in await caller.answer()
    assert b"x-api-key" not in app.headers


@pytest.mark.parametrize(
    "garbage",
    [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"\x16\x03\x01\0\0"],
)
async def test_a_malformed_request_is_400_and_not_logged(garbage: bytes) -> None:
    with capture_log(logging.WARNING) as logs:
        async with listening(App()) as url, opened(url) as caller:
            await caller.send(garbage)
            assert status(await caller.rest()) == 400
    assert lines(logs) == []


def lines(logs: LogCapture) -> list[str]:
    return [record.getMessage() for record in logs.records if record.name.startswith(("uvicorn.error", "babelgate"))]


@pytest.mark.parametrize(
    ("hosts", "version", "code"),
    [("", "1.1", 400), ("Host: a\r\nHost: b\r\n", "1.1", 400), ("", "1.0", 200), ("Host:\r\n", "1.1", 200)],
)
async def test_a_request_with_two_hosts_is_refused(hosts: str, version: str, code: int) -> None:
    """Refuse two Host headers, because proxies and servers may choose different ones (RFC 9112 §3.2)."""
    async with listening(App()) as url, opened(url) as caller:
        await caller.send(f"GET / HTTP/{version}\r\n{hosts}Connection: close\r\n\r\n".encode())
        assert status(await caller.rest()) == code


async def test_the_number_of_pipelined_requests_is_bounded() -> None:
    app = App()
    async with listening(app) as url:
        async with opened(url) as caller:
            await caller.send(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n" * 5)
            for _ in range(5):
                assert status(await caller.answer()) == 200
        async with opened(url) as caller:
            await caller.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n" * 1000)
            await caller.rest()
        app.go.set()
    assert len(app.requests) < 10


# Timeouts


HALVES: Final[Mapping[str, tuple[bytes, int]]] = {
    "nothing": (b"", 0),
    "half a request line": (b"GET / HT", 408),
    "half of the headers": (b"GET / HTTP/1.1\r\nHost: local", 408),
    "half a body": (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhello", 408),
    "half a body in chunks": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 408),
    "half a chunk's length": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5", 408),
    "half a trailer": (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Tr", 408),
    "half a handshake": (HANDSHAKE.format(path="/").encode(), 408),
}


@pytest.mark.parametrize(("half", "code"), HALVES.values(), ids=list(HALVES))
@pytest.mark.parametrize("again", [False, True], ids=["at first", "after a request"])
async def test_an_incomplete_request_is_closed_after_a_timeout(half: bytes, code: int, again: bool) -> None:
    app = App()
    async with listening(app, head_timeout=0.2, body_timeout=0.2) as url, opened(url) as caller:
        if again:
            await caller.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await caller.answer()
            half = half or b"G"
            code = code or 408
        await caller.send(half)
        assert status(await caller.rest()) == code


async def test_a_slow_drip_of_bytes_does_not_keep_a_connection() -> None:
    """Limit the time of the whole head, and require a minimum speed of the body."""
    for start in (b"GET / HTTP/1.1\r\nHost: ", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"):
        async with listening(App(), head_timeout=0.5, body_timeout=0.5) as url, opened(url) as caller:
            await caller.send(start)
            response = asyncio.ensure_future(caller.rest())
            async with asyncio.timeout(BOUND):
                while not (await asyncio.wait([response], timeout=0.02))[0]:
                    caller.writer.write(b"a")
            assert status(response.result()) == 408


async def passed(url: str) -> None:
    """Wait for as long as the head of a request may take."""
    async with opened(url) as twin:
        await twin.send(b"GET")
        assert status(await twin.rest()) == 408


async def test_a_response_may_take_longer_than_the_request_timeout() -> None:
    app = App()
    async with listening(app, head_timeout=0.2, body_timeout=0.2) as url:
        for start in (
            b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n",
            b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
            b"POST /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /next HT",
        ):
            app.go.clear()
            async with opened(url) as caller:
                await caller.send(start)
                await passed(url)
                await passed(url)
                app.go.set()
                assert b"first" in (await caller.answer())


async def test_a_slow_but_steady_upload_is_accepted() -> None:
    async with listening(App(), head_timeout=0.4, body_timeout=2) as url, opened(url) as caller:
        await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12000\r\n\r\n")
        for _ in range(6):
            await caller.send(b"x" * 2000)
            await passed(url)
        assert b"x-size: 12000" in await caller.answer()


async def test_a_caller_that_expects_100_continue_is_not_timed_out() -> None:
    """Start the timeout of the body only after the app has requested it with 100 Continue (RFC 9110 §10.1.1)."""
    is_called, go = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_called.set()
        await go.wait()
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    settings = Settings.model_validate({"limits": {"head_timeout": 0.2, "body_timeout": 0.2}})
    async with serving(app, **protocol_options(settings)) as url, opened(url) as caller:
        await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
        await is_called.wait()
        await passed(url)
        await passed(url)
        go.set()
        async with asyncio.timeout(BOUND):
            assert b"100 Continue" in await caller.reader.readuntil(b"\r\n\r\n")
        await caller.send(b"hello")
        assert b"hello" in await caller.answer()


async def test_a_body_may_be_finished_after_an_early_response() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with serving(app, **protocol_options(Settings())) as url, opened(url) as caller:
        await caller.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel")
        async with asyncio.timeout(BOUND):
            assert status(await caller.reader.readuntil(b"\r\n\r\n")) == 401
        await caller.send(b"loGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(BOUND):
            assert status(await caller.reader.readuntil(b"\r\n\r\n")) == 401
    settings = Settings.model_validate({"limits": {"body_timeout": 0.3}})
    async with serving(app, **protocol_options(settings)) as url, opened(url) as other:
        await other.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % 2**40)
        assert await other.flood(b"x" * 2**16, 2**40) < 2**40
        assert (await other.rest()).count(b"HTTP/1.1") <= 1


async def _refusing(scope: Any, receive: Any, send: Any) -> None:
    """Answer without reading the body."""
    await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"no"})


@pytest.mark.parametrize("size", [2**16, 2**20, 2**22])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_early_response_is_delivered_before_the_close(method: str, size: int) -> None:
    """Let the client finish: an immediate close would reset the connection and lose the response (RFC 9112 §9.6)."""
    head = f"{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {size}\r\n\r\n".encode()
    async with serving(_refusing, **protocol_options(Settings())) as url:
        address = httpx.URL(url)

        def call() -> bytes:
            """Send everything before reading anything, like a blocking client."""
            with socket.create_connection((address.host, address.port or 0), BOUND) as caller:
                caller.sendall(head)
                for _ in range(0, size, 2**14):
                    caller.sendall(b"x" * 2**14)
                response = b""
                while data := caller.recv(2**16):
                    response += data
                return response

        for _ in range(5):
            response = await asyncio.to_thread(call)
            assert status(response) == 401
            assert response.endswith(b"\r\n\r\nno")


async def test_bytes_after_the_last_response_close_the_connection() -> None:
    async with serving(_refusing, **protocol_options(Settings(), LINGER)) as url, opened(url) as caller:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        await caller.send(head % 5 + b"hel")
        response = await caller.rest()  # the end of the output, but not of the connection
        assert status(response) == 401
        await caller.send(b"loGET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await caller.rest() == b""
    async with serving(_refusing, **protocol_options(Settings(), LINGER)) as url, opened(url) as caller:
        await caller.send(head % 2**40)
        assert await caller.flood(b"x" * 2**16, 2**40) < 32 * 2**20


async def test_a_client_that_does_not_read_is_disconnected() -> None:
    app = App()
    async with listening(app, send_timeout=0.3) as url:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.setblocking(False)
            address = httpx.URL(url)
            await asyncio.get_running_loop().sock_connect(deaf, (address.host, address.port))
            await asyncio.get_running_loop().sock_sendall(deaf, b"GET /huge HTTP/1.1\r\nHost: a\r\n\r\n")
            async with asyncio.timeout(BOUND):
                await app.left.wait()


# Number of connections


async def answered(url: str) -> bool:
    async with opened(url) as caller:
        await caller.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return status(await caller.answer()) == 200


async def test_the_oldest_idle_connection_is_closed_for_a_new_one() -> None:
    app = App()
    async with listening(app, {"total": 3}) as url, opened(url) as first, opened(url) as second, opened(url) as third:
        await first.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await first.answer()  # it is the most recently used one now
        await third.send(b"GET / HTTP/1.1\r\nHo")
        assert await answered(url)
        assert await second.rest() == b""
        async with opened(url) as fourth, opened(url) as fifth:
            assert await third.rest() == b""
            await first.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert status(await first.answer()) == 200
            await fourth.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await fourth.answer()
            await fifth.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await fifth.answer()


async def test_a_connection_is_refused_while_all_are_busy() -> None:
    app = App()
    with capture_log(logging.WARNING) as logs:
        async with listening(app, {"total": 2}) as url, opened(url) as first, opened(url) as second:
            for caller in (first, second):
                await caller.send(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
                async with asyncio.timeout(BOUND):
                    await caller.reader.readuntil(b"first ")
            for _ in range(3):
                async with opened(url) as third:
                    assert status(await third.rest()) == 503
            app.go.set()
            await first.answer()
            assert await answered(url)
    assert len(lines(logs)) == 1
    assert "limits.connections.total" in lines(logs)[0]


class Held(asyncio.Transport):
    """Transport of a simulated connection with a chosen address."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def get_write_buffer_size(self) -> int:
        return 0


def limited(address: int, **settings: Any) -> ConnectionTable:
    connections = {"total": 100, "address": address}
    return ConnectionTable(Settings.model_validate({"limits": {"connections": connections}, **settings}))


def entering(table: ConnectionTable, *addresses: str) -> list[bool]:
    return [table.enter(Held(), address, 0.0) for address in addresses]


def test_each_address_has_a_connection_limit() -> None:
    table = limited(2)
    assert entering(table, *["192.0.2.1"] * 3, "192.0.2.2", "::ffff:192.0.2.1") == [True, True, False, True, False]
    last = Held()
    assert table.enter(last, "192.0.2.2", 0.0)
    assert entering(table, "192.0.2.2") == [False]
    table.leave(last)
    table.leave(last)
    assert entering(table, "192.0.2.2", "192.0.2.2") == [True, False]


def test_an_ipv6_network_counts_as_one_address() -> None:
    table = limited(2)
    assert entering(table, "2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1") == [True, True, False, True]


def test_loopback_and_trusted_proxies_have_no_limit_per_address() -> None:
    table = limited(1, trusted_proxies=["10.0.0.0/8"])
    assert all(entering(table, *["127.0.0.1"] * 20, *["::1"] * 20, *["10.1.2.3"] * 20, *["::ffff:10.1.2.3"] * 20))
    assert entering(table, "192.0.2.1", "192.0.2.1") == [True, False]


# WebSockets


def handshake(more: str = "") -> bytes:
    """Return the handshake of a WebSocket for a new thread."""
    return f"{HANDSHAKE.format(path=PATHS[0].format(thread_id=uuid4()))}{more}\r\n".encode()


async def test_a_websocket_is_counted_until_it_is_closed(tmp_path: Path) -> None:
    limits = {"connections": {"total": 2}}
    async with running(tmp_path, limits=limits) as gateway, opened(gateway.url) as one, opened(gateway.url) as other:
        for caller in (one, other):
            await caller.send(handshake())
            async with asyncio.timeout(BOUND):
                assert b" 101 " in await caller.reader.readuntil(b"\r\n\r\n")
        async with opened(gateway.url) as third:
            assert status(await third.rest()) == 503
        await one.send(frame(8))
        await one.rest()
        assert (await gateway.http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("X: " + "a" * 9000 + "\r\n", 431),
        ("X: a\r\n" * 200, 431),
        ("Sec-WebSocket-Key: second\r\n", 400),
        ("Content-Length: 5\r\n", 400),
        ("Transfer-Encoding: chunked\r\n", 400),
    ],
)
async def test_a_handshake_that_cannot_be_read_is_answered(tmp_path: Path, more: str, code: int) -> None:
    with capture_log(logging.WARNING) as logs:
        async with running(tmp_path) as gateway, opened(gateway.url) as caller:
            await caller.send(handshake(more))
            assert status(await caller.rest()) == code
    assert logs.errors == []


def frame(opcode: int, payload: bytes = b"", *, last: bool = True) -> bytes:
    """Return a WebSocket frame of a client, with a mask of zeros (RFC 6455 §5.2). `last` is False for a frame whose
    message continues in the next one."""
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + struct.pack("!H", len(payload))
    return bytes([0x80 * last | opcode]) + size + b"\0\0\0\0" + payload


async def test_a_client_that_ignores_pongs_is_not_read_further(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, opened(gateway.url) as caller:
        await caller.send(handshake())
        sending = asyncio.ensure_future(caller.flood(frame(9, b"x" * 120) * 1000, 64 * 2**20))
        before = -1
        while before != caller.sent:  # until the gateway reads no more
            before = caller.sent
            assert not (await asyncio.wait([sending], timeout=0.5))[0], "64 MB of pings were read"
        sending.cancel()
        assert (await gateway.http.get("/healthz")).status_code == 200


async def test_an_endless_fragmented_message_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path) as gateway, opened(gateway.url) as caller:
        await caller.send(handshake())
        await caller.send(frame(1, last=False))
        assert await caller.flood(frame(0, last=False) * 1000, 100 * 2**20) < 32 * 2**20


# Open files


def with_open_files(soft: int, hard: int) -> tuple[str, ...]:
    """Return the command line of the program with these limits of open files."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))"
    return sys.executable, "-c", f"{limit}; import runpy; runpy.run_module('babelgate', run_name='__main__')"


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"]
)
def test_exhausted_file_descriptors_do_not_stop_the_listener(tmp_path: Path, sent: bytes) -> None:
    with served(tmp_path, program=with_open_files(300, 300)) as gateway:
        address = httpx.URL(gateway.url)
        idle = [socket.create_connection((address.host, address.port or 0), BOUND) for _ in range(400)]
        try:
            for each in idle:
                try:
                    each.sendall(sent)
                except ConnectionError:
                    continue
            body = {"agent_name": "echo", "input": [{"role": "user", "parts": [{"content": "hello"}]}]}
            for _ in range(3):
                answer = httpx.post(f"{gateway.url}/acp/runs", json=body, timeout=BOUND)
                assert answer.json()["status"] == "completed"
        finally:
            for each in idle:
                each.close()
        assert "Too many open files" not in gateway.stop()


def test_the_limit_of_open_files_is_raised(tmp_path: Path) -> None:
    with served(tmp_path, program=with_open_files(100, 5000)) as gateway:
        (line,) = (
            line
            for line in Path(f"/proc/{gateway.process.pid}/limits").read_text().splitlines()
            if line.startswith("Max open files")
        )
        assert line.split()[3] == "5000"
