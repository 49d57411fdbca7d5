"""Port of traces: clients of protocols report their requests to the gateway's tracing, if it is on."""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, cast

from babelgate.canonical.value import JsonObject

Attributes = Mapping[str, str | int]
"""Attributes of a span, by the names of OpenTelemetry's semantic conventions."""


class TracedOperation(NamedTuple):
    """An operation of a protocol that gets its own span in traces."""

    name: str
    attributes: Attributes = {}


class HttpSpan(Protocol):
    """Span of one request to an agent's server."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers with the context of the span, such as `traceparent`, to send with the request."""
        ...

    def end(self, status: int | None = None, error: str | None = None) -> None:
        """End the span. `status` is the HTTP status of the response, None if there was none. `error` is the code of a
        fault, None after a success."""
        ...


class CallTracer(Protocol):
    """Interface that starts spans for requests to agents' servers."""

    def start_http(self, method: str, url: str, operation: TracedOperation | None) -> HttpSpan:
        """Start the span of a request, as a child of its operation's span, if there is one."""
        ...

    def read_context(self) -> Mapping[str, str]:
        """Return the headers with the context of the current span, for protocols that repeat them in the body."""
        ...


CALL_TRACER: Final[ContextVar[CallTracer | None]] = ContextVar("call_tracer", default=None)
"""Tracer of the run that the current task executes. None if traces are off."""


CHAIN: Final[ContextVar[Mapping[str, str]]] = ContextVar("chain", default=MappingProxyType({}))
"""Trace headers of the current run's input, such as `tracestate`, to send with its requests to agents' servers. They
count the agents in a chain of calls: an agent that calls the gateway, which calls another agent."""
BODY_HOPS: Final[ContextVar[int]] = ContextVar("body_hops", default=0)
"""Depth of the chain of calls, as the metadata in the body of the current request states it; 0 if it does not."""
HOPS: Final = "babelgate/hops"
"""Key in the metadata of A2A and MCP for the depth of the chain of calls. The metadata also reaches servers behind
programs that drop headers."""
_DEPTH: Final = re.compile(r"(?:^|,)\s*babelgate=h:([0-9]{1,6})\s*(?:,|$)")


def hops_of(tracestate: str) -> int:
    """Return the depth of the chain of calls in a `tracestate` header, such as 2 for `babelgate=h:2`. Return 0 if the
    header has no entry of a gateway."""
    match = _DEPTH.search(tracestate)
    return 0 if match is None else int(match[1])


def note_hops(metadata: object) -> None:
    """Store in `BODY_HOPS` the depth of the chain of calls that the metadata of a request contains, or 0."""
    value: Any = cast("JsonObject", metadata).get(HOPS) if isinstance(metadata, dict) else None
    is_depth = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**6
    BODY_HOPS.set(value if is_depth else 0)


def add_trace(message: JsonObject) -> None:
    """Add the current trace context and the depth of the chain of calls to the metadata of an encoded message. Baggage
    is not added, because it is sent in a header only."""
    context: JsonObject = {}
    tracer = CALL_TRACER.get()
    if tracer is not None:
        context = {name: value for name, value in tracer.read_context().items() if name != "baggage"}
    if hops := hops_of(CHAIN.get().get("tracestate", "")):
        context[HOPS] = hops
    if context:
        message["metadata"] = {**(message.get("metadata") or {}), **context}
