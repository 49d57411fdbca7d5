"""HTTP transport and connection pool: httpx with the connections of aiohttp. Its responses and errors are those of
httpx's own transport, for a fraction of the CPU time."""

import asyncio
import select
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import lru_cache, partial
from typing import Any, Final

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from yarl import URL

from babelgate.adapters.kit.client.answers import READ
from babelgate.adapters.kit.client.exchanges import RECORDER, RecordedExchange
from babelgate.adapters.kit.client.tls import ClientTls, default_context

HEADER_LIMIT: Final = 64 * 1024
"""Maximum size of one line of a response's head, in bytes. Chosen."""
_SMALL_BODY: Final = 32 * 1024
"""Size up to which a body is sent in one piece and without a timeout, in bytes. Chosen: less than the event loop
accepts at once (64 KiB), so that the write never waits for the server."""
CheckAddress = Callable[[str], None]
"""Function that raises OSError for an address to which no connection may be opened."""
_ERRORS: Final = (aiohttp.ClientError, OSError)


class HttpTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 transport for one event loop, without a proxy and without a limit on concurrent connections.

    - `limits` says how many idle connections stay open, and for how many seconds.
    - `check_address` gets the address of each server before a connection is opened, and raises OSError to refuse it.
    - `tls` has the certificates for https. By default the CAs of the system are trusted.
    """

    def __init__(
        self, limits: httpx.Limits, check_address: CheckAddress | None = None, tls: ClientTls | None = None
    ) -> None:
        self._limits = limits
        self._check_address = check_address
        self._tls_files = tls
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request. Raises httpx.TransportError, as every transport of httpx does."""
        if request.url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{request.url.scheme}://'.")
        recorder = RECORDER.get()
        exchange = None if recorder is None else recorder.begin(request.method, str(request.url), request.headers.raw)
        if exchange is None:
            return await self._send(request, None)
        try:
            return await self._send(request, exchange)
        except BaseException as error:
            exchange.note_end(error)
            raise

    async def _send(self, request: httpx.Request, exchange: RecordedExchange | None) -> httpx.Response:
        """Send a request, and record it in `exchange` if that is not None. Raises httpx.TransportError."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        headers, has_body = _read_headers(request)
        try:
            response = await self._open_session().request(
                request.method,
                _url(request.url),
                headers=headers,
                data=_make_body(request, exchange, timeouts.get("write")) if has_body else None,
                allow_redirects=False,
                timeout=_client_timeout(timeouts.get("connect"), timeouts.get("read")),
                ssl=self._tls_context() if request.url.scheme == "https" else True,
            )
        except ValueError as error:  # for example, a header with a line feed
            raise httpx.LocalProtocolError(str(error)) from error
        version = response.version or aiohttp.HttpVersion11
        if exchange is None:
            body = _Stream(response, timeouts.get("read"))
        else:
            exchange.note_head(response.status, response.raw_headers)
            body = _RecordedStream(response, timeouts.get("read"), exchange)
        return httpx.Response(
            response.status,
            headers=response.raw_headers,
            stream=body,
            extensions={
                READ: body.read,
                "http_version": b"HTTP/%d.%d" % version,
                "reason_phrase": (response.reason or "").encode(errors="surrogateescape"),
            },
        )

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(self._limits, self._check_address),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                max_line_size=HEADER_LIMIT,
                max_field_size=HEADER_LIMIT,
                middlewares=(_send_once,),
            )
        return self._session

    def _tls_context(self) -> ssl.SSLContext:
        """Return the TLS context that all connections share. It is created on the first call. Raises
        httpx.ConnectError."""
        if self._tls is None:
            try:
                self._tls = default_context() if self._tls_files is None else self._tls_files.open_context()
            except OSError as error:
                raise httpx.ConnectError(f"A file of certificates cannot be used: {error}") from error
        return self._tls


class _Protocol(ResponseHandler):
    """One HTTP connection of aiohttp. If it breaks within a body, it passes the error to the body's reader in two cases
    where aiohttp itself does not."""

    def connection_lost(self, exc: BaseException | None) -> None:
        body = self._payload
        is_cut = body is not None and not body.is_eof()
        super().connection_lost(exc)
        if body is None or not is_cut:
            return
        if isinstance(exc, OSError):  # aiohttp takes the error for the end of a body without a length
            body.set_exception(aiohttp.ClientOSError(*exc.args))
        elif body.exception() is None and not body.is_eof():
            # aiohttp closed the connection itself, and the reader would wait without end.
            body.set_exception(aiohttp.ClientPayloadError("The rest of the body is not valid HTTP"))


class _Connector(aiohttp.TCPConnector):
    def __init__(self, limits: httpx.Limits, check_address: CheckAddress | None) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0,
            keepalive_timeout=limits.keepalive_expiry,
            use_dns_cache=False,
            socket_factory=None if check_address is None else partial(_open_socket, check_address),
        )
        self._factory = partial(_Protocol, loop=self._loop)
        self._max_idle = limits.max_keepalive_connections

    async def _get(self, key: ConnectionKey, traces: Any) -> Connection | None:
        """Return an idle connection of the pool that is not stale, or None if there is no such connection. Stale
        connections are closed."""
        while (connection := await super()._get(key, traces)) is not None and _is_stale(connection):
            connection.close()
        return connection

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        if protocol.transport is not None and protocol.transport.get_write_buffer_size():
            # Closing gracefully would wait until the server has read the rest.
            protocol.transport.abort()
        too_many = self._max_idle is not None and len(self._acquired) > self._max_idle
        super()._release(key, protocol, should_close=should_close or too_many)
        idle = self._conns.get(key)
        if idle and idle[-1][0] is protocol:
            # Reuse the newest connection first. In rotation, every connection would be close to its server's idle
            # timeout.
            idle.rotate()


def _open_socket(check_address: CheckAddress, address: Any) -> socket.socket:
    """Return a socket for a connection to `address`, an entry of `getaddrinfo`. Raises OSError if `check_address`
    refuses it."""
    family, kind, protocol, _, place = address
    check_address(str(place[0]))
    return socket.socket(family, kind, protocol)


def _is_stale(connection: Connection) -> bool:
    """Return True if an idle connection cannot be reused, because data has arrived on it: the server has closed it,
    which the event loop has not reported yet, or has sent an unsolicited response."""
    assert connection.protocol is not None and connection.transport is not None
    poll = select.poll()
    poll.register(connection.transport.get_extra_info("socket"), select.POLLIN)
    return connection.protocol.should_close or bool(poll.poll(0))


class _Body(aiohttp.Payload):
    """Body of a request, sent piece by piece. `timeout` is the number of seconds in which the server must accept each
    piece."""

    def __init__(self, pieces: Any, timeout: float | None) -> None:
        super().__init__(pieces)
        self._pieces: AsyncIterator[bytes] = pieces
        self._write_timeout = timeout

    async def write(self, writer: AbstractStreamWriter) -> None:
        async for piece in self._pieces:
            async with asyncio.timeout(self._write_timeout):
                await writer.write(piece)
                await writer.drain()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: the body can be read only once, when it is sent."""
        raise TypeError("The body of the request can be read only once, when it is sent")


def _make_body(
    request: httpx.Request, exchange: RecordedExchange | None, timeout: float | None
) -> "bytes | aiohttp.Payload":
    """Return the body of a request as aiohttp sends it. `exchange` records it, and `timeout` is that of `_Body`."""
    if isinstance(request.stream, httpx.ByteStream) and len(request.content) <= _SMALL_BODY:
        if exchange is not None:
            exchange.note_sent(request.content)
        return request.content
    return _Body(request.stream if exchange is None else exchange.send(request.stream), timeout)


class _Stream(httpx.AsyncByteStream):
    """Body of a response, read as it arrives. `timeout` is the maximum time that one `read` waits, in seconds."""

    def __init__(self, answer: aiohttp.ClientResponse, timeout: float | None) -> None:
        self._answer = answer
        self._read_timeout = timeout
        protocol = None if answer.connection is None else answer.connection.protocol
        if protocol is not None:
            # The connection's timer also runs while the body is not being read, so it must stop after the head.
            protocol.read_timeout = None
            protocol.start_timeout()

    async def read(self) -> bytes:
        """Return the next chunk, or b"" at the end."""
        content = self._answer.content
        try:
            if self._read_timeout is None:
                chunk = await content.readany()
            else:
                async with asyncio.timeout(self._read_timeout):
                    chunk = await content.readany()
        except TimeoutError as error:
            raise httpx.ReadTimeout("") from error
        except aiohttp.ClientError:
            # Data that arrived before the connection broke is still delivered.
            chunk = content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]
        failure = None if chunk else content.exception()
        if failure is not None:
            raise _translate_error(failure) from failure
        return chunk

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while chunk := await self.read():
            yield chunk

    async def aclose(self) -> None:
        self._answer.close()


class _RecordedStream(_Stream):
    """Body of a response that is recorded as it is read."""

    def __init__(self, answer: aiohttp.ClientResponse, timeout: float | None, exchange: RecordedExchange) -> None:
        super().__init__(answer, timeout)
        self._exchange = exchange

    async def read(self) -> bytes:
        """Return the next chunk, or b"" at the end."""
        try:
            chunk = await super().read()
        except BaseException as error:
            self._exchange.note_end(error)
            raise
        if chunk:
            self._exchange.note_piece(chunk)
        else:
            self._exchange.note_end()
        return chunk

    async def aclose(self) -> None:
        self._exchange.note_end()
        await super().aclose()


async def _send_once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once, and raise the errors of httpx instead of those of aiohttp. An aiohttp error would make
    aiohttp repeat a request that it considers idempotent."""
    try:
        return await send(request)
    except _ERRORS as error:
        raise _translate_error(error) from error


def _translate_error(error: BaseException) -> httpx.TransportError:
    """Return the httpx error for an error of aiohttp. Only a connection that was never established may become
    ConnectError or ConnectTimeout, because such requests are repeated."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            kind = httpx.ConnectTimeout
        case aiohttp.ClientConnectorError():
            kind = httpx.ConnectError
        case aiohttp.ServerTimeoutError():
            kind = httpx.ReadTimeout
        case TimeoutError():
            kind = httpx.WriteTimeout
        case OSError():
            kind = httpx.ReadError
        case _:
            kind = httpx.RemoteProtocolError
    return kind(str(error))


def _url(url: httpx.URL) -> URL:
    """Return the URL unchanged, except for the user name and password, which httpx has moved to a header."""
    return URL(f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}", encoded=True)


@lru_cache(64)
def _client_timeout(connect: float | None, read: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=connect, sock_read=read)


def _read_headers(request: httpx.Request) -> tuple[list[tuple[str, str]], bool]:
    """Return the headers without Transfer-Encoding, which aiohttp writes itself, and whether the request has a body."""
    headers: list[tuple[str, str]] = []
    has_body = False
    for name, value in request.headers.raw:
        lower = name.lower()
        if lower == b"transfer-encoding":
            has_body = True
            continue
        has_body = has_body or (lower == b"content-length" and value != b"0")
        headers.append((name.decode(), value.decode()))
    return headers, has_body
