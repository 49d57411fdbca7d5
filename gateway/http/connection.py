"""Connection limits and timeouts, against slow and excessive clients.

They limit the size and the duration of a request's head, the speed of its body, and the number of connections. A client
needs no API key to open connections, so misuse must be cheap for the gateway.

uvicorn parses HTTP and WebSockets. Its own timeout starts only after a response, and its parser accepts headers of any
length. The two protocol classes in this module add the limits.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast
from weakref import ref

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame
from websockets.http11 import Request
from websockets.protocol import State

from babelgate.adapters.kit.server.sse import DISCONNECT_KEY
from babelgate.adapters.kit.server.websocket import TEXTS
from babelgate.gateway.exchange import SCOPE_KEY
from babelgate.gateway.http.client_certificate import CERTIFICATE_KEY, ClientCertificate, read_client_certificate
from babelgate.gateway.http.light import LightEvent, LightFlow, Pipeline
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.settings.fields import IPNetwork
from babelgate.gateway.settings.model import Settings

try:
    import resource
except ImportError:  # Windows has no limit of open files
    resource = None

log = logging.getLogger("babelgate.connection")

_RESERVE: Final = 128
"""Number of open files that are not available for connections: the database, its readers, logs, blobs, the event loop.
Chosen."""
_MAX_FILES: Final = 1 << 20
"""Limit of open files that the process requests if the system sets no maximum. Chosen."""
_MAX_HEADERS: Final = 128
"""Maximum number of headers of a request. Chosen: the limit of `websockets`, which parses a handshake again; Apache and
gunicorn have 100."""
_MAX_LINE: Final = 8190
"""Maximum length of one line in a WebSocket handshake, in bytes: the limit of `websockets`."""
_MAX_PIPELINED: Final = 16
"""Maximum number of requests that a client may send on a connection before the response to an earlier one. Chosen."""
_HIGH_WATER: Final = 32 * 1024
"""Number of unsent bytes, in addition to the kernel's buffer, at which a response pauses.

Chosen: asyncio's default is 64 KiB, and a chunk of the response is added to it.
"""
_MAX_HELD: Final = 32 * 1024
"""Maximum number of characters in the frames that a WebSocket holds until the next turn of the event loop. Chosen."""
_MAX_FRAGMENTS: Final = 4096
"""Maximum number of fragments per WebSocket message. Chosen: empty fragments do not count towards the size of the
message."""
_MIN_BODY: Final = 1024
"""Number of bytes of a request's body that must arrive within `body_timeout`. Chosen: 34 bytes per second by
default."""
_LINGER: Final = 2.0
"""Seconds for which a client may continue to send after the last response of a connection. Chosen.

If the gateway closed at once, TCP would reset the connection, and a client that still sends would lose the response
(RFC 9112 §9.6).
"""
_LINGER_BYTES: Final = 8 * 2**20
"""Maximum number of bytes that are read and discarded after the last response of a connection. Chosen."""
_KEEP_ALIVE: Final = 75
"""Seconds after which an idle connection is closed. Chosen.

Clients close idle connections after about 5 to 60 seconds. If the server closes last, no request races with the close.
"""
_WARN_EVERY: Final = 60.0
"""Minimum time between two log lines about refused connections, in seconds. Chosen."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of one connection, in bytes and seconds. `linger` is fixed; the others are from `limits` in the
    settings."""

    head: int
    head_timeout: float
    body_timeout: float
    send_timeout: float
    linger: float


class ConnectionTable:
    """Table of the open connections, which enforces the limits on their number, in total and per client address."""

    def __init__(self, settings: Settings, linger: float = _LINGER, observer: GatewayObserver = NO_OBSERVER) -> None:
        """Create an empty table. `linger` is the time for which a connection discards input after a refusal, in
        seconds."""
        self._linger = linger
        self._observer = observer
        self.limits: ConnectionLimits
        """Limits of each connection."""
        self.total: int
        """Maximum number of connections."""
        self.per_address: int
        """Maximum number of connections per client address."""
        self._exempt: Sequence[IPNetwork]
        """Networks of proxies. Their connections have no limit per address, because many callers share them."""
        self.apply(settings)
        self._open: dict[asyncio.BaseTransport, str | None] = {}
        self._count: dict[str, int] = {}
        self._idle: dict[asyncio.BaseTransport, None] = {}
        """Connections without a request in progress, longest idle first."""
        self._refused = 0
        self._warned_at = float("-inf")

    def apply(self, settings: Settings) -> None:
        """Apply the limits of the settings to new connections, and to the next requests of open ones."""
        limits = settings.limits
        self.limits = ConnectionLimits(
            limits.head, limits.head_timeout, limits.body_timeout, limits.send_timeout, self._linger
        )
        self.total = max_connections(limits.connections.total)
        self.per_address = min(limits.connections.address, max(self.total // 2, 1))
        self._exempt = settings.trusted_proxies

    def __len__(self) -> int:
        return len(self._open)

    @property
    def use(self) -> tuple[int, int]:
        """Number of open connections, and the maximum number."""
        return len(self._open), self.total

    @property
    def idle_count(self) -> int:
        """Number of connections without a request in progress."""
        return len(self._idle)

    def enter(self, transport: asyncio.Transport, address: str | None, now: float) -> bool:
        """Add a connection from an address. Return False if a limit is reached.

        A peer without an address (None) counts only towards the total. If the total is reached, the connection that has
        been idle for longest is closed to make room. `now` is the time on the loop's clock, in seconds.
        """
        group = self._group(address)
        if group is not None and self._count.get(group, 0) >= self.per_address:
            self._observer.note_connection_refused("address")
            self._warn(now, f"{address} has {self.per_address} (limits.connections.address)")
            return False
        if len(self._open) >= self.total:
            if not self._idle:
                self._observer.note_connection_refused("total")
                self._warn(now, f"{self.total} are open and active (limits.connections.total)")
                return False
            oldest = cast("asyncio.Transport", next(iter(self._idle)))
            self.leave(oldest)
            hang_up(oldest)
        self._open[transport] = group
        if group is not None:
            self._count[group] = self._count.get(group, 0) + 1
        self._idle[transport] = None
        return True

    def leave(self, transport: asyncio.BaseTransport) -> None:
        if transport not in self._open:
            return
        group = self._open.pop(transport)
        self._idle.pop(transport, None)
        if group is not None:
            self._count[group] -= 1
            if not self._count[group]:
                del self._count[group]

    def busy(self, transport: asyncio.BaseTransport) -> None:
        self._idle.pop(transport, None)

    def idle(self, transport: asyncio.BaseTransport) -> None:
        if transport in self._open:
            self._idle[transport] = None

    def _group(self, address: str | None) -> str | None:
        """Return the key under which the connections of an address are counted: the address, or the /64 of an IPv6
        address. Return None for loopback and exempt networks, and for a peer without an IP address."""
        if address is None:
            return None
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return None
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        if parsed.is_loopback or any(parsed in network for network in self._exempt):
            return None
        if isinstance(parsed, ipaddress.IPv6Address):  # a host has a /64 to itself (RFC 4291 §2.5.4)
            return str(ipaddress.IPv6Network((parsed, 64), strict=False))
        return str(parsed)

    def _warn(self, now: float, why: str) -> None:
        self._refused += 1
        if now - self._warned_at >= _WARN_EVERY:
            log.warning("connections rejected count=%d last_reason=%s", self._refused, why)
            self._refused, self._warned_at = 0, now


def hang_up(transport: asyncio.Transport) -> None:
    """Close a connection at once. If data is unsent, abort it: a normal close would wait until the client reads the
    data."""
    if transport.get_write_buffer_size():
        transport.abort()
    else:
        transport.close()


class _SendWatch:
    """Timeout that aborts the connection of a client that does not read the response."""

    __slots__ = ("_loop", "_seconds", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, seconds: float) -> None:
        self._loop = loop
        self._transport = transport
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.stop()
        self._timer = self._loop.call_later(self._seconds, self._look, self._transport.get_write_buffer_size())

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, before: int) -> None:
        if self._transport.get_write_buffer_size() >= before:
            self._transport.abort()
        else:
            self.start()


class _Answering:
    """Transport that uvicorn's request object writes its response to. Its `close` lets the client finish sending the
    body first."""

    __slots__ = ("_connection", "is_closing", "write")

    def __init__(self, connection: "HttpConnection", transport: asyncio.Transport) -> None:
        self._connection: HttpConnection | None = connection
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close_after_answer()

    def drop(self) -> None:
        """Drop the connection, which is lost. It refers to this object, too, and only the collector would free both."""
        self._connection = None


class HttpConnection(HttpToolsProtocol):
    """HTTP connection of a client, until it is closed or becomes a WebSocket."""

    # Slots, because the attribute dictionaries of uvicorn's class share their keys only up to 30 attributes.
    __slots__ = (
        "_answering",
        "_awaited",
        "_body",
        "_certificate",
        "_discarded",
        "_framing",
        "_limits",
        "_lingers",
        "_on_disconnect",
        "_reading",
        "_sending",
        "_shown",
        "_table",
        "_timer",
        "_trailers",
    )

    def __init__(self, *args: Any, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self.pipeline = cast("Any", Pipeline())
        self._limits = table.limits
        self._table = table
        self._reading = "nothing"
        """Part of a request that the parser is reading: "nothing", "head" or "body"."""
        self._framing = 0
        """Number of bytes that the parser has received since its last callback, and which it buffers. They are part of
        a head, of trailers or of a chunk extension."""
        self._shown = 0
        """Number of callbacks that the parser has made, to detect whether it only buffers input."""
        self._body = 0
        """Number of bytes of the body that arrived since its speed was last checked."""
        self._trailers = 0
        """Number of trailers in the current request."""
        self._lingers = False
        """True if the last response was sent, and further input is discarded."""
        self._discarded = 0
        """Number of input bytes that were discarded after the last response."""
        self._awaited = "nothing"
        """Part of a request that `_timer` waits for: "nothing", "head" or "body"."""
        self._timer: asyncio.TimerHandle | None = None
        self._sending: _SendWatch | None = None
        self._certificate: ClientCertificate | None = None
        self._on_disconnect: Callable[[], None] | None = None
        """Function to call if the client disconnects before the end of the response; None if there is none."""

    # The connection

    @property
    def certificate(self) -> ClientCertificate | None:
        """Certificate of the client; None if it has shown none."""
        return self._certificate

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = LightFlow(transport)
        self._certificate = read_client_certificate(transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._answering = _Answering(self, transport)
        self._sending = _SendWatch(self.loop, transport, self._limits.send_timeout)
        if self._table.enter(transport, self.client[0] if self.client else None, self.loop.time()):
            self._await("head")
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections; try again later.")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self.transport)
        self._stop_timers()
        super().connection_lost(exc)
        self._report_disconnect()
        self._drop_requests()

    def _drop_requests(self) -> None:
        """Drop the references that form cycles, which only the garbage collector would free. A request that still runs
        finds its client disconnected."""
        self._answering.drop()
        self.pipeline.clear()
        self.cycle = self.scope = self.parser = None  # type: ignore[assignment]

    def _register_disconnect(self, weak: "ref[RequestResponseCycle]", callback: Callable[[], None]) -> bool:
        """Call `callback` when the client disconnects before the end of this response. Return False if the request's
        body is still to be read, because a disconnect is then detected only by reading."""
        cycle = weak()
        if cycle is None or cycle is not self._open_cycle() or cycle.disconnected or cycle.more_body:
            return False
        self._on_disconnect = callback
        return True

    def _report_disconnect(self) -> None:
        callback, self._on_disconnect = self._on_disconnect, None
        if callback is not None:
            callback()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is not None:
            self._sending.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._sending is not None:
            self._sending.stop()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self._sending is not None:  # the rest of the last response is sent before the connection closes
            self._sending.start()

    def _stop_timers(self) -> None:
        self._awaited = "nothing"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is not None:
            self._sending.stop()

    # Input

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        rest: bytes | memoryview = data
        while rest and not self._lingers and not self.transport.is_closing():
            room = self._limits.head - self._framing
            if len(rest) > room:
                rest = memoryview(rest)
            if not self._feed(rest[:room]):
                return
            rest = rest[room:]
        if self._lingers:
            self._discarded += len(rest)
            if self._discarded > _LINGER_BYTES:
                self.flow.pause_reading()
            return
        self._await("head" if self._framing and self._reading == "nothing" else self._reading)

    def _feed(self, data: "bytes | memoryview") -> bool:
        """Pass input to the parser, and enforce the limits of the head. Return False if the connection was lost or has
        become a WebSocket."""
        if self.parser is None:  # pyright: ignore[reportUnnecessaryComparison] - the connection is lost
            return False
        before = self._shown
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return False
        except httptools.HttpParserError:
            self.refuse(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
            return True
        self._framing = self._framing + len(data) if self._shown == before else 0
        if self._framing >= self._limits.head:
            if self._reading == "head" and len(self.url) > self._limits.head // 2:
                self.refuse(HTTPStatus.REQUEST_URI_TOO_LONG, "The path and query of the request are too long.")
            else:
                self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers of the request are too large.")
        return True

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reading = "head"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header of the request. Raises ValueError if there are too many.

        Trailers, which follow a chunked body, are not headers of the request (RFC 9110 §6.5.1). They are counted, and
        dropped because nothing needs them.
        """
        if self._reading == "body":
            self._trailers += 1
        else:
            super().on_header(name, value)
        if len(self.headers) + self._trailers > _MAX_HEADERS:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request has too many headers.")
            raise ValueError("too many headers")  # the parser stops

    def on_headers_complete(self) -> None:
        """Start a request. Raises ValueError for too many pipelined requests, or if there is not exactly one Host."""
        self._shown += 1
        self._reading = "body"
        self._body = self._trailers = 0
        if len(self.pipeline) >= _MAX_PIPELINED:
            self.transport.abort()
            raise ValueError("too many requests at once")
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self._is_1_1()):  # RFC 9112 §3.2
            self.refuse(HTTPStatus.BAD_REQUEST, "The request needs one Host header.")
            raise ValueError("not one host")
        self._table.busy(self.transport)
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:  # unchanged for a WebSocket handshake
            self.cycle.transport = cast("asyncio.Transport", self._answering)
            self.cycle.message_event = LightEvent()  # before its task starts, so nothing waits for the other one
            cycle = ref(self.cycle)  # weak, because the cycle holds the scope: only the collector would free both
            self.scope[SCOPE_KEY] = partial(self._abandon_weak, cycle)  # type: ignore[typeddict-unknown-key]
            self.scope[DISCONNECT_KEY] = partial(self._register_disconnect, cycle)  # type: ignore[typeddict-unknown-key]
            if self._certificate is not None:
                self.scope[CERTIFICATE_KEY] = self._certificate  # type: ignore[typeddict-unknown-key]

    def _is_1_1(self) -> bool:
        return self.parser is not None and self.parser.get_http_version() == "1.1"

    def on_body(self, body: bytes) -> None:
        self._shown += 1
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._shown += 1
        self._reading = "nothing"
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._on_disconnect = None
        super().on_response_complete()  # resumes reading if the body was paused
        if self._open_cycle() is None:  # else the next pipelined request has started
            self._table.idle(self.transport)

    # Timeouts

    def _await(self, what: str) -> None:
        if what == self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = what
        if what == "head":
            self._limits = self._table.limits
            self._timer = self.loop.call_later(self._limits.head_timeout, self._late_head)
        elif what == "body":
            self._timer = self.loop.call_later(self._limits.body_timeout, self._late_body)

    def _late_head(self) -> None:
        if self._open_cycle() is not None:
            self._timer = self.loop.call_later(self._limits.head_timeout, self._late_head)
        elif self._framing:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "The headers of the request did not arrive in time.")
        else:
            hang_up(self.transport)

    def _late_body(self) -> None:
        """Refuse a request whose body arrives too slowly.

        The timeout runs only while the gateway reads. It does not run while reading is paused, or while the client
        waits for a 100 Continue.
        """
        cycle = self.cycle
        waits = self.flow.read_paused or cycle.waiting_for_100_continue or bool(self.pipeline)
        if cycle.response_complete:
            hang_up(self.transport)
        elif waits or self._body >= _MIN_BODY:
            self._body = 0
            self._timer = self.loop.call_later(self._limits.body_timeout, self._late_body)
        else:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "The body of the request did not arrive in time.")

    def _open_cycle(self) -> RequestResponseCycle | None:
        """Return the newest request if its response is not complete, otherwise None."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle if cycle is not None and not cycle.response_complete else None

    # Responses of the connection itself

    def abandon_answer(self) -> None:
        """Close the connection in the middle of the response that is being sent, so that the client sees it as
        incomplete."""
        cycle = self._open_cycle()
        if cycle is None:
            self.transport.close()
        else:
            self._abandon_answer(cycle)

    def _abandon_weak(self, weak: "ref[RequestResponseCycle]") -> None:
        cycle = weak()
        if cycle is not None:
            self._abandon_answer(cycle)

    def _abandon_answer(self, cycle: RequestResponseCycle) -> None:
        if cycle is not self._open_cycle() or cycle.disconnected:
            return
        # Later output of the handler is dropped: the client must not take it for the end of the response.
        cycle.disconnected = True
        cycle.message_event.set()
        self._report_disconnect()
        self._stop_timers()
        self.transport.close()
        if self._sending is not None:  # the client may not read what was sent before
            self._sending.start()

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Send a response with this status and text instead of the application's, and close the connection."""
        if self._lingers or self.transport.is_closing():
            return
        cycle = self._open_cycle()
        is_partial = False
        if cycle is not None:
            is_partial = cycle.response_started or bool(self.pipeline)
            cycle.disconnected = True
            cycle.message_event.set()
        if is_partial or self.transport.get_write_buffer_size():  # a response must not be written inside another one
            self._lingers = True
            self._stop_timers()
            self.transport.abort()
            return
        self._answer(status, message)
        self._linger()

    def close_after_answer(self) -> None:
        """Close the connection after its last response. If the request is not complete, the client may first finish
        sending it."""
        if self._reading == "nothing" or self.transport.is_closing():
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """Send the end of the output, and discard input for a limited time before the connection is closed."""
        self._lingers = True
        self._stop_timers()
        self.pipeline.clear()
        self._table.idle(self.transport)
        self._timer = self.loop.call_later(self._limits.linger, self._stop_lingering)
        if self.transport.can_write_eof():  # not with TLS
            self.transport.write_eof()

    def _stop_lingering(self) -> None:
        self.transport.close()
        if self._sending is not None:  # the rest of a long response
            self._sending.start()

    def _answer(self, status: HTTPStatus, message: str) -> None:
        log.debug("request rejected client=%s status=%d reason=%s", self.client, status, message)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            "content-type: text/plain; charset=utf-8",
            f"content-length: {len(message)}",
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", message]).encode("ascii"))

    # WebSockets

    def handle_websocket_upgrade(self) -> None:
        self._stop_timers()
        if max(len(self.url), *(len(name) + len(value) for name, value in self.headers)) > _MAX_LINE:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The headers of the request are too large.")
            return
        super().handle_websocket_upgrade()
        socket = self.transport.get_protocol()
        if isinstance(socket, WebSocketConnection) and not socket.handshake_initiated:
            self.refuse(HTTPStatus.BAD_REQUEST, "Invalid HTTP request received.")
        self._drop_requests()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """WebSocket connection, upgraded from an `HttpConnection` that the connection table already counts."""

    def __init__(self, *args: Any, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = table.limits
        self._table = table
        self._sending: _SendWatch | None = None
        self._flush: asyncio.Handle | None = None
        """Scheduled write of the frames that the connection holds; None if it holds none."""
        self._held = 0
        """Number of characters in these frames."""

    async def send(self, message: Any) -> None:
        """Send an ASGI message. The frames of one turn of the event loop are written at once, because a write for each
        token takes as long as all other work for it. Raises ClientDisconnected."""
        texts: Sequence[bytes] | None = message.get(TEXTS)
        text: str | None = message.get("text") if message["type"] == "websocket.send" else None
        if texts is not None:
            await self.writable.wait()
        is_open = self.handshake_complete and not (self.disconnected or self.close_sent or self.initial_response)
        if texts is None and (text is None or not is_open or not self.writable.is_set()):
            await super().send(message)
            return
        if not is_open:
            raise ClientDisconnected
        try:
            self._hold([(text or "").encode()] if texts is None else texts)
        except InvalidState:
            raise ClientDisconnected from None
        if self._held > _MAX_HELD:
            self._write_frames()
        elif self._flush is None:
            self._flush = self.loop.call_soon(self._write_frames)

    def _hold(self, texts: Sequence[bytes]) -> None:
        """Add one text frame for each text. Raises InvalidState if the connection is closing."""
        self._held += sum(map(len, texts))
        if self.conn.extensions or self.conn.state is not State.OPEN:
            for text in texts:
                self.conn.send_text(text)
            return
        # RFC 6455, 5.2: the last fragment of a text, not masked. Measured: a fifth of the time of `send_text`.
        for text in texts:
            size = len(text)
            if size < 126:
                head = bytes((0x81, size))
            elif size < 0x10000:
                head = b"\x81\x7e" + size.to_bytes(2, "big")
            else:
                head = b"\x81\x7f" + size.to_bytes(8, "big")
            self.conn.writes.append(head + text)

    def _write_frames(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
        self._flush, self._held = None, 0
        output = self.conn.data_to_send()
        if output and not self.transport.is_closing():
            self.transport.write(b"".join(output))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._sending = _SendWatch(self.loop, self.transport, self._limits.send_timeout)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        certificate = read_client_certificate(self.transport)
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
            self.scope["extensions"][TEXTS] = {}  # type: ignore[index]
        if self.response.status_code == HTTPStatus.SWITCHING_PROTOCOLS and certificate is not None:
            self.scope[CERTIFICATE_KEY] = certificate  # type: ignore[typeddict-unknown-key]

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self.transport)
        if self._sending is not None:
            self._sending.stop()
        super().connection_lost(exc)
        self.conn.parser.close()  # a generator that refers to `conn`, so only the garbage collector would free both

    def pause_writing(self) -> None:
        """Pause reading as well as writing: otherwise the gateway would answer pings of a client that reads nothing."""
        super().pause_writing()
        if not self.read_paused:
            self.transport.pause_reading()
        if self._sending is not None:
            self._sending.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.read_paused:
            self.transport.resume_reading()
        if self._sending is not None:
            self._sending.stop()

    def handle_cont(self, event: Frame) -> None:
        if len(self.frames) >= _MAX_FRAGMENTS:
            self.conn.fail(CloseCode.MESSAGE_TOO_BIG, "too many fragments")
            self.handle_parser_exception()
            return
        super().handle_cont(event)


def raise_open_files() -> None:
    """Raise the limit of open files to the maximum that this process may set, because each connection needs one."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a separate limit, which it does not report
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections(wanted: int) -> int:
    """Return `wanted`, or the number of connections that the limit of open files allows, if that is lower.

    Half of the open files are for clients, because each call may need a connection to an agent.
    """
    if resource is None:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max((soft - _RESERVE) // 2, 16))


def protocol_options(
    settings: Settings, linger: float = _LINGER, table: ConnectionTable | None = None
) -> dict[str, Any]:
    """Return arguments for `uvicorn.Config` that install the two protocol classes with the limits of the settings.

    `table` counts the connections; without it, a new table is created.
    """
    table = ConnectionTable(settings, linger) if table is None else table
    return {
        "http": partial(HttpConnection, table=table),
        "ws": partial(WebSocketConnection, table=table),
        "ws_max_size": settings.limits.body,
        "ws_per_message_deflate": False,  # 64 KB can be 64 MB
        "timeout_keep_alive": _KEEP_ALIVE,
    }
