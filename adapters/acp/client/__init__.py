"""Drives an agent on another ACP server: a streamed run, its resumes, its cancel, the rest of a stream that broke."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Final

import httpx
from pydantic_core import to_json

from adapters._client.answers import LISTING_LIMIT, parse_answer
from adapters._client.status import is_gone
from adapters._json import validate
from adapters._sse import read_frames
from adapters.acp import wire as w
from adapters.acp.agents import decode_agents
from adapters.acp.client.http import HttpClient, run_path
from adapters.acp.client.losses import losses
from adapters.acp.codec.messages import agent_called, dump_given, encode_answer, encode_input
from adapters.acp.codec.parts import View, extra_of
from adapters.acp.read import EventReader, decode_event
from adapters.acp.write.run_events import TERMINAL
from canonical import AgentInfo, Event, FaultCode, FaultError, Invocation
from canonical.agent import DEFAULT_OWNER, DETACH
from canonical.event import InterruptRaised
from canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

FIRST_WAIT: Final = 0.1
LAST_WAIT: Final = 2.0
"""Seconds between looks at a run whose stream broke: ACP has nothing to wait on there."""
DRAIN: Final = 0.2
"""Seconds that a server has to end its stream after the run stopped."""
MAX_FAILURES: Final = 5
"""Looks in a row that may fail before the agent counts as gone."""
_AT_ONCE: Final = 200
"""Events of a list."""

Events = AsyncGenerator[Event, None]


class Client:
    """An agent on an ACP server. `agent` is the server's own name of it."""

    def __init__(
        self,
        url: str,
        agent: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._agent = agent
        self._upstream = HttpClient(url, headers, timeout, http)

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self._cancelling(call, attached=False)

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """The events of this activation, told again from its start."""
        return self._cancelling(call, attached=True)

    async def _cancelling(self, call: Invocation, *, attached: bool) -> Events:
        """Whoever stops listening before the run stops wants it cancelled, but for a gateway that will be back."""
        reader = EventReader(self._agent)
        detached = False
        try:
            async with aclosing(self._events(reader, call, attached=attached)) as events:
                async for event in events:
                    yield event
        except asyncio.CancelledError as error:
            detached = DETACH in error.args
            raise
        finally:
            if reader.run_id is not None and not reader.stopped and not detached:
                await asyncio.shield(asyncio.ensure_future(self._upstream.cancel(reader.run_id)))

    async def _events(self, reader: EventReader, call: Invocation, *, attached: bool) -> Events:
        run_id = call.upstream.get("run") if attached or call.answers else None
        if run_id is None and (attached or call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this run")
        heard = not attached
        if not attached:
            try:
                async with aclosing(self._stream_run(reader, call, run_id)) as events:
                    async for event in events:
                        yield event
            except FaultError as error:
                if run_id is None or reader.run_id is not None or not await self._has_gone_on(run_id, error):
                    raise
                heard = False
        if not heard and run_id is not None:
            for event in (*losses(call), *_bind_run(reader, call, run_id)):
                yield event
        if not reader.stopped:
            async with aclosing(self._poll_events(reader, await _questions_before(call))) as events:
                async for event in events:
                    yield event

    async def _stream_run(self, reader: EventReader, call: Invocation, run_id: str | None) -> Events:
        """Start or resume the run, and read its stream for as long as it lasts."""
        path = "/runs" if run_id is None else run_path(run_id)
        body = self._create(call) if run_id is None else self._resume(call)
        async with self._upstream.open_response("POST", path, body) as response:
            bound: Sequence[Event] = ()
            if run_id is None:
                reader.run_id = response.headers.get("run-id")
            else:
                bound = _bind_run(reader, call, run_id)
            for event in (*losses(call), *bound):
                yield event
            if "text/event-stream" not in response.headers.get("content-type", ""):
                run = _run(await self._upstream.json(response))
                for event in _snapshot(reader, run):
                    yield event
                return
            async with aclosing(_read_stream(reader, response)) as events:
                async for event in events:
                    yield event
        if reader.run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")

    async def _has_gone_on(self, run_id: str, error: FaultError) -> bool:
        """Whether an answer was taken whose receipt was lost."""
        if not is_gone(error.fault):
            return False
        with suppress(FaultError):
            return _run(await self._upstream.get(run_path(run_id))).status != "awaiting"
        return False

    async def _poll_events(self, reader: EventReader, awaits: int) -> Events:
        """What no stream told: the list of events, read again and again until the run stops. `awaits` = how many there
        were before this activation."""
        assert reader.run_id is not None
        path = run_path(reader.run_id)
        wait, failures = FIRST_WAIT, 0
        while True:
            try:
                # The run first: whatever it says has its event in the list that is read after it.
                run = _run(await self._upstream.get(path))
                found = await self._list(path)
                failures = 0
            except FaultError as error:
                failures += 1
                if not is_gone(error.fault) or failures >= MAX_FAILURES:
                    raise
                run, found = None, []
            rest = _after(found, awaits)[reader.seen :]
            for number, event in enumerate(rest):
                if number % _AT_ONCE == 0:  # others come in between: there may be tens of thousands
                    await asyncio.sleep(0)
                for told in _read(reader, _decode_event(event)):
                    yield told
                if reader.stopped:
                    return
            if run is not None and not rest:
                for event in _snapshot(reader, run):
                    yield event
            if reader.stopped:
                return
            wait = FIRST_WAIT if rest else min(wait * 2, LAST_WAIT)
            await asyncio.sleep(wait)

    async def _list(self, path: str) -> list[Json]:
        answer = await self._upstream.get(f"{path}/events")
        listed = answer.get("events") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server answered without a list of events")
        return listed

    def _view(self, call: Invocation) -> View:
        return View(run_id=call.task_id, session_id=call.thread_id, agent=self._agent)

    def _create(self, call: Invocation) -> bytes:
        session_id = call.upstream.get("session") or _same_session(call)
        messages = encode_input(call, self._view(call))
        body: JsonObject = {
            **extra_of(call.extra),
            "agent_name": self._agent,
            "input": [dump_given(message) for message in messages],
            "mode": "stream",
        }
        if session_id is not None:
            body["session_id"] = session_id
        return to_json(body)

    def _resume(self, call: Invocation) -> bytes:
        request = w.RunResumeRequest(await_resume=encode_answer(call, self._view(call)), mode="stream")
        return request.model_dump_json(exclude={"run_id"}).encode()


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """The agents of an ACP server, by `GET /agents`; `manifest.upstream_name` tells what it calls them itself. Raises
    agent_invalid."""
    answer = await HttpClient(url, headers, 10.0, http).within(LISTING_LIMIT).get("/agents")
    try:
        return decode_agents(answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list agents as ACP does") from error


def _same_session(call: Invocation) -> str | None:
    """The caller's own session, where the run is its first: an agent that tells its session's id tells the one that the
    caller knows. Only where nobody has a key, because owners may choose the same id; and only for callers of ACP, to
    whom the id of a session that was erased is not free again."""
    keyless = call.owner == DEFAULT_OWNER
    return call.thread_id if call.opens_thread and keyless and agent_called(call.extra) is not None else None


def _bind_run(reader: EventReader, call: Invocation, run_id: str) -> Sequence[Event]:
    """A resumed run is bound again: each activation tells for itself what it can be re-attached to by. One that starts
    afresh says so by its own first event."""
    reader.run_id = run_id
    return reader.resume(run_id, call.upstream.get("session")) if call.answers else ()


async def _questions_before(call: Invocation) -> int:
    if not call.answers:
        return 0
    past = await call.past()
    return sum(isinstance(record.event, InterruptRaised) and record.run_id != call.run_id for record in past)


def _after(events: list[Json], awaits: int) -> list[Json]:
    """The events after so many awaits."""
    for index, event in enumerate(events):
        if awaits == 0:
            return events[index:]
        awaits -= isinstance(event, dict) and event.get("type") == "run.awaiting"
    return []


async def _read_stream(reader: EventReader, response: httpx.Response) -> Events:
    """Until the run stops; what comes after that is nobody's. A connection that breaks is a stream that ends."""
    try:
        async with aclosing(read_frames(response)) as frames:
            async for frame in frames:
                if frame.data == b"[DONE]":
                    continue
                for event in _read(reader, _decode_event(await parse_answer(frame.data))):
                    yield event
                if reader.stopped:
                    # Read to its end, a connection can be used again.
                    with suppress(TimeoutError, FaultError):
                        async with asyncio.timeout(DRAIN):
                            async for _ in frames:
                                pass
                    return
    except httpx.TimeoutException:
        raise
    except httpx.TransportError:
        return


def _read(reader: EventReader, event: w.Event) -> Sequence[Event]:
    with _blaming_the_agent():
        return reader.read(event)


def _snapshot(reader: EventReader, run: w.Run) -> Sequence[Event]:
    """What a run says where no event did."""
    told = reader.bind(run.run_id, run.session_id)
    with _blaming_the_agent():
        if run.status == "awaiting":
            return [*told, *reader.read(w.RunEvent(type="run.awaiting", run=run))]
        if run.status in TERMINAL:
            return [*told, *reader.end(run)]
    return told


def _decode_event(value: Json) -> w.Event:
    with _blaming_the_agent():
        return decode_event(value)


def _run(value: Json) -> w.Run:
    with _blaming_the_agent():
        return validate(w.Run, value)


@contextmanager
def _blaming_the_agent() -> Generator[None]:
    """What breaks the protocol here is the agent's server, and not whoever called the gateway."""
    try:
        yield
    except FaultError as error:
        if error.fault.code is not FaultCode.INVALID:
            raise
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error
