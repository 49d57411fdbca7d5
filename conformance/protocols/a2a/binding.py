"""Interface for calling an agent by one binding (JSON-RPC, REST or gRPC) of one protocol version (0.3 or 1.0).
Operations, parameters and results have the form of A2A 1.0, so that a probe of what both versions require is written
once.

The messages on the wire have the form of the protocol version. They are recorded and validated against its schemas
before they are translated.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from babelgate.conformance.wire.exchange import Exchange, SseFrame, as_list, dig
from babelgate.conformance.wire.http import EventSource, Unanswered, Wire

CODES: Final[Mapping[int, str]] = {
    -32700: "PARSE_ERROR",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL",
    -32001: "TASK_NOT_FOUND",
    -32002: "TASK_NOT_CANCELABLE",
    -32003: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    -32004: "UNSUPPORTED_OPERATION",
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32006: "INVALID_AGENT_RESPONSE",
    -32007: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    -32008: "EXTENSION_SUPPORT_REQUIRED",
    -32009: "VERSION_NOT_SUPPORTED",
}
"""Names of the JSON-RPC error codes. In REST and gRPC the name is the reason in the ErrorInfo (1.0, section 5.4)."""

TERMINAL: Final = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"})
INTERRUPTED: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})


def state_of(task: Any) -> str:
    """Return the state of a task or a status update under its name in 1.0, such as `TASK_STATE_COMPLETED`. Names of 0.3
    are converted, because only one requirement tests the spelling."""
    state = str(dig(task, "status", "state"))
    return state if state.startswith("TASK_STATE_") else f"TASK_STATE_{state.upper().replace('-', '_')}"


_STATUSES: Final[Mapping[str, tuple[int, ...]]] = {
    "TASK_NOT_FOUND": (404,),
    "TASK_NOT_CANCELABLE": (400, 409),
    "CONTENT_TYPE_NOT_SUPPORTED": (400, 415),
}
"""HTTP statuses of a REST error, by its reason: those of 1.0.1 and of 1.0.0. All other errors have the status 400."""
RPC_STATUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "TASK_NOT_FOUND": ("NOT_FOUND",),
    "TASK_NOT_CANCELABLE": ("FAILED_PRECONDITION",),
    "PUSH_NOTIFICATION_NOT_SUPPORTED": ("FAILED_PRECONDITION", "UNIMPLEMENTED"),
    "UNSUPPORTED_OPERATION": ("FAILED_PRECONDITION", "UNIMPLEMENTED"),
    "CONTENT_TYPE_NOT_SUPPORTED": ("INVALID_ARGUMENT",),
    "EXTENDED_AGENT_CARD_NOT_CONFIGURED": ("FAILED_PRECONDITION",),
    "EXTENSION_SUPPORT_REQUIRED": ("FAILED_PRECONDITION",),
    "VERSION_NOT_SUPPORTED": ("FAILED_PRECONDITION", "UNIMPLEMENTED"),
}
"""gRPC statuses of an error, by its reason: that of 1.0.1 first, then that of 1.0.0 if it differs."""


def is_reason(reply: "A2aReply", reason: str) -> bool:
    """Return True if the reply is an error with this reason, such as `TASK_NOT_FOUND`.

    An error of REST or gRPC without a reason is judged by its status, because only one requirement tests the reason
    itself.
    """
    statuses = [f"HTTP {status}" for status in _STATUSES.get(reason, (400,))]
    statuses += [f"gRPC {status}" for status in RPC_STATUSES.get(reason, ())]
    return reply.reason == reason or reply.reason in statuses or reason in reply.may_mean


@dataclass(frozen=True, slots=True)
class A2aReply:
    exchange: Exchange
    result: Any
    """Result of the operation in the form of 1.0; None if the reply is an error."""
    reason: str
    """Reason of the error: a value of CODES, `HTTP <status>` or `gRPC <status>` if the error has no reason, or the
    agent's own text. Empty if there is no error."""
    may_mean: frozenset[str] = frozenset()
    """Values of CODES that the error may have. REST of 0.3 does not define how an error reports its reason."""

    @property
    def task(self) -> Any:
        """Task in the result of SendMessage; None if the result is a message."""
        return dig(self.result, "task")

    @property
    def message(self) -> Any:
        return dig(self.result, "message")

    @property
    def reason_or_result(self) -> Any:
        """Reason of the error, or else the result, to be shown as the observed value of a failure."""
        return self.reason or self.result


class A2aEventStream:
    """Stream of an agent, whose events are translated to the StreamResponse of 1.0. In 0.3 a status update also has the
    member `final`."""

    def __init__(
        self, stream: EventSource, payload: Callable[[SseFrame], Any], reply: Callable[[Exchange], A2aReply]
    ) -> None:
        self.stream = stream
        self._payload = payload
        self._reply = reply

    @property
    def exchange(self) -> Exchange:
        return self.stream.exchange

    @property
    def reply(self) -> A2aReply:
        """Response as a reply and not as a stream, for example an error."""
        return self._reply(self.exchange)

    @property
    def payloads(self) -> list[Any]:
        """Events received so far as StreamResponse objects, with None for each event that cannot be translated."""
        return [self._payload(frame) for frame in self.exchange.frames]

    async def next(self, bound: float | None = None) -> Any:
        """Return the next event as a StreamResponse, or None at the end of the stream. `bound` is the maximum wait in
        seconds; None is the timeout of the request. Raises Unanswered if the time is used up or the connection
        breaks."""
        frame = await self.stream.next(bound)
        return None if frame is None else self._payload(frame)


class Binding(Protocol):
    @property
    def name(self) -> str:
        """Name of the binding in agent cards: `JSONRPC`, `HTTP+JSON` or `GRPC`."""
        ...

    @property
    def is_first_generation(self) -> bool:
        """True if the protocol version is 0.3, False if it is 1.0."""
        ...

    @property
    def url(self) -> str: ...

    @property
    def wire(self) -> Wire: ...

    async def call(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
        bound: float | None = None,
    ) -> A2aReply: ...

    def stream(
        self,
        operation: str,
        params: Mapping[str, Any],
        *,
        is_valid: bool = True,
        headers: Mapping[str, str] | None = None,
        is_anonymous: bool = False,
    ) -> AbstractAsyncContextManager[A2aEventStream]: ...


def reason_of(error: Any) -> str:
    """Return the reason in the ErrorInfo (google.rpc) among the details of an error object, or an empty string."""
    for detail in as_list(dig(error, "details")) or as_list(dig(error, "data")):
        if str(dig(detail, "@type")).endswith("google.rpc.ErrorInfo"):
            return str(dig(detail, "reason"))
    return ""


async def find_subscription_method(wire: Wire, url: str, headers: Mapping[str, str]) -> str:
    """Return the HTTP method, GET or POST, by which a server accepts subscriptions to a task.

    The protocol buffer says GET and the prose POST (1.0, sections 5.3 and 11.3.2), so a server may accept either. `url`
    subscribes to a task that does not exist, so the method is found by the kind of error.
    """
    status, is_known = await _ask(wire, "GET", url, headers)
    if status in (405, 501):
        return "POST"
    if status == 404 and not is_known:  # A file server, or a router such as Express, answers 404 instead of 405.
        status, is_known = await _ask(wire, "POST", url, headers)
        return "POST" if status < 300 or (status == 404 and is_known) else "GET"
    return "GET"


async def _ask(wire: Wire, method: str, url: str, headers: Mapping[str, str]) -> tuple[int, bool]:
    """Send a request and return the status of the response, and True if its body is an error of A2A."""
    body = dict[str, Any]() if method == "POST" else None
    accept = {"Accept": "text/event-stream", **headers}
    try:
        async with wire.stream(
            method, url, sends=None, receives=None, events=None, body=body, headers=accept
        ) as stream:
            exchange = stream.exchange
    except Unanswered as error:  # a2a-sdk 0.3.26 and 1.3.0 begin a stream before they look for the task.
        exchange = error.exchange
    error_body = dig(exchange.json, "error") if exchange.is_json else None
    return exchange.status or 0, bool(reason_of(error_body)) or isinstance(dig(error_body, "code"), int)
