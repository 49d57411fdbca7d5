"""Observer of the gateway: its parts report what happens, and metrics and logs follow from the reports.

This module imports nothing of Babelgate, so every part may import it.
"""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(-.*)?"
)
"""`traceparent` of W3C Trace Context, section 3.2. Ids of zeros and the version ff are invalid."""


# Traces


class RequestSpan(Protocol):
    """Span of a request."""

    @property
    def ids(self) -> tuple[str, str]:
        """Ids of the trace and of the span."""
        ...

    def end(self, route: str, status: int, attributes: Mapping[str, str]) -> None:
        """End the spans of the request and of its operation, after the last byte of the response."""
        ...


class CallSpan(Protocol):
    """Span of a call to another server."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers that pass the trace on."""
        ...

    def end(self, status: int | None = None, error: str | None = None) -> None:
        """End the span. `status` is the HTTP status of the response; None if there was none. `error` is the code of a
        fault; None after a success. A second call has no effect."""
        ...


class AttemptSpan(Protocol):
    """Span of one attempt to run."""

    @property
    def is_recording(self) -> bool:
        """True if the span is sampled, so that its details are used."""
        ...

    @property
    def has_content(self) -> bool:
        """True if the span takes messages and the data of tools."""
        ...

    def note_tool_started(self, call_id: str, name: str, arguments: object) -> None:
        """Begin the span of a tool."""
        ...

    def note_tool_ended(self, call_id: str, result: object, error: str | None) -> None:
        """End the span of a tool, with its result, or with an error unless that is None."""
        ...

    def add_output(self, text: str) -> None:
        """Add text of the agent's answer."""
        ...

    def end(self, error: str | None, tokens: Mapping[str, float]) -> None:
        """End the span, and those of its tools that are open. `error` is the code of a fault; None after a success.
        `tokens` has the numbers of tokens by kind."""
        ...


class GatewayTraces(Protocol):
    """Source of spans. Spans become the current ones of the task that starts them."""

    def start_request(
        self, method: str, headers: Mapping[bytes, bytes], start_time: int, *, is_trusted: bool
    ) -> RequestSpan:
        """Start the span of a request. Only a trusted caller's span is its parent.

        `start_time` is in nanoseconds since 1970, UTC.
        """
        ...

    def read_context(self) -> Mapping[str, str]:
        """Return the headers that describe the current span, as a run keeps them."""
        ...

    def leave(self) -> None:
        """Leave the current trace: what follows in this task belongs to none."""
        ...

    def start_attempt(
        self, context: Mapping[str, str], agent: str, version: str, attributes: Mapping[str, Any], question: str
    ) -> AttemptSpan:
        """Start the span of an attempt of a run. `context` is that of the run, and `question` the text of its input."""
        ...

    def start_call(self, agent: str, protocol: str, url: str) -> CallSpan:
        """Start the span of an agent on a server. The requests of the current task become its children."""
        ...

    def start_post(self, context: Mapping[str, str], url: str) -> CallSpan:
        """Start the span of a request to a webhook. `context` is that of the run."""
        ...


class GatewayObserver:
    """Receiver of reports. This one ignores all of them; a subclass overrides the methods that it needs.

    Reports may come from any thread. Times are in seconds. A report must be fast: most are made on the event loop.
    """

    __slots__ = ()
    is_active = False
    """True if reports about requests and events are used. Otherwise their senders may skip them."""
    traces: GatewayTraces | None = None
    """Source of spans; None if the gateway sends no traces."""

    # Callers

    def note_request(self, protocol: str, operation: str, status: int, seconds: float | None) -> None:
        """Report a finished request. `seconds` is None for a stream. `status` is 0 if no response was started."""

    def note_stream_opened(self, protocol: str) -> None:
        """Report the start of a stream: server-sent events or a WebSocket."""

    def note_stream_closed(self, protocol: str) -> None:
        """Report the end of a stream."""

    def note_connection_refused(self, reason: str) -> None:
        """Report a connection that was refused. `reason` is the limit: `address` or `total`."""

    def note_auth(self, method: str, result: str) -> None:
        """Report a check of a caller's credential. `method` is `key`, `token`, `certificate`, or `none` if none was
        sent. `result` is
        `accepted`, `refused`, or `unavailable` if the keys of the token's issuer are not known."""

    def note_jwks_fetch(self, issuer: str, result: str) -> None:
        """Report a fetch of the keys of an issuer. `result` is `success` or `failed`."""

    # Runs

    def note_run_started(self, agent: str, waited: float | None) -> None:
        """Report that an agent begins a run. `waited` is the time since it was due; None for later attempts."""

    def note_first_event(self, agent: str, protocol: str, seconds: float) -> None:
        """Report the first output of a run, and the time since it was due."""

    def note_run_ended(self, agent: str, protocol: str, outcome: str, seconds: float | None) -> None:
        """Report the end of a run. `seconds` is None if it never started."""

    def note_tokens(self, agent: str, kind: str, count: float) -> None:
        """Report tokens that an agent used, by its own count. `kind` is `input` or `output`."""

    def note_limited(self, limit: str) -> None:
        """Report a run that was refused by a limit: `rate`, `budget` or `chain`."""

    def note_cost(self, agent: str, currency: str, cost: float) -> None:
        """Report the cost of an ended run, by the usage and the prices of its agent."""

    # Servers of agents

    def note_upstream_failed(self, agent: str, fault: str) -> None:
        """Report a failed attempt on a server. `fault` is the code of the fault."""

    def note_failover(self, agent: str) -> None:
        """Report that another server is tried, because one could not be reached."""

    def note_card_checked(self, agent: str, result: str) -> None:
        """Report the verification of the card of an agent's server. `result` is `verified` or `unverified`."""

    def note_token_fetched(self, agent: str, kind: str, outcome: str, seconds: float) -> None:
        """Report a request for a token that an agent's server needs, and its duration. `kind` is the grant: `client`,
        `exchange`, `consent` or `refresh`. `outcome` is `issued`, `refused`, `unavailable` or `cancelled`."""

    # Storage and webhooks

    def note_commit(self, commands: int, seconds: float) -> None:
        """Report a transaction that was stored, and the number of its commands."""

    def note_read(self, seconds: float) -> None:
        """Report a read of the database."""

    def note_webhook_post(self, outcome: str) -> None:
        """Report an attempt to deliver to a webhook: `delivered`, `failed`, or `gone` if the receiver ended it."""

    # Configuration

    def note_reload(self, mistakes: int) -> None:
        """Report the start, or a reload of the configuration, and the number of its mistakes. With any, nothing was
        changed."""

    def note_certificate(self, expires_at: float) -> None:
        """Report the certificate of the gateway, and the time at which it ends, in seconds since 1970."""


NO_OBSERVER: Final = GatewayObserver()


# Context of log lines


@dataclass(slots=True, eq=False)
class RequestContext:
    """The request that the current task handles."""

    request_id: str
    trace_id: str | None = None
    span_id: str | None = None
    owner: str | None = None
    subject: str | None = None
    credential: str | None = None
    """Identifier of the caller's credential, which is not secret."""
    protocol: str | None = None
    operation: str | None = None
    agent: str | None = None
    thread: str | None = None
    task: str | None = None
    run: str | None = None
    status: int | None = None
    """Status of the response; None until it starts."""
    duration_ms: float | None = None
    """Duration of the request in milliseconds; None until it ends."""


class RunContext(NamedTuple):
    """The run that the current task executes."""

    owner: str
    protocol: str
    agent: str
    thread: str
    task: str
    run: str


REQUEST: Final[ContextVar[RequestContext | None]] = ContextVar("request", default=None)
"""Request of the current task. A run has the context of the request that started it."""
RUN: Final[ContextVar[RunContext | None]] = ContextVar("run", default=None)
"""Run of the current task, and of the tasks that its agent starts."""


def parse_traceparent(value: bytes) -> tuple[str, str] | None:
    """Return the ids of the trace and of the caller's span, or None if the header is absent or invalid."""
    match = _TRACEPARENT.fullmatch(value.strip())
    return None if match is None else (match[1].decode(), match[2].decode())
