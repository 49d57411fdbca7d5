"""Transport for HTTPX that opens a new connection for each request and parses the response with h11.

HTTPX's default transport keeps a connection pool and supports several kinds of event loop, neither of which is needed
here. Measured: it took a third of the total time of a check.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

import h11
import httpx

_MAX_HEAD: Final = 100 * 1024
"""Maximum size of a status line with its headers, or of the header of a chunk, in bytes. HTTPX has the same limit."""


class ConnectionPool(httpx.AsyncBaseTransport):
    def __init__(self, tls: ssl.SSLContext) -> None:
        self._tls = tls

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request on a new connection and return the response, whose body is still unread. Raises
        httpx.TransportError."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        exchange = _Exchange(await self._connect(request.url, timeouts.get("connect")), timeouts.get("read"))
        try:
            await exchange.send(request, timeouts.get("write"))
            head = await exchange.head()
        except BaseException:
            await exchange.aclose()
            raise
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            stream=exchange,
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason},
            request=request,
        )

    async def _connect(self, url: httpx.URL, bound: float | None) -> "_Connection":
        host = url.raw_host.decode("ascii")
        secure: dict[str, Any] = {"ssl": self._tls, "server_hostname": host} if url.scheme == "https" else {}
        loop = asyncio.get_running_loop()
        async with _limit_time(httpx.ConnectTimeout, bound):
            try:
                _, connection = await loop.create_connection(
                    _Connection, host, url.port or (443 if secure else 80), **secure
                )
            except OSError as error:
                if isinstance(error, TimeoutError):
                    raise
                raise httpx.ConnectError(str(error)) from error
        return connection


class _Connection(asyncio.Protocol):
    """TCP or TLS connection. Data that arrived before the connection was lost can still be read, while asyncio's
    StreamReader discards it."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._is_ended = False
        self._error: Exception | None = None
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        self._news.set()
        self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._is_ended = True
        self._news.set()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended, self._error = True, exc
        for event in (self._news, self._writable, self._closed):
            event.set()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    async def read(self) -> bytes:
        """Return the next bytes that arrive, or empty bytes if the server has closed the connection. Raises OSError if
        the connection was lost."""
        while not self._chunks:
            if self._error is not None:
                raise self._error
            if self._is_ended:
                return b""
            self._news.clear()
            self._transport.resume_reading()
            await self._news.wait()
        return self._chunks.popleft()

    async def write(self, data: bytes) -> None:
        """Write the data and wait until the buffer has room again. Raises OSError if the connection was lost."""
        if self._error is not None:
            raise self._error
        self._transport.write(data)
        await self._writable.wait()

    async def close(self) -> None:
        self._transport.close()
        self._transport.abort()
        await self._closed.wait()


class _Exchange(httpx.AsyncByteStream):
    """One request and its response on a connection. Iteration yields the body of the response, as HTTPX requires of a
    stream."""

    def __init__(self, connection: _Connection, bound: float | None) -> None:
        self._connection = connection
        self._bound = bound
        self._parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD)

    async def send(self, request: httpx.Request, bound: float | None) -> None:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
        # A server that closes the connection before it has read the whole request may still have answered it.
        with _translate_errors(), suppress(OSError):
            pending = self._parser.send(head) or b""
            async for chunk in request.stream:
                await self._write(pending + (self._parser.send(h11.Data(data=chunk)) or b""), bound)
                pending = b""
            await self._write(pending + (self._parser.send(h11.EndOfMessage()) or b""), bound)

    async def _write(self, data: bytes, bound: float | None) -> None:
        if data:
            async with _limit_time(httpx.WriteTimeout, bound):
                await self._connection.write(data)

    async def head(self) -> h11.Response:
        """Read and return the status line and headers of the final response. Raises httpx.RemoteProtocolError if the
        server closes the connection first."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise httpx.RemoteProtocolError("the server ended the connection without an answer")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def aclose(self) -> None:
        await self._connection.close()

    async def _next(self) -> Any:
        while True:
            with _translate_errors():
                event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                async with _limit_time(httpx.ReadTimeout, self._bound):
                    data = await self._connection.read()
            except OSError as error:
                raise httpx.ReadError(str(error)) from error
            if not data and self._parser.their_state is h11.SEND_RESPONSE:
                raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
            self._parser.receive_data(data)


@contextmanager
def _translate_errors() -> Generator[None]:
    try:
        yield
    except h11.LocalProtocolError as error:
        raise httpx.LocalProtocolError(str(error)) from error
    except h11.RemoteProtocolError as error:
        raise httpx.RemoteProtocolError(str(error)) from error


@asynccontextmanager
async def _limit_time(kind: type[httpx.TimeoutException], bound: float | None) -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(bound):
            yield
    except TimeoutError as error:
        raise kind("") from error
