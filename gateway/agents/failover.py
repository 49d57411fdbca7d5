"""Load balancing, circuit breaker and failover: which server of an agent a run goes to, and what is done when one does
not answer.

A run stays where its conversation is: the upstream's ids name the server that gave them. Another server, or the same
one again, is tried only while no work can have begun: the connection was never made. A server that keeps failing is
left alone for a while, and then one run at a time finds out whether it is back.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import httpx

from babelgate.adapters.kit.upstream import FORWARDED, Client
from babelgate.canonical import Event, Fault, FaultCode, FaultError, Invocation
from babelgate.canonical.agent import Introspectable
from babelgate.canonical.event import LossNoted, RunEnded, StateSaved, UpstreamBound
from babelgate.canonical.printable import printable
from babelgate.canonical.state import ERRED
from babelgate.canonical.value import JsonObject

_REASON_LENGTH: Final = 500
"""Characters of a reason in the log."""
_FAILURES: Final = 5
"""In a row, after which a server is left alone."""
_COOLDOWN: Final = 30.0
"""Seconds."""
_PAUSES: Final = (0.1, 0.5)
"""Seconds between the tries of a connection, when no other server is left."""
_PATIENCE: Final = 10.0
"""Seconds for what is no run: nothing else bounds the silence of a server."""
_BROKEN: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT})
_NOT_IMPLEMENTED: Final = 501
_UNBEGUN: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

log = logging.getLogger("babelgate.upstream")

T = TypeVar("T")
Events = AsyncGenerator[Event]
Run = Callable[[Invocation], Events]


class Breaker:
    """Closed while a server answers; open, and nobody goes there, after too many failures in a row; half open, and one
    may go and see, when it has cooled down."""

    def __init__(
        self,
        failures: int = _FAILURES,
        cooldown: float = _COOLDOWN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = failures
        self._cooldown = cooldown
        self._clock = clock
        self._failures = 0
        self._failed_at = 0.0
        self._opened: float | None = None
        self._probing = False

    @property
    def wait(self) -> float:
        """Seconds until somebody may go and see; 0 if that is now, or if it is closed."""
        return 0.0 if self._opened is None else max(0.0, self._opened + self._cooldown - self._clock())

    @property
    def state(self) -> str:
        if self._opened is None:
            return "ok" if self._failures == 0 else "failing"
        return "probing" if self._probing else "open"

    @property
    def is_suspect(self) -> bool:
        """It failed lately: of several servers, another one goes first."""
        return self._failures > 0 and self._clock() - self._failed_at < self._cooldown

    @property
    def can_admit(self) -> bool:
        """Whether a run may go there."""
        return self._opened is None or not (self._probing or self.wait > 0)

    def enter(self) -> bool:
        """The same, and it goes there. Who was let in says how it went:
        `record_success`, `record_failure` or `release_probe`."""
        if not self.can_admit:
            return False
        self._probing = self._opened is not None
        return True

    def record_success(self) -> None:
        self._failures, self._opened, self._probing = 0, None, False

    def record_failure(self) -> None:
        self._failures += 1
        self._failed_at = self._clock()
        self._probing = False
        if self._failures >= self._most:
            self._opened = self._clock()

    def release_probe(self) -> None:
        """Nothing was learned."""
        self._probing = False


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    client: Client
    breaker: Breaker = field(default_factory=Breaker)
    protocol: str = ""


class ServerPool:
    """An agent behind one URL or several."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers

    @property
    def health(self) -> Mapping[str, str]:
        """By URL: ok, failing, open (left alone), probing."""
        return {server.url: server.breaker.state for server in self._servers}

    async def aclose(self) -> None:
        await asyncio.gather(*(server.client.aclose() for server in self._servers))

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return _FailoverRun(call, [(server, pause, server.client.run) for server, pause in self._list_attempts(call)])

    def _list_attempts(self, call: Invocation) -> Sequence[tuple[Server, float]]:
        """Servers, each with the seconds to wait before it is tried."""
        bound = self._bound_server(call)
        # One that the run may go on from is known to one server; the others are told the history.
        known = call.origin.get("server")
        others = sorted(self._servers, key=lambda each: (each.breaker.is_suspect, each.url != known))
        servers = [bound] if bound is not None else others
        return [*((server, 0.0) for server in servers), *((servers[0], pause) for pause in _PAUSES)]

    def _bound_server(self, call: Invocation) -> Server | None:
        """The server that has the conversation."""
        url = call.upstream.get("server")
        return next((server for server in self._servers if server.url == url), None)


class _Reattaching(ServerPool):
    """Of clients that find a run again."""

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        server = self._bound_server(call) or self._servers[0]
        return _FailoverRun(call, [(server, pause, cast("Any", server.client).reattach) for pause in (0.0, *_PAUSES)])


class _Keeping(_Reattaching):
    """Of clients whose servers keep the state."""

    async def update_state(self, call: Invocation, *, removed_ids: Sequence[str], as_node: str | None) -> StateSaved:
        server = self._bound_server(call) or self._servers[0]
        return await cast("Any", server.client).update_state(call, removed_ids=removed_ids, as_node=as_node)

    # The port of agents that are graphs (`babelgate.canonical.agent.Introspectable`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        return await _in_time(self._first.draw(depth))

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        return await _in_time(self._first.subgraphs(namespace, recurse))

    @property
    def _first(self) -> Introspectable:
        """All are of one kind."""
        return cast("Any", min(self._servers, key=lambda each: each.breaker.is_suspect).client)


class _FailoverRun:
    """What a client yields, from the first server that takes the run. Not a generator: how it is left (closed, or let
    go of) is the client's to know."""

    def __init__(self, call: Invocation, attempts: Sequence[tuple[Server, float, Run]]) -> None:
        self._call = call
        self._attempts = iter(attempts)
        self._servers = [server for server, _, _ in attempts]
        self._server: Server | None = None
        self._events: Events | None = None
        self._begun = False
        self._heard = False
        """The server has said something of use. What gets lost on the way to it, its client notes by itself."""
        self._probes = False
        """This run finds out whether its server is back."""
        self._failed: FaultError | None = None

    def __aiter__(self) -> "_FailoverRun":
        return self

    async def __anext__(self) -> Event:
        while True:
            server, events = await self._enter_server()
            try:
                event = await anext(events)
            except StopAsyncIteration:
                server.breaker.record_success()
                raise
            except FaultError as error:
                if _is_failing(error.fault, heard=self._heard):
                    server.breaker.record_failure()
                else:
                    server.breaker.record_success()
                self._log_failure(server, error.fault)
                if self._begun or not _is_unbegun(error):
                    raise
                self._failed, self._events = error, None
                continue
            self._begun = True
            if not self._heard and not isinstance(event, LossNoted):
                self._heard = True
                if self._probes:
                    server.breaker.record_success()
            if isinstance(event, UpstreamBound):
                event = event.replace(ids={**event.ids, "server": server.url})
            elif isinstance(event, RunEnded) and event.status in ERRED:
                self._log_failure(server, event.fault or Fault(code=FaultCode.AGENT_FAILED, message="no reason given"))
            return event

    def _log_failure(self, server: Server, fault: Fault) -> None:
        call, details = self._call, fault.details
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
            printable(fault.message, _REASON_LENGTH),
            details.get("body", ""),
        )

    async def _enter_server(self) -> tuple[Server, Events]:
        """The server that the run is at, or the next one that can be tried."""
        while self._events is None or self._server is None:
            server, pause, run = next(self._attempts, (None, 0.0, None))
            if server is None or run is None:
                raise self._failed or self._resting_error()
            if pause and server.breaker.can_admit:
                await asyncio.sleep(pause)
            FORWARDED.set(self._call.input.headers)
            if server.breaker.enter():
                self._probes = server.breaker.state == "probing"
                self._server, self._events = server, run(self._call)
        return self._server, self._events

    def _resting_error(self) -> FaultError:
        wait = min(server.breaker.wait for server in self._servers)
        return FaultError(
            FaultCode.AGENT_UNREACHABLE,
            f"The agent's server has failed {_FAILURES} times in a row and is left alone for {wait:.0f} s more",
            retry_after=max(1, round(wait)),
        )

    async def athrow(self, error: BaseException) -> None:
        if self._events is not None:
            await self._events.athrow(error)

    async def aclose(self) -> None:
        if self._events is not None:
            await self._events.aclose()
        if self._server is not None and self._probes:
            self._server.breaker.release_probe()


def server_pool(servers: Sequence[Server]) -> ServerPool:
    for made, needed in ((_Keeping, ("reattach", "update_state", "draw")), (_Reattaching, ("reattach",))):
        if all(hasattr(server.client, name) for server in servers for name in needed):
            return made(servers)
    return ServerPool(servers)


async def _in_time(answer: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await answer
    except TimeoutError:
        words = f"The agent's server did not answer within {_PATIENCE:g} seconds"
        raise FaultError(FaultCode.AGENT_TIMEOUT, words) from None


def _is_failing(fault: Fault, *, heard: bool) -> bool:
    """Whether it tells of a server that fails: that does not answer, or by its status says so, or gives no answer. One
    that says no is well, and so is one that tells of an agent's failure: the `status` of its answer is in `details`.
    After something of use, 500 and nonsense may be how an agent ends, and do not count."""
    status = fault.details.get("status")
    if isinstance(status, int):
        return status >= 500 and status != _NOT_IMPLEMENTED and not (status == 500 and heard)
    if fault.code is FaultCode.AGENT_INVALID:
        return not heard
    return fault.code in _BROKEN


def _is_unbegun(error: BaseException) -> bool:
    """Whether the connection was never made."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _UNBEGUN):
            return True
        cause = cause.__cause__
    return False
