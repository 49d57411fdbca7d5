"""Port of traces: servers of protocols report their operations to the gateway's tracing, if it is on."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from litestar.connection import ASGIConnection

from babelgate.adapters.kit.tracing import TracedOperation


class OperationTracer(Protocol):
    """Interface by which the server of a protocol adds to the trace of a request."""

    def start_operation(self, operation: TracedOperation, context: Mapping[str, object]) -> None:
        """Start the span of the operation that the request calls. It ends with the response.

        `context` is the part of the body that may hold the caller's `traceparent`, such as the metadata of a message.
        """
        ...

    def note_failure(self, code: str) -> None:
        """Report that the operation has failed, with the code of its error. The response may nevertheless have a status
        of success."""
        ...


TRACER: Final = "tracer"
"""Key of the `OperationTracer` in the state of a request."""


def find_tracer(connection: ASGIConnection[Any, Any, Any, Any]) -> OperationTracer | None:
    """Return the tracer of a request, or None if it is not traced."""
    return connection.scope["state"].get(TRACER)


def note_failure(scope: Mapping[str, Any], code: str) -> None:
    """Report to the tracer of a request that its operation has failed, with the code of its error. The response may
    nevertheless have a status of success. `scope` is the ASGI scope of the request."""
    tracer: OperationTracer | None = scope["state"].get(TRACER)
    if tracer is not None:
        tracer.note_failure(code)
