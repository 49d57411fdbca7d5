"""The transport of the clients does what httpx's own does: every test here is of both."""

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

from babelgate.adapters.kit.client.transport import HttpTransport
from tests.certificate import self_signed

BOUND: Final = 30.0
SILENCE: Final = 0.2
"""Seconds after which a client gives up."""
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
STREAM: Final = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
BEGUN: Final = STREAM + b"3\r\none\r\n"
MIB: Final = 1024 * 1024

Make = Callable[[httpx.Limits], httpx.AsyncBaseTransport]
Handle = Callable[["Link"], Awaitable[None]]

TRANSPORTS: Final[dict[str, Make]] = {
    "httpx": lambda limits: httpx.AsyncHTTPTransport(limits=limits),
    "ours": HttpTransport,
}


@pytest.fixture(params=TRANSPORTS)
def make(request: pytest.FixtureRequest) -> Make:
    return TRANSPORTS[request.param]


class Link:
    """One connection, on the server's side."""

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

    async def tell(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def left(self) -> None:
        """Until the client has closed its side."""
        with suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


class Peer:
    """A server that does with every connection what it is told to."""

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
    made = Peer(handle)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0, ssl=tls)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        if made.serving:
            async with asyncio.timeout(BOUND):
                await made.idle.wait()


def saying(*answers: bytes) -> Handle:
    """One answer for each request that comes over a connection, and the last one for ever."""

    async def handle(link: Link) -> None:
        left = list(answers)
        while True:
            await link.request()
            await link.tell(left.pop(0) if len(left) > 1 else left[0])

    return handle


def holding(said: bytes, heard: list[bytes] | None = None) -> Handle:
    """One answer, on a connection that stays open."""

    async def handle(link: Link) -> None:
        request = await link.request()
        if heard is not None:
            heard.append(request)
        await link.tell(said)
        await link.left()

    return handle


def after_request(said: bytes, *, reset: bool = False) -> Handle:
    """One answer, and then the connection ends."""

    async def handle(link: Link) -> None:
        await link.request()
        await link.tell(said)
        if reset:
            link.reset()

    return handle


@asynccontextmanager
async def calling(make: Make, limits: httpx.Limits | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None) if limits is None else limits
    async with asyncio.timeout(BOUND), httpx.AsyncClient(transport=make(limits), timeout=BOUND) as http:
        yield http


async def until(holds: Callable[[], bool]) -> None:
    """Turn the loop until something holds that nobody tells of."""
    async with asyncio.timeout(BOUND):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


async def some_turns() -> None:
    """What is ready in the loop is done."""
    for _ in range(20):
        await asyncio.sleep(0)


# What is sent, and what comes back


async def test_an_answer_comes_with_its_status_headers_and_body_as_they_were_sent(make: Make) -> None:
    said = b"HTTP/1.1 418 Short and stout\r\nX-Tea: Caf\xe9 \xff\r\nx-tea: 2\r\nContent-Length: 5\r\n\r\nhello"
    async with peer(saying(said)) as server, calling(make) as http:
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


def sent(raw: bytes) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    head, _, body = raw.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, sorted((name.lower(), value) for name, _, value in (each.partition(b": ") for each in headers)), body


@pytest.mark.parametrize("build", REQUESTS.values(), ids=REQUESTS)
async def test_a_request_is_what_httpx_makes_of_it(build: Callable[[httpx.AsyncClient, str], httpx.Request]) -> None:
    heard: list[bytes] = []
    async with peer(holding(OK, heard)) as server:
        for make in TRANSPORTS.values():
            async with calling(make) as http:
                await http.send(build(http, server.url))
    theirs, ours = map(sent, heard)
    assert ours == theirs


async def test_a_body_that_comes_in_pieces_goes_out_in_pieces(make: Make) -> None:
    heard: list[bytes] = []

    async def pieces() -> AsyncGenerator[bytes]:
        yield b"one"
        yield b"two"

    async with peer(holding(OK, heard)) as server, calling(make) as http:
        assert (await http.post(server.url, content=pieces())).content == b"hello"
    assert heard[0].endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert heard[0].lower().count(b"transfer-encoding: chunked") == 1


async def test_a_large_body_arrives_whole(make: Make) -> None:
    heard: list[bytes] = []
    said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (4 * MIB) + b"y" * 4 * MIB
    async with peer(holding(said, heard)) as server, calling(make) as http:
        assert (await http.post(server.url, content=b"x" * 4 * MIB)).content == b"y" * 4 * MIB
    assert heard[0].endswith(b"x" * 4 * MIB)


async def test_nothing_is_decoded_followed_or_kept_that_httpx_would_not(make: Make) -> None:
    packed = gzip.compress(b"hello")
    head = b"HTTP/1.1 302 Found\r\nLocation: /there\r\nSet-Cookie: a=1\r\nContent-Encoding: gzip\r\n"
    async with peer(saying(head + b"Content-Length: %d\r\n\r\n" % len(packed) + packed)) as server:
        async with calling(make) as http, http.stream("GET", server.url) as response:
            assert response.status_code == 302
            assert b"".join([piece async for piece in response.aiter_raw()]) == packed
        async with calling(make) as http:
            assert (await http.get(server.url)).content == b"hello"


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("POST", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_an_answer_without_a_body_ends_with_its_head(make: Make, method: str, said: bytes) -> None:
    async with peer(saying(said)) as server, calling(make) as http:
        for _ in range(2):
            assert (await http.request(method, server.url)).content == b""
    assert server.links == 1


async def test_what_a_server_says_before_its_answer_is_passed_over(make: Make) -> None:
    said = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK
    async with peer(saying(said)) as server, calling(make) as http:
        assert (await http.post(server.url, content=b"x")).content == b"hello"


async def test_a_body_is_read_as_it_comes(make: Make) -> None:
    heard = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.tell(BEGUN)
        await heard.wait()
        await link.tell(b"3\r\ntwo\r\n0\r\n\r\n")
        await link.left()

    async with peer(handle) as server, calling(make) as http, http.stream("GET", server.url) as response:
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"one"
        heard.set()
        assert await anext(pieces) == b"two"
        assert [piece async for piece in pieces] == []


async def test_a_body_without_a_length_ends_with_its_connection(make: Make) -> None:
    async with peer(after_request(b"HTTP/1.1 200 OK\r\n\r\nhello")) as server, calling(make) as http:
        assert (await http.get(server.url)).content == b"hello"


async def test_a_server_does_not_get_ahead_of_its_reader_without_bound(make: Make) -> None:
    told = 0

    async def handle(link: Link) -> None:
        nonlocal told
        await link.request()
        await link.tell(STREAM)
        while True:
            await link.tell(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            told += 65536

    async with peer(handle) as server, calling(make) as http, http.stream("GET", server.url):
        before = -1
        while told > before:  # the sockets' own buffers take some
            before = told
            await some_turns()
        assert told < 64 * MIB


# What goes wrong


HALF: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"
BROKEN: Final[dict[str, tuple[Handle, type[httpx.TransportError]]]] = {
    "no answer": (after_request(b""), httpx.RemoteProtocolError),
    "reset": (after_request(b"", reset=True), httpx.ReadError),
    "half a head": (after_request(b"HTTP/1.1 200 OK\r\nContent-"), httpx.RemoteProtocolError),
    "half a head, reset": (after_request(b"HTTP/1.1 200 OK\r\nContent-", reset=True), httpx.ReadError),
    "no head": (after_request(b"hello, this is no HTTP\r\n\r\n"), httpx.RemoteProtocolError),
    "bad length": (after_request(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), httpx.RemoteProtocolError),
    "endless head": (after_request(b"HTTP/1.1 200 OK\r\nX-Tea: " + b"x" * MIB), httpx.RemoteProtocolError),
    "half a body": (after_request(HALF), httpx.RemoteProtocolError),
    "half a body, reset": (after_request(HALF, reset=True), httpx.ReadError),
    "half a stream": (after_request(STREAM + b"5\r\nhello\r\n"), httpx.RemoteProtocolError),
    "half a stream, reset": (after_request(STREAM + b"5\r\nhello\r\n", reset=True), httpx.ReadError),
    "body without a length, reset": (after_request(b"HTTP/1.1 200 OK\r\n\r\nhello", reset=True), httpx.ReadError),
    "bad chunk": (after_request(STREAM + b"5\r\nhello\r\nxyz\r\n"), httpx.RemoteProtocolError),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("handle", "raised"), BROKEN.values(), ids=BROKEN)
async def test_a_request_whose_connection_breaks_is_sent_once(
    make: Make, handle: Handle, raised: type[httpx.TransportError], method: str
) -> None:
    async with peer(handle) as server, calling(make) as http:
        with pytest.raises(httpx.TransportError) as caught:
            await http.request(method, server.url, content=b"x")
    assert caught.type is raised
    assert server.links == 1


@pytest.mark.parametrize(
    "said",
    [
        (b"hello, this is no HTTP\r\n\r\n",),
        (BEGUN + b"xyz\r\n",),
        (BEGUN, b"xyz\r\n"),
        (BEGUN, b"3\r\ntwothree\r\n"),
    ],
    ids=["head", "with the head", "behind the head", "too much"],
)
async def test_what_is_no_http_is_not_waited_out(make: Make, said: tuple[bytes, ...]) -> None:
    read = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        for piece in said:
            await link.tell(piece)
            await read.wait()
        await link.left()

    async with peer(handle) as server, calling(make) as http:
        with pytest.raises(httpx.RemoteProtocolError):
            async with http.stream("GET", server.url) as response:
                async for _ in response.aiter_raw():
                    read.set()
        read.set()
        await server.idle.wait()


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_kept_connection_that_breaks_is_not_asked_again(make: Make, method: str, reset: bool) -> None:
    heard: list[bytes] = []

    async def handle(link: Link) -> None:
        await link.request()
        await link.tell(OK)
        heard.append(await link.request())
        if reset:
            link.reset()

    async with peer(handle) as server, calling(make) as http:
        assert (await http.get(server.url)).content == b"hello"
        with pytest.raises(httpx.TransportError) as caught:
            await http.request(method, server.url, content=b"x")
    assert caught.type is (httpx.ReadError if reset else httpx.RemoteProtocolError)
    assert (server.links, len(heard)) == (1, 1)


@pytest.mark.parametrize("reset", [False, True])
async def test_what_came_before_a_break_is_read_before_it(make: Make, reset: bool) -> None:
    """Also by a reader that is busy with something else when it breaks."""
    told, seen = asyncio.Event(), asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.tell(BEGUN)
        await seen.wait()
        await link.tell(b"3\r\ntwo\r\n")
        await link.tell(b"5\r\nthree\r\n")
        if reset:  # what is not read yet goes with the connection, so it is cut when it has been
            await some_turns()
            link.reset()
        told.set()

    said = b""
    async with peer(handle) as server, calling(make) as http, http.stream("GET", server.url) as response:
        pieces = response.aiter_raw()
        said += await anext(pieces)
        seen.set()
        await told.wait()
        await server.idle.wait()
        await some_turns()
        with pytest.raises(httpx.ReadError if reset else httpx.RemoteProtocolError):
            async for piece in pieces:
                said += piece
    assert said == b"onetwothree"


async def test_where_nobody_listens_there_was_no_connection(make: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with calling(make) as http:
            with pytest.raises(httpx.ConnectError):
                await http.post(f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def test_to_a_name_that_there_is_not_there_was_no_connection(make: Make) -> None:
    async with calling(make) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("http://nobody.invalid/")


async def test_where_no_connection_is_taken_there_was_none(make: Make) -> None:
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for each in (first, second):
            each.setblocking(False)
            each.connect_ex(deaf.getsockname())
        async with calling(make) as http:
            with pytest.raises(httpx.ConnectTimeout):
                await http.get(
                    f"http://127.0.0.1:{deaf.getsockname()[1]}/", timeout=httpx.Timeout(BOUND, connect=SILENCE)
                )


async def mute(link: Link) -> None:
    await link.left()


async def test_where_no_tls_is_spoken_there_was_no_connection(make: Make) -> None:
    async def plain(link: Link) -> None:
        await link.tell(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await link.left()

    async with peer(plain) as server, calling(make) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get(server.url.replace("http", "https"))
    async with peer(mute) as server, calling(make) as http:
        with pytest.raises(httpx.ConnectTimeout):
            await http.get(server.url.replace("http", "https"), timeout=httpx.Timeout(BOUND, connect=SILENCE))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"), "localhost")


async def test_a_certificate_is_verified_for_the_name_in_the_url(
    make: Make, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*certificate)
    async with peer(saying(OK), served) as server:
        async with calling(make) as http:
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.post(f"https://localhost:{server.port}/")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        async with calling(make) as http:
            for _ in range(2):
                assert (await http.post(f"https://localhost:{server.port}/")).content == b"hello"
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await http.post(f"https://127.0.0.1:{server.port}/")
    assert server.links == 1, "the others had come to nothing"


async def test_a_server_that_is_silent_times_out(make: Make) -> None:

    for handle in (holding(b""), holding(HALF)):
        async with peer(handle) as server, calling(make) as http:
            with pytest.raises(httpx.ReadTimeout):
                await http.post(server.url, timeout=httpx.Timeout(BOUND, read=SILENCE))
            await server.idle.wait()  # it hung up, too


async def test_time_in_which_nobody_reads_is_no_silence(make: Make) -> None:
    late = asyncio.Event()

    async def handle(link: Link) -> None:
        await link.request()
        await link.tell(BEGUN)
        with suppress(TimeoutError):
            async with asyncio.timeout(SILENCE * 2):
                await link.left()
        late.set()
        await link.tell(b"3\r\ntwo\r\n0\r\n\r\n")
        await link.left()

    async with peer(handle) as server, calling(make) as http:
        http.timeout = httpx.Timeout(BOUND, read=SILENCE)
        async with http.stream("GET", server.url) as response:
            pieces = response.aiter_raw()
            assert await anext(pieces) == b"one"
            await late.wait()
            assert await anext(pieces) == b"two"


async def test_a_server_that_does_not_take_the_request_times_out(make: Make) -> None:
    release = asyncio.Event()

    async def handle(link: Link) -> None:
        await release.wait()
        await link.left()

    async with peer(handle) as server, calling(make) as http:
        with pytest.raises(httpx.WriteTimeout):
            await http.post(server.url, content=b"x" * 32 * MIB, timeout=httpx.Timeout(BOUND, write=SILENCE))
        release.set()
        await server.idle.wait()  # the rest is not sent after all


async def test_what_is_no_request_is_not_sent(make: Make) -> None:
    async with peer(saying(OK)) as server, calling(make) as http:
        with pytest.raises(httpx.UnsupportedProtocol):
            await http.get("ftp://127.0.0.1/")
        with pytest.raises(httpx.LocalProtocolError):
            await http.get(server.url, headers={"X-Tea": "1\r\nX-Coffee: 2"})
        assert server.links <= 1
        assert (await http.get(server.url)).content == b"hello"


# Which connections are kept


async def test_a_connection_is_used_again_when_its_answer_was_read(make: Make) -> None:
    async with peer(saying(OK)) as server, calling(make) as http:
        for _ in range(3):
            assert (await http.post(server.url, content=b"x")).content == b"hello"
    assert server.links == 1


async def test_a_connection_is_closed_when_its_answer_was_not_read(make: Make) -> None:
    async with peer(holding(BEGUN)) as server, calling(make) as http:
        async with http.stream("GET", server.url) as response:
            assert await anext(response.aiter_raw()) == b"one"
        await server.idle.wait()


@pytest.mark.parametrize("handle", [holding(b""), mute], ids=["waits for the answer", "sends"])
async def test_a_connection_is_closed_when_its_call_is_cancelled(make: Make, handle: Handle) -> None:
    async with peer(handle) as server, calling(make) as http:
        call = asyncio.ensure_future(http.post(server.url, content=b"x" * MIB))
        await until(lambda: server.links == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.idle.wait()


async def test_a_connection_is_closed_when_the_reading_of_its_answer_is_cancelled(make: Make) -> None:
    began = asyncio.Event()

    async def read() -> None:
        async with http.stream("GET", server.url) as response:
            async for _ in response.aiter_raw():
                began.set()

    async with peer(holding(BEGUN)) as server, calling(make) as http:
        reading = asyncio.ensure_future(read())
        await began.wait()
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        await server.idle.wait()


@asynccontextmanager
async def sockets() -> AsyncGenerator[tuple[str, Callable[[], Awaitable[socket.socket]]]]:
    """A server without a loop: what it does is done when the call of it returns. `accept` takes a connection and
    answers its first request."""
    loop = asyncio.get_running_loop()
    taken: list[socket.socket] = []

    async def accept() -> socket.socket:
        link, _ = await loop.sock_accept(listener)
        link.setblocking(False)
        taken.append(link)
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
            for link in taken:
                link.close()


async def test_a_kept_connection_that_was_closed_this_moment_is_not_used(make: Make) -> None:
    async with sockets() as (url, accept), calling(make) as http:
        first, link = await asyncio.gather(http.post(url), accept())
        link.close()  # nobody has told the client's loop, which does not turn before the next call
        second, _ = await asyncio.gather(http.post(url), accept())
    assert first.content == second.content == b"hello"


@pytest.mark.parametrize("heard", [False, True])
async def test_an_answer_that_nobody_asked_for_is_nobodys(make: Make, heard: bool) -> None:
    async with sockets() as (url, accept), calling(make) as http:
        first, link = await asyncio.gather(http.post(url), accept())
        link.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")
        if heard:
            await some_turns()
        second, _ = await asyncio.gather(http.post(url), accept())
    assert first.content == second.content == b"hello"


async def test_no_more_connections_are_kept_than_the_limit(make: Make) -> None:
    together = asyncio.Barrier(3)

    async def handle(link: Link) -> None:
        await link.request()
        await together.wait()
        await link.tell(OK)
        await link.request()
        await link.tell(OK)
        await link.left()

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1)
    async with peer(handle) as server, calling(make, limits) as http:
        await asyncio.gather(*(http.get(server.url) for _ in range(3)))
        assert (await http.get(server.url)).content == b"hello"
        assert server.links == 3, "one was kept"
        await until(lambda: server.serving == 1)


async def test_of_the_kept_connections_only_as_many_are_used_as_are_needed(make: Make) -> None:
    """In turns, all of them would always be as old as their server lets them be, and break with the next request."""
    together = asyncio.Barrier(3)
    used: list[Link] = []

    async def handle(link: Link) -> None:
        await link.request()
        await together.wait()
        await link.tell(OK)
        while True:
            await link.request()
            used.append(link)
            await link.tell(OK)

    async with peer(handle) as server, calling(make) as http:
        await asyncio.gather(*(http.get(server.url) for _ in range(3)))
        for _ in range(6):
            await http.get(server.url)
    assert (len(used), len(set(used))) == (6, 1)


async def test_a_connection_is_kept_for_as_long_as_the_limit_says(make: Make) -> None:
    limits = httpx.Limits(max_connections=None, keepalive_expiry=0)
    async with peer(saying(OK)) as server, calling(make, limits) as http:
        for _ in range(2):
            assert (await http.get(server.url)).content == b"hello"
    assert server.links == 2


async def test_nothing_stays_open_when_it_is_closed(make: Make) -> None:
    async with peer(saying(OK)) as server:
        async with calling(make) as http:
            await http.get(server.url)
        async with asyncio.timeout(BOUND):
            await server.idle.wait()
