"""Drives an agent on another A2A server, of either generation: a task that is streamed or looked at again and again,
its answers, its cancel, the rest of a task whose stream broke."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Final

import httpx

from adapters.a2a.agents.interface import Interface, bare, card_urls, describe, find_interface, is_card
from adapters.a2a.client.binding import Binding, create_binding
from adapters.a2a.client.http import HttpClient
from adapters.a2a.read.parts import decode_reply, decode_state
from adapters.a2a.read.task_events import EventReader
from adapters.a2a.request import losses, request
from adapters.a2a.wire import replies as w
from canonical import AgentInfo, Event, FaultCode, FaultError, Invocation
from canonical.agent import DETACH
from canonical.replay import agent_events
from canonical.state import TERMINAL, WAITING
from canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

log = logging.getLogger("babelgate.a2a")

FIRST_WAIT: Final = 0.1
LAST_WAIT: Final = 2.0
"""Seconds between looks at a task that is not streamed."""
LOOK_TIMEOUT: Final = 30.0
"""Seconds that one look may take."""
SILENCE: Final = 30.0
"""Seconds without an event after which a look tells whether the task has stopped all the same."""
MAX_FAILURES: Final = 5
"""Looks in a row that may fail before the agent counts as gone."""
DRAIN: Final = 0.2
"""Seconds that a server has to end its stream after the task stopped."""
CANCEL_TIMEOUT: Final = 3.0
"""Seconds that telling of a cancel may take."""
CARD_LIMIT: Final = 1024 * 1024

_JSON: Final = "application/json"
_STILL: Final = TERMINAL | WAITING

_GONE: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT})

Events = AsyncGenerator[Event, None]


class _Over:
    """The end of a stream."""


_OVER: Final = _Over()


class Client:
    """An agent on an A2A server: `url` is its own, or its card's. `agent` = its name here; `interface` = how it is
    called, where its card need not be asked."""

    def __init__(
        self,
        url: str,
        agent: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
        interface: Interface | None = None,
    ) -> None:
        self._url = url
        self._agent = agent
        self._interface = interface
        self._upstream = HttpClient(headers=headers, timeout=timeout, http=http)
        self._binding: Binding | None = None

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self._cancelling(call, attached=False)

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """The events of this activation: what the log has of them, and what is new in the task."""
        return self._cancelling(call, attached=True)

    async def _load_binding(self) -> Binding:
        """How the server is spoken to: its card says so, which is read when it is needed first."""
        if self._binding is None:
            interface = self._interface
            if interface is None:
                found = await _card(self._upstream, self._url)
                interface = bare(self._url) if found is None else found[1] or bare(self._url)
            self._binding = create_binding(self._upstream, interface, self._agent)
        return self._binding

    async def _cancelling(self, call: Invocation, *, attached: bool) -> Events:
        """Whoever stops listening before the task stops wants it cancelled, but for a gateway that will be back."""
        reader = EventReader(call.run_id)
        detached = False
        try:
            async with aclosing(self._events(reader, call, attached=attached)) as events:
                async for event in events:
                    yield event
        except asyncio.CancelledError as error:
            detached = DETACH in error.args
            raise
        finally:
            if reader.task_id is not None and not reader.stopped and not detached:
                await asyncio.shield(asyncio.ensure_future(self._cancel(reader.task_id, reader.context_id)))

    async def _cancel(self, task_id: str, context_id: str | None) -> None:
        """Whether the server hears it or not, nobody waits for the task any longer."""
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                await (await self._load_binding()).cancel(task_id, context_id)
        except (FaultError, TimeoutError) as error:
            log.info("an agent's server was not told of a cancel, or refused it: %s", error)

    async def _events(self, reader: EventReader, call: Invocation, *, attached: bool) -> Events:
        known = call.upstream.get("task")
        if known is None and (attached or call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this task")
        if attached:
            past = await call.past()
            reader.task_id, reader.context_id = known, call.upstream.get("context")
            for event in agent_events(past, call.run_id):
                yield event
            reader.recall(past)
        else:
            async with aclosing(self._send_message(reader, call)) as events:
                async for event in events:
                    yield event
        if not reader.stopped and not reader.replied:
            async with aclosing(_follow_task(reader, await self._load_binding())) as events:
                async for event in events:
                    yield event

    async def _send_message(self, reader: EventReader, call: Invocation) -> Events:
        """Send the message, in whatever way the server understands it."""
        past = await call.past() if call.answers else ()
        reader.recall(record for record in past if record.run_id != call.run_id)
        if call.answers:  # before that there is no task that could be cancelled
            reader.task_id, reader.context_id = call.upstream["task"], call.upstream.get("context")
        for feature, how in losses(call):
            for event in reader.note(feature, how):
                yield event
        again = True
        while True:
            binding = await self._load_binding()
            try:
                params = request(call, past, binding.dialect, streams=binding.interface.streams)
                async with aclosing(_read_send_stream(reader, call, binding, params)) as events:
                    async for event in events:
                        yield event
                return
            except FaultError as error:
                if reader.begun:
                    raise
                other = binding.instead(error)
                if other is not None:
                    self._binding = other
                    continue
                # A server of 0.3 that still tidies up after its question fails without a word, and takes it then.
                if call.answers and again and _is_wordless(error):
                    again = False
                    continue
                self._binding = None  # perhaps the server has changed, and its card tells how
                refused = error
                break
        async with aclosing(self._perhaps_moved_on(reader, call, binding, refused)) as events:
            async for event in events:
                yield event

    async def _perhaps_moved_on(
        self, reader: EventReader, call: Invocation, binding: Binding, refused: FaultError
    ) -> Events:
        """A task may go on without an answer, when its credentials came another way (specification 1.0, 7.6), or with
        one whose receipt was lost."""
        if not call.answers or refused.fault.code is FaultCode.AGENT_TIMEOUT:
            raise refused
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                task = await binding.get(call.upstream["task"], call.upstream.get("context"))
            events = _read(reader, task)
        except (FaultError, TimeoutError):
            raise refused from None
        if not reader.stopped and reader.state in WAITING:
            raise refused
        for event in events:
            yield event


async def _read_send_stream(reader: EventReader, call: Invocation, binding: Binding, params: JsonObject) -> Events:
    reader.rule = binding.rule
    replies = binding.stream(params) if binding.interface.streams else _alone(binding, params)
    try:
        async with aclosing(replies), aclosing(_patiently(reader, binding, replies)) as heard:
            async for reply in heard:
                for event in [*_rebound(reader, call), *_read(reader, reply)]:
                    yield event
                if reader.stopped:
                    await _drain(heard)
                    return
    except FaultError as error:
        # A connection that breaks is a stream that ends: the task goes on without it.
        if error.fault.code is not FaultCode.AGENT_UNREACHABLE or not reader.begun or reader.task_id is None:
            raise
    if reader.task_id is None and not reader.replied:
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a task")


async def _alone(binding: Binding, params: JsonObject) -> AsyncGenerator[Json]:
    yield await binding.send(params)


async def _follow_task(reader: EventReader, binding: Binding) -> Events:
    """What no stream told: the task as it is, its stream if it can be joined, and else the task again and again."""
    reader.rule = binding.rule
    if binding.interface.streams:
        async with aclosing(_looks(reader, binding)) as looks:
            for event in await anext(looks):
                yield event
        if not reader.stopped:
            async with aclosing(_subscribe(reader, binding)) as events:
                async for event in events:
                    yield event
    if not reader.stopped:
        async with aclosing(_looks(reader, binding)) as looks:
            async for events in looks:
                for event in events:
                    yield event
                if reader.stopped:
                    return


async def _looks(reader: EventReader, binding: Binding) -> AsyncGenerator[Sequence[Event]]:
    """What is new in the task, for ever."""
    assert reader.task_id is not None
    wait, failures = FIRST_WAIT, 0
    while True:
        events: Sequence[Event] = ()
        try:
            async with asyncio.timeout(LOOK_TIMEOUT):
                task = await binding.get(reader.task_id, reader.context_id)
        except (FaultError, TimeoutError) as error:
            failures += 1
            fault = error if isinstance(error, FaultError) else _too_late()
            if fault.fault.code not in _GONE or failures >= MAX_FAILURES:
                raise fault from (None if fault is error else error)
        else:
            failures = 0
            events = _read(reader, task)
            yield events
        wait = FIRST_WAIT if events else min(wait * 2, LAST_WAIT)
        await asyncio.sleep(wait)


async def _subscribe(reader: EventReader, binding: Binding) -> Events:
    """The task's stream. One that does not begin with the task, as those of the official SDK of 0.3, leaves open what
    was missed before it: then the task is looked at instead."""
    assert reader.task_id is not None
    begun = False
    with suppress(FaultError):
        async with (
            aclosing(binding.subscribe(reader.task_id)) as replies,
            aclosing(_patiently(reader, binding, replies)) as heard,
        ):
            async for reply in heard:
                with _blaming_the_agent():
                    if not begun and not isinstance(decode_reply(reply), w.Task):
                        return
                begun = True
                for event in _read(reader, reply):
                    yield event
                if reader.stopped:
                    await _drain(heard)
                    return


async def _patiently(reader: EventReader, binding: Binding, replies: AsyncGenerator[Json]) -> AsyncGenerator[Json]:
    """The replies of a stream, and the task where it stopped without a word: the official SDK of 0.3 leaves streams of
    a task open that somebody else cancels. The stream is not given up before: there are servers that take that for a
    cancel."""
    failures = 0
    while True:
        # A task of its own: a wait that is cut short would end the stream.
        pending = asyncio.ensure_future(anext(replies, _OVER))
        try:
            while not (await asyncio.wait((pending,), timeout=SILENCE))[0]:
                if not reader.begun or reader.task_id is None:
                    continue
                try:
                    async with asyncio.timeout(LOOK_TIMEOUT):
                        task = await binding.get(reader.task_id, reader.context_id)
                except (FaultError, TimeoutError):
                    failures += 1
                    if failures >= MAX_FAILURES:
                        return
                else:
                    failures = 0
                    if _is_still(task):
                        yield task
            reply = pending.result()
        finally:
            if not pending.done():
                pending.cancel()
                await asyncio.wait((pending,))
        if isinstance(reply, _Over):
            return
        yield reply


def _is_still(task: Json) -> bool:
    with _blaming_the_agent():
        reply = decode_reply(task)
    return isinstance(reply, w.Task) and reply.status is not None and decode_state(reply.status.state) in _STILL


async def _drain(replies: AsyncGenerator[Json]) -> None:
    """Read to its end, a connection can be used again."""
    with suppress(TimeoutError, FaultError):
        async with asyncio.timeout(DRAIN):
            async for _ in replies:
                pass


def _rebound(reader: EventReader, call: Invocation) -> Sequence[Event]:
    """A run that answers is bound again: each activation tells for itself what it can be re-attached to by."""
    return reader.bind(reader.task_id, reader.context_id) if call.answers and not reader.begun else ()


def _is_wordless(error: FaultError) -> bool:
    return error.fault.details.get("reason") == "INTERNAL_ERROR" and not error.fault.details.get("said")


def _too_late() -> FaultError:
    return FaultError(FaultCode.AGENT_TIMEOUT, "The agent's server did not answer in time")


def _read(reader: EventReader, reply: Json) -> Sequence[Event]:
    with _blaming_the_agent():
        return reader.read(reply)


@contextmanager
def _blaming_the_agent() -> Generator[None]:
    """What breaks the protocol here is the agent's server, and not whoever called the gateway."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.INVALID:
            raise
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error


# The card


async def _card(upstream: HttpClient, url: str) -> tuple[JsonObject, Interface | None] | None:
    """The agent's card, and how it says that the agent is called; None if there is none. Raises agent_invalid,
    agent_unreachable, agent_timeout."""
    try:
        candidates = card_urls(url)
    except ValueError as error:
        raise FaultError(FaultCode.AGENT_UNREACHABLE, "The agent's URL is not valid") from error
    for at, candidate in enumerate(candidates):
        try:
            async with (
                asyncio.timeout(LOOK_TIMEOUT),
                upstream.open_response("GET", candidate, accept=_JSON) as response,
            ):
                card = await upstream.json(response, CARD_LIMIT)
        except TimeoutError as error:
            raise _too_late() from error
        except FaultError as error:
            if error.fault.code in _GONE and "status" not in error.fault.details:
                raise
            continue
        if isinstance(card, dict) and is_card(card):
            return card, find_interface(card, url, at_origin=at >= 2)
    return None


async def discover(
    url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None, *, card: bool = True
) -> list[AgentInfo]:
    """The agent of an A2A server, as its card describes it: an A2A server has one. `card` = False takes the URL for an
    endpoint also where there is none. Raises agent_invalid, agent_unreachable, agent_timeout."""
    found = await _card(HttpClient(headers=headers, timeout=10.0, http=http), url)
    if found is not None and found[1] is not None:
        return [describe(found[0])]
    if card:
        raise FaultError(FaultCode.AGENT_INVALID, "The server has no valid A2A agent card")
    return [AgentInfo(name="agent", input_types=("*/*",), output_types=("*/*",), remembers=True, replies=True)]
