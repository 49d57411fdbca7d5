"""HTTP/1.1 transport for httpx, reduced to the needs of tests: plain, with one request at a time on each connection.

httpx's own transport supports several kinds of event loop and parses in Python. It takes half the time of a test that
sends a thousand requests to a gateway in its process. The parser here is httptools, as in uvicorn.
"""

import asyncio
import select
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final

import httptools
import httpx

_MOST_BYTES: Final = 2**16
"""Bytes of a body that are buffered for a slow reader. After that, the server sees that its data is not read."""
_ENDED: Final = "peer closed connection without sending complete message body"


class Transport(httpx.AsyncBaseTransport):
    """Transport that keeps all connections for later requests, without a limit."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, int], list[_Connection]] = {}
        self._all: set[_Connection] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and return the response. Raises httpx.TransportError."""
        assert request.url.scheme != "https", f"{request.url}: tests with TLS need a separate client"
        if request.url.scheme != "http":
            raise httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{request.url.scheme}://'.")
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        connection = await self._connected(request.url, timeouts.get("connect"))
        try:
            connection.begin(request.method, timeouts.get("read"))
            await connection.send(request, timeouts.get("write"))
            status, reason, headers = await connection.head()
        except BaseException:
            await connection.close()
            raise
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": reason}
        body = _Body(self, connection)
        return httpx.Response(status, headers=headers, stream=body, extensions=extensions, request=request)

    async def aclose(self) -> None:
        for connection in list(self._all):
            await connection.close()

    async def _connected(self, url: httpx.URL, bound: float | None) -> "_Connection":
        to = (url.host, url.port or 80)
        idle = self._idle.get(to, [])
        while idle:
            if not (reused := idle.pop()).is_stale():
                return reused
            await reused.close()
        try:
            async with asyncio.timeout(bound):
                _, created = await asyncio.get_running_loop().create_connection(lambda: _Connection(self._all, to), *to)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("") from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return created

    def keep(self, connection: "_Connection") -> None:
        self._idle.setdefault(connection.to, []).append(connection)


class _Body(httpx.AsyncByteStream):
    def __init__(self, transport: Transport, connection: "_Connection") -> None:
        self._transport = transport
        self._connection: _Connection | None = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert self._connection is not None
        while chunk := await self._connection.read():
            yield chunk

    async def aclose(self) -> None:
        """Reuse the connection if the body was read to its end, and close it otherwise."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if connection.is_reusable:
            self._transport.keep(connection)
        else:
            await connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self, connections: "set[_Connection]", to: tuple[str, int]) -> None:
        self.to = to
        self.is_closed = False
        self._connections = connections
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._news = asyncio.Event()
        self._is_paused = False
        self.begin("", None)

    # Callbacks of asyncio

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport
        self._connections.add(self)

    def data_received(self, data: bytes) -> None:
        try:
            if self._is_whole:
                raise httptools.HttpParserError("the server says what nobody asked for")
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(httpx.RemoteProtocolError(str(error)))
        if self._held > _MOST_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._news.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        self._connections.discard(self)
        if not self._is_whole:
            if exc is not None:
                self._fail(httpx.ReadError(str(exc)))
            elif self._headers is None:
                self._fail(httpx.RemoteProtocolError("Server disconnected without sending a response."))
            elif self._is_bounded:
                self._fail(httpx.RemoteProtocolError(_ENDED))
        self._is_whole = True
        self._news.set()
        self._writable.set()
        self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _fail(self, error: httpx.TransportError) -> None:
        """Fail with an error, after the data that arrived before it."""
        self._error = self._error or error
        self._transport.abort()

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        if self._is_whole:
            raise httptools.HttpParserError("the server answers twice")
        self._found: list[tuple[bytes, bytes]] = []
        self._reason = b""

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._found.append((name, value))

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status < 200:
            return
        self._headers = self._found
        self._found = []  # later headers are trailers
        self._is_reusable = self._parser.should_keep_alive()
        names = {name.lower() for name, _ in self._headers}
        self._is_bounded = not names.isdisjoint((b"content-length", b"transfer-encoding"))
        if self._is_head:
            self.on_message_complete()

    def on_body(self, data: bytes) -> None:
        if not self._is_whole:
            self._chunks.append(data)
            self._held += len(data)

    def on_message_complete(self) -> None:
        if self._headers is not None:
            self._is_whole = True

    # Interface of the transport

    @property
    def is_reusable(self) -> bool:
        """True if the last response is complete."""
        return self._is_reusable and self._is_whole and not self._chunks and not self.is_closed

    def is_stale(self) -> bool:
        """Return True if the server has closed the connection, even if the event loop has not noticed it yet."""
        if self.is_closed:
            return True
        looking = select.poll()
        looking.register(self._transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(looking.poll(0))

    def begin(self, method: str, bound: float | None) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._is_head = method == "HEAD"
        self._bound = bound
        self._headers: list[tuple[bytes, bytes]] | None = None
        self._chunks: deque[bytes] = deque()
        self._held = 0
        self._is_whole = self._is_reusable = self._is_bounded = False
        self._error: httpx.TransportError | None = None

    async def send(self, request: httpx.Request, bound: float | None) -> None:
        """Send a request. If the server closes the connection meanwhile, it may still have answered."""
        lines = [b"%s %s HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
        lines += [b"%s: %s" % each for each in request.headers.raw]
        head = b"\r\n".join((*lines, b"\r\n"))
        is_chunked = "transfer-encoding" in request.headers
        if isinstance(request.stream, httpx.ByteStream) and not is_chunked:
            await self._write(head + b"".join(request.stream), bound)
            return
        assert isinstance(request.stream, httpx.AsyncByteStream)
        await self._write(head, bound)
        async for chunk in request.stream:
            if chunk:
                await self._write(b"%x\r\n%s\r\n" % (len(chunk), chunk) if is_chunked else chunk, bound)
        if is_chunked:
            await self._write(b"0\r\n\r\n", bound)

    async def _write(self, data: bytes, bound: float | None) -> None:
        if self.is_closed:
            return
        self._transport.write(data)
        if not self._writable.is_set():
            try:
                async with asyncio.timeout(bound):
                    await self._writable.wait()
            except TimeoutError as error:
                raise httpx.WriteTimeout("") from error

    async def head(self) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        while self._headers is None:
            await self._more()
        return self._status, self._reason, self._headers

    async def read(self) -> bytes:
        """Return the next data, or nothing at the end."""
        while not self._chunks:
            if self._is_whole and self._error is None:
                return b""
            await self._more()
        whole = self._chunks.popleft() if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        self._held = 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return whole

    async def _more(self) -> None:
        if self._error is not None:
            raise self._error
        self._news.clear()
        try:
            async with asyncio.timeout(self._bound):
                await self._news.wait()
        except TimeoutError as error:
            raise httpx.ReadTimeout("") from error

    async def close(self) -> None:
        if not self.is_closed:
            self._transport.abort()
        # Shielded, because cancelling one waiter would cancel the future for all.
        await asyncio.shield(self._closed)
