"""HTTP client through which a check sends all its requests. It records each exchange and validates the messages.

For each request, the caller names the schema definitions that the request and the response must match. None means that
a message is not one of the protocol: for example an intentionally invalid request, or a page of another server.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import httpx

from babelgate.conformance.wire.connection import ConnectionPool
from babelgate.conformance.wire.credentials import origin_of
from babelgate.conformance.wire.exchange import CheckedMessage, Exchange, InvalidJson, SseFrame, parse_json
from babelgate.conformance.wire.schema import Schemas, Violation
from babelgate.conformance.wire.sse import SseParser
from babelgate.conformance.wire.tls import open_context

Receives = str | Mapping[int, str] | None
"""Names of the schema definitions for responses: one name for all statuses, or a mapping by status (200) or by its
first digit (2, 4, 5). None means that responses are not validated."""

EXCHANGES: Final[ContextVar[list[Exchange]]] = ContextVar("exchanges")
"""Exchanges of the probe or scene that is running. `Wire.exchanges` has all exchanges of a check."""

MAX_BODY: Final = 32 * 2**20
"""Maximum number of bytes that are read of a response body. Chosen."""
MAX_FRAMES: Final = 20_000
"""Maximum number of events that are read from one stream. Chosen."""


TIMED_OUT: Final = "nothing came within"
"""Beginning of `Exchange.error` for a response that timed out, by which reports recognize a timeout."""


class Unanswered(Exception):
    """Error for a request without a complete response: it timed out, the connection was refused, or the response was
    cut off."""

    def __init__(self, why: str, exchange: Exchange) -> None:
        super().__init__(why)
        self.exchange = exchange


class _Cookies(httpx.Cookies):
    def extract_cookies(self, response: httpx.Response) -> None:
        """Read the cookies of a response, but only if it has any. Measured: without this condition, it is a tenth of
        HTTPX's time for a request."""
        if "set-cookie" in response.headers:
            super().extract_cookies(response)


class _Client(httpx.AsyncClient):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._cookies = _Cookies(self._cookies)


class Wire:
    """HTTP client of one check. `schemas` validates the messages; without it they are not validated."""

    def __init__(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        credentials: Mapping[str, Mapping[str, str]] | None = None,
        other_headers: Mapping[str, str] | None = None,
        urls: Sequence[str] = (),
        timeout: float = 10.0,
        schemas: Schemas | None = None,
    ) -> None:
        self.timeout = timeout
        self.headers = dict(headers or {})
        """Headers of the user, such as API keys, sent with every request to the origins of `urls`."""
        self.withheld: dict[str, None] = {}
        """Other origins to which a request was sent without these headers, as the keys of a dict. The card of a server
        can name any host, so they do not get the user's keys."""
        self._origins = frozenset(map(origin_of, urls))
        self._other_headers = dict(other_headers or {})
        self.credentials = dict(credentials or {})
        """Authorization headers by origin. They are sent with every request to that origin that has no other
        Authorization header."""
        self.schemas = schemas
        self.exchanges: list[Exchange] = []
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Functions that close the connections of protocols without HTTP requests. They are called at the end."""
        self.channels: dict[str, Any] = {}
        """Connections to gRPC servers, by their URL (`babelgate.conformance.wire.rpc`)."""
        # A proxy of the environment would be judged instead of the agent. A redirect is a response like any other.
        self._http = _Client(
            trust_env=False,
            follow_redirects=False,
            timeout=timeout,
            # Each request opens a connection. A request that met the end of a reused connection would be lost, and
            # would look like a failure of the agent.
            transport=ConnectionPool(open_context()),
        )

    async def aclose(self) -> None:
        await asyncio.gather(*(close() for close in self.closers))
        await self._http.aclose()

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _is_private(self, name: str, value: str) -> bool:
        return value in (self.headers.get(name), self._other_headers.get(name))

    async def request(
        self,
        method: str,
        url: str,
        *,
        sends: str | None,
        receives: Receives,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> Exchange:
        """Send a request and return the exchange with the whole response, which may have any status.

        `sends` names the schema of the request, and `receives` those of the responses; None validates nothing. `body`
        is sent as JSON, `content` unchanged. `is_anonymous` omits the headers that go with every request. `bound` is
        the maximum wait in seconds; None is the wire's timeout. Raises Unanswered if no complete response arrives in
        time.
        """
        async with self.stream(
            method,
            url,
            sends=sends,
            receives=receives,
            events=None,
            body=body,
            content=content,
            headers=headers,
            is_anonymous=is_anonymous,
            bound=bound,
        ) as stream:
            await stream.read()
        return stream.exchange

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        sends: str | None,
        receives: Receives,
        events: str | None,
        body: Any = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
        mark: str | None = None,
    ) -> AsyncGenerator["StreamExchange"]:
        """Send a request and yield its response, to be read event by event. Leaving the block closes the connection.

        The parameters are those of `request`. `events` names the schema of the events; with None, the whole response is
        read first. A response that is not an event stream is read to its end, and has no events. `mark` is the data of
        events that contain no message, such as `[DONE]` at the end, and are not validated. Raises Unanswered if no
        response arrives in time, or the connection breaks.
        """
        request_headers = self.headers_to_send(url, headers, is_anonymous=is_anonymous)
        if content is None and body is not None:
            content = json.dumps(body, ensure_ascii=False).encode()
            if not any(name.lower() == "content-type" for name in request_headers):
                request_headers["Content-Type"] = "application/json"
        exchange = self.begin(method, url, content or b"", request_headers)
        if sends is not None:
            self._hold(exchange, sends, body, is_from_check=True)
        started = asyncio.get_running_loop().time()
        bound = self.timeout if bound is None else bound
        try:
            try:
                request = self._http.build_request(method, url, content=content, headers=request_headers)
                async with asyncio.timeout(bound):
                    response = await self._http.send(request, stream=True)
            except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
                exchange.error = _reason(error, bound)
                raise Unanswered(exchange.error, exchange) from None
            exchange.status = response.status_code
            exchange.response_headers = [
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.headers.raw
            ]
            try:
                stream = StreamExchange(self, exchange, response, started, bound, receives, events, mark)
                if not exchange.is_stream or events is None:
                    await stream.read()
                yield stream
            finally:
                # The server may hold the connection open, so errors and timeouts of the close are ignored.
                with contextlib.suppress(httpx.HTTPError, TimeoutError):
                    async with asyncio.timeout(bound):
                        await response.aclose()
        finally:
            exchange.seconds = asyncio.get_running_loop().time() - started

    def headers_to_send(
        self, url: str, headers: Mapping[str, str] | None = None, *, is_anonymous: bool = False
    ) -> dict[str, str]:
        """Return the headers of a request: those of the user and `headers`. A foreign origin receives none of the
        user's, and neither does an anonymous request."""
        origin = self._trusted_origin(url)
        found = {**({} if is_anonymous else self.headers), **(headers or {})}
        if (self.headers or self._other_headers) and origin not in self._origins:
            found = {name: value for name, value in found.items() if not self._is_private(name, value)}
            if not is_anonymous:
                self.withheld[origin] = None
        if not is_anonymous and not any(name.lower() == "authorization" for name in found):
            found |= self.credentials.get(origin, {})
        return found

    def _trusted_origin(self, url: str) -> str:
        """Return the origin of a URL. For a gRPC server on the host of one of the user's origins, return that origin:
        gRPC has a separate port. Only a server with TLS receives what the user sends to an origin with TLS."""
        origin = origin_of(url)
        scheme, host = origin.partition("://")[0], urlsplit(origin).hostname
        if scheme in ("grpc", "grpcs"):
            for each in self._origins:
                if urlsplit(each).hostname == host and (scheme == "grpcs" or not each.startswith("https:")):
                    return each
        return origin

    def begin(self, method: str, url: str, content: bytes, headers: Mapping[str, str] | None = None) -> Exchange:
        """Record a request that is about to be sent, and return its exchange."""
        exchange = Exchange(len(self.exchanges) + 1, method, url, list((headers or {}).items()), content)
        self.exchanges.append(exchange)
        EXCHANGES.get([]).append(exchange)
        return exchange

    def headers_for(self, url: str, other: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the headers of the user for a connection that is not an HTTP request. `other` replaces them. A foreign
        origin receives none."""
        if origin_of(url) not in self._origins:
            return {}
        return {**self.credentials.get(origin_of(url), {}), **(self.headers if other is None else other)}

    def hold(self, exchange: Exchange, schema: str, value: Any, *, is_from_check: bool = False) -> None:
        """Validate a message that is not the body of a response or an event, such as a push notification, and record
        the result in the exchange. `is_from_check` is true if the check itself sent it."""
        self._hold(exchange, schema, value, is_from_check=is_from_check)

    def _hold(self, exchange: Exchange, schema: str, value: Any, *, is_from_check: bool = False) -> None:
        if self.schemas is not None:
            violations, definitions = self.schemas.holds(schema, value)
            exchange.messages.append(CheckedMessage(is_from_check, schema, violations, definitions))

    def hold_text(self, exchange: Exchange, schema: str, content: bytes | str) -> None:
        """Validate a text that should be JSON and match a schema, and record the result in the exchange."""
        try:
            value = parse_json(content)
        except InvalidJson as error:
            if self.schemas is not None:
                violation = Violation((schema,), "(the whole)", f"not JSON: {error}")
                exchange.messages.append(CheckedMessage(False, schema, (violation,), frozenset({schema})))
        else:
            self._hold(exchange, schema, value)


class EventSource(Protocol):
    """Response that is read event by event: that of an HTTP request, of a gRPC call, or of a process."""

    exchange: Exchange

    @property
    def rest(self) -> str:
        """Incomplete event at the end of the stream, as raw text; empty if the last event was complete."""
        ...

    async def next(self, bound: float | None = None) -> SseFrame | None:
        """Return the next event, or None at the end. `bound` is the maximum wait in seconds; None means the timeout of
        the request. Raises Unanswered."""
        ...

    async def rest_of_it(self) -> Sequence[SseFrame]:
        """Read all further events to the end, and return all events. Raises Unanswered."""
        ...


class StreamExchange:
    """Response that is read event by event. The timeout applies to each event."""

    def __init__(
        self,
        wire: Wire,
        exchange: Exchange,
        response: httpx.Response,
        started: float,
        bound: float,
        receives: Receives,
        events: str | None,
        mark: str | None = None,
    ) -> None:
        self.exchange = exchange
        self._mark = mark
        self._wire = wire
        self._started = started
        self._bound = bound
        self._receives = receives
        self._events = events
        self._chunks = response.aiter_bytes()
        self._reader = SseParser()
        self._ready: list[SseFrame] = []
        self._is_read = False

    @property
    def rest(self) -> str:
        """Incomplete event at the end of the stream, as raw text; empty if the last event was complete."""
        return self._reader.rest

    @property
    def comments(self) -> int:
        """Number of comment lines received so far. Servers send them to keep the connection alive."""
        return self._reader.comments

    async def read(self) -> None:
        """Read the whole body of a response that is not read as a stream of events, and validate it. Raises Unanswered
        if it does not arrive in time, or the connection breaks."""
        if self._is_read:
            return
        self._is_read = True
        content = bytearray()
        while (chunk := await self._chunk(self._bound)) is not None:
            content += chunk
            if len(content) > MAX_BODY:
                self.exchange.error = f"longer than {MAX_BODY} bytes: the rest was not read"
                break
        self.exchange.content = bytes(content)
        schema = _schema_for(self._receives, self.exchange.status or 0)
        if schema is not None:
            self._wire.hold_text(self.exchange, schema, self.exchange.content)

    async def next(self, bound: float | None = None) -> SseFrame | None:
        """Return the next event, or None at the end of the stream. `bound` is the maximum wait in seconds; None means
        the timeout of the request. Raises Unanswered if no event arrives in this time."""
        if not self.exchange.is_stream:
            return None
        while not self._ready:
            chunk = await self._chunk(self._bound if bound is None else bound)
            if chunk is None:
                return None
            try:
                self._ready += self._reader.feed(chunk, asyncio.get_running_loop().time() - self._started)
            except UnicodeDecodeError as error:
                self.exchange.error = f"not UTF-8: {error}"
                raise Unanswered(self.exchange.error, self.exchange) from None
        frame = self._ready.pop(0)
        self.exchange.frames.append(frame)
        if len(self.exchange.frames) > MAX_FRAMES:
            self.exchange.error = f"more than {MAX_FRAMES} events: the rest was not read"
            raise Unanswered(self.exchange.error, self.exchange)
        if self._events is not None and frame.data != self._mark:
            self._wire.hold_text(self.exchange, self._events, frame.data)
        return frame

    async def rest_of_it(self) -> Sequence[SseFrame]:
        """Read all further events to the end, and return all events of the stream. Raises Unanswered if an event does
        not arrive in time, or the connection breaks."""
        while await self.next() is not None:
            pass
        return self.exchange.frames

    async def _chunk(self, bound: float) -> bytes | None:
        try:
            async with asyncio.timeout(bound):
                return await anext(self._chunks)
        except StopAsyncIteration:
            self.exchange.is_ended = True
            return None
        except (httpx.HTTPError, TimeoutError) as error:
            self.exchange.error = _reason(error, bound)
            raise Unanswered(self.exchange.error, self.exchange) from None


def _schema_for(receives: Receives, status: int) -> str | None:
    if receives is None or isinstance(receives, str):
        return receives
    return receives.get(status, receives.get(status // 100))


def _reason(error: Exception, bound: float) -> str:
    if isinstance(error, TimeoutError | httpx.TimeoutException):
        return f"{TIMED_OUT} {bound:g} s"
    return str(error) or type(error).__name__
