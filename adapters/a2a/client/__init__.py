"""Client of an agent on another A2A server, 0.3 or 1.0.

It streams or polls tasks, answers questions, cancels, and reads the rest of a task whose stream broke.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Unpack

import httpx

from babelgate.adapters.a2a.agents.interface import (
    Interface,
    assume_agent,
    assume_interface,
    card_urls,
    describe,
    find_interface,
    is_card,
)
from babelgate.adapters.a2a.agents.signatures import UnverifiedCard, verify_card
from babelgate.adapters.a2a.client.binding import ClientBinding, Replies, create_binding
from babelgate.adapters.a2a.client.http import HttpClient
from babelgate.adapters.a2a.frameworks.ag2 import CLIENT_TOOLS
from babelgate.adapters.a2a.frameworks.agentstack import STREAMING
from babelgate.adapters.a2a.read.parts import decode_reply, decode_state
from babelgate.adapters.a2a.read.run_state import Habits
from babelgate.adapters.a2a.read.task_events import EventReader
from babelgate.adapters.a2a.request import losses, request
from babelgate.adapters.a2a.wire import replies as w
from babelgate.adapters.a2a.wire.requests import find_activated
from babelgate.adapters.a2a.wire.task import PROTOCOL
from babelgate.adapters.kit.card_trust import CardTrust
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, MAX_FAILURES, POLL_TIMEOUT, Backoff, time_limit
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.catch_up import catch_up
from babelgate.adapters.kit.client.driver import ReattachableClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN
from babelgate.adapters.kit.client.rpc import is_installed
from babelgate.adapters.kit.client.status import UNAVAILABLE
from babelgate.adapters.kit.extension import NOT_FORKED, RecordReader, has_start, is_refusal, without_start
from babelgate.adapters.kit.tracing import add_trace
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, Invocation, Record
from babelgate.canonical.event import UpstreamBound
from babelgate.canonical.replay import agent_events
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Json, JsonObject

__all__ = ("Client", "discover", "discover_signed")

SILENCE: Final = 30.0
"""Seconds without an event of a stream after which the client requests the task, to find out whether it has stopped.
Chosen."""
CARD_LIMIT: Final = 1024 * 1024
"""Maximum size of an agent card, in bytes. Chosen."""

_JSON: Final = "application/json"
_STOPPED: Final = TERMINAL | WAITING


class Client(ReattachableClient[HttpClient]):
    """Client of one agent on an A2A server.

    - `url` is the URL of the agent or of its card, and `agent` is the agent's name in the gateway.
    - `interface` is how to call the agent; None reads it from the card.
    - `extension`: "on" activates the Babelgate extension if the card declares it.
    - `trust` has the settings for verifying the card; None accepts every card.
    """

    def __init__(
        self,
        url: str,
        agent: str = "",
        *,
        interface: Interface | None = None,
        extension: Literal["on", "off"] = "on",
        trust: CardTrust | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(HttpClient(**connection))
        self._server = _Server(self._http, url, agent, interface, trust, extension=extension == "on")

    def start(self, call: Invocation) -> UpstreamRun:
        return _Run(self._server, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        return _Run(self._server, call, is_attached=True)


class _Server:
    def __init__(
        self,
        http: HttpClient,
        url: str,
        agent: str,
        interface: Interface | None,
        trust: CardTrust | None,
        *,
        extension: bool,
    ) -> None:
        self._extension = extension
        self._trust = trust
        self._http = http
        self._url = url
        self._agent = agent
        self._interface = interface
        self.binding: ClientBinding | None = None

    async def load_binding(self) -> ClientBinding:
        """Return the binding to call the agent by, as its card declares it. The card is read at the first call. Raises
        the faults of `_read_card`, and agent_invalid if a verified card is required but missing."""
        if self.binding is None:
            interface = self._interface
            if interface is None:
                card = await _read_card(self._http, self._url, self._trust)
                interface = None if card is None else card[1]
                if interface is None and self._trust is not None and self._trust.is_required:
                    raise FaultError(FaultCode.AGENT_INVALID, "The agent's card is not accepted: it names another path")
                interface = interface or assume_interface(self._url)
            if not self._extension:
                interface = replace(interface, extended=False)
            self.binding = create_binding(self._http, interface, self._agent)
        return self.binding


class _Run(UpstreamRun):
    """One run of the agent. It sends the caller's message or answer, or, if `is_attached`, continues to read a run that
    was started before a restart of the gateway."""

    def __init__(self, server: _Server, call: Invocation, *, is_attached: bool) -> None:
        self._server = server
        self._call = call
        self._is_attached = is_attached
        self._reader = EventReader(call.run_id)
        self._refused: FaultError | None = None
        """Error with which the server refused the message. None once the server has sent its first event."""

    async def _binding(self) -> ClientBinding:
        """Return the binding of the server with the extensions that this run activates: those that the caller has
        activated, the caller's tools, and the streaming of drafts."""
        binding, uris = await self._server.load_binding(), [*find_activated(self._call.input.extra)]
        if binding.accepts_tools and self._call.tools:
            uris.append(CLIENT_TOOLS)
        if not any(PROTOCOL in message.extra for message in self._call.messages):
            # A caller of A2A would receive the extension's metadata, which it has not activated.
            uris += [uri for uri in binding.interface.extensions if uri.endswith(STREAMING)]
        return binding.with_extensions(uris)

    @property
    def is_cancellable(self) -> bool:
        return self._reader.task_id is not None and not self._reader.is_stopped

    async def cancel(self) -> None:
        if self._reader.task_id is not None:
            binding = await self._binding()
            await binding.cancel(self._reader.task_id, self._reader.context_id)

    async def stages(self) -> AsyncGenerator[Stage]:
        reader, task_id = self._reader, self._call.upstream.get("task")
        if task_id is None and (self._is_attached or self._call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this task")
        if self._is_attached:
            yield self._recall()
        else:
            past = await self._call.past() if self._call.answers else ()
            yield self._begin(past)
            async with aclosing(self._deliveries(past)) as deliveries:
                async for stage in deliveries:
                    yield stage
        if reader.is_stopped or reader.replied:
            return
        if reader.records.active or (self._is_attached and reader.records.run_id is not None):
            yield self._catch_up(await self._binding())
            return
        # The rest of the task: get it, subscribe to it if the server can stream, and poll it otherwise.
        binding = await self._binding()
        self._adopt(binding)
        if binding.interface.streams:
            yield self._poll(binding, is_once=True)
            if reader.records.active:
                yield self._catch_up(binding)
            elif not reader.is_stopped:
                yield self._subscribe(binding)
        if not reader.is_stopped:
            yield self._poll(binding)

    async def _deliveries(self, past: Sequence[Record]) -> AsyncGenerator[Stage]:
        """Yield stages that send the message until the server accepts it. After a refusal, the message is sent again in
        another version, without streams, without the fork, or unchanged one more time, depending on the error."""
        has_tried_again = False
        while True:
            binding = await self._binding()
            yield self._send(binding, past)
            if self._refused is None:
                return
            fallback = binding.fallback(self._refused)
            if fallback is not None:
                self._server.binding = fallback
            elif binding.extended and has_start(self._call) and is_refusal(self._refused):
                self._call = without_start(self._call)
                yield self._note_loss("fork", NOT_FORKED)
            elif self._call.answers and not has_tried_again and _is_without_message(self._refused):
                # a2a-sdk 0.3.26 answers -32603 with an empty message (NoTaskQueue) until it has cleaned up after its
                # question. It accepts the answer a moment later.
                has_tried_again = True
            else:
                self._server.binding = None  # the server may have changed: read its card again
                yield self._check_progress(binding, self._refused)
                return

    async def _recall(self) -> Stage:
        """Yield the events that the log has of this run. They are needed after a restart of the gateway, because the
        server's task does not show its earlier events in order. Yield nothing if the server is another gateway that can
        replay its records."""
        past = await self._call.past()
        self._reader.task_id, self._reader.context_id = self._call.upstream["task"], self._call.upstream.get("context")
        # Not the ids of the call: in a run that answers, those are of the run that asked.
        bound = [
            each.event.ids["run"]
            for each in past
            if each.run_id == self._call.run_id and isinstance(each.event, UpstreamBound) and "run" in each.event.ids
        ]
        if bound:
            self._reader.records = RecordReader(bound[-1])  # read by the extension, which can replay it
            self._reader.records.seq = 0
            return
        yield agent_events(past, self._call.run_id)
        self._reader.recall(past)

    async def _begin(self, past: Sequence[Record]) -> Stage:
        self._reader.recall(record for record in past if record.run_id != self._call.run_id)
        if self._call.answers:  # another run has no task yet that could be cancelled
            ids = self._call.upstream
            self._reader.task_id, self._reader.context_id = ids["task"], ids.get("context")
        extended = (await self._binding()).extended
        for feature, how in losses(self._call, extended=extended):
            yield self._reader.note(feature, how)

    async def _note_loss(self, feature: str, how: str) -> Stage:
        yield self._reader.note(feature, how)

    async def _send(self, binding: ClientBinding, past: Sequence[Record]) -> Stage:
        """Send the message, and yield the events of the server's replies, until the stream ends or the run stops."""
        reader, self._refused = self._reader, None
        self._adopt(binding)
        try:
            params = request(
                self._call,
                past,
                binding.dialect,
                streams=binding.interface.streams,
                extended=binding.extended,
                offers_tools=binding.accepts_tools,
            )
            add_trace(params["message"])
            async with binding.open_send(params) as stream, aclosing(_Listener(reader, binding, stream)) as listener:
                while replies := await listener.read():
                    for reply in replies:
                        yield [*self._rebind(), *await self._read_with_files(binding, reply)]
                        if reader.is_stopped and not reader.records.behind:
                            await listener.drain()
                        if reader.is_stopped or reader.records.behind:
                            return
            if reader.task_id is None and not reader.replied:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a task")
        except FaultError as error:
            if not reader.begun:
                self._refused = error
            # A broken connection only ends the stream: the task continues without it.
            elif error.fault.code is not FaultCode.AGENT_UNREACHABLE or reader.task_id is None:
                raise
        yield reader.close()

    async def _check_progress(self, binding: ClientBinding, refused: FaultError) -> Stage:
        """Request a task whose answer the server has refused, and yield its events if it no longer waits. Raises
        `refused` otherwise.

        The task may have received its credentials another way (specification 1.0, 7.6), or an answer whose response was
        lost.
        """
        if not self._call.answers or refused.fault.code is FaultCode.AGENT_TIMEOUT:
            raise refused
        try:
            async with time_limit(POLL_TIMEOUT):
                task = await binding.get(self._call.upstream["task"], self._call.upstream.get("context"))
            events = self._read(task)
        except FaultError:
            raise refused from None
        if not self._reader.is_stopped and self._reader.state in WAITING:
            raise refused
        yield events

    async def _poll(self, binding: ClientBinding, *, is_once: bool = False) -> Stage:
        """Request the task repeatedly, and yield the events that are new, until the task stops. With `is_once`, end
        after the first response."""
        backoff, get_task = Backoff(FIRST_WAIT, LAST_WAIT), partial(_get_task, self._reader, binding)
        while True:
            events: Sequence[Event] = ()
            for task in await backoff.poll(get_task) or ():
                events = self._read(task)
                yield events
                if is_once or self._reader.is_stopped:
                    return
            if events:
                backoff.reset()
            await backoff.wait()

    async def _subscribe(self, binding: ClientBinding) -> Stage:
        """Subscribe to the task, and yield its events. The stream must begin with the whole task (specification 1.0,
        3.1.6).

        If it does not, as with a2a-sdk 0.3.26, the events so far would be missing: the stage ends, and the client polls
        the task. It also polls after a refused subscription and after a broken connection.
        """
        reader, begun = self._reader, False
        assert reader.task_id is not None
        try:
            async with (
                binding.open_subscription(reader.task_id) as stream,
                aclosing(_Listener(reader, binding, stream)) as listener,
            ):
                while replies := await listener.read():
                    for reply in replies:
                        with blaming_the_agent():
                            if not begun and not isinstance(decode_reply(reply), w.Task):
                                return
                        begun = True
                        yield self._read(reply)
                        if reader.is_stopped:
                            await listener.drain()
                            return
        except FaultError as error:
            # Before the task, nothing was read that polling does not repeat.
            if begun and error.fault.code is not FaultCode.AGENT_UNREACHABLE:
                raise

    def _adopt(self, binding: ClientBinding) -> None:
        interface = binding.interface
        self._reader.habits = Habits(binding.rule, interface.answers_in_status, interface.repeats_answer)

    def _catch_up(self, binding: ClientBinding) -> Stage:
        reader = self._reader
        return catch_up(reader.records, partial(self._replay, binding), lambda: reader.is_stopped)

    async def _replay(self, binding: ClientBinding, start: int) -> Stage:
        reader = self._reader
        assert reader.task_id is not None
        async with (
            binding.open_subscription(reader.task_id, start=start) as stream,
            aclosing(_Listener(reader, binding, stream)) as listener,
        ):
            while replies := await listener.read():
                for reply in replies:
                    yield await self._read_with_files(binding, reply)
                    if reader.is_stopped:
                        await listener.drain()
                    if reader.is_stopped or reader.records.behind:
                        return

    async def _read_with_files(self, binding: ClientBinding, reply: Json) -> Sequence[Event]:
        events = self._read(reply)
        return await with_files(events, binding.file)

    def _rebind(self) -> Sequence[Event]:
        """Return the event with the ids of the server's task, before the first event of a run that answers a question.
        Each run needs these ids in its own log entry, to be reattached after a restart."""
        reader = self._reader
        return reader.bind(reader.task_id, reader.context_id) if self._call.answers and not reader.begun else ()

    def _read(self, reply: Json) -> Sequence[Event]:
        with blaming_the_agent():
            return self._reader.read(reply)


class _Unanswered(Exception):
    """Result of `_Listener._find_end` if the server has failed to answer too many requests for the task of a silent
    stream."""


class _Listener:
    """Reader of a stream's replies. While the stream is silent, it requests the task; if the task has stopped, it
    returns the task as the last reply.

    a2a-sdk 0.3.26 leaves the streams of a task open if another client cancels it. The listener closes no stream of a
    running task, because some servers take a disconnect for a cancel.
    """

    def __init__(self, reader: EventReader, binding: ClientBinding, replies: Replies) -> None:
        self._reader = reader
        self._binding = binding
        self._replies = replies
        self._waiter: asyncio.Task[Any] | None = None
        """Task of the event loop that is waiting in `read`. It is cancelled when the A2A task has stopped. The listener
        itself has only a timer and no task, because most streams are never silent."""
        self._since = 0.0
        """Time at which the current `read` began, in seconds of the event loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._last: Json | Exception = None
        """Stopped task, or error, with which the iteration ends although the stream is still open. None until then."""
        self._failures = 0

    async def read(self) -> Sequence[Json]:
        """Return the replies that have arrived, and wait for one if there are none. Return an empty sequence at the
        end."""
        self._waiter, self._since = asyncio.current_task(), asyncio.get_running_loop().time()
        if self._timer is None:
            self._watch(SILENCE)
        try:
            return await self._replies.read()
        except asyncio.CancelledError:
            if self._last is None or (self._waiter is not None and self._waiter.uncancel()):
                raise
        finally:
            self._waiter = None
        if isinstance(self._last, _Unanswered):
            return ()
        if isinstance(self._last, Exception):
            raise self._last
        return (self._last,)

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check_silence)

    def _check_silence(self) -> None:
        left = self._since + SILENCE - asyncio.get_running_loop().time()
        if self._waiter is None or not self._reader.begun or self._reader.task_id is None:
            self._watch(SILENCE)
        elif left > 0:
            self._watch(left)
        else:
            self._checking = asyncio.ensure_future(self._check_task())

    async def _check_task(self) -> None:
        since = self._since
        try:
            last = await self._find_end()
        except Exception as error:
            last = error
        if last is not None and since == self._since and self._waiter is not None and not self._waiter.cancelling():
            self._last = last
            self._waiter.cancel()
        else:
            self._watch(SILENCE)

    async def _find_end(self) -> Json | Exception:
        """Request the task, and return it if it has stopped. Return None if the stream may continue, and `_Unanswered`
        after too many failed requests. Raises agent_invalid for a malformed task."""
        try:
            (task,) = await _get_task(self._reader, self._binding)
        except FaultError:
            self._failures += 1
            return _Unanswered() if self._failures >= MAX_FAILURES else None
        self._failures = 0
        return task if _is_stopped(task) else None

    async def drain(self) -> None:
        """Read the rest of the stream, so that its connection can be reused. Do nothing if the stream stayed silent
        after the end of its task, because it may never end."""
        if self._last is None:
            await self._replies.drain(DRAIN)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        checking, self._checking = self._checking, None
        if checking is not None and not checking.done():
            checking.cancel()
            await asyncio.wait((checking,))


async def _get_task(reader: EventReader, binding: ClientBinding) -> tuple[Json]:
    assert reader.task_id is not None
    async with time_limit(POLL_TIMEOUT):
        return (await binding.get(reader.task_id, reader.context_id),)


def _is_stopped(task: Json) -> bool:
    with blaming_the_agent():
        reply = decode_reply(task)
    return isinstance(reply, w.Task) and reply.status is not None and decode_state(reply.status.state) in _STOPPED


def _is_without_message(error: FaultError) -> bool:
    return error.fault.details.get("reason") == "INTERNAL_ERROR" and not error.fault.details.get("said")


# The card


async def _read_card(
    http: HttpClient, url: str, trust: CardTrust | None = None
) -> tuple[JsonObject, Interface | None] | None:
    """Return the agent's card and the interface to call, or None if the server has no card.

    The interface is None if the card may be that of another agent. With `trust`, the card is verified. Raises
    agent_invalid for a card that is malformed or fails its verification, and agent_unreachable or agent_timeout if the
    server does not respond.
    """
    try:
        candidates = card_urls(url)
    except ValueError as error:
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's URL is not valid") from error
    # Another Babelgate signs only the card of 1.0.
    headers = None if trust is None else {"A2A-Version": "1.0"}
    for index, candidate in enumerate(candidates):
        try:
            async with (
                time_limit(POLL_TIMEOUT),
                http.open_response("GET", candidate, accept=_JSON, headers=headers) as response,
            ):
                card = await http.json(response, CARD_LIMIT)
        except FaultError as error:
            if error.fault.code in UNAVAILABLE and "status" not in error.fault.details:
                raise
            continue
        if isinstance(card, dict) and is_card(card):
            checked = card if trust is None else await _check_card(card, trust)
            return checked, find_interface(checked, url, at_origin=index >= 2, speaks_grpc=is_installed())
    if trust is not None:
        _report_unverified("the server has no card", trust)
    return None


async def _check_card(card: JsonObject, trust: CardTrust) -> JsonObject:
    """Return the content of a card that its signature covers. Return the whole card if it is not verified, but may be
    used. Raises agent_invalid if it must not be used."""
    try:
        verified = await verify_card(card, trust.find_keys)
        if not is_card(verified):
            raise UnverifiedCard("its signature covers no interface")
    except UnverifiedCard as error:
        _report_unverified(str(error), trust)
        return card
    trust.report(None)
    return verified


def _report_unverified(reason: str, trust: CardTrust) -> None:
    """Report the reason why a card is not verified. Raises agent_invalid if the settings require a verified card."""
    trust.report(reason)
    if trust.is_required:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent's card is not accepted: {reason}")


async def discover(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None, *, card: bool = True
) -> list[AgentInfo]:
    """Return the agent that the card of an A2A server describes, in a list with one item (one card, one agent:
    specification 1.0, 4.4.1).

    `card` is True if the server must have a card. If it is False, a server without one gives an assumed agent. Raises
    agent_invalid without a valid card, and agent_unreachable or agent_timeout if the server does not respond.
    """
    agents = await _discover(url, http, headers, None)
    if card and not agents:
        raise FaultError(FaultCode.AGENT_INVALID, "The server has no valid A2A agent card")
    return agents or [assume_agent("agent")]


async def discover_signed(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None, trust: CardTrust
) -> list[AgentInfo]:
    """Return the agent that the card of an A2A server describes, in a list with one item, after verifying the card.
    Raises agent_invalid without a valid card, and agent_unreachable or agent_timeout if the server does not respond."""
    agents = await _discover(url, http, headers, trust)
    if not agents:
        raise FaultError(FaultCode.AGENT_INVALID, "The server has no valid A2A agent card")
    return agents


async def _discover(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None, trust: CardTrust | None
) -> list[AgentInfo]:
    agent_card = await _read_card(HttpClient(headers=headers, timeout=10.0, http=http), url, trust)
    return [] if agent_card is None or agent_card[1] is None else [describe(agent_card[0])]
