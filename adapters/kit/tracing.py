"""Port of traces: clients of protocols report their requests to the gateway's tracing, if it is on."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

from babelgate.canonical.value import JsonObject

Attributes = Mapping[str, str | int]
"""Attributes of a span, by the names of OpenTelemetry's semantic conventions."""


class TracedOperation(NamedTuple):
    """An operation of a protocol that has a separate span."""

    name: str
    attributes: Attributes = {}


class HttpSpan(Protocol):
    """Span of one request to an agent's server."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that pass the trace on."""
        ...

    def end(self, status: int | None = None, error: str | None = None) -> None:
        """End the span. `status` is the HTTP status of the response, None if there was none. `error` is the code of a
        fault, None after a success."""
        ...


class CallTracer(Protocol):
    """Creates spans for requests to agents' servers."""

    def start_http(self, method: str, url: str, operation: TracedOperation | None) -> HttpSpan:
        """Start the span of a request, as a child of its operation's span, if there is one."""
        ...

    def read_context(self) -> Mapping[str, str]:
        """Return the headers that describe the current span, for protocols that also have them in the body."""
        ...


CALL_TRACER: Final[ContextVar[CallTracer | None]] = ContextVar("call_tracer", default=None)
"""Tracer of the run that the current task executes."""


def add_trace(message: JsonObject) -> None:
    """Add the context of the current trace to the metadata of an encoded message, if there is one. Baggage is sent in
    the header alone."""
    tracer = CALL_TRACER.get()
    if tracer is not None:
        context = {name: value for name, value in tracer.read_context().items() if name != "baggage"}
        message["metadata"] = {**(message.get("metadata") or {}), **context}
