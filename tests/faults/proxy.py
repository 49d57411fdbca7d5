"""A proxy on loopback that disturbs connections like networks, other proxies and dying servers do, as scripted by a
test.

One connection carries one request, unless `keeps` is set.
"""

import asyncio
import re
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

BOUND: Final = 30.0
"""Timeout of every step that does not wait for an agent, in seconds."""
_LINGER: Final = struct.pack("ii", 1, 0)
_LENGTH: Final = re.compile(rb"^content-length: *(\d+)\r$", re.IGNORECASE | re.MULTILINE)
_CHUNKED: Final = re.compile(rb"^transfer-encoding: *chunked\r$", re.IGNORECASE | re.MULTILINE)
_CONNECTION: Final = re.compile(rb"^connection:[^\n]*\n", re.IGNORECASE | re.MULTILINE)


class Link:
    """One connection, with the request that came over it."""

    def __init__(
        self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        self.request = request
        self.passed = b""
        """Part of the response that has been sent to the caller."""
        self._reader = reader
        self._writer = writer
        self._address = host, port
        self._far: asyncio.StreamWriter | None = None
        self._left = asyncio.ensure_future(self._until_left())

    @property
    def line(self) -> str:
        return self.request.partition(b"\r\n")[0].decode()

    async def ask(self, *, half: bool = False) -> "Far":
        """Connect to the server, pass the request on, and return the server's side of the connection. With `half`,
        close the sending side after the request.

        If the caller disconnects, the connection to the server is aborted.
        """
        reader, self._far = await asyncio.open_connection(*self._address)
        self._far.write(self.request)
        if half:
            self._far.write_eof()
        return Far(reader)

    async def _until_left(self) -> None:
        with suppress(ConnectionError):
            while await self._reader.read(65536):
                pass
        if self._far is not None:
            self._far.transport.abort()

    async def left(self) -> None:
        """Wait until the caller has closed its side."""
        await asyncio.shield(self._left)

    async def tell(self, data: bytes) -> None:
        await self.write(data)
        self.passed += data

    async def write(self, data: bytes) -> None:
        """Write data that does not count as part of the response."""
        self._writer.write(data)
        await self._writer.drain()

    async def pass_on(self, after: int | bytes | None = None) -> bool:
        """Pass the response on, up to a number of bytes or the end of a word in it. Return False if the response ended
        before that place."""
        far = await self.ask()
        while data := await far.read():
            stop = _stop(self.passed, data, after)
            await self.tell(data[:stop])
            if stop is not None:
                return True
        return False

    def reset(self) -> None:
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
        self._writer.transport.abort()

    def finish(self) -> None:
        self._writer.write_eof()

    async def close(self) -> None:
        for each in (self._writer, self._far):
            if each is not None:
                each.close()
        self._left.cancel()
        await asyncio.wait((self._left,))


class Far:
    """The server's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def read(self) -> bytes:
        """Return the next bytes, or none when the connection has ended in any way."""
        try:
            return await self._reader.read(65536)
        except ConnectionError:
            return b""


def _stop(passed: bytes, data: bytes, after: int | bytes | None) -> int | None:
    """Return the position in the data at which the response must stop."""
    if after is None:
        return None
    at = after
    if isinstance(at, bytes):
        found = (passed + data).find(at)
        if found < 0:
            return None
        at = found + len(at)
    return at - len(passed) if at <= len(passed) + len(data) else None


class Trouble(ABC):
    @abstractmethod
    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        """Break the connection, and call `struck` at the moment of the break."""


@dataclass(frozen=True)
class Cut(Trouble):
    """An end of the connection in the middle of the response, with a FIN or an RST."""

    after: int | bytes
    reset: bool = False

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        await link.pass_on(self.after)
        if self.reset:
            link.reset()
        struck()


@dataclass(frozen=True)
class Stall(Trouble):
    """A stall: no more bytes arrive, and no side disconnects. If `asks`, the server still gets the request."""

    after: int | bytes
    asks: bool = True

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        if self.asks:
            await link.pass_on(self.after)
        struck()
        await link.left()


@dataclass(frozen=True)
class HalfAnswered(Trouble):
    """A half-closed connection: the server's side is closed in the middle of the response, the caller's stays open."""

    after: int | bytes

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        await link.pass_on(self.after)
        link.finish()
        struck()
        async with asyncio.timeout(BOUND):
            await link.left()


@dataclass(frozen=True)
class HalfAsked(Trouble):
    """A half-closed connection: the caller's side is closed after the request, while the response still arrives."""

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        struck()
        far = await link.ask(half=True)
        while data := await far.read():
            await link.tell(data)


@dataclass(frozen=True)
class Instead(Trouble):
    """Other bytes instead of the response. If `asks`, the server still gets the request and works."""

    answer: bytes
    asks: bool = False

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        if self.asks:
            await (await link.ask()).read()
        struck()
        await link.tell(self.answer)


@dataclass(frozen=True)
class Changed(Trouble):
    """The server's own response with a changed body."""

    change: Callable[[bytes], bytes]

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        far, answer = await link.ask(), b""
        while data := await far.read():
            answer += data
        head, _, body = answer.partition(b"\r\n\r\n")
        if _CHUNKED.search(head + b"\r\n"):
            body = _whole(body)
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(_FRAMING)]
        struck()
        await link.write(b"\r\n".join([*lines, b"Connection: close", b"", b""]) + self.change(body))


_FRAMING: Final = (b"content-length:", b"transfer-encoding:", b"connection:")


def _whole(chunks: bytes) -> bytes:
    found = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        found, chunks = found + rest[:length], rest[length + 2 :]
        if not length:
            break
    return found


@dataclass(frozen=True)
class Endless(Trouble):
    """Other bytes instead of the response, and then the same bytes repeatedly, as long as the caller reads.

    `most` is a limit in bytes.
    """

    start: bytes
    again: bytes
    most: int = 4 * 2**30

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        struck()
        await link.tell(self.start)
        piece = self.again * (65536 // len(self.again) + 1)
        for _ in range(self.most // len(piece)):
            await link.write(piece)


@dataclass(frozen=True)
class Slow(Trouble):
    """A response whose head arrives byte by byte."""

    async def befall(self, link: Link, struck: Callable[[], None]) -> None:
        struck()
        far = await link.ask()
        while data := await far.read():
            while data and b"\r\n\r\n" not in link.passed:
                await link.tell(data[:1])
                data = data[1:]
                await asyncio.sleep(0)
            await link.tell(data)


def status(code: int, *, asks: bool = False, retry_after: int | None = None) -> Instead:
    """Return the error response of a proxy that has lost its server, with the status `code`. With `asks`, the server
    still gets the request. `retry_after` is the header `Retry-After` in seconds; None omits it."""
    body = b"<html>out of order</html>"
    head = f"HTTP/1.1 {code} Sorry\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    if retry_after is not None:
        head += f"Retry-After: {retry_after}\r\n"
    return Instead(head.encode() + b"\r\n" + body, asks)


class Proxy:
    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._at: tuple[str, int] = ("127.0.0.1", 0)
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.reset()

    def reset(self) -> None:
        """Remove the script, before each test."""
        self.keeps = False
        """True if connections are passed through unchanged, with all their requests."""
        self.script: list[tuple[re.Pattern[bytes], Trouble]] = []
        """Patterns with their troubles, in this order.

        The next request that matches the first pattern gets its trouble.
        """
        self.luck: Callable[[], Trouble | None] | None = None
        """Function that returns the trouble of each request that matches no pattern of `script`. None: no trouble."""
        self.links: list[Link] = []
        self.struck = asyncio.Event()
        self.came_back = asyncio.Event()
        """Set when another request arrives after the disturbance."""

    def befall(self, request: bytes, *troubles: Trouble) -> None:
        """Give the troubles to the next requests that match the expression, one each."""
        pattern = re.compile(request, re.MULTILINE | re.DOTALL)
        self.script += [(pattern, trouble) for trouble in troubles]

    @property
    def url(self) -> str:
        return f"http://{self._at[0]}:{self._at[1]}"

    @property
    def asked(self) -> list[str]:
        return [link.line for link in self.links]

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, *self._at)
        self._at = self._server.sockets[0].getsockname()[:2]

    def shut(self) -> None:
        """Stop listening."""
        assert self._server is not None
        self._server.close()

    def hang_up(self) -> None:
        """Close the connections that are open."""
        for writer in self._serving.values():
            writer.close()

    async def close(self) -> None:
        self.shut()
        for writer in self._serving.values():
            writer.transport.abort()
        if self._serving:
            await asyncio.wait(list(self._serving), timeout=BOUND)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await (self._keep(reader, writer) if self.keeps else self._link(reader, writer))
        finally:
            writer.close()
            del self._serving[task]

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(await _request(reader), reader, writer, self._host, self._port)
        if self.struck.is_set():
            self.came_back.set()
        self.links.append(link)
        trouble = self._trouble(link.request)
        try:
            if trouble is None:
                await link.pass_on()
            else:
                await trouble.befall(link, self.struck.set)
        finally:
            await link.close()

    def _trouble(self, request: bytes) -> Trouble | None:
        if self.script and self.script[0][0].search(request):
            return self.script.pop(0)[1]
        return None if self.luck is None else self.luck()

    async def _keep(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(ConnectionError):
                while data := await source.read(65536):
                    sink.write(data)
                    await sink.drain()
            sink.close()

        await asyncio.gather(pipe(reader, far_writer), pipe(far_reader, writer))


async def _request(reader: asyncio.StreamReader) -> bytes:
    """Read one request, and mark its connection as used for no other."""
    head = await reader.readuntil(b"\r\n\r\n")
    body = b""
    if found := _LENGTH.search(head):
        body = await reader.readexactly(int(found[1]))
    elif _CHUNKED.search(head):
        body = await reader.readuntil(b"0\r\n\r\n")
    return _CONNECTION.sub(b"", head).replace(b"\r\n", b"\r\nConnection: close\r\n", 1) + body


@asynccontextmanager
async def proxied(upstream: str) -> AsyncGenerator[Proxy]:
    proxy = Proxy(upstream)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
