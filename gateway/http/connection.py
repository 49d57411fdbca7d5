"""Connection limits and timeouts (slow clients): how long the head of a request may be and take, how slowly
its body may come, and how many connections there may be. Whoever reaches the port can do all of this without a key, so
none of it may cost much.

uvicorn reads HTTP and WebSockets; its own timeout begins when an answer has been sent, and its parser takes a header of
any length. The two classes here are its protocols with those bounds.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

from babelgate.gateway.exchange import SCOPE_KEY
from babelgate.gateway.settings.model import IPNetwork, Settings

try:
    import resource
except ImportError:  # not on Windows, which has no such limit
    resource = None

log = logging.getLogger("babelgate.connection")

_RESERVE: Final = 128
"""Open files that are no connections: the database, its readers, logs, blobs, the loop."""
_MOST_FILES: Final = 1 << 20
_MAX_HEADERS: Final = 128
"""As in `websockets`, which reads the head of a WebSocket a second time; Apache and gunicorn have 100."""
_MAX_LINE: Final = 8190
"""Bytes of one line of the head of a WebSocket: what `websockets` takes."""
_MAX_PIPELINED: Final = 16
"""Requests that a caller may send before the answer to an earlier one."""
_HIGH_WATER: Final = 32 * 1024
"""Bytes that wait for a caller to take them, beyond what the kernel holds, before the answer goes no further. asyncio
has 64 KiB, and a piece of an answer comes on top."""
_MAX_FRAGMENTS: Final = 4096
"""Of one WebSocket message; empty ones count for nothing in its size."""
_MIN_BODY: Final = 1024
"""Bytes of a body that must come within `body_timeout`: 34 a second by default."""
_LINGER: Final = 2.0
_LINGER_BYTES: Final = 8 * 2**20
"""How long, and how much, a caller may go on sending after the last answer of a connection. Closed at once, TCP would
reset the connection, and take the answer from who is still sending (RFC 9112 §9.6)."""
_KEEP_ALIVE: Final = 75
"""Seconds that an idle connection stays. Clients keep theirs for about 5 to 60; who closes last races with nobody."""
_WARN_EVERY: Final = 60.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bytes and seconds, as in `limits` of the settings; `linger` is fixed."""

    head: int
    head_timeout: float
    body_timeout: float
    send_timeout: float
    linger: float


class ConnectionTable:
    """Which connections are open, by address, and which of them have no request in progress."""

    def __init__(self, total: int, per_address: int, exempt: Sequence[IPNetwork] = ()) -> None:
        """`exempt`: networks of proxies, behind which are many callers. Loopback is exempt, too."""
        self.total = total
        self.per_address = per_address
        self._exempt = tuple(exempt)
        self._open: dict[asyncio.BaseTransport, str | None] = {}
        self._count: dict[str, int] = {}
        self._idle: dict[asyncio.BaseTransport, None] = {}
        """In the order in which they became idle."""
        self._refused = 0
        self._warned_at = float("-inf")

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, transport: asyncio.Transport, address: str | None, now: float) -> bool:
        """Whether there is room for it. Where there is none in all, a connection without a request makes room."""
        group = self._group(address)
        if group is not None and self._count.get(group, 0) >= self.per_address:
            self._warn(now, f"{address} has {self.per_address} (limits.connections.address)")
            return False
        if len(self._open) >= self.total:
            if not self._idle:
                self._warn(now, f"{self.total} are open and at work (limits.connections.total)")
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
        """Whose connections are counted together; None if they are not counted."""
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
            log.warning("%d connections refused, the last because %s", self._refused, why)
            self._refused, self._warned_at = 0, now


def hang_up(transport: asyncio.Transport) -> None:
    """At once if there is something that the caller does not take: a close would wait until it does."""
    if transport.get_write_buffer_size():
        transport.abort()
    else:
        transport.close()


class _SendWatch:
    """Hangs up on a caller who takes nothing of what is to be sent."""

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
    """What a request of a connection has for a transport: its close lets the caller finish a body."""

    __slots__ = ("_connection", "is_closing", "write")

    def __init__(self, connection: "HttpConnection", transport: asyncio.Transport) -> None:
        self._connection = connection
        self.write = transport.write
        self.is_closing = transport.is_closing

    def close(self) -> None:
        self._connection.close_after_answer()


class HttpConnection(HttpToolsProtocol):
    """Of a caller, until it is closed or becomes a WebSocket."""

    # The dictionary of uvicorn's own attributes shares its keys with all others, as long as there are no more than 30.
    __slots__ = (
        "_answering",
        "_awaited",
        "_body",
        "_discarded",
        "_framing",
        "_limits",
        "_lingers",
        "_reading",
        "_sending",
        "_shown",
        "_table",
        "_timer",
        "_trailers",
    )

    def __init__(self, *args: Any, limits: ConnectionLimits, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._table = table
        self._reading = "nothing"
        """What the parser is in the middle of: nothing, a head, or a body."""
        self._framing = 0
        """Bytes since the last that the parser had something to show for: those of a head, of trailers, of a chunk's
        extension. It keeps them."""
        self._shown = 0
        """How often it had."""
        self._body = 0
        """Bytes of a body since the last look at them."""
        self._trailers = 0
        self._lingers = False
        """Whether the last answer has been given, and what still comes is not looked at."""
        self._discarded = 0
        self._awaited = "nothing"
        """What `_timer` is for."""
        self._timer: asyncio.TimerHandle | None = None
        self._sending: _SendWatch | None = None

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._answering = _Answering(self, transport)
        self._sending = _SendWatch(self.loop, transport, self._limits.send_timeout)
        if self._table.enter(transport, self.client[0] if self.client else None, self.loop.time()):
            self._await("head")
        else:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "There are too many connections; come back later.")
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self.transport)
        self._stop_timers()
        super().connection_lost(exc)

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
        if self._sending is not None:  # what is left of the last answer is sent before the connection is closed
            self._sending.start()

    def _stop_timers(self) -> None:
        self._awaited = "nothing"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is not None:
            self._sending.stop()

    # What comes

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
        """Whether it still is a connection of this kind."""
        if self.parser is None:  # pyright: ignore[reportUnnecessaryComparison] - of a connection that is lost
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
        """NB: what follows a body in chunks is no header of the request (RFC 9110 §6.5.1). Nothing here needs any.
        Raises ValueError for one more than there may be."""
        if self._reading == "body":
            self._trailers += 1
        else:
            super().on_header(name, value)
        if len(self.headers) + self._trailers > _MAX_HEADERS:
            self.refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "The request has too many headers.")
            raise ValueError("too many headers")  # which ends the parser

    def on_headers_complete(self) -> None:
        """Raises ValueError for too many requests at once, or not one host."""
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
        if self.cycle is not before:  # else it is a handshake
            self.cycle.transport = cast("asyncio.Transport", self._answering)
            self.scope[SCOPE_KEY] = partial(self._abandon_answer, self.cycle)  # type: ignore[typeddict-unknown-key]

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
        super().on_response_complete()  # NB: it reads again, if the body was paused
        if self.cycle.response_complete:  # else the next one is being answered
            self._table.idle(self.transport)

    # What does not come

    def _await(self, what: str) -> None:
        if what == self._awaited:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._awaited = what
        if what == "head":
            self._timer = self.loop.call_later(self._limits.head_timeout, self._late_head)
        elif what == "body":
            self._timer = self.loop.call_later(self._limits.body_timeout, self._late_body)

    def _late_head(self) -> None:
        if self._open_cycle() is not None:
            self._timer = self.loop.call_later(self._limits.head_timeout, self._late_head)
        elif self._framing:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "The headers of the request did not come in time.")
        else:
            hang_up(self.transport)

    def _late_body(self) -> None:
        """The time counts only while the gateway reads: not while it has had enough for now, and not while the caller
        waits for a 100 Continue."""
        cycle = self.cycle
        waits = self.flow.read_paused or cycle.waiting_for_100_continue or bool(self.pipeline)
        if cycle.response_complete:
            hang_up(self.transport)
        elif waits or self._body >= _MIN_BODY:
            self._body = 0
            self._timer = self.loop.call_later(self._limits.body_timeout, self._late_body)
        else:
            self.refuse(HTTPStatus.REQUEST_TIMEOUT, "The body of the request did not come in time.")

    def _open_cycle(self) -> RequestResponseCycle | None:
        """The newest request, if it has no whole answer yet."""
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle if cycle is not None and not cycle.response_complete else None

    # Answers of the connection's own

    def abandon_answer(self) -> None:
        """Close the connection, and end the response that is on its way where it is."""
        cycle = self._open_cycle()
        if cycle is None:
            self.transport.close()
        else:
            self._abandon_answer(cycle)

    def _abandon_answer(self, cycle: RequestResponseCycle) -> None:
        if cycle is not self._open_cycle() or cycle.disconnected:
            return
        # What the handler still sends is dropped: the client must not take it for the end of the response.
        cycle.disconnected = True
        cycle.message_event.set()
        self._stop_timers()
        self.transport.close()
        if self._sending is not None:  # the client may not read what was sent before
            self._sending.start()

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Answer in place of the app, and hang up."""
        if self._lingers or self.transport.is_closing():
            return
        cycle = self._open_cycle()
        is_amid = False
        if cycle is not None:
            is_amid = cycle.response_started or bool(self.pipeline)
            cycle.disconnected = True
            cycle.message_event.set()
        if is_amid or self.transport.get_write_buffer_size():  # one answer must not end up inside another
            self._lingers = True
            self._stop_timers()
            self.transport.abort()
            return
        self._answer(status, message)
        self._linger()

    def close_after_answer(self) -> None:
        """The app has given its last answer."""
        if self._reading == "nothing" or self.transport.is_closing():
            self.transport.close()
        else:
            self._linger()

    def _linger(self) -> None:
        """End what is said here, and let the caller go on for a while."""
        self._lingers = True
        self._stop_timers()
        self.pipeline.clear()
        self._table.idle(self.transport)
        self._timer = self.loop.call_later(self._limits.linger, self._stop_lingering)
        self.transport.write_eof()

    def _stop_lingering(self) -> None:
        self.transport.close()
        if self._sending is not None:  # what is left of a long answer
            self._sending.start()

    def _answer(self, status: HTTPStatus, message: str) -> None:
        log.debug("%s: %d %s", self.client, status, message)
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


class WebSocketConnection(WebSocketsSansIOProtocol):
    """What an `HttpConnection` becomes: in the table already."""

    def __init__(self, *args: Any, limits: ConnectionLimits, table: ConnectionTable, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._table = table
        self._sending: _SendWatch | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.set_write_buffer_limits(high=_HIGH_WATER)
        self._sending = _SendWatch(self.loop, self.transport, self._limits.send_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.leave(self.transport)
        if self._sending is not None:
            self._sending.stop()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Nor is anything read: a ping is answered whether or not the caller takes the answers."""
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
    """As many open files as this process may ask for, where it has fewer: each connection is one."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has a limit of its own, which it does not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def max_connections(wanted: int) -> int:
    """`wanted`, or what the open files allow: half of them, because each call may need a connection to an agent."""
    if resource is None:
        return wanted
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max((soft - _RESERVE) // 2, 16))


def protocol_options(settings: Settings, linger: float = _LINGER) -> dict[str, Any]:
    """For `uvicorn.Config`: its protocols, with the bounds of the settings."""
    limits = settings.limits
    bounds = ConnectionLimits(limits.head, limits.head_timeout, limits.body_timeout, limits.send_timeout, linger)
    total = max_connections(limits.connections.total)
    per_address = min(limits.connections.address, max(total // 2, 1))
    table = ConnectionTable(total, per_address, settings.trusted_proxies)
    return {
        "http": partial(HttpConnection, limits=bounds, table=table),
        "ws": partial(WebSocketConnection, limits=bounds, table=table),
        "ws_max_size": limits.body,
        "ws_per_message_deflate": False,  # 64 KB can be 64 MB
        "timeout_keep_alive": _KEEP_ALIVE,
    }
