"""Load balancing, circuit breaker and failover between the servers of an agent.

A run stays on the server that has its conversation: the upstream's ids name that server. A run is retried, on the same
or another server, only if no connection was established, so that no work can have started. A server that fails
repeatedly is not used during a cooldown. Afterwards, one run at a time probes whether it works again.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import httpx

from babelgate.adapters.kit.client.tls import ClientTls, explain_failure
from babelgate.adapters.kit.tracing import CHAIN
from babelgate.adapters.kit.upstream import FORWARDED, Client
from babelgate.canonical import Event, Fault, FaultCode, FaultError, Invocation
from babelgate.canonical.agent import Introspectable
from babelgate.canonical.event import LossNoted, RunEnded, StateSaved, UpstreamBound
from babelgate.canonical.printable import printable
from babelgate.canonical.state import ERRED
from babelgate.canonical.value import JsonObject
from babelgate.gateway.observe import NO_OBSERVER, CallSpan, GatewayObserver

_REASON_LENGTH: Final = 500
"""Maximum length of the reason in a log line about a failed attempt, in characters. Chosen."""
_MAX_FAILURES: Final = 5
"""Number of consecutive failures that open the circuit breaker of a server. Chosen."""
_COOLDOWN: Final = 30.0
"""Seconds for which an open circuit breaker admits no run. Chosen."""
_RETRY_DELAYS: Final = (0.1, 0.5)
"""Pauses before the connection to the first server is tried again, after all servers have failed, in seconds.
Chosen."""
_REQUEST_TIMEOUT: Final = 10.0
"""Time limit of requests that describe a graph, in seconds: unlike runs, they have no limit in the settings. Chosen."""
_SERVER_FAULTS: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT})
_NOT_IMPLEMENTED: Final = 501
_NOT_CONNECTED: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

log = logging.getLogger("babelgate.upstream")

T = TypeVar("T")
Events = AsyncGenerator[Event]
Run = Callable[[Invocation], Events]


class Breaker:
    """Circuit breaker of one server.

    - Closed: the server answers, and runs are admitted.
    - Open: the server failed too often in a row, and no run is admitted.
    - Half open: the cooldown is over, and one run is admitted as a probe.
    """

    def __init__(
        self,
        failures: int = _MAX_FAILURES,
        cooldown: float = _COOLDOWN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_failures = failures
        self._cooldown = cooldown
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0
        self._opened_at: float | None = None
        self._is_probing = False

    @property
    def wait(self) -> float:
        """Seconds until the end of the cooldown; 0 if it has ended, or if the breaker is closed."""
        return 0.0 if self._opened_at is None else max(0.0, self._opened_at + self._cooldown - self._clock())

    @property
    def state(self) -> str:
        if self._opened_at is None:
            return "ok" if self._failures == 0 else "failing"
        return "probing" if self._is_probing else "open"

    @property
    def is_suspect(self) -> bool:
        """True if the server failed within the last cooldown period, so that other servers are preferred."""
        return self._failures > 0 and self._clock() - self._failed_at < self._cooldown

    @property
    def can_admit(self) -> bool:
        """True if a run would be admitted now, also as a probe."""
        return self._opened_at is None or not (self._is_probing or self.wait > 0)

    def enter(self) -> bool:
        """Admit a run if possible, and return True if it was admitted.

        The result of an admitted run must then be reported by `record_success`, `record_failure` or `release_probe`.
        """
        if not self.can_admit:
            return False
        self._is_probing = self._opened_at is not None
        return True

    def record_success(self) -> None:
        self._failures, self._opened_at, self._is_probing = 0, None, False

    def record_failure(self) -> None:
        self._failures += 1
        self._failed_at = self._clock()
        self._is_probing = False
        if self._failures >= self._max_failures:
            self._opened_at = self._clock()

    def release_probe(self) -> None:
        """End a probe without a result, so that another run can probe the server."""
        self._is_probing = False


@dataclass(frozen=True, slots=True)
class FailoverServer:
    """One server of an agent, with its client and its circuit breaker."""

    url: str
    client: Client
    breaker: Breaker = field(default_factory=Breaker)
    protocol: str = ""
    http: httpx.AsyncClient | None = None
    """HTTP client that was created for the protocol's client and has to be closed with it; None if that client creates
    its own."""
    tls: ClientTls | None = None
    """Certificates for connections to the server; None for those of the system."""

    async def aclose(self) -> None:
        await self.client.aclose()
        if self.http is not None:
            await self.http.aclose()


@dataclass(frozen=True, slots=True)
class ServerState:
    """State of one server of an agent, for the console."""

    url: str
    state: str
    """State of the circuit breaker:

    - `ok`: it is closed, and the last attempt did not fail.
    - `failing`: it is closed, but the last attempt failed.
    - `open`: it admits no run, or the next run as a probe.
    - `probing`: a run is the probe, and no other run is admitted.
    """
    retry_in: float
    """Seconds until the open circuit breaker admits a probe; 0 if it admits a run now."""


class ServerPool:
    """Agent behind one or several URLs, which chooses a server for each run."""

    def __init__(self, servers: Sequence[FailoverServer]) -> None:
        self._servers = servers
        self.observer = NO_OBSERVER
        """Receiver of reports about failed attempts and failovers, for metrics and traces."""

    @property
    def health(self) -> Mapping[str, str]:
        """State of the servers by URL, in the words of `ServerState.state`."""
        return {server.url: server.breaker.state for server in self._servers}

    @property
    def protocols(self) -> Sequence[str]:
        """Protocol names of the servers, each once."""
        return list(dict.fromkeys(server.protocol for server in self._servers if server.protocol))

    def list_servers(self) -> Sequence[ServerState]:
        """Return the state of each server, in the order of the settings."""
        return [ServerState(each.url, each.breaker.state, each.breaker.wait) for each in self._servers]

    async def aclose(self) -> None:
        await asyncio.gather(*(server.aclose() for server in self._servers))

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        attempts = [(server, pause, server.client.run) for server, pause in self._list_attempts(call)]
        return _FailoverRun(call, attempts, self.observer)

    def _list_attempts(self, call: Invocation) -> Sequence[tuple[FailoverServer, float]]:
        """Return the servers to try, in order, each with the pause before the try in seconds."""
        bound = self._bound_server(call)
        # Only one server has the state from which the run can continue. The others receive the history.
        origin_url = call.origin.get("server")
        others = sorted(self._servers, key=lambda each: (each.breaker.is_suspect, each.url != origin_url))
        servers = [bound] if bound is not None else others
        return [*((server, 0.0) for server in servers), *((servers[0], pause) for pause in _RETRY_DELAYS)]

    def _bound_server(self, call: Invocation) -> FailoverServer | None:
        """Return the server that has the call's conversation, or None if no server of the pool has it."""
        url = call.upstream.get("server")
        return next((server for server in self._servers if server.url == url), None)


class _Reattaching(ServerPool):
    """Pool of servers whose clients can read the rest of a run after a restart of the gateway."""

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        server = self._bound_server(call) or self._servers[0]
        attempts = [(server, pause, cast("Any", server.client).reattach) for pause in (0.0, *_RETRY_DELAYS)]
        return _FailoverRun(call, attempts, self.observer)


class _Keeping(_Reattaching):
    """Pool of servers that keep the state of threads themselves, and that can describe their graphs."""

    async def update_state(self, call: Invocation, *, removed_ids: Sequence[str], as_node: str | None) -> StateSaved:
        server = self._bound_server(call) or self._servers[0]
        return await cast("Any", server.client).update_state(call, removed_ids=removed_ids, as_node=as_node)

    # Interface of agents that are graphs (`babelgate.canonical.agent.Introspectable`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        return await _in_time(self._first.draw(depth))

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        return await _in_time(self._first.subgraphs(namespace, recurse))

    @property
    def _first(self) -> Introspectable:
        """Client of the preferred server. All servers have the same type of client."""
        return cast("Any", min(self._servers, key=lambda each: each.breaker.is_suspect).client)


class _FailoverRun:
    """Iterator over the events of a run on the first server that accepts it.

    It is not a generator, because the client has to know whether the run is closed or detached.
    """

    def __init__(
        self,
        call: Invocation,
        attempts: Sequence[tuple[FailoverServer, float, Run]],
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        self._call = call
        self._observer = observer
        self._attempts = iter(attempts)
        self._servers = [server for server, _, _ in attempts]
        self._server: FailoverServer | None = None
        self._events: Events | None = None
        self._has_started = False
        self._has_events = False
        """True if the server has produced an event. `LossNoted` does not count, because the client produces it before
        its request."""
        self._is_probe = False
        """True if this run is the probe of a half-open circuit breaker."""
        self._failed: FaultError | None = None
        self._span: CallSpan | None = None
        """Span of the current attempt; None if the gateway sends no traces."""

    def __aiter__(self) -> "_FailoverRun":
        return self

    async def __anext__(self) -> Event:
        while True:
            server, events = await self._enter_server()
            try:
                event = await anext(events)
            except StopAsyncIteration:
                server.breaker.record_success()
                self._end_span()
                raise
            except FaultError as error:
                self._end_span(error.fault)
                if _is_failing(error.fault, has_events=self._has_events):
                    server.breaker.record_failure()
                else:
                    server.breaker.record_success()
                self._log_failure(server, error.fault, explain_failure(error, server.url, server.tls))
                if self._has_started or not _is_unconnected(error):
                    raise
                self._failed, self._events = error, None
                continue
            self._has_started = True
            if not self._has_events and not isinstance(event, LossNoted):
                self._has_events = True
                if self._is_probe:
                    server.breaker.record_success()
            if isinstance(event, UpstreamBound):
                event = event.replace(ids={**event.ids, "server": server.url})
            elif isinstance(event, RunEnded) and event.status in ERRED:
                fault = event.fault or Fault(code=FaultCode.AGENT_FAILED, message="no reason given")
                self._log_failure(server, fault)
                self._end_span(fault)
            return event

    def _end_span(self, fault: Fault | None = None) -> None:
        if self._span is not None:
            self._span.end(None, None if fault is None else str(fault.code))

    def _log_failure(self, server: FailoverServer, fault: Fault, reason: str | None = None) -> None:
        """Log a failed attempt and report it to the observer. `reason` replaces the fault's message in the log, because
        operators may know more than callers."""
        call, details = self._call, fault.details
        self._observer.note_upstream_failed(call.agent, str(fault.code))
        log.warning(
            "attempt on a server failed agent=%s server=%s protocol=%s code=%s status=%s thread=%s task=%s run=%s "
            'reason="%s" body="%s"',
            call.agent,
            server.url,
            server.protocol,
            fault.code,
            details.get("status", "-"),
            call.thread_id,
            call.task_id,
            call.run_id,
            printable(reason or fault.message, _REASON_LENGTH),
            details.get("body", ""),
            extra={"fault": fault},
        )

    async def _enter_server(self) -> tuple[FailoverServer, Events]:
        """Return the server of the run and the iterator over its events. If the run has no server yet, try the next
        one.

        Raises the fault of the last attempt if no server is left, and agent_unreachable if all circuit breakers are
        open.
        """
        while self._events is None or self._server is None:
            server, pause, run = next(self._attempts, (None, 0.0, None))
            if server is None or run is None:
                raise self._failed or self._resting_error()
            if pause and server.breaker.can_admit:
                await asyncio.sleep(pause)
            FORWARDED.set(self._call.input.headers)
            if "via" in self._call.input.trace:  # the run belongs to a limited chain of calls
                CHAIN.set(self._call.input.trace)
            if server.breaker.enter():
                if self._failed is not None and server is not self._server:
                    self._observer.note_failover(self._call.agent)
                self._is_probe = server.breaker.state == "probing"
                if self._observer.traces is not None:
                    self._span = self._observer.traces.start_call(self._call.agent, server.protocol, server.url)
                self._server, self._events = server, run(self._call)
        return self._server, self._events

    def _resting_error(self) -> FaultError:
        wait = min(server.breaker.wait for server in self._servers)
        return FaultError(
            FaultCode.AGENT_UNREACHABLE,
            f"The agent's server has failed {_MAX_FAILURES} times in a row: the next attempt is in {wait:.0f} s",
            retry_after=max(1, round(wait)),
        )

    async def athrow(self, error: BaseException) -> None:
        if self._events is not None:
            await self._events.athrow(error)

    async def aclose(self) -> None:
        if self._events is not None:
            await self._events.aclose()
        self._end_span()
        if self._server is not None and self._is_probe:
            self._server.breaker.release_probe()


def server_pool(servers: Sequence[FailoverServer]) -> ServerPool:
    """Return a pool of servers. It can reattach to runs, or change states, only if the clients of all servers can."""
    for pool, methods in ((_Keeping, ("reattach", "update_state", "draw")), (_Reattaching, ("reattach",))):
        if all(hasattr(server.client, name) for server in servers for name in methods):
            return pool(servers)
    return ServerPool(servers)


async def _in_time(answer: Awaitable[T]) -> T:
    """Return the result of a request to a server. Raises agent_timeout after 10 seconds (`_REQUEST_TIMEOUT`)."""
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            return await answer
    except TimeoutError:
        message = f"The agent's server did not answer within {_REQUEST_TIMEOUT:g} seconds"
        raise FaultError(FaultCode.AGENT_TIMEOUT, message) from None


def _is_failing(fault: Fault, *, has_events: bool) -> bool:
    """Return True if a fault means that the server fails: no response, an error status, or an invalid response.

    A server that refuses a request, or reports the failure of an agent, works: `details` has the `status` of its
    response. After an event (`has_events`), status 500 and an invalid response do not count, because agents can fail
    like this.
    """
    status = fault.details.get("status")
    if isinstance(status, int):
        return status >= 500 and status != _NOT_IMPLEMENTED and not (status == 500 and has_events)
    if fault.code is FaultCode.AGENT_INVALID:
        return not has_events
    return fault.code in _SERVER_FAULTS


def _is_unconnected(error: BaseException) -> bool:
    """Return True if an exception or one of its causes says that no connection was established, so that no work can
    have started."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _NOT_CONNECTED):
            return True
        cause = cause.__cause__
    return False
