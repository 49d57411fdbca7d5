"""One activation of an agent on a LangGraph server, or on one that speaks the Agent Protocol."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.client.backoff import in_time
from babelgate.adapters.kit.client.blame import blaming_the_agent, decode_reply
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.driver import Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN, FrameStream
from babelgate.adapters.kit.client.sse import Frame
from babelgate.adapters.kit.extension import (
    HEADER,
    NOT_FORKED,
    URI,
    RecordReader,
    encode_request,
    encode_start,
    encode_uploads,
    has_start,
    is_refusal,
    named_question,
    split_uploads,
    without_start,
)
from babelgate.adapters.langchain.client.attempt import Attempt
from babelgate.adapters.langchain.client.resume import NOT_THERE, ResumableStream
from babelgate.adapters.langchain.client.server import Server
from babelgate.adapters.langchain.client.thread import place
from babelgate.adapters.langchain.client.urls import Layout, Route, check_id
from babelgate.adapters.langchain.codec.stream_modes import EVENTS, RECORDS, has_events_mode
from babelgate.adapters.langchain.errors.decode import ModeRefused, decode_error, status_of
from babelgate.adapters.langchain.read.run_frames import EventReader, saved_checkpoints
from babelgate.adapters.langchain.request import (
    FEWER_MODES,
    MODES,
    InputSchema,
    encode_answers,
    encode_command,
    encode_input,
    encode_messages,
    encode_run,
    is_lossy,
)
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import Event, FaultCode, FaultError, Invocation, Record
from babelgate.canonical.event import InterruptRaised, LossNoted, StateSaved, UpstreamBound
from babelgate.canonical.feature import Feature
from babelgate.canonical.json import as_object
from babelgate.canonical.replay import agent_events
from babelgate.canonical.value import Json, JsonObject

LOOK_TIMEOUT: Final = 10.0
"""Seconds that looking for a run may take."""


class Run(UpstreamRun):
    """A run that is created or, with `is_attached`, found again."""

    def __init__(self, server: Server, call: Invocation, *, is_attached: bool) -> None:
        self._server = server
        self._call = call
        self._is_attached = is_attached
        self._work = Attempt(EventReader(), Route("langgraph", None))
        self._records = RecordReader(of_run=True)
        """What is told by the extension."""
        self._follower = self._follow()
        self._asked: JsonObject = {}
        self._past: Sequence[Record] = ()
        self._joins = is_attached
        """Nothing was heard yet of a run that was not created on this connection."""
        self._knows_modes = server.has_run
        """The server has taken a run with these stream modes before."""
        self._refused: FaultError | None = None
        """How the server refused to create the run, before it had said anything."""

    @property
    def is_cancellable(self) -> bool:
        return self._work.sent and not self._work.over

    async def cancel(self) -> None:
        route = self._work.route
        if route.run_id is None:
            route.run_id = await self._find_run()
        if route.run_id is not None:
            await self._server.http.post(route.cancel)

    async def _find_run(self) -> str | None:
        """The run whose id was not told yet: it is known by the metadata that it was created with."""
        route = self._work.route
        if route.thread_id is None or route.layout == "openapi":
            return None
        listed = await self._server.http.get(route.runs)
        for each in listed if isinstance(listed, list) else ():
            run = decode_reply(w.Run, each)
            if (run.metadata or {}).get("gateway_run") == self._call.run_id:
                return run.run_id
        return None

    async def stages(self) -> AsyncGenerator[Stage]:
        """Raises what the server refused the run with."""
        if self._is_attached:
            await self._prepare_to_join()
            yield self._read(None)
        else:
            await self._prepare_to_create()
            while True:
                self._follower = self._follow()
                yield self._read(self._body())
                refused, self._refused = self._refused, None
                if refused is None:
                    break
                if await self._changes_form(refused):
                    continue
                if self._server.extended and has_start(self._call) and is_refusal(refused):
                    self._call = without_start(self._call)
                    self._work = Attempt(EventReader(), Route("langgraph", None))
                    await self._prepare_to_create()
                    self._work.notes.append(LossNoted(feature=Feature.FORK, how=NOT_FORKED))
                    continue
                if not await self._was_created(refused):
                    raise refused
                self._joins = True
                yield self._read(None)
                break
        while await self._follower.should_reconnect():
            yield self._read(None)
        yield self._begin()
        yield self._end()
        if not self._is_attached:
            self._server.layout, self._server.has_run = self._work.route.layout, True

    async def _prepare_to_create(self) -> None:
        """What the request depends on: what the server is, and which of its threads the run goes into."""
        server, work, call = self._server, self._work, self._call
        dialect = await server.detect_dialect()
        past = self._past = await call.past() if call.answers else ()
        await server.learn()
        layout: Layout = "langgraph" if dialect == "langgraph" else server.layout or "readme"
        if layout == "readme":
            await server.recognize()
        await place(server.http, work, call, layout, forks=server.extended and "run" in call.origin)
        if any(answer.action == "decline" for answer in call.answers) and not server.extended:
            work.notes.append(LossNoted(feature=Feature.QUESTION, how="a refusal to answer is the answer null"))
        base = call.input.checkpoint if work.checkpoint is None else None
        log = await call.states() if dialect == "langgraph" else None
        tools = frozenset(tool.name for tool in call.tools)
        work.reader = EventReader(dialect, saved_checkpoints(past), base, server.outputs, log=log, tools=tools)
        self._asked = self._encode_request(past)
        work.sent = True

    async def _prepare_to_join(self) -> None:
        server, call = self._server, self._call
        run_id = call.upstream.get("run")
        if run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this run")
        dialect = await server.detect_dialect()
        await server.learn()
        if dialect == "agent-protocol":
            await server.recognize()
        self._past = await call.past()
        layout: Layout = "langgraph" if dialect == "langgraph" else await server.detect_layout(call, run_id)
        self._work.route = Route(layout, call.upstream.get("task"), run_id)
        self._work.reader = EventReader(
            dialect,
            saved_checkpoints(self._past, call.run_id),
            call.input.checkpoint,
            server.outputs,
            log=await call.states() if dialect == "langgraph" else None,
            tools=frozenset(tool.name for tool in call.tools),
        )
        self._work.bound = self._work.sent = True
        self._follower = self._follow()

    def _follow(self) -> ResumableStream:
        work = self._work
        return ResumableStream(
            self._server.http,
            work.route,
            lambda: self._has_ended,
            lambda: self._records.stopped or work.reader.is_complete,
            {HEADER: URI} if self._server.extended else {},
        )

    @property
    def _has_ended(self) -> bool:
        return self._records.stopped or self._work.reader.has_ended

    async def _read(self, body: JsonObject | None) -> Stage:
        """One connection: to a run that the body creates, or to the one that is known."""
        work, follower = self._work, self._follower
        try:
            async with follower.connect(body) as response:
                follower.begin(response)
                async with aclosing(FrameStream(response)) as frames:
                    async for frame in frames:
                        if follower.takes(frame):
                            yield await self._decode(frame)
                        if self._has_ended:
                            await frames.drain(DRAIN)
                            return
                    if frames.broken is not None:
                        raise frames.broken
        except FaultError as error:
            try:
                follower.end(error, creates=body is not None)
            except FaultError:
                if body is None or work.bound or work.reader.run_id:
                    raise
                self._refused = error
        else:
            follower.end(None, creates=body is not None)

    async def _decode(self, frame: Frame) -> Sequence[Event]:
        work = self._work
        again = self._tell_again(frame)
        value = await parse_answer(frame.data)
        with blaming_the_agent():
            events = (
                await self._read_records(value) if frame.event == RECORDS else self._read_native(frame.event, value)
            )
        work.over = self._has_ended
        return (*again, *work.bind(), *events)

    def _read_native(self, event: str, value: Json) -> Sequence[Event]:
        """With the extension the states alone: those of a thread are told by the protocol itself, of any agent."""
        told = self._work.reader.read(event, value)
        if not self._records.active:
            return told
        return [each for each in told if isinstance(each, StateSaved)]

    async def _read_records(self, value: Json) -> Sequence[Event]:
        told = self._records.read(as_object(value).get(URI))
        if self._work.reader.has_states:
            told = [each for each in told if not isinstance(each, StateSaved)]
        asked = [_with_interrupt_id(each) if isinstance(each, InterruptRaised) else each for each in told]
        return await with_files(asked, self._server.file)

    def _tell_again(self, first: Frame | None) -> Sequence[Event]:
        """What comes before the first frame that is heard of a run that was joined: what the log has of it, unless the
        server tells all of it again. None = there was no frame."""
        if not self._joins:
            return ()
        self._joins = False
        tells_all = first is not None and first.event in ("metadata", RECORDS)
        self._follower.missed = not tells_all
        if not self._is_attached:
            return ()
        said = agent_events(self._past, self._call.run_id)
        if not tells_all:
            self._work.reader.recall(record for record in self._past if record.run_id == self._call.run_id)
            return said
        # Told again is also what stands before the first frame.
        bound = [i for i, event in enumerate(said) if isinstance(event, UpstreamBound)]
        self._work.bound = bool(bound)
        return said[: _notes_end(said, bound[0] + 1)] if bound else ()

    async def _begin(self) -> Stage:
        """What is to be told of a run that no frame told of. Raises agent_invalid, where nothing did."""
        yield self._tell_again(None)
        yield self._work.bind()
        if self._work.route.run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")

    async def _was_created(self, error: FaultError) -> bool:
        """Whether the server has the run, and only its receipt was lost."""
        if error.fault.code is not FaultCode.AGENT_UNREACHABLE or self._work.route.run_id is not None:
            return False
        with suppress(FaultError):
            async with in_time(LOOK_TIMEOUT):
                self._work.route.run_id = await self._find_run()
        return self._work.route.run_id is not None

    async def _changes_form(self, error: FaultError) -> bool:
        """Whether the server may understand it in another form."""
        status, layout = status_of(error.fault), self._work.route.layout
        # OpenAPI 0.1.6 creates runs at `/runs`, the README's layout below their thread.
        if status in (404, 405) and layout == "readme" and self._server.layout is None:
            self._work.route.layout = "openapi"
            return True
        if layout != "langgraph":
            return False
        if status in (400, 422) and self._asks_for_less(error):
            return True
        return status == 404 and self._work.fresh and await self._makes_thread(error)

    def _asks_for_less(self, error: FaultError) -> bool:
        """A server that does not know a stream mode refuses the whole list. What it takes is remembered."""
        server = self._server
        at = -1 if server.modes is None else FEWER_MODES.index(server.modes)
        # A refusal that names no mode may be about one all the same, so it is tried once.
        if at + 1 < len(FEWER_MODES) and (isinstance(error, ModeRefused) or (at < 0 and not self._knows_modes)):
            server.modes = FEWER_MODES[at + 1]
            return True
        if not self._knows_modes:
            server.modes = None
        return False

    async def _makes_thread(self, error: FaultError) -> bool:
        """Create the thread of the run on a server that does not do so with the run (`if_not_exists`)."""
        if "assistant" in error.fault.message.lower():  # langgraph-api 0.16.7: it knows no such agent
            return False
        with suppress(FaultError):
            made = decode_reply(w.Thread, await self._server.http.post("/threads", {}))
            self._work.route.thread_id, self._work.fresh = check_id(made.thread_id), False
            return True
        return False

    def _encode_request(self, past: Sequence[Record]) -> JsonObject:
        call = self._native
        if call.answers:
            asked = encode_answers(call, past)
        elif self._work.route.layout == "langgraph":
            asked = {"input": encode_input(call, self._server.shape or InputSchema(), self._work.history)}
        else:
            asked = encode_messages(call, self._work.history)
        command = {**encode_command(call), **as_object(asked.get("command"))}
        return {**asked, "command": command} if command else asked

    def _body(self) -> JsonObject:
        route = self._work.route
        form: str = route.layout
        if form == "langgraph":
            form = self._server.modes or form
        elif form == "readme" and self._server.debugs:
            form = "readme-debug"
        modes = MODES[form]
        if form in ("langgraph", "langgraph-basic") and has_events_mode(self._call.input):
            modes = (*modes, EVENTS)
        body = encode_run(
            self._native,
            self._asked,
            dialect="langgraph" if route.layout == "langgraph" else "agent-protocol",
            agent=self._server.agent,
            modes=modes,
            thread_id=route.thread_id if route.layout == "openapi" else None,
            checkpoint=self._work.checkpoint,
            told=self._extended_request(),
        )
        # LangGraph's: without it a run on an unknown thread is not found (langgraph-api 0.16.7).
        return {**body, "if_not_exists": "create"} if self._work.fresh else body

    def _extended_request(self) -> JsonObject | None:
        """What is said by the extension."""
        if not self._server.extended:
            return None
        call, uploads = split_uploads(self._call)
        said = (*self._work.history, *call.messages)
        lossy = not call.answers and any(map(is_lossy, said))
        told = {**encode_request(call, self._past, messages=said if lossy else ()), **encode_uploads(uploads)}
        if not call.answers:
            told |= encode_start(call, "run" if self._work.forks else "")
        # Said also where there is none: the run's own has an id of this client's.
        return {"metadata": dict(self._call.metadata), **told}

    @property
    def _native(self) -> Invocation:
        """What is called without the extension: without the tools and the uploads that are told by it."""
        if not self._server.extended:
            return self._call
        config = {name: value for name, value in self._call.config.items() if name != "tools"}
        call = split_uploads(self._call)[0]
        return replace(call, input=call.input.replace(config=config))

    async def _end(self) -> Stage:
        """What the run came to."""
        reader, follower = self._work.reader, self._follower
        if self._records.stopped:
            return
        outcome: Json = None
        if not reader.has_ended and (follower.missed or (follower.run and follower.run.status == "error")):
            outcome = await follower.outcome()
        run = follower.run
        status = reader.status or (run.status if run is not None else "success")
        if reader.fault is None:
            error = as_object(outcome).get("__error__")
            reader.fault = None if error is None else decode_error(error)
        if reader.fault is not None:
            self._work.over = True
            raise FaultError.of(reader.fault)
        if follower.missed and (left := await self._values(outcome)) is not None:
            with blaming_the_agent():
                told = reader.settle(*left)
            yield told
        if self._server.modes is not None:
            yield await self._checkpoint()
        if status == "interrupted" and not reader.has_questions:
            await self._questions()
        self._work.over = True
        with blaming_the_agent():
            events = self._end_events(reader, run, status)
        yield events

    def _end_events(self, reader: EventReader, run: w.Run | None, status: str) -> Sequence[Event]:
        noted = [] if run is None else list(reader.account(run.metadata))
        match status:
            case "success":
                return [*noted, *reader.finish()]
            case "interrupted" | "cancelled" | "canceled":
                return [*noted, *(reader.finish() if reader.has_questions else reader.end_by_cancel())]
            case "timeout":
                return [*noted, *reader.end_by_timeout()]
            case "error":
                raise FaultError.of(decode_error(None))
            case _:
                raise FaultError(
                    FaultCode.AGENT_INVALID, f"The agent's run has a status that is unknown: {status[:50]}"
                )

    async def _values(self, outcome: Json) -> tuple[Json, Json] | None:
        """The state at the end, and the messages where they stand beside it.

        None from a server that tells of neither runs nor threads, if its stream ended in order and told a state.
        """
        told = as_object(outcome)
        if outcome is None and self._work.route.thread_id is not None:
            try:
                thread = decode_reply(w.Thread, await self._server.http.get(self._work.route.thread))
            except FaultError as error:
                if status_of(error.fault) in NOT_THERE and self._work.reader.values and not self._follower.is_cut:
                    return None
                raise
            return thread.values, thread.messages
        if self._work.route.layout == "langgraph" or "run" not in told:
            return outcome, None
        values = {**as_object(told.get("values")), **{k: v for k, v in told.items() if k == "__interrupt__"}}
        return values, told.get("messages")

    async def _checkpoint(self) -> Sequence[Event]:
        """The newest checkpoint of the thread, from a server whose stream tells of none."""
        route, reader = self._work.route, self._work.reader
        if route.layout != "langgraph" or route.thread_id is None or reader.has_checkpoints:
            return ()
        try:
            told = decode_reply(w.State, await self._server.http.get(f"{route.thread}/state"))
        except FaultError:  # callers get the values of the stream, without an id of the server's
            return ()
        run_id = (told.metadata.model_extra or {}).get("run_id", route.run_id) if told.metadata else route.run_id
        if told.checkpoint is None or run_id != route.run_id:
            return ()
        with blaming_the_agent():
            return reader.read_state(told)

    async def _questions(self) -> None:
        """An Agent Protocol run that is interrupted waits for an answer, if its thread says for which."""
        if self._work.route.thread_id is None:
            return
        with suppress(FaultError):
            state = as_object(await self._server.http.get(f"{self._work.route.thread}/state"))
            with blaming_the_agent():
                self._work.reader.ask(state.get("interrupts"))


def _with_interrupt_id(event: InterruptRaised) -> InterruptRaised:
    """With the id by which it is answered there, by the extension and without."""
    event = named_question(event)
    return event.replace(extra={**event.extra, "langchain": {"id": event.interrupt_id}})


def _notes_end(said: Sequence[Event], start: int) -> int:
    """Past the losses that were noted before anything was said."""
    while start < len(said) and isinstance(said[start], LossNoted):
        start += 1
    return start
