"""Traces through the API of OpenTelemetry: a span for each request, operation, attempt of a run, tool call and upstream
call.

The names follow OpenTelemetry's semantic conventions for HTTP, generative AI, A2A and MCP. Baggage is propagated and
never recorded."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import context as otel
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import (
    Link,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
    format_span_id,
    format_trace_id,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from babelgate.adapters.kit.tracing import CALL_TRACER, TracedOperation

CONTENT_LIMIT: Final = 8 * 1024
"""Maximum length of a message, or of a tool's arguments or result, in a span, in characters. Chosen: exporters and
backends shorten or refuse larger attributes."""
_HEADERS: Final = ("traceparent", "tracestate", "baggage")
_PROPAGATOR: Final = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
_MAX_STATE: Final = 512
"""Maximum length of an accepted `tracestate` header, in characters: the length that W3C Trace Context, section 3.3.1.5,
requires to propagate at least."""


class Traces:
    """Source of spans for one gateway process. Implements `babelgate.gateway.observe.GatewayTraces`."""

    def __init__(self, tracer: Tracer, *, has_content: bool = False) -> None:
        """Create the source. With `has_content`, spans contain the text of messages and the arguments and results of
        tools."""
        self._tracer = tracer
        self._has_content = has_content

    def start_request(
        self, method: str, headers: Mapping[bytes, bytes], start_time: int, *, is_trusted: bool
    ) -> "OtelRequestSpan":
        """Start the server span of an HTTP request, and make it the current span of the task.

        The span of a trusted caller is its parent. That of any other caller is only linked, because such a caller must
        not decide what is sampled. `start_time` is in nanoseconds since 1970, UTC."""
        sent = {name: headers[name.encode()].decode("latin-1") for name in _HEADERS if name.encode() in headers}
        parent, links = _read_parent(sent, is_trusted=is_trusted)
        span = self._tracer.start_span(
            method, parent, SpanKind.SERVER, {"http.request.method": method}, links, start_time=start_time
        )
        otel.attach(set_span_in_context(span, parent))
        return OtelRequestSpan(self._tracer, span, parent, is_trusted=is_trusted)

    def read_context(self) -> Mapping[str, str]:
        """Return the W3C headers (`traceparent` and others) that describe the current span. Empty if there is no
        span."""
        return _inject(otel.get_current())

    def leave(self) -> None:
        """Remove the current span from the task, so that later spans of the task begin new traces."""
        otel.attach(Context())

    def start_attempt(
        self, context: Mapping[str, str], agent: str, version: str, attributes: Mapping[str, Any], question: str
    ) -> "OtelAttemptSpan":
        """Start the span of one attempt of a run, and make it the current span of the task.

        `context` has the W3C headers of the span in which the run was created, which becomes the parent. `question` is
        the text of the run's input."""
        parent = _PROPAGATOR.extract(dict(context), Context())
        span = self._tracer.start_span(
            f"invoke_agent {agent}",
            parent,
            SpanKind.INTERNAL,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent,
                "gen_ai.agent.version": version,
                **attributes,
            },
        )
        within = set_span_in_context(span, parent)
        otel.attach(within)
        if self._has_content and question:
            span.set_attribute("gen_ai.input.messages", _text_message("user", question))
        return OtelAttemptSpan(self._tracer, span, within, has_content=self._has_content)

    def start_call(self, agent: str, protocol: str, url: str) -> "OtelCallSpan":
        """Start the span of an agent's call to a server at `url`. Requests of the current task become its children."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": protocol,
            "gen_ai.agent.name": agent,
            **_describe_server(url),
        }
        outer = otel.get_current()
        span = self._tracer.start_span(f"invoke_agent {agent}", outer, SpanKind.CLIENT, attributes)
        within = set_span_in_context(span, outer)
        otel.attach(within)
        CALL_TRACER.set(self)
        return OtelCallSpan((span,), within, outer)

    def start_http(self, method: str, url: str, operation: TracedOperation | None) -> "OtelCallSpan":
        """Start the span of an HTTP request to an agent's server.

        If the request is part of a protocol operation, such as an MCP call, start a span for this first as its
        parent."""
        within, spans = otel.get_current(), list[Span]()
        if operation is not None:
            attributes = {**operation.attributes, **_describe_server(url)}
            spans.append(self._tracer.start_span(operation.name, within, SpanKind.CLIENT, attributes))
            within = set_span_in_context(spans[0], within)
        spans.append(self._tracer.start_span(method, within, SpanKind.CLIENT, _describe_request(method, url)))
        return OtelCallSpan(spans, set_span_in_context(spans[-1], within))

    def start_post(self, context: Mapping[str, str], url: str) -> "OtelCallSpan":
        """Start the span of an HTTP request to a webhook. `context` has the W3C headers of the run's trace."""
        parent = _PROPAGATOR.extract(dict(context), Context())
        span = self._tracer.start_span("POST", parent, SpanKind.CLIENT, _describe_request("POST", url))
        return OtelCallSpan((span,), set_span_in_context(span, parent))


class OtelRequestSpan:
    """Span of an HTTP request, and the span of the protocol operation that the request calls, if there is one."""

    def __init__(self, tracer: Tracer, span: Span, parent: Context, *, is_trusted: bool) -> None:
        self._tracer = tracer
        self._span = span
        self._parent = parent
        self._is_trusted = is_trusted
        self._operation: Span | None = None
        self._error: str | None = None

    @property
    def ids(self) -> tuple[str, str]:
        """Trace id and span id of the request, in hex."""
        return _ids(self._span.get_span_context())

    def start_operation(self, operation: TracedOperation, context: Mapping[str, object]) -> None:
        """Start the span of the protocol operation that the request calls, and make it the current span of the task.

        `context` has trace headers from the body. For a trusted caller, they name the parent, and the request's span is
        linked. For any other caller, the request's span is the parent, and the span that they name is linked."""
        parent, links = set_span_in_context(self._span, self._parent), list[Link]()
        sent = {name: value for name in _HEADERS if isinstance(value := context.get(name), str)}
        if sent:
            named, links = _read_parent(sent, is_trusted=self._is_trusted)
            if get_current_span(named).get_span_context().is_valid:
                parent, links = named, [Link(self._span.get_span_context())]
        span = self._tracer.start_span(operation.name, parent, SpanKind.SERVER, dict(operation.attributes), links)
        self._operation = span
        otel.attach(set_span_in_context(span, parent))

    def note_failure(self, code: str) -> None:
        """Store the error code with which the operation ends."""
        self._error = code

    def end(self, route: str, status: int, attributes: Mapping[str, str]) -> None:
        """End the spans of the request and of its operation, with the route, the HTTP status (0: no response) and
        attributes."""
        span, operation = self._span, self._operation
        if span.is_recording():
            if route:
                span.update_name(f"{span.name} {route}")  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
                span.set_attribute("http.route", route)
            if status:
                span.set_attribute("http.response.status_code", status)
            span.set_attributes(dict(attributes))
            if status >= 500 or not status:
                _fail(span, str(status) if status else "aborted")
        if operation is not None:
            if operation.is_recording():
                operation.set_attributes({name: attributes[name] for name in _OPERATION if name in attributes})
                error = self._error or (str(status) if status >= 400 or not status else None)
                if error is not None:
                    _fail(operation, error)
            operation.end()
        span.end()


_OPERATION: Final = ("gen_ai.conversation.id", "a2a.task.id", "babelgate.run.id")
"""Names of the attributes of a request's span that the span of its operation gets, too."""


class OtelCallSpan:
    """Spans of one call to another server: the span of the HTTP request is last, after that of its operation, if
    any."""

    def __init__(self, spans: "tuple[Span, ...] | list[Span]", within: Context, outer: Context | None = None) -> None:
        """Create the call from started spans. `within` is the context of the last one.

        `outer` is the context to restore when the call ends; None restores nothing."""
        self._spans = spans
        self._outer = outer
        self._within = within
        self._has_ended = False

    @property
    def headers(self) -> Mapping[str, str]:
        """W3C headers to send with the request, so that the server continues the trace."""
        return _inject(self._within)

    def end(self, status: int | None = None, error: str | None = None) -> None:
        """End all spans, with the HTTP status and the fault code as in `CallSpan.end`. A second call has no effect."""
        if self._has_ended:
            return
        self._has_ended = True
        if self._outer is not None:
            otel.attach(self._outer)
        request = self._spans[-1]
        if status is not None:
            request.set_attribute("http.response.status_code", status)
        for span in reversed(self._spans):
            if error is not None:
                _fail(span, error)
            span.end()


class OtelAttemptSpan:
    """Span of one attempt of a run, and the spans of the tool calls during it."""

    def __init__(self, tracer: Tracer, span: Span, within: Context, *, has_content: bool) -> None:
        self._tracer = tracer
        self._span = span
        self._within = within
        self.is_recording = span.is_recording()
        """True if the span is sampled. Otherwise callers need not report details."""
        self.has_content = has_content and self.is_recording
        """True if the span records messages and the arguments and results of tools."""
        self._tools: dict[str, Span] = {}
        self._output: list[str] = []
        self._room = CONTENT_LIMIT

    def note_tool_started(self, call_id: str, name: str, arguments: object) -> None:
        """Start the span of a tool call."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": call_id,
        }
        if self.has_content and arguments is not None:
            attributes["gen_ai.tool.call.arguments"] = _cut_json(arguments)
        self._tools[call_id] = self._tracer.start_span(
            f"execute_tool {name}", self._within, SpanKind.INTERNAL, attributes
        )

    def note_tool_ended(self, call_id: str, result: object, error: str | None) -> None:
        """End the span of a tool call with its result, and with its error unless that is None."""
        span = self._tools.pop(call_id, None)
        if span is None:
            return
        if self.has_content and result is not None:
            span.set_attribute("gen_ai.tool.call.result", _cut_json(result))
        if error is not None:
            _fail(span, error)
        span.end()

    def add_output(self, text: str) -> None:
        """Add text of the agent's answer, which the span records up to `CONTENT_LIMIT` characters."""
        if self._room > 0:
            self._output.append(text[: self._room])
            self._room -= len(text)

    def end(self, error: str | None, tokens: Mapping[str, float]) -> None:
        """End the span and the open spans of its tool calls.

        `error` is the code of a fault, or None for a success. `tokens` has the numbers of tokens by kind, such as
        `input`."""
        for span in self._tools.values():
            span.end()
        span = self._span
        if self.is_recording:
            for kind, count in tokens.items():
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", int(count))
            if self._output:
                span.set_attribute("gen_ai.output.messages", _text_message("assistant", "".join(self._output)))
            if error is not None:
                _fail(span, error)
        span.end()


def _read_parent(sent: Mapping[str, str], *, is_trusted: bool) -> tuple[Context, list[Link]]:
    """Return the parent context of a request's span, and the spans to link, from the trace headers of the caller.

    For a trusted caller, its span is the parent. For any other caller, the parent is empty, and the caller's span is
    linked."""
    if "traceparent" not in sent and not (is_trusted and "baggage" in sent):
        return Context(), []
    if len(sent.get("tracestate", "")) > _MAX_STATE:
        sent = {name: value for name, value in sent.items() if name != "tracestate"}
    remote = _PROPAGATOR.extract(dict(sent), Context())
    if is_trusted:
        return remote, []
    linked = get_current_span(remote).get_span_context()
    return Context(), [Link(linked)] if linked.is_valid else []


def _inject(context: Context) -> Mapping[str, str]:
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers, context)
    return headers


def _ids(context: SpanContext) -> tuple[str, str]:
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


def _describe_server(url: str) -> dict[str, str | int]:
    parsed = urlsplit(url)
    try:
        port = parsed.port or {"http": 80, "https": 443}.get(parsed.scheme)
    except ValueError:
        port = None
    return {"server.address": parsed.hostname or "", **({} if port is None else {"server.port": port})}


def _describe_request(method: str, url: str) -> dict[str, str | int]:
    """Return the span attributes of an HTTP request. The URL is recorded without credentials, query and fragment, which
    may be secrets."""
    parsed = urlsplit(url)
    plain = parsed._replace(netloc=parsed.netloc.rpartition("@")[2], query="", fragment="").geturl()
    return {"http.request.method": method, "url.full": plain, **_describe_server(url)}


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def _text_message(role: str, text: str) -> str:
    """Return a message as JSON in the form of the semantic conventions. Its text is cut to `CONTENT_LIMIT` characters
    first."""
    part = {"type": "text", "content": text[:CONTENT_LIMIT]}
    return json.dumps([{"role": role, "parts": [part]}], ensure_ascii=False)


def _cut_json(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str))[:CONTENT_LIMIT]
