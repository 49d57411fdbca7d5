"""Services that gRPC calls: the interface between an adapter, which knows the messages, and the gateway's gRPC server.

A call becomes a request to a route of the same adapter, so that everything around a route also holds for gRPC: keys,
rules, limits, logs, metrics and traces.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from babelgate.canonical import Fault


class RpcFailure(Exception):
    """The error that ends a gRPC call. `code` is the name of the status, such as `NOT_FOUND`, and `details` a
    `google.rpc.Status` as bytes."""

    def __init__(self, code: str, text: str, details: bytes) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.details = details


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcRequest:
    """The POST request with JSON that a call becomes."""

    path: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers, by lower-case name, in addition to those from the metadata of the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcMethod:
    """One method of a service. Its messages are bytes here."""

    streams: bool = False
    """True if the response is a stream. The route answers with an event stream, or with JSON for an error."""
    read: Callable[[bytes, Mapping[str, str], str | None], RpcRequest]
    """Function that returns the request for a message: (message, metadata by name, name of the default agent) →
    request. Raises invalid, and not_found if no agent is named and there is no default agent."""
    open_writer: Callable[[], Callable[[bytes, int], bytes]]
    """Function that returns a writer for one call. The writer returns the message for the response, or for each event
    of the stream in turn: (JSON, status of the response) → message. It raises RpcFailure for an error, and the fault of
    a content that has no message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RpcService:
    name: str
    """Full name, such as `lf.a2a.v1.A2AService`."""
    methods: Mapping[str, RpcMethod]
    fail: Callable[[Fault], RpcFailure]
    """Function that returns the error of the service for a fault."""
