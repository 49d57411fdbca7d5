"""Observer of the gateway: its parts report what happens, and metrics, traces and logs are made from the reports.

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
"""Value of the header `traceparent` (W3C Trace Context, section 3.2). Ids of zeros and the version ff are invalid."""


# Traces


class RequestSpan(Protocol):
    """Span of a caller's request."""

    @property
    def ids(self) -> tuple[str, str]:
        """Ids of the trace and of the span, in hex digits."""
        ...

    def end(self, route: str, status: int, attributes: Mapping[str, str]) -> None:
        """End the spans of the request and of its operation, after the last byte of the response. `route` is the path
        with names of parameters."""
        ...


class CallSpan(Protocol):
    """Span of a call to an agent's server or to a webhook."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by which the called server continues the trace."""
        ...

    def end(self, status: int | None = None, error: str | None = None) -> None:
        """End the span. `status` is the HTTP status of the response; None if there was none. `error` is the code of a
        fault; None after a success. A second call has no effect."""
        ...


class AttemptSpan(Protocol):
    """Span of one attempt of a run."""

    @property
    def is_recording(self) -> bool:
        """True if the span is sampled, so that its attributes are exported."""
        ...

    @property
    def has_content(self) -> bool:
        """True if the span records the text of messages and the data of tools."""
        ...

    def note_tool_started(self, call_id: str, name: str, arguments: object) -> None:
        """Start the span of a tool call, as a child of this span."""
        ...

    def note_tool_ended(self, call_id: str, result: object, error: str | None) -> None:
        """End the span of a tool call. `error` is the code of a fault; None after a success, which has a `result`."""
        ...

    def add_output(self, text: str) -> None:
        """Add text of the agent's answer to the attribute with its output."""
        ...

    def end(self, error: str | None, tokens: Mapping[str, float]) -> None:
        """End the span, and those of its tools that are open.

        `error` is the code of a fault; None after a success. `tokens` has the numbers of tokens by kind: `input`,
        `output`.
        """
        ...


class GatewayTraces(Protocol):
    """Source of spans. A span becomes the current one of the task that starts it."""

    def start_request(
        self, method: str, headers: Mapping[bytes, bytes], start_time: int, *, is_trusted: bool
    ) -> RequestSpan:
        """Start the span of a request, as a child of the span in its headers if the caller is trusted.

        `start_time` is in nanoseconds since 1970, UTC.
        """
        ...

    def read_context(self) -> Mapping[str, str]:
        """Return the headers that describe the current span, such as `traceparent`. A run stores them, so that its
        attempts continue the trace."""
        ...

    def leave(self) -> None:
        """Leave the current trace, so that spans that this task starts later do not belong to it."""
        ...

    def start_attempt(
        self, context: Mapping[str, str], agent: str, version: str, attributes: Mapping[str, Any], question: str
    ) -> AttemptSpan:
        """Start the span of an attempt of a run. `context` has the trace headers of the run, and `question` is the text
        of its input."""
        ...

    def start_call(self, agent: str, protocol: str, url: str) -> CallSpan:
        """Start the span of a run on an agent's server. The HTTP requests of the current task become its children."""
        ...

    def start_post(self, context: Mapping[str, str], url: str) -> CallSpan:
        """Start the span of a post to a webhook. `context` has the trace headers of the run."""
        ...


class GatewayObserver:
    """Receiver of reports from all parts of the gateway. This class ignores them; a subclass overrides the methods that
    it needs.

    Reports may come from any thread. Times are in seconds. A report must be fast: most are made on the event loop.
    """

    __slots__ = ()
    is_active = False
    """True if the subclass uses reports about requests and events. Otherwise the parts may skip them."""
    traces: GatewayTraces | None = None
    """Source of spans; None if the gateway sends no traces."""

    # Callers

    def note_request(self, protocol: str, operation: str, status: int, seconds: float | None) -> None:
        """Report a finished request. `seconds` is its duration; None for a stream. `status` is 0 if no response was
        started."""

    def note_stream_opened(self, protocol: str) -> None:
        """Report the start of a stream: server-sent events or a WebSocket."""

    def note_stream_closed(self, protocol: str) -> None:
        """Report the end of a stream."""

    def note_connection_refused(self, reason: str) -> None:
        """Report a connection that was refused. `reason` is the limit: `address` or `total`."""

    def note_auth(self, method: str, result: str) -> None:
        """Report a check of a caller's credential. `method` is `key`, `token`, `certificate`, or `none` if none was
        sent.

        `result` is `accepted`, `refused`, or `unavailable` if the keys of the token's issuer are not known.
        """

    def note_jwks_fetch(self, issuer: str, result: str) -> None:
        """Report a fetch of public keys. `issuer` is the name of the issuer, and `result` is `success` or `failed`."""

    # Runs

    def note_run_started(self, agent: str, waited: float | None) -> None:
        """Report that an agent begins a run. `waited` is the time in seconds since the run was due; None for later
        attempts."""

    def note_first_event(self, agent: str, protocol: str, seconds: float) -> None:
        """Report the first output of a run. `seconds` is the time since the run was due."""

    def note_run_ended(self, agent: str, protocol: str, outcome: str, seconds: float | None) -> None:
        """Report the end of a run. `outcome` is its status, and `seconds` its duration; None if it never started."""

    def note_tokens(self, agent: str, kind: str, count: float) -> None:
        """Report the tokens that an agent says it has used in a run. `kind` is `input` or `output`."""

    def note_limited(self, limit: str) -> None:
        """Report a run that was refused by a limit: `rate`, `budget` or `chain`."""

    def note_cost(self, agent: str, currency: str, cost: float) -> None:
        """Report the cost of an ended run in a currency, computed from its usage and the prices in its agent's
        settings."""

    # Servers of agents

    def note_upstream_failed(self, agent: str, fault: str) -> None:
        """Report a failed attempt to run an agent on its server. `fault` is the code of the fault."""

    def note_failover(self, agent: str) -> None:
        """Report that a run is tried on another server of its agent, because the first one could not be reached."""

    def note_card_checked(self, agent: str, result: str) -> None:
        """Report the verification of the card of an agent's server. `result` is `verified` or `unverified`."""

    def note_token_fetched(self, agent: str, kind: str, outcome: str, seconds: float) -> None:
        """Report a request for a token that an agent's server needs, and its duration. `kind` is the grant: `client`,
        `exchange`, `consent` or `refresh`. `outcome` is `issued`, `refused`, `unavailable` or `cancelled`."""

    # Storage and webhooks

    def note_commit(self, commands: int, seconds: float) -> None:
        """Report a committed transaction: the number of its commands, and its duration."""

    def note_read(self, seconds: float) -> None:
        """Report a read of the database, and its duration."""

    def note_webhook_post(self, outcome: str) -> None:
        """Report an attempt to deliver to a webhook: `delivered`, `failed`, or `gone` if the receiver ended it."""

    # Configuration

    def note_reload(self, mistakes: int) -> None:
        """Report the start, or a reload of the configuration. `mistakes` is the number of mistakes; if it is not 0,
        nothing was changed."""

    def note_certificate(self, expires_at: float) -> None:
        """Report the gateway's TLS certificate. `expires_at` is the time at which it expires, in seconds since 1970."""


NO_OBSERVER: Final = GatewayObserver()


# Context of log lines


@dataclass(slots=True, eq=False)
class RequestContext:
    """Values that log lines show about the request that the current task handles."""

    request_id: str
    trace_id: str | None = None
    span_id: str | None = None
    owner: str | None = None
    subject: str | None = None
    credential: str | None = None
    """Non-secret identifier of the caller's credential, such as the first digits of its digest."""
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
    """Values that log lines show about the run that the current task executes."""

    owner: str
    protocol: str
    agent: str
    thread: str
    task: str
    run: str


REQUEST: Final[ContextVar[RequestContext | None]] = ContextVar("request", default=None)
"""Context of the request that the current task handles. A run has that of the request that started it."""
RUN: Final[ContextVar[RunContext | None]] = ContextVar("run", default=None)
"""Context of the run that the current task executes, also in tasks that its agent starts."""


def parse_traceparent(value: bytes) -> tuple[str, str] | None:
    """Return the trace id and the span id in a header `traceparent`, or None if the header is empty or invalid."""
    match = _TRACEPARENT.fullmatch(value.strip())
    return None if match is None else (match[1].decode(), match[2].decode())
