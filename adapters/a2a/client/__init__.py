"""Drives an agent on another A2A server, of either generation: a task that is streamed or looked at again and again,
its answers, its cancel, the rest of a task whose stream broke."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Unpack

import httpx

from babelgate.adapters.a2a.agents.interface import (
    Interface,
    assume_agent,
    bare,
    card_urls,
    describe,
    find_interface,
    is_card,
)
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
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, MAX_FAILURES, POLL_TIMEOUT, Backoff, time_limit
from babelgate.adapters.kit.client.blame import blaming_the_agent
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.catch_up import catch_up
from babelgate.adapters.kit.client.driver import ReattachableClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN
from babelgate.adapters.kit.client.status import UNAVAILABLE
from babelgate.adapters.kit.extension import NOT_FORKED, RecordReader, has_start, is_refusal, without_start
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, Invocation, Record
from babelgate.canonical.event import UpstreamBound
from babelgate.canonical.replay import agent_events
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

SILENCE: Final = 30.0
"""Seconds without an event after which a look tells whether the task has stopped all the same."""
CARD_LIMIT: Final = 1024 * 1024
"""Bytes."""

_JSON: Final = "application/json"
_STILL: Final = TERMINAL | WAITING


class Client(ReattachableClient[HttpClient]):
    """An agent on an A2A server: `url` is its own, or its card's. `agent` = its name here; `interface` = how it is
    called, where its card need not be asked; `extension` = whether the Babelgate extension is activated where the card
    declares it."""

    def __init__(
        self,
        url: str,
        agent: str = "",
        *,
        interface: Interface | None = None,
        extension: Literal["on", "off"] = "on",
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(HttpClient(**connection))
        self._server = _Server(self._http, url, agent, interface, extension=extension == "on")

    def start(self, call: Invocation) -> UpstreamRun:
        return _Run(self._server, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        return _Run(self._server, call, is_attached=True)


class _Server:
    def __init__(self, http: HttpClient, url: str, agent: str, interface: Interface | None, *, extension: bool) -> None:
        self._extension = extension
        self._http = http
        self._url = url
        self._agent = agent
        self._interface = interface
        self.binding: ClientBinding | None = None

    async def load_binding(self) -> ClientBinding:
        """How the server is spoken to: its card says so, which is read when it is needed first."""
        if self.binding is None:
            interface = self._interface
            if interface is None:
                found = await _card(self._http, self._url)
                interface = bare(self._url) if found is None else found[1] or bare(self._url)
            if not self._extension:
                interface = replace(interface, extended=False)
            self.binding = create_binding(self._http, interface, self._agent)
        return self.binding


class _Run(UpstreamRun):
    """What a message begins, an answer goes on with or, with `is_attached`, was begun before."""

    def __init__(self, server: _Server, call: Invocation, *, is_attached: bool) -> None:
        self._server = server
        self._call = call
        self._is_attached = is_attached
        self._reader = EventReader(call.run_id)
        self._refused: FaultError | None = None
        """How the server refused the message, before it had said anything."""

    async def _binding(self) -> ClientBinding:
        """With the extensions that the caller has activated for this run, and those by which the agent tells more."""
        binding, asked = await self._server.load_binding(), [*find_activated(self._call.input.extra)]
        if binding.offers and self._call.tools:
            asked.append(CLIENT_TOOLS)
        if not any(PROTOCOL in message.extra for message in self._call.messages):
            # A caller of A2A would be sent it as it comes, and has not asked for it.
            asked += [uri for uri in binding.interface.extensions if uri.endswith(STREAMING)]
        return binding.activating(asked)

    @property
    def is_cancellable(self) -> bool:
        return self._reader.task_id is not None and not self._reader.is_stopped

    async def cancel(self) -> None:
        if self._reader.task_id is not None:
            binding = await self._binding()
            await binding.cancel(self._reader.task_id, self._reader.context_id)

    async def stages(self) -> AsyncGenerator[Stage]:
        reader, known = self._reader, self._call.upstream.get("task")
        if known is None and (self._is_attached or self._call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this task")
        if self._is_attached:
            yield self._recall()
        else:
            past = await self._call.past() if self._call.answers else ()
            yield self._begin(past)
            has_tried_again = False
            while True:
                binding = await self._binding()
                yield self._send(binding, past)
                if self._refused is None:
                    break
                other = binding.instead(self._refused)
                if other is not None:
                    self._server.binding = other
                    continue
                if binding.extended and has_start(self._call) and is_refusal(self._refused):
                    self._call = without_start(self._call)
                    yield self._tell_loss("fork", NOT_FORKED)
                    continue
                # a2a-sdk 0.3.26 answers -32603 with an empty message (NoTaskQueue) while it still tidies up after its
                # question, and takes the answer a moment later.
                if self._call.answers and not has_tried_again and _is_wordless(self._refused):
                    has_tried_again = True
                    continue
                self._server.binding = None  # perhaps the server has changed, and its card tells how
                yield self._look_whether_moved_on(binding, self._refused)
                break
        if reader.is_stopped or reader.replied:
            return
        if reader.records.active or (self._is_attached and reader.records.run_id is not None):
            yield self._catch_up(await self._binding())
            return
        # What no stream told: the task as it is, its stream if it can be joined, and else the task again and again.
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

    async def _recall(self) -> Stage:
        """What the log has of this activation: a task does not tell it again in its order."""
        past = await self._call.past()
        self._reader.task_id, self._reader.context_id = self._call.upstream["task"], self._call.upstream.get("context")
        # Not that of the call: one that answers is given the ids of the run that asked.
        bound = [
            each.event.ids["run"]
            for each in past
            if each.run_id == self._call.run_id and isinstance(each.event, UpstreamBound) and "run" in each.event.ids
        ]
        if bound:
            self._reader.records = RecordReader(bound[-1])  # it was read by the extension, and is told again by that
            self._reader.records.seq = 0
            return
        yield agent_events(past, self._call.run_id)
        self._reader.recall(past)

    async def _begin(self, past: Sequence[Record]) -> Stage:
        self._reader.recall(record for record in past if record.run_id != self._call.run_id)
        if self._call.answers:  # before that there is no task that could be cancelled
            ids = self._call.upstream
            self._reader.task_id, self._reader.context_id = ids["task"], ids.get("context")
        extended = (await self._binding()).extended
        for feature, how in losses(self._call, extended=extended):
            yield self._reader.note(feature, how)

    async def _tell_loss(self, feature: str, how: str) -> Stage:
        yield self._reader.note(feature, how)

    async def _send(self, binding: ClientBinding, past: Sequence[Record]) -> Stage:
        """Send the message, and read what the server says to it for as long as it says anything."""
        reader, self._refused = self._reader, None
        self._adopt(binding)
        try:
            params = request(
                self._call,
                past,
                binding.dialect,
                streams=binding.interface.streams,
                extended=binding.extended,
                offers=binding.offers,
            )
            async with binding.open_send(params) as replies, aclosing(_Listener(reader, binding, replies)) as heard:
                async for reply in heard:
                    yield [*self._rebind(), *await self._read_whole(binding, reply)]
                    if reader.records.behind:
                        return
                    if reader.is_stopped:
                        await heard.drain()
                        return
            if reader.task_id is None and not reader.replied:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a task")
        except FaultError as error:
            if not reader.begun:
                self._refused = error
            # A connection that breaks is a stream that ends: the task goes on without it.
            elif error.fault.code is not FaultCode.AGENT_UNREACHABLE or reader.task_id is None:
                raise
        yield reader.close()

    async def _look_whether_moved_on(self, binding: ClientBinding, refused: FaultError) -> Stage:
        """A task may go on without an answer, when its credentials came another way (specification 1.0, 7.6), or with
        one whose receipt was lost."""
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
        """What is new in the task, until it stops or, with `is_once`, until the server has answered."""
        backoff, look = Backoff(FIRST_WAIT, LAST_WAIT), partial(_look, self._reader, binding)
        while True:
            events: Sequence[Event] = ()
            for task in await backoff.poll(look) or ():
                events = self._read(task)
                yield events
                if is_once or self._reader.is_stopped:
                    return
            if events:
                backoff.reset()
            await backoff.wait()

    async def _subscribe(self, binding: ClientBinding) -> Stage:
        """The task's stream, which begins with the task (specification 1.0, 3.1.6). One that does not, as those of
        a2a-sdk 0.3.26, leaves open what was missed before it: then the task is looked at instead."""
        reader, begun = self._reader, False
        assert reader.task_id is not None
        with suppress(FaultError):
            async with (
                binding.open_subscription(reader.task_id) as replies,
                aclosing(_Listener(reader, binding, replies)) as heard,
            ):
                async for reply in heard:
                    with blaming_the_agent():
                        if not begun and not isinstance(decode_reply(reply), w.Task):
                            return
                    begun = True
                    yield self._read(reply)
                    if reader.is_stopped:
                        await heard.drain()
                        return

    def _adopt(self, binding: ClientBinding) -> None:
        interface = binding.interface
        self._reader.habits = Habits(binding.rule, interface.answers_in_status, interface.repeats_answer)

    def _catch_up(self, binding: ClientBinding) -> Stage:
        reader = self._reader
        return catch_up(reader.records, partial(self._tell_again, binding), lambda: reader.is_stopped)

    async def _tell_again(self, binding: ClientBinding, start: int) -> Stage:
        reader = self._reader
        assert reader.task_id is not None
        async with (
            binding.open_subscription(reader.task_id, start=start) as replies,
            aclosing(_Listener(reader, binding, replies)) as heard,
        ):
            async for reply in heard:
                yield await self._read_whole(binding, reply)
                if reader.is_stopped:
                    await heard.drain()
                if reader.is_stopped or reader.records.behind:
                    return

    async def _read_whole(self, binding: ClientBinding, reply: Json) -> Sequence[Event]:
        events = self._read(reply)
        return await with_files(events, binding.file)

    def _rebind(self) -> Sequence[Event]:
        """A run that answers is bound again: each activation tells for itself what it can be re-attached to by."""
        reader = self._reader
        return reader.bind(reader.task_id, reader.context_id) if self._call.answers and not reader.begun else ()

    def _read(self, reply: Json) -> Sequence[Event]:
        with blaming_the_agent():
            return self._reader.read(reply)


class _Listener:
    """The replies of a stream, and the task where it stopped without a word: a2a-sdk 0.3.26 leaves streams of a task
    open that somebody else cancels. The stream is not given up before: there are servers that take that for a
    cancel."""

    def __init__(self, reader: EventReader, binding: ClientBinding, replies: Replies) -> None:
        self._reader = reader
        self._binding = binding
        self._replies = replies
        self._waits: asyncio.Task[Any] | None = None
        """Who waits for the next reply now. A stream has one timer and no task: most are never silent."""
        self._since = 0.0
        """When that began, on the loop's clock."""
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self._found: Json | Exception = None
        """What a look at the task says in the place of the stream, which is given up for it."""
        self._failures = 0

    def __aiter__(self) -> "_Listener":
        return self

    async def __anext__(self) -> Json:
        self._waits, self._since = asyncio.current_task(), asyncio.get_running_loop().time()
        if self._timer is None:
            self._watch(SILENCE)
        try:
            return await anext(self._replies)
        except asyncio.CancelledError:
            if self._found is None or (self._waits is not None and self._waits.uncancel()):
                raise
        finally:
            self._waits = None
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        left = self._since + SILENCE - asyncio.get_running_loop().time()
        if self._waits is None or not self._reader.begun or self._reader.task_id is None:
            self._watch(SILENCE)
        elif left > 0:
            self._watch(left)
        else:
            self._looking = asyncio.ensure_future(self._look())

    async def _look(self) -> None:
        since = self._since
        try:
            found = await self._look_for_end()
        except Exception as error:
            found = error
        if found is not None and since == self._since and self._waits is not None and not self._waits.cancelling():
            self._found = found
            self._waits.cancel()
        else:
            self._watch(SILENCE)

    async def _look_for_end(self) -> Json | Exception:
        """The task, if it stands still; None as long as the stream is to be heard. Raises agent_invalid."""
        try:
            (task,) = await _look(self._reader, self._binding)
        except FaultError:
            self._failures += 1
            return StopAsyncIteration() if self._failures >= MAX_FAILURES else None
        self._failures = 0
        return task if _is_still(task) else None

    async def drain(self) -> None:
        """A stream that is silent while its task has stopped has no end that could be read."""
        if self._found is None:
            await self._replies.drain(DRAIN)

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        looking, self._looking = self._looking, None
        if looking is not None and not looking.done():
            looking.cancel()
            await asyncio.wait((looking,))


async def _look(reader: EventReader, binding: ClientBinding) -> tuple[Json]:
    assert reader.task_id is not None
    async with time_limit(POLL_TIMEOUT):
        return (await binding.get(reader.task_id, reader.context_id),)


def _is_still(task: Json) -> bool:
    with blaming_the_agent():
        reply = decode_reply(task)
    return isinstance(reply, w.Task) and reply.status is not None and decode_state(reply.status.state) in _STILL


def _is_wordless(error: FaultError) -> bool:
    return error.fault.details.get("reason") == "INTERNAL_ERROR" and not error.fault.details.get("said")


# The card


async def _card(http: HttpClient, url: str) -> tuple[JsonObject, Interface | None] | None:
    """The agent's card, and how it says that the agent is called; None if there is none. Raises agent_invalid,
    agent_unreachable, agent_timeout."""
    try:
        candidates = card_urls(url)
    except ValueError as error:
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's URL is not valid") from error
    for at, candidate in enumerate(candidates):
        try:
            async with (
                time_limit(POLL_TIMEOUT),
                http.open_response("GET", candidate, accept=_JSON) as response,
            ):
                card = await http.json(response, CARD_LIMIT)
        except FaultError as error:
            if error.fault.code in UNAVAILABLE and "status" not in error.fault.details:
                raise
            continue
        if isinstance(card, dict) and is_card(card):
            return card, find_interface(card, url, at_origin=at >= 2)
    return None


async def discover(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None, *, card: bool = True
) -> list[AgentInfo]:
    """The agent of an A2A server, as its card describes it: one card, one agent (specification 1.0, 4.4.1). `card` =
    False takes the URL for an endpoint also where there is none. Raises agent_invalid, agent_unreachable,
    agent_timeout."""
    found = await _card(HttpClient(headers=headers, timeout=10.0, http=http), url)
    if found is not None and found[1] is not None:
        return [describe(found[0])]
    if card:
        raise FaultError(FaultCode.AGENT_INVALID, "The server has no valid A2A agent card")
    return [assume_agent("agent")]
