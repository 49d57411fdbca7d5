"""Port of traces: servers of protocols report their operations to the gateway's tracing, if it is on."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from litestar.connection import ASGIConnection

from babelgate.adapters.kit.tracing import TracedOperation


class OperationTracer(Protocol):
    """Span of a request, as servers of protocols see it."""

    def start_operation(self, operation: TracedOperation, context: Mapping[str, object]) -> None:
        """Start the span of the operation that the request calls. It ends with the response.

        `context` has the caller's `traceparent`, if the protocol has a place for it in the body.
        """
        ...

    def note_failure(self, code: str) -> None:
        """Report the error of an operation whose response may have a status of success."""
        ...


TRACER: Final = "tracer"
"""Key of the `OperationTracer` in the state of a request."""


def find_tracer(connection: ASGIConnection[Any, Any, Any, Any]) -> OperationTracer | None:
    """Return the tracer of a request, or None if it is not traced."""
    return connection.scope["state"].get(TRACER)


def note_failure(scope: Mapping[str, Any], code: str) -> None:
    """Report the error of an operation whose response may have a status of success. `scope` is that of the request."""
    tracer: OperationTracer | None = scope["state"].get(TRACER)
    if tracer is not None:
        tracer.note_failure(code)
