"""HTTP transport and connection pool: httpx on aiohttp's connections. What it answers and raises is what httpx's own
does, for a part of the CPU time."""

import asyncio
import select
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, Final

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from yarl import URL

HEADER_LIMIT: Final = 64 * 1024
"""Bytes of one line of an answer's head."""
_ERRORS: Final = (aiohttp.ClientError, OSError)


class Transport(httpx.AsyncBaseTransport):
    """HTTP/1.1 in one event loop, through no proxy, over as many connections as there are requests; `limits` says how
    many stay open after them, and for how long."""

    def __init__(self, limits: httpx.Limits) -> None:
        self._limits = limits
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises httpx.TransportError, as every transport of httpx does."""
        if request.url.scheme not in ("http", "https"):
            raise httpx.UnsupportedProtocol(f"Request URL has an unsupported protocol '{request.url.scheme}://'.")
        patience: dict[str, float | None] = request.extensions.get("timeout", {})
        try:
            answer = await self._open_session().request(
                request.method,
                _url(request.url),
                headers=[(name.decode(), value.decode()) for name, value in _headers(request)],
                data=_Body(request.stream, patience.get("write")) if _has_body(request) else None,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(connect=patience.get("connect"), sock_read=patience.get("read")),
                ssl=self._tls_context() if request.url.scheme == "https" else True,
            )
        except ValueError as error:  # a header with a line feed in it, say
            raise httpx.LocalProtocolError(str(error)) from error
        version = answer.version or aiohttp.HttpVersion11
        return httpx.Response(
            answer.status,
            headers=answer.raw_headers,
            stream=_Stream(answer, patience.get("read")),
            extensions={
                "http_version": b"HTTP/%d.%d" % version,
                "reason_phrase": (answer.reason or "").encode(errors="surrogateescape"),
            },
        )

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(self._limits),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
                auto_decompress=False,
                max_line_size=HEADER_LIMIT,
                max_field_size=HEADER_LIMIT,
                middlewares=(_once,),
            )
        return self._session

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
        return self._tls


class _Protocol(ResponseHandler):
    """One connection. Where aiohttp leaves the reader of an answer in the dark about its end, this one tells."""

    def connection_lost(self, exc: BaseException | None) -> None:
        body = self._payload
        is_cut = body is not None and not body.is_eof()
        super().connection_lost(exc)
        if body is None or not is_cut:
            return
        if isinstance(exc, OSError):  # taken for the end of a body that has no length
            body.set_exception(aiohttp.ClientOSError(*exc.args))
        elif body.exception() is None and not body.is_eof():  # closed by aiohttp itself, and the reader is to wait on
            body.set_exception(aiohttp.ClientPayloadError("The rest of the body is no HTTP"))


class _Connector(aiohttp.TCPConnector):
    def __init__(self, limits: httpx.Limits) -> None:
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0, keepalive_timeout=limits.keepalive_expiry, use_dns_cache=False
        )
        self._factory = partial(_Protocol, loop=self._loop)
        self._most_kept = limits.max_keepalive_connections

    async def _get(self, key: ConnectionKey, traces: Any) -> Connection | None:
        """Of the kept ones."""
        while (found := await super()._get(key, traces)) is not None and _is_stale(found):
            found.close()
        return found

    def _release(self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False) -> None:
        if protocol.transport is not None and protocol.transport.get_write_buffer_size():
            # To close it would be to wait until the server has taken the rest.
            protocol.transport.abort()
        too_many = self._most_kept is not None and len(self._acquired) > self._most_kept
        super()._release(key, protocol, should_close=should_close or too_many)
        kept = self._conns.get(key)
        if kept and kept[-1][0] is protocol:
            # The next to be used. In turns, all would always be about to be closed by their server.
            kept.rotate()


def _is_stale(connection: Connection) -> bool:
    """There is something to read: its end, of which the loop has not told yet, or an answer that nobody asked for."""
    assert connection.protocol is not None and connection.transport is not None
    found = select.poll()
    found.register(connection.transport.get_extra_info("socket"), select.POLLIN)
    return connection.protocol.should_close or bool(found.poll(0))


class _Body(aiohttp.Payload):
    """Of a request. `patience` = seconds that the server may take to receive a piece."""

    def __init__(self, pieces: Any, patience: float | None) -> None:
        super().__init__(pieces)
        self._pieces: AsyncIterator[bytes] = pieces
        self._patience = patience

    async def write(self, writer: AbstractStreamWriter) -> None:
        async for piece in self._pieces:
            async with asyncio.timeout(self._patience):
                await writer.write(piece)
                await writer.drain()

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raises TypeError always."""
        raise TypeError("It is read once, when it is sent")


class _Stream(httpx.AsyncByteStream):
    """The body of an answer, as it comes. `patience` = seconds of silence while somebody reads."""

    def __init__(self, answer: aiohttp.ClientResponse, patience: float | None) -> None:
        self._answer = answer
        self._patience = patience
        protocol = None if answer.connection is None else answer.connection.protocol
        if protocol is not None:
            # Its clock also runs while nobody reads, and so ends with the head.
            protocol.read_timeout = None
            protocol.start_timeout()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        content = self._answer.content
        while True:
            try:
                async with asyncio.timeout(self._patience):
                    piece = await content.readany()
            except TimeoutError as error:
                raise httpx.ReadTimeout("") from error
            except aiohttp.ClientError:
                # What came before the connection broke was said all the same.
                piece = content._read_nowait(-1)  # pyright: ignore[reportPrivateUsage]
            if not piece:
                break
            yield piece
        broken = content.exception()
        if broken is not None:
            raise _translate_error(broken) from broken

    async def aclose(self) -> None:
        self._answer.close()


async def _once(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """When a connection breaks, aiohttp sends again what it takes for repeatable; not so behind an error that is none
    of its own."""
    try:
        return await send(request)
    except _ERRORS as error:
        raise _translate_error(error) from error


def _translate_error(error: BaseException) -> httpx.TransportError:
    """Only of a connection that was never made may it be said that there was none: such a request is made again."""
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
    """As it is, but for the name and password in it, which httpx has put in a header."""
    return URL(f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}", encoded=True)


def _has_body(request: httpx.Request) -> bool:
    return request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers


def _headers(request: httpx.Request) -> list[tuple[bytes, bytes]]:
    """Without the one that aiohttp writes where it cuts a body in chunks."""
    return [(name, value) for name, value in request.headers.raw if name.lower() != b"transfer-encoding"]
