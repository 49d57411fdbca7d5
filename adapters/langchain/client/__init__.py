"""Drives an agent on a LangGraph server, or on one that speaks the Agent Protocol: a streamed run, its answers, its
cancel, the rest of a stream that broke."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Final
from urllib.parse import quote

import httpx

from adapters._client.answers import parse_answer
from adapters._server.caller import is_uuid
from adapters._sse import Frame
from adapters.langchain.agents import decode_schemas
from adapters.langchain.client.attempt import UpstreamRun, blaming_the_agent, valid
from adapters.langchain.client.discovery import discover
from adapters.langchain.client.http import HttpClient
from adapters.langchain.client.resume import NOT_THERE, ResumableStream
from adapters.langchain.client.thread import place, update_state
from adapters.langchain.client.urls import Layout, Route
from adapters.langchain.codec.content import as_object, json_text
from adapters.langchain.codec.state import assistant_id
from adapters.langchain.codec.stream_modes import Dialect
from adapters.langchain.errors.decode import decode_error, status_of
from adapters.langchain.read.run_frames import EventReader, saved_checkpoints
from adapters.langchain.request import (
    MODES,
    InputSchema,
    encode_answers,
    encode_command,
    encode_input,
    encode_messages,
    encode_run,
)
from adapters.langchain.wire import replies as w
from canonical import Event, FaultCode, FaultError, Invocation, Record
from canonical.agent import DETACH
from canonical.event import LossNoted, StateSaved, UpstreamBound
from canonical.feature import Feature
from canonical.replay import agent_events
from canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

log = logging.getLogger("babelgate.langchain")

CANCEL_TIMEOUT: Final = 3.0
"""Seconds that telling of a cancel may take."""
LOOK_TIMEOUT: Final = 10.0
"""Seconds that looking for a run may take."""

Events = AsyncGenerator[Event, None]


class Client:
    """`agent` is the server's own name of it: a graph's or an assistant's id, or the `agent_id`. `dialect` = which one
    the server speaks, None = LangGraph if it has assistants."""

    def __init__(
        self,
        url: str,
        agent: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float | None = None,
        http: httpx.AsyncClient | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self._agent = agent
        self._upstream = HttpClient(url, headers=headers, timeout=timeout, http=http)
        self._dialect: Dialect | None = dialect
        self._layout: Layout | None = None
        self._modes: str | None = None
        self._debugs: bool | None = None
        """The server is a gateway like this one, which tells of tools in the mode `debug`."""
        self._shape: InputSchema | None = None
        self._outputs: frozenset[str] | None = None

    async def aclose(self) -> None:
        await self._upstream.aclose()

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self._cancelling(call, attached=False)

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """The events of this activation, told again from its start."""
        return self._cancelling(call, attached=True)

    async def _cancelling(self, call: Invocation, *, attached: bool) -> Events:
        """Whoever stops listening before the run stops wants it cancelled, but for a gateway that will be back."""
        work = UpstreamRun(EventReader(), Route("langgraph", None))
        detached = False
        try:
            events = self._reattach(work, call) if attached else self._start_run(work, call)
            async with aclosing(events):
                async for event in events:
                    yield event
        except asyncio.CancelledError as error:
            detached = DETACH in error.args
            raise
        finally:
            if work.sent and not work.over and not detached:
                await asyncio.shield(asyncio.ensure_future(self._cancel(work, call)))

    async def _cancel(self, work: UpstreamRun, call: Invocation) -> None:
        """Whether the server hears it or not, nobody waits for the run any longer."""
        try:
            async with asyncio.timeout(CANCEL_TIMEOUT):
                if work.route.run_id is None:
                    work.route.run_id = await self._find_run(work.route, call)
                if work.route.run_id is not None:
                    await self._upstream.post(work.route.cancel)
        except (FaultError, TimeoutError) as error:
            log.info("an agent's server was not told of a cancel, or refused it: %s", error)

    async def _find_run(self, route: Route, call: Invocation) -> str | None:
        """The run whose id was not told yet: it is known by the metadata that it was created with."""
        if route.thread_id is None or route.layout == "openapi":
            return None
        listed = await self._upstream.get(route.runs)
        for each in listed if isinstance(listed, list) else ():
            run: w.Run = valid(w.Run, each)
            if (run.metadata or {}).get("gateway_run") == call.run_id:
                return run.run_id
        return None

    # A run

    async def _start_run(self, work: UpstreamRun, call: Invocation) -> Events:
        dialect = await self._detect_dialect()
        past = await call.past() if call.answers else ()
        await self._learn()
        layout: Layout = "langgraph" if dialect == "langgraph" else self._layout or "readme"
        if layout == "readme":
            await self._recognize()
        await place(self._upstream, work, call, layout)
        if any(answer.action == "decline" for answer in call.answers):
            work.notes.append(LossNoted(feature=Feature.QUESTION, how="a refusal to answer is the answer null"))
        base = call.input.checkpoint if work.checkpoint is None else None
        work.reader = EventReader(dialect, saved_checkpoints(past), base, self._outputs)
        asked = self._encode_request(work, call, past)
        again = True
        while again:
            again = False
            following = self._following(work)
            try:
                async with aclosing(
                    self._read_frames(work, following, following.create_run(self._body(work, call, asked)))
                ) as told:
                    async for event in told:
                        yield event
            except FaultError as error:
                unheard = not work.bound and not work.reader.run_id
                again = unheard and self._instead(work, error)
                if again:
                    continue
                if not unheard or not await self._was_created(work, call, error):
                    raise
                async with aclosing(self._join_run(work, following)) as told:
                    async for event in told:
                        yield event
        self._layout = work.route.layout

    async def _was_created(self, work: UpstreamRun, call: Invocation, error: FaultError) -> bool:
        """Whether the server has the run, and only its receipt was lost."""
        if error.fault.code is not FaultCode.AGENT_UNREACHABLE or work.route.run_id is not None:
            return False
        with suppress(FaultError, TimeoutError):
            async with asyncio.timeout(LOOK_TIMEOUT):
                work.route.run_id = await self._find_run(work.route, call)
        return work.route.run_id is not None

    async def _join_run(self, work: UpstreamRun, following: ResumableStream) -> Events:
        """A run of which nothing was heard yet."""
        frames = following.join_run()
        async with aclosing(frames):
            first = await anext(frames, None)
            following.missed = not _begins(first)
            async with aclosing(self._read_frames(work, following, _from(first, frames))) as events:
                async for event in events:
                    yield event

    def _following(self, work: UpstreamRun) -> ResumableStream:
        work.sent = True
        return ResumableStream(self._upstream, work.route, lambda: work.reader.has_ended, lambda: work.reader.complete)

    def _instead(self, work: UpstreamRun, error: FaultError) -> bool:
        """Whether the server may understand it in another form."""
        status = status_of(error.fault)
        if status in (404, 405) and work.route.layout == "readme" and self._layout is None:
            work.route.layout = "openapi"
            return True
        if status == 422 and work.route.layout == "langgraph" and self._modes is None:
            self._modes = "langgraph-basic"
            return True
        if self._modes == "langgraph-basic":
            self._modes = None
        return False

    def _encode_request(self, work: UpstreamRun, call: Invocation, past: Sequence[Record]) -> JsonObject:
        if call.answers:
            asked = encode_answers(call, past)
        elif work.route.layout == "langgraph":
            given = encode_input(call, self._shape or InputSchema(), work.history)
            asked = {"input": given}
            if not call.messages and call.data is None and call.config.get("command"):
                asked = {"input": None}
        else:
            asked = encode_messages(call, work.history)
        command = {**encode_command(call), **as_object(asked.get("command"))}
        return {**asked, "command": command} if command else asked

    def _body(self, work: UpstreamRun, call: Invocation, asked: JsonObject) -> JsonObject:
        route = work.route
        form: str = route.layout
        if form == "langgraph":
            form = self._modes or form
        elif form == "readme" and self._debugs:
            form = "readme-debug"
        body = encode_run(
            call,
            asked,
            dialect="langgraph" if route.layout == "langgraph" else "agent-protocol",
            agent=self._agent,
            modes=MODES[form],
            thread_id=route.thread_id if route.layout == "openapi" else None,
            checkpoint=work.checkpoint,
        )
        return {**body, "if_not_exists": "create"} if work.fresh else body

    async def _read_frames(
        self, work: UpstreamRun, following: ResumableStream, frames: AsyncGenerator[Frame, None]
    ) -> Events:
        async with aclosing(frames):
            async for frame in frames:
                value = await parse_answer(frame.data)
                with blaming_the_agent():
                    events = work.reader.read(frame.event, value)
                for event in (*work.bind(), *events):
                    yield event
                work.over = work.reader.has_ended
        for event in work.bind():
            yield event
        if work.route.run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")
        async with aclosing(self._end(work, following)) as events:
            async for event in events:
                yield event

    async def _end(self, work: UpstreamRun, following: ResumableStream) -> Events:
        """What the run came to."""
        reader = work.reader
        outcome: Json = None
        if not reader.has_ended and (following.missed or (following.run and following.run.status == "error")):
            outcome = await following.outcome()
        run = following.run
        status = reader.status or (run.status if run is not None else "success")
        if reader.fault is None:
            error = as_object(outcome).get("__error__")
            reader.fault = None if error is None else decode_error(error)
        if reader.fault is not None:
            work.over = True
            raise FaultError.of(reader.fault)
        if following.missed:
            values, messages = await self._values(work, outcome)
            with blaming_the_agent():
                told = reader.settle(values, messages)
            for event in told:
                yield event
        if status == "interrupted" and not reader.asks:
            await self._questions(work)
        work.over = True
        with blaming_the_agent():
            events = self._ending(reader, run, status)
        for event in events:
            yield event

    def _ending(self, reader: EventReader, run: w.Run | None, status: str) -> Sequence[Event]:
        noted = [] if run is None else list(reader.account(run.metadata))
        match status:
            case "success":
                return [*noted, *reader.finish()]
            case "interrupted" | "cancelled" | "canceled":
                return [*noted, *(reader.finish() if reader.asks else reader.end_by_cancel())]
            case "timeout":
                return [*noted, *reader.end_by_timeout()]
            case "error":
                raise FaultError.of(decode_error(None))
            case _:
                raise FaultError(
                    FaultCode.AGENT_INVALID, f"The agent's run has a status that is unknown: {status[:50]}"
                )

    async def _values(self, work: UpstreamRun, outcome: Json) -> tuple[Json, Json]:
        """The state at the end, and the messages where they stand beside it."""
        told = as_object(outcome)
        if outcome is None and work.route.thread_id is not None:
            thread: w.Thread = valid(w.Thread, await self._upstream.get(work.route.thread))
            return thread.values, thread.messages
        if work.route.layout == "langgraph" or "run" not in told:
            return outcome, None
        values = {**as_object(told.get("values")), **{k: v for k, v in told.items() if k == "__interrupt__"}}
        return values, told.get("messages")

    async def _questions(self, work: UpstreamRun) -> None:
        """An Agent Protocol run that is interrupted waits for an answer, if its thread says for which."""
        if work.route.thread_id is None:
            return
        with suppress(FaultError):
            state = as_object(await self._upstream.get(f"{work.route.thread}/state"))
            with blaming_the_agent():
                work.reader.ask(state.get("interrupts"))

    async def _reattach(self, work: UpstreamRun, call: Invocation) -> Events:
        run_id = call.upstream.get("run")
        if run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this run")
        dialect = await self._detect_dialect()
        await self._learn()
        past = await call.past()
        said = agent_events(past, call.run_id)
        layout: Layout = "langgraph" if dialect == "langgraph" else await self._detect_layout(call, run_id)
        work.route = Route(layout, call.upstream.get("task"), run_id)
        work.bound = True
        work.reader = EventReader(dialect, saved_checkpoints(past, call.run_id), call.input.checkpoint, self._outputs)
        following = self._following(work)
        frames = following.join_run()
        async with aclosing(frames):
            first = await anext(frames, None)
            if _begins(first):
                # All of it is told again: so is what stands before the first frame.
                bound = [i for i, event in enumerate(said) if isinstance(event, UpstreamBound)]
                again = said[: _notes_end(said, bound[0] + 1)] if bound else []
                work.bound = bool(bound)
            else:
                again = said
                work.reader.recall(record for record in past if record.run_id == call.run_id)
                following.missed = True
            for event in again:
                yield event
            async with aclosing(self._read_frames(work, following, _from(first, frames))) as events:
                async for event in events:
                    yield event

    async def _detect_layout(self, call: Invocation, run_id: str) -> Layout:
        """The layout of the Agent Protocol, where no run of this client has shown it yet."""
        thread_id = call.upstream.get("task")
        if self._layout is None and thread_id is not None:
            try:
                await self._upstream.get(Route("readme", thread_id, run_id).run)
                self._layout = "readme"
            except FaultError as error:
                if status_of(error.fault) not in NOT_THERE:
                    raise
                self._layout = "openapi"
        return self._layout or "openapi"

    # What the server is

    async def _detect_dialect(self) -> Dialect:
        if self._dialect is None:
            try:
                await self._upstream.post("/assistants/search", {"limit": 1})
                self._dialect = "langgraph"
            except FaultError as error:
                if status_of(error.fault) not in NOT_THERE:
                    raise
                self._dialect = "agent-protocol"
        return self._dialect

    async def _recognize(self) -> None:
        """A gateway like this one names itself in a header of each answer."""
        if self._debugs is not None:
            return
        path = f"/agents/{quote(self._agent, safe='')}"
        try:
            async with self._upstream.open_response("GET", path, streams=False) as response:
                self._debugs = "babelgate" in response.headers
        except FaultError as error:  # the run itself tells of it
            if status_of(error.fault) in NOT_THERE:
                self._debugs = False

    async def _learn(self) -> None:
        """What a graph takes and gives. Without it, it takes messages."""
        if self._shape is not None or self._dialect != "langgraph":
            return
        try:
            told = decode_schemas(await self._upstream.get(f"/assistants/{self._assistant_id}/schemas"))
        except FaultError as error:
            if error.fault.code is FaultCode.AGENT_UNREACHABLE:
                raise
            told = {}
        # There is no schema of the input where the types of the graph are none that its server can describe.
        self._shape = InputSchema(told.get("input") or told.get("state"))
        outputs = as_object(as_object(told.get("output")).get("properties"))
        self._outputs = frozenset(outputs) or None

    async def update_state(
        self, call: Invocation, *, forgets: Sequence[str] = (), as_node: str | None = None
    ) -> StateSaved:
        """The port of agents with a state of their own (`canonical.agent.Stateful`). Raises unsupported."""
        if await self._detect_dialect() != "langgraph":
            raise FaultError(FaultCode.UNSUPPORTED, "The agent's server has no API for the states of threads.")
        return await update_state(self._upstream, call, forgets, as_node)

    # The port of agents that are graphs (`canonical.agent.Drawn`)

    async def draw(self, depth: int | bool) -> JsonObject | None:
        shown = f"?xray={json_text(depth)}" if depth else ""
        drawn = await self._of_assistant(f"graph{shown}")
        return drawn if drawn is not None and "nodes" in drawn and "edges" in drawn else None

    async def subgraphs(self, namespace: str | None, recurse: bool) -> JsonObject | None:
        below = "" if namespace is None else f"/{quote(namespace, safe='')}"
        return await self._of_assistant(f"subgraphs{below}{'?recurse=true' if recurse else ''}")

    async def _of_assistant(self, path: str) -> JsonObject | None:
        """None from a server that knows nothing of assistants."""
        if await self._detect_dialect() != "langgraph":
            return None
        try:
            told = await self._upstream.get(f"/assistants/{self._assistant_id}/{path}")
        except FaultError as error:
            if status_of(error.fault) in (*NOT_THERE, 422):
                return None
            raise
        return told if isinstance(told, dict) else None

    @property
    def _assistant_id(self) -> str:
        return self._agent if is_uuid(self._agent) else assistant_id(self._agent)


def _notes_end(said: Sequence[Event], start: int) -> int:
    """Past the losses that were noted before anything was said."""
    while start < len(said) and isinstance(said[start], LossNoted):
        start += 1
    return start


def _begins(first: Frame | None) -> bool:
    """Whether a stream that was joined tells all of its run."""
    return first is not None and first.event == "metadata"


async def _from(first: Frame | None, frames: AsyncGenerator[Frame, None]) -> AsyncGenerator[Frame, None]:
    if first is not None:
        yield first
    async for frame in frames:
        yield frame
