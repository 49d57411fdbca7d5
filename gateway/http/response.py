"""Response of a request as the middleware sends it: its headers, its log line, and its reports to the observer."""

import logging
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

from babelgate.adapters.kit.headers import combine_lines
from babelgate.adapters.kit.server.tracing import TRACER
from babelgate.adapters.kit.server.websocket import GOING_AWAY
from babelgate.canonical import Principal
from babelgate.canonical.printable import printable
from babelgate.gateway.background import Tasks
from babelgate.gateway.exchange import SCOPE_KEY, ActOrigin
from babelgate.gateway.http.expiry import CredentialTimer, OpenStreams
from babelgate.gateway.http.operations import Operations, find_protocol
from babelgate.gateway.http.verifier import ANONYMOUS
from babelgate.gateway.observe import (
    REQUEST,
    GatewayObserver,
    GatewayTraces,
    RequestContext,
    RequestSpan,
    parse_traceparent,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]

log = logging.getLogger("babelgate.request")

_CLOSING: Final = Tasks()
"""Tasks that close WebSockets whose caller's credential has expired."""
_PROBES: Final = frozenset({"/healthz", "/readyz"})
"""Paths of health checks, which are not traced: an orchestrator calls them every few seconds."""
_ID_ATTRIBUTES: Final = {
    "thread": "gen_ai.conversation.id",
    "task": "babelgate.task.id",
    "run": "babelgate.run.id",
}
"""Attributes of a request's span for the ids of its thread, task and run."""
MAX_PATH: Final = 512
"""Maximum length of a path in the log, in characters. Chosen: twice that of the longest route with usual ids."""
_IDS: Final = {b"babelgate-thread": "thread", b"babelgate-task": "task", b"babelgate-run": "run"}


class Handshake:
    """ASGI `send` of a WebSocket handshake. It converts an HTTP response into the refusal of the handshake."""

    def __init__(self, send: Any, scope: Scope) -> None:
        self._send = send
        self._answers = "websocket.http.response" in (scope.get("extensions") or {})

    async def __call__(self, message: Message) -> None:
        if not message["type"].startswith("http."):
            await self._send(message)
        elif self._answers:
            await self._send({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            await self._send({"type": "websocket.close", "code": 1008})


class ResponseWrapper:
    """ASGI `send` of one request: adds the headers that all responses have, and collects the values of its log line."""

    def __init__(
        self,
        send: Any,
        scope: Scope,
        banner: bytes,
        cross_origin: list[tuple[bytes, bytes]],
        reports: "RequestReports",
        streams: OpenStreams,
    ) -> None:
        self.principal: Principal | None = None
        """Principal of the caller; None until its credential is verified."""
        self.scope = scope
        """ASGI scope of the request as the application gets it, with the shortened path."""
        self.stream_of: str | None = None
        """Protocol of the stream that was reported as opened; None if the response is no stream."""
        self.context: RequestContext | None = None
        """Values of the request that its log lines have; None if the log format shows none."""
        self._reports = reports
        self._streams = streams
        self._send = send
        self._hang_up: Callable[[], None] | None = scope.get(SCOPE_KEY)
        self._end_stream: Callable[[], None] | None = None
        """Function that ends the open stream; None if the response is no stream."""
        self._close_reason = "The credential has expired."
        self._expiry: CredentialTimer | None = None
        self.span: RequestSpan | None = None
        """Span of the request; None if the gateway sends no traces. It starts when the caller is known."""
        self._began = time.perf_counter()
        self._status = 0
        self._ids: dict[str, str] = {}
        self.request_id = uuid4().hex[:16] if reports.has_context or log.isEnabledFor(logging.INFO) else ""
        self._headers = [(b"babelgate", banner), *cross_origin]
        self.noted: dict[str, str] = {}
        """Headers that the handling of the request adds to the response, such as those of rate limits."""
        self.method: str = scope.get("method", "GET")  # a WebSocket handshake is a GET
        self._bodiless = self.method == "HEAD"
        self.has_agent_prefix: bool = scope["path"].startswith("/agent/")
        """True if the path begins with `/agent/<name>`."""
        # Percent-encoded, as sent: otherwise a line feed in a path could forge a log line.
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        self._path = printable(path[: MAX_PATH + 1].decode("ascii", "backslashreplace"), MAX_PATH, is_ascii=True)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._start(message)
        elif message["type"] == "websocket.accept":
            await self._accept(message)
        else:
            if message["type"] == "websocket.close" and not self._status:
                self._status = 403
            if not self._bodiless:
                await self._send(message)

    async def _accept(self, message: Message) -> None:
        self._status = 101
        self._reports.note_stream(self)
        await self._send({**message, "headers": [*message.get("headers", ()), *self._response_headers()]})
        self._end_stream = self._close_socket
        self._follow_credential()

    async def _start(self, message: Message) -> None:
        status, headers = message["status"], list(message.get("headers", ()))
        if status == 405:
            headers = [(name, _with_head(value) if name.lower() == b"allow" else value) for name, value in headers]
            if self.method == "OPTIONS":
                self._bodiless, status = True, 204
                headers = [(name, value) for name, value in headers if name.lower() == b"allow"]
        self._status = status
        headers += self._response_headers()
        is_stream = False
        for name, value in headers:
            if name in _IDS:
                self._ids[_IDS[name]] = value.decode("latin-1")
            elif name.lower() == b"content-type":
                is_stream = value.startswith(b"text/event-stream")
        if is_stream and not self._bodiless:
            self._reports.note_stream(self)
        await self._send({**message, "status": status, "headers": headers})
        if is_stream and self._hang_up is not None:
            self._end_stream = self._hang_up
            self._follow_credential()
        if self._bodiless:  # a stream would otherwise stay open until the run ends
            await self._send({"type": "http.response.body", "body": b""})

    def _response_headers(self) -> list[tuple[bytes, bytes]]:
        """Return the names and values of the headers that every response has."""
        headers = self._headers
        if self.noted:
            headers = [*headers, *((name.encode(), value.encode("latin-1")) for name, value in self.noted.items())]
        return [*headers, (b"x-request-id", self.request_id.encode())] if self.request_id else headers

    @property
    def start_time(self) -> int:
        """Time at which the request began, in nanoseconds since 1970, UTC."""
        return time.time_ns() - round(self.seconds * 1e9)

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.perf_counter() - self._began

    @property
    def status(self) -> int:
        """Status of the response; 0 if it has not started."""
        return self._status

    @property
    def ids(self) -> Mapping[str, str]:
        """Ids of the thread, the task and the run, as the headers of the response have them."""
        return self._ids

    def describe_origin(self) -> ActOrigin:
        """Return the ids of the request and its caller, for the audit log."""
        caller, scope = self.principal or ANONYMOUS, self.scope
        ids = parse_traceparent(next((value for name, value in scope["headers"] if name == b"traceparent"), b""))
        return ActOrigin(
            request_id=self.request_id,
            trace_id="" if ids is None else ids[0],
            protocol=find_protocol(scope["path"]),
            address=(scope.get("client") or ("",))[0],
            subject=caller.subject,
            owner=caller.owner,
            issuer=caller.issuer,
            credential=caller.credential_id,
        )

    def _follow_credential(self) -> None:
        """Add the stream to the open ones, and end it when the credential of its caller expires."""
        if self.principal is not None:
            self._streams.add(self)
            self.change_expiry(self.principal.expires_at)

    def change_expiry(self, expires_at: float | None) -> None:
        """Set the time at which the caller's credential expires, in seconds since 1970, UTC; None if it does not."""
        if self._expiry is not None:
            self._expiry.stop()
        end = self._end_stream
        self._expiry = None if expires_at is None or end is None else CredentialTimer(expires_at, end)

    def revoke(self) -> None:
        """End the stream, because the credential of its caller is no longer accepted."""
        self._close_reason = "The credential was revoked."
        if self._end_stream is not None:
            self._end_stream()

    def _close_socket(self) -> None:
        close = {"type": "websocket.close", "code": GOING_AWAY, "reason": self._close_reason}
        _CLOSING.spawn(self._close(close), "close of a WebSocket without a credential")

    async def _close(self, message: Message) -> None:
        with suppress(OSError, RuntimeError):  # the socket is closed
            await self._send(message)

    def end(self) -> None:
        """Stop the timer of the credential, drop the references that form cycles, and write the log line of the
        request."""
        if self._expiry is not None:
            self._expiry.stop()
        self._expiry = self._end_stream = None
        self._streams.discard(self)
        self.log()

    def log(self) -> None:
        """Write the log line of the request. It has no body, no query (which may contain a secret), and of the headers
        only the ids of thread, task and run."""
        if self.request_id:
            milliseconds = (time.perf_counter() - self._began) * 1000
            ids = "".join(f" {name}={value}" for name, value in self._ids.items())
            log.info(
                "%s %s %s %d %.1fms owner=%s%s",
                self.request_id,
                self.method,
                self._path,
                self._status,
                milliseconds,
                "-" if self.principal is None else self.principal.owner or "-",
                ids,
            )


class RequestReports:
    """Reports about requests: to the observer for metrics, to traces, and into the context of log lines."""

    def __init__(self, observer: GatewayObserver, *, has_context: bool) -> None:
        self.has_context = has_context
        """True if log lines name the request during which they were written."""
        self._observer = observer
        self._traces = observer.traces
        self._operations = Operations()

    def begin(self, answer: ResponseWrapper, headers: Mapping[bytes, bytes]) -> None:
        """Create the context of the request's log lines, if the log format shows it."""
        if not self.has_context:
            return
        answer.context = context = RequestContext(answer.request_id)
        ids = parse_traceparent(headers.get(b"traceparent", b""))
        if ids is not None:
            context.trace_id, context.span_id = ids
        REQUEST.set(context)

    def note_caller(
        self, answer: ResponseWrapper, caller: Principal, agent: str | None, headers: Mapping[bytes, bytes]
    ) -> None:
        """Start the span of the request, and add the caller to the context of its log lines. `agent` is the agent in
        the path, if there is one."""
        if self._traces is not None and answer.scope["path"] not in _PROBES:
            self._start_span(self._traces, answer, headers, is_trusted=caller.subject != ANONYMOUS.subject)
        if (context := answer.context) is not None:
            context.owner, context.subject, context.agent = caller.owner, caller.subject, agent
            context.credential = caller.credential_id
            context.protocol = find_protocol(answer.scope["path"])

    @staticmethod
    def _start_span(
        traces: GatewayTraces, answer: ResponseWrapper, headers: Mapping[bytes, bytes], *, is_trusted: bool
    ) -> None:
        span = traces.start_request(answer.method, headers, answer.start_time, is_trusted=is_trusted)
        answer.span = answer.scope["state"][TRACER] = span
        if (context := answer.context) is not None:
            context.trace_id, context.span_id = span.ids

    def _end_span(self, traces: GatewayTraces, answer: ResponseWrapper) -> None:
        """End the span of a request. For a request that was refused before its span started, start one first."""
        if answer.span is None:
            self._start_span(traces, answer, combine_lines(answer.scope["headers"]), is_trusted=False)
        assert answer.span is not None
        protocol, operation = self._operations.find(answer.scope)
        attributes = {"babelgate.protocol": protocol, "babelgate.operation": operation}
        attributes |= {_ID_ATTRIBUTES[name]: value for name, value in answer.ids.items()}
        if protocol == "a2a" and "task" in answer.ids:
            attributes["a2a.task.id"] = answer.ids["task"]
        route = answer.scope.get("path_template") or ""
        if route and answer.has_agent_prefix:
            route = f"/agent/{{agent}}{route}"
        answer.span.end(route, answer.status, attributes)

    def note_auth(self, method: str, result: str) -> None:
        """Report a check of a caller's credential: its kind, such as `key`, and the result, such as `refused`."""
        self._observer.note_auth(method, result)

    def note_stream(self, answer: ResponseWrapper) -> None:
        """Report that the response is a stream, at most once for each request."""
        if self._observer.is_active and answer.stream_of is None:
            answer.stream_of, _ = self._operations.find(answer.scope)
            self._observer.note_stream_opened(answer.stream_of)

    def end(self, answer: ResponseWrapper) -> None:
        """Report the end of a request: its span, its metrics, and its status in the context of log lines."""
        if self._traces is not None and answer.scope["path"] not in _PROBES:
            self._end_span(self._traces, answer)
        if self._observer.is_active:
            protocol, operation = self._operations.find(answer.scope)
            is_stream = answer.stream_of is not None
            self._observer.note_request(protocol, operation, answer.status, None if is_stream else answer.seconds)
            if answer.stream_of is not None:
                self._observer.note_stream_closed(answer.stream_of)
        if (context := answer.context) is not None:
            context.protocol, context.operation = self._operations.find(answer.scope)
            context.status, context.duration_ms = answer.status, round(answer.seconds * 1000, 1)
            ids = answer.ids
            context.thread, context.task, context.run = ids.get("thread"), ids.get("task"), ids.get("run")


def _with_head(allow: bytes) -> bytes:
    methods = {method.strip() for method in allow.split(b",")} - {b"websocket"}  # the framework lists it as a method
    return b", ".join(sorted(methods | {b"HEAD", b"OPTIONS"} if b"GET" in methods else methods | {b"OPTIONS"}))
