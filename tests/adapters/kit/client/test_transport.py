"""The clients' transport behaves like that of httpx: every test runs with both, and with one that records."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from babelgate.adapters.kit.client.exchanges import RECORDER, ExchangeRecorder
from babelgate.adapters.kit.client.transport import HttpTransport
from tests.certificate import self_signed

BOUND: Final = 30.0
SILENCE: Final = 0.2
"""Seconds of silence after which a client times out."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
STREAM: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BEGUN: Final = STREAM + b"3\r\none\r\n"
MIB: Final = 1024 * 1024

Make = Callable[[httpx.Limits], httpx.AsyncBaseTransport]
Handle = Callable[["Link"], Awaitable[None]]


class RecordingTransport(HttpTransport):
    """Transport of the gateway's clients that behaves as in a run whose HTTP exchanges are recorded."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        token = RECORDER.set(ExchangeRecorder(lambda: 1, lambda recorder, size: None))
        try:
            return await super().handle_async_request(request)
        finally:
            RECORDER.reset(token)


TRANSPORTS: Final[dict[str, Make]] = {
    "httpx": lambda limits: httpx.AsyncHTTPTransport(limits=limits),
    "babelgate": HttpTransport,
    "recorded": RecordingTransport,
}


@pytest.fixture(params=TRANSPORTS)
def make(request: pytest.FixtureRequest) -> Make:
    return TRANSPORTS[request.param]


class Link:
    """Server side of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                return head + await self.reader.readexactly(int(line[15:]))
            if line.startswith(b"transfer-encoding:"):
                return head + await self.reader.readuntil(b"0\r\n\r\n")
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the client has closed its side."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


class Peer:
    """Server that handles every connection as the test says."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.links = 0
        self.requests: list[bytes] = []
        self.port = 0
        self.serving = 0
        self.idle = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.links += 1
        self.serving += 1
        self.idle.clear()
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._handle(Link(reader, writer))
        finally:
            writer.close()
            self.serving -= 1
            if not self.serving:
                self.idle.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"


@asynccontextmanager
async def peer(handle: Handle, tls: ssl.SSLContext | None = None) -> AsyncGenerator[Peer]:
    opened = Peer(handle)
    server = await asyncio.start_server(opened.serve, "127.0.0.1", 0, ssl=tls)
    opened.port = server.sockets[0].getsockname()[1]
    try:
        yield opened
    finally:
        server.close()
        if opened.serving:
            async with asyncio.timeout(BOUND):
                await opened.idle.wait()


def respond(*answers: bytes) -> Handle:
    """Return a handler of connections that answers the requests of one with these responses in turn; the last one
    repeats."""

    async def handle(link: Link) -> None:
        remaining = list(answers)
        while True:
            await link.request()
            await link.send(remaining.pop(0) if len(remaining) > 1 else remaining[0])

    return handle


def respond_and_hold(response: bytes, requests: list[bytes] | None = None) -> Handle:
    """Return a handler of connections that answers one request, and keeps the connection open. It appends the request
    to `requests`."""

    async def handle(link: Link) -> None:
        request = await link.request()
        if requests is not None:
            requests.append(request)
        await link.send(response)
        await link.wait_closed()

    return handle


def respond_and_close(response: bytes, *, reset: bool = False) -> Handle:
    """Return a handler of connections that answers one request, and then closes the connection or, with `reset`, resets
    it."""

    async def handle(link: Link) -> None:
        await link.request()
        await link.send(response)
        if reset:
            link.reset()

    return handle


@asynccontextmanager
async def client_of(make: Make, limits: httpx.Limits | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None) if limits is None else limits
    async with asyncio.timeout(BOUND), httpx.AsyncClient(transport=make(limits), timeout=BOUND) as http:
        yield http


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds. For conditions of which no event gives notice."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def some_turns() -> None:
    """Let the loop run everything that is ready."""
    for _ in range(20):
        await asyncio.sleep(0)


# Requests and responses


async def test_status_headers_and_body_arrive_as_sent(make: Make) -> None:
    raw = b"HTTP/1.1 418 Short and stout\r\nX-Tea: Caf\xe9 \xff\r\nx-tea: 2\r\nContent-Length: 5\r\n\r\nhello"
    async with peer(respond(raw)) as server, client_of(make) as http:
        response = await http.get(server.url)
    assert (response.status_code, response.content) == (418, b"hello")
    assert response.headers.raw == [(b"X-Tea", b"Caf\xe9 \xff"), (b"x-tea", b"2"), (b"Content-Length", b"5")]
    assert (response.http_version, response.reason_phrase) == ("HTTP/1.1", "Short and stout")


REQUESTS: Final[dict[str, Callable[[httpx.AsyncClient, str], httpx.Request]]] = {
    "get": lambda http, url: http.build_request("GET", url),
    "query": lambda http, url: http.build_request("GET", f"{url}a%2Fb%20c/~é?q=%7B%7D&x=+&y=%2b"),
    "empty post": lambda http, url: http.build_request("POST", url),
    "json": lambda http, url: http.build_request("POST", url, json={"a": 1}),
    "bytes": lambda http, url: http.build_request("PUT", url, content=b"bytes"),
    "file": lambda http, url: http.build_request(
        "POST", url, files={"file": ("a.txt", b"text")}, headers={"Content-Type": "multipart/form-data; boundary=b"}
    ),
    "password": lambda http, url: http.build_request("GET", url.replace("//", "//me:secret@")),
    "no user agent": lambda http, url: http.build_request("GET", url, headers={"User-Agent": ""}),
    "twice": lambda http, url: http.build_request("GET", url, headers=[("X-Tea", "1"), ("X-Tea", "2")]),
    "host": lambda http, url: http.build_request("GET", url, headers={"Host": "elsewhere.example"}),
}


def parse_request(raw: bytes) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, sorted((name.lower(), value) for name, _, value in (each.partition(b": ") for each in headers)), body


@pytest.mark.parametrize("build", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_equals_that_of_httpx(build: Callable[[httpx.AsyncClient, str], httpx.Request]) -> None:
    requests: list[bytes] = []
    async with peer(respond_and_hold(OK, requests)) as server:
        for make in TRANSPORTS.values():
            async with client_of(make) as http:
                await http.send(build(http, server.url))
    expected, *others = map(parse_request, requests)
    assert others == [expected] * (len(TRANSPORTS) - 1)


async def test_a_streamed_body_is_sent_in_chunks(make: Make) -> None:
    requests: list[bytes] = []

    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        yield b"two"

    async with peer(respond_and_hold(OK, requests)) as server, client_of(make) as http:
        assert (await http.post(server.url, content=pieces())).content == b"hello"
    assert requests[0].endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert requests[0].lower().count(b"transfer-encoding: chunked") == 1


async def test_a_large_body_arrives_whole(make: Make) -> None:
    requests: list[bytes] = []
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 * MIB) + b"y" * 4 * MIB
    async with peer(respond_and_hold(response, requests)) as server, client_of(make) as http:
        assert (await http.post(server.url, content=b"x" * 4 * MIB)).content == b"y" * 4 * MIB
    assert requests[0].endswith(b"x" * 4 * MIB)


async def test_bodies_redirects_and_cookies_are_left_to_httpx(make: Make) -> None:
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nSet-Cookie: a=1\r\nContent-Encoding: gzip\r\n"
    async with peer(respond(head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)) as server:
        async with client_of(make) as http, http.stream("GET", server.url) as response:
            assert response.status_code == 302
            assert b"".join([piece async for piece in response.aiter_raw()]) == packed
        async with client_of(make) as http:
            assert (await http.get(server.url)).content == b"hello"


@pytest.mark.parametrize(
    ("method", "head"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_a_response_without_a_body_ends_with_its_head(make: Make, method: str, head: bytes) -> None:
    async with peer(respond(head)) as server, client_of(make) as http:
        for _ in range(2):
            assert (await http.request(method, server.url)).content == b""
    assert server.links == 1


async def test_an_informational_response_is_skipped(make: Make) -> None:
    responses = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK
    async with peer(respond(responses)) as server, client_of(make) as http:
        assert (await http.post(server.url, content=b"x")).content == b"hello"


async def test_a_body_is_read_as_it_arrives(make: Make) -> None:
    received = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.send(BEGUN)
        await received.wait()
        await link.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await link.wait_closed()

    async with peer(handle) as server, client_of(make) as http, http.stream("GET", server.url) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"one"
        received.set()
        assert await anext(pieces) == b"two"
        assert [piece async for piece in pieces] == []


async def test_a_body_without_a_length_ends_with_its_connection(make: Make) -> None:
    async with peer(respond_and_close(b"HTTP/1.1 200 OK\r\n\r\nhello")) as server, client_of(make) as http:
        assert (await http.get(server.url)).content == b"hello"


async def test_a_slow_reader_limits_how_much_a_server_sends(make: Make) -> None:
    size = 0

    async def handle(link: Link) -> None:
        nonlocal size
        await link.request()
        await link.send(STREAM)
        while True:
            await link.send(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            size += 65536

    async with peer(handle) as server, client_of(make) as http, http.stream("GET", server.url):
        before = -1
        while size > before:  # the buffers of the sockets hold some
            before = size
            await some_turns()
        assert size < 64 * MIB


# Errors


HALF: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
BROKEN: Final[dict[str, tuple[Handle, type[httpx.TransportError]]]] = {
    "no answer": (respond_and_close(b""), httpx.RemoteProtocolError),
    "reset": (respond_and_close(b"", reset=True), httpx.ReadError),
    "half a head": (respond_and_close(b"HTTP/1.1 200 OK\r\nContent-"), httpx.RemoteProtocolError),
    "half a head, reset": (respond_and_close(b"HTTP/1.1 200 OK\r\nContent-", reset=True), httpx.ReadError),
    "no head": (respond_and_close(b"hello, this is no HTTP\r\n\r\n"), httpx.RemoteProtocolError),
    "bad length": (respond_and_close(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), httpx.RemoteProtocolError),
    "endless head": (respond_and_close(b"HTTP/1.1 200 OK\r\nX-Tea: " + b"x" * MIB), httpx.RemoteProtocolError),
    "half a body": (respond_and_close(HALF), httpx.RemoteProtocolError),
    "half a body, reset": (respond_and_close(HALF, reset=True), httpx.ReadError),
    "half a stream": (respond_and_close(STREAM + b"5\r\nhello\r\n"), httpx.RemoteProtocolError),
    "half a stream, reset": (respond_and_close(STREAM + b"5\r\nhello\r\n", reset=True), httpx.ReadError),
    "body without a length, reset": (respond_and_close(b"HTTP/1.1 200 OK\r\n\r\nhello", reset=True), httpx.ReadError),
    "bad chunk": (respond_and_close(STREAM + b"5\r\nhello\r\nxyz\r\n"), httpx.RemoteProtocolError),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("handle", "raised"), BROKEN.values(), ids=BROKEN)
async def test_a_request_is_not_repeated_if_its_connection_breaks(
    make: Make, handle: Handle, raised: type[httpx.TransportError], method: str
) -> None:
    async with peer(handle) as server, client_of(make) as http:
        with pytest.raises(httpx.TransportError) as caught:
            await http.request(method, server.url, content=b"x")
    assert caught.type is raised
    assert server.links == 1


@pytest.mark.parametrize(
    "pieces",
    [
        (b"hello, this is no HTTP\r\n\r\n",),
        (BEGUN + b"xyz\r\n",),
        (BEGUN, b"xyz\r\n"),
        (BEGUN, b"3\r\ntwothree\r\n"),
    ],
    ids=["head", "with the head", "after the head", "too much"],
)
async def test_an_invalid_response_closes_the_connection(make: Make, pieces: tuple[bytes, ...]) -> None:
    read = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        for piece in pieces:
            await link.send(piece)
            await read.wait()
        await link.wait_closed()

    async with peer(handle) as server, client_of(make) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            async with http.stream("GET", server.url) as response:
                async for _ in response.aiter_raw():
                    read.set()
        read.set()
        await server.idle.wait()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_request_is_not_repeated_if_an_idle_connection_breaks(make: Make, method: str, reset: bool) -> None:
    requests: list[bytes] = []

    async def handle(link: Link) -> None:
        await link.request()
        await link.send(OK)
        requests.append(await link.request())
        if reset:
            link.reset()

    async with peer(handle) as server, client_of(make) as http:
        assert (await http.get(server.url)).content == b"hello"
        with pytest.raises(httpx.TransportError) as caught:
            await http.request(method, server.url, content=b"x")
    assert caught.type is (httpx.ReadError if reset else httpx.RemoteProtocolError)
    assert (server.links, len(requests)) == (1, 1)


@pytest.mark.parametrize("reset", [False, True])
async def test_data_before_a_break_is_read_before_the_error(make: Make, reset: bool) -> None:
    """Read all data even if the connection breaks while the reader is busy."""
    all_sent, first_read = asyncio.Event(), asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.send(BEGUN)
        await first_read.wait()
        await link.send(b"3\r\ntwo\r\n")
        await link.send(b"5\r\nthree\r\n")
        if reset:  # a reset discards unread data, so the client has to read first
            await some_turns()
            link.reset()
        all_sent.set()

    body = b""
    async with peer(handle) as server, client_of(make) as http, http.stream("GET", server.url) as response:
        pieces = response.aiter_raw()
        body += await anext(pieces)
        first_read.set()
        await all_sent.wait()
        await server.idle.wait()
        await some_turns()
        with pytest.raises(httpx.ReadError if reset else httpx.RemoteProtocolError):
            async for piece in pieces:
                body += piece
    assert body == b"onetwothree"


async def test_a_closed_port_is_a_connect_error(make: Make) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        async with client_of(make) as http:
            with pytest.raises(httpx.ConnectError):
                await http.post(f"http://127.0.0.1:{unused.getsockname()[1]}/")


async def test_an_unknown_host_is_a_connect_error(make: Make) -> None:
    async with client_of(make) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://nobody.invalid/")


async def test_a_full_backlog_is_a_connect_timeout(make: Make) -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(listener.getsockname())
        async with client_of(make) as http:
            with pytest.raises(httpx.ConnectTimeout):
                await http.get(
                    f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=httpx.Timeout(BOUND, connect=SILENCE)
                )


async def stay_silent(link: Link) -> None:
    await link.wait_closed()


async def test_a_failed_tls_handshake_is_a_connect_error(make: Make) -> None:
    async def plain(link: Link) -> None:
        await link.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await link.wait_closed()

    async with peer(plain) as server, client_of(make) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(server.url.replace("http", "https"))
    async with peer(stay_silent) as server, client_of(make) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.get(server.url.replace("http", "https"), timeout=httpx.Timeout(BOUND, connect=SILENCE))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost")


async def test_a_certificate_is_verified_for_the_name_in_the_url(
    make: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    async with peer(respond(OK), context) as server:
        async with client_of(make) as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.post(f"https://localhost:{server.port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        async with client_of(make) as http:
            for _ in range(2):
                assert (await http.post(f"https://localhost:{server.port}/")).content == b"hello"
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.post(f"https://127.0.0.1:{server.port}/")
    assert server.links == 1, "only one handshake succeeds"


async def test_a_silent_server_times_out(make: Make) -> None:
    for handle in (respond_and_hold(b""), respond_and_hold(HALF)):
        async with peer(handle) as server, client_of(make) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post(server.url, timeout=httpx.Timeout(BOUND, read=SILENCE))
            await server.idle.wait()  # the client has also disconnected


async def test_time_without_a_reader_does_not_count_as_silence(make: Make) -> None:
    late = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.send(BEGUN)
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE * 2):
                await link.wait_closed()
        late.set()
        await link.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await link.wait_closed()

    async with peer(handle) as server, client_of(make) as http:
        http.timeout = httpx.Timeout(BOUND, read=SILENCE)
        async with http.stream("GET", server.url) as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"one"
            await late.wait()
            assert await anext(pieces) == b"two"


async def test_a_server_that_does_not_read_the_request_times_out(make: Make) -> None:
    release = asyncio.Event()

    async def handle(link: Link) -> None:
        await release.wait()
        await link.wait_closed()

    async with peer(handle) as server, client_of(make) as http:
        with pytest.raises(httpx.WriteTimeout):
            await http.post(server.url, content=b"x" * 32 * MIB, timeout=httpx.Timeout(BOUND, write=SILENCE))
        release.set()
        await server.idle.wait()  # the rest of the body is not sent


async def test_an_invalid_request_is_not_sent(make: Make) -> None:
    async with peer(respond(OK)) as server, client_of(make) as http:
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get("ftp://127.0.0.1/")
        with pytest.raises(httpx.LocalProtocolError):
            await http.get(server.url, headers={"X-Tea": "1\r\nX-Coffee: 2"})
        assert server.links <= 1
        assert (await http.get(server.url)).content == b"hello"


# Idle connections


async def test_a_connection_is_reused_after_its_response_was_read(make: Make) -> None:
    async with peer(respond(OK)) as server, client_of(make) as http:
        for _ in range(3):
            assert (await http.post(server.url, content=b"x")).content == b"hello"
    assert server.links == 1


async def test_a_connection_is_closed_if_its_response_was_not_read(make: Make) -> None:
    async with peer(respond_and_hold(BEGUN)) as server, client_of(make) as http:
        async with http.stream("GET", server.url) as response:
            assert await anext(response.aiter_raw()) == b"one"
        await server.idle.wait()


@pytest.mark.parametrize("handle", [respond_and_hold(b""), stay_silent], ids=["waits for the answer", "sends"])
async def test_a_connection_is_closed_when_its_call_is_cancelled(make: Make, handle: Handle) -> None:
    async with peer(handle) as server, client_of(make) as http:
        call = asyncio.ensure_future(http.post(server.url, content=b"x" * MIB))
        await until(lambda: server.links == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.idle.wait()


async def test_a_connection_is_closed_when_its_reader_is_cancelled(make: Make) -> None:
    began = asyncio.Event()

    async def read() -> None:
        async with http.stream("GET", server.url) as response:
            async for _ in response.aiter_raw():
                began.set()

    async with peer(respond_and_hold(BEGUN)) as server, client_of(make) as http:
        reading = asyncio.ensure_future(read())
        await began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.idle.wait()


@asynccontextmanager
async def sockets() -> AsyncGenerator[tuple[str, Callable[[], Awaitable[socket.socket]]]]:
    """Serve without the event loop, so that a call has taken effect when it returns.

    Yields the URL and `accept`, which accepts a connection and answers its first request.
    """
    loop = asyncio.get_running_loop()
    links: list[socket.socket] = []

    async def accept() -> socket.socket:
        link, _ = await loop.sock_accept(listener)
        link.setblocking(False)
        links.append(link)
        await loop.sock_recv(link, 65536)
        await loop.sock_sendall(link, OK)
        return link

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/", accept
        finally:
            for link in links:
                link.close()


async def test_an_idle_connection_that_has_just_closed_is_not_used(make: Make) -> None:
    async with sockets() as (url, accept), client_of(make) as http:
        first, link = await asyncio.gather(http.post(url), accept())
        link.close()  # the client's loop does not turn before the next call, so it does not know
        second, _ = await asyncio.gather(http.post(url), accept())
    assert first.content == second.content == b"hello"


@pytest.mark.parametrize("received", [False, True])
async def test_a_response_without_a_request_is_discarded(make: Make, received: bool) -> None:
    async with sockets() as (url, accept), client_of(make) as http:
        first, link = await asyncio.gather(http.post(url), accept())
        link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
        if received:
            await some_turns()
        second, _ = await asyncio.gather(http.post(url), accept())
    assert first.content == second.content == b"hello"


async def test_idle_connections_are_limited(make: Make) -> None:
    together = asyncio.Barrier(3)

    async def handle(link: Link) -> None:
        await link.request()
        await together.wait()
        await link.send(OK)
        await link.request()
        await link.send(OK)
        await link.wait_closed()

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1)
    async with peer(handle) as server, client_of(make, limits) as http:
        await asyncio.gather(*(http.get(server.url) for _ in range(3)))
        assert (await http.get(server.url)).content == b"hello"
        assert server.links == 3, "one connection was kept and reused"
        await until(lambda: server.serving == 1)


async def test_the_most_recent_idle_connection_is_reused_first(make: Make) -> None:
    """Use one connection again and again: in rotation, every connection would grow old and break with a request."""
    together = asyncio.Barrier(3)
    used: list[Link] = []

    async def handle(link: Link) -> None:
        await link.request()
        await together.wait()
        await link.send(OK)
        while True:
            await link.request()
            used.append(link)
            await link.send(OK)

    async with peer(handle) as server, client_of(make) as http:
        await asyncio.gather(*(http.get(server.url) for _ in range(3)))
        for _ in range(6):
            await http.get(server.url)
    assert (len(used), len(set(used))) == (6, 1)


async def test_an_expired_connection_is_not_reused(make: Make) -> None:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=0)
    async with peer(respond(OK)) as server, client_of(make, limits) as http:
        for _ in range(2):
            assert (await http.get(server.url)).content == b"hello"
    assert server.links == 2


async def test_closing_the_client_closes_its_connections(make: Make) -> None:
    async with peer(respond(OK)) as server:
        async with client_of(make) as http:
            await http.get(server.url)
        async with asyncio.timeout(BOUND):
            await server.idle.wait()
