"""Execution of one run on a LangGraph server or on a server of the Agent Protocol."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final

from babelgate.adapters.kit.client.answers import parse_answer
from babelgate.adapters.kit.client.backoff import time_limit
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
from babelgate.adapters.langchain.client.attempt import UpstreamRunState
from babelgate.adapters.langchain.client.resume import NOT_THERE, ResumableStream
from babelgate.adapters.langchain.client.server import UpstreamServer
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
"""Timeout of the search for a run whose creation was not confirmed, in seconds. Chosen."""


class LangGraphRun(UpstreamRun):
    """One run on a server, which the client creates or, with `is_attached`, joins by the id in `call.upstream`."""

    def __init__(self, server: UpstreamServer, call: Invocation, *, is_attached: bool) -> None:
        self._server = server
        self._call = call
        self._is_attached = is_attached
        self._work = UpstreamRunState(EventReader(), Route("langgraph", None))
        self._records = RecordReader(of_run=True)
        """Reader of the records that the server sends if the Babelgate extension is active."""
        self._follower = self._follow()
        self._run_input: JsonObject = {}
        """Members of the request that hold the run's input or its answers, for example `input` or `command`."""
        self._past: Sequence[Record] = ()
        self._awaits_first_frame = is_attached
        """True until the first frame of a run that the client joins: an attached run, or a created run whose
        confirmation was lost."""
        self._has_accepted_modes = server.accepts_modes
        """True if the server has accepted an earlier run with the current list of stream modes."""
        self._refusal: FaultError | None = None
        """Fault with which the server refused to create the run before its first frame; None if it did not."""

    @property
    def is_cancellable(self) -> bool:
        return self._work.is_sent and not self._work.is_over

    async def cancel(self) -> None:
        route = self._work.route
        if route.run_id is None:
            route.run_id = await self._find_run()
        if route.run_id is not None:
            await self._server.http.post(route.cancel)

    async def _find_run(self) -> str | None:
        """Search the newest runs of the thread for the run whose metadata member `gateway_run` is this run's id. Return
        the server's id of it, or None if it is not listed or the server has no such list."""
        route = self._work.route
        if route.thread_id is None or route.layout == "openapi":
            return None
        listed = await self._server.http.get(route.runs)
        for item in listed if isinstance(listed, list) else ():
            run = decode_reply(w.Run, item)
            if (run.metadata or {}).get("gateway_run") == self._call.run_id:
                return run.run_id
        return None

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the connections of the run one after the other, each as an asynchronous generator of events, and then
        its end. Raises the fault with which the server refused the run."""
        if self._is_attached:
            await self._prepare_to_join()
            yield self._read(None)
        else:
            await self._prepare_to_create()
            while True:
                self._follower = self._follow()
                yield self._read(self._body())
                refusal, self._refusal = self._refusal, None
                if refusal is None:
                    break
                if await self._try_other_form(refusal):
                    continue
                if self._server.has_extension and has_start(self._call) and is_refusal(refusal):
                    self._call = without_start(self._call)
                    self._work = UpstreamRunState(EventReader(), Route("langgraph", None))
                    await self._prepare_to_create()
                    self._work.notes.append(LossNoted(feature=Feature.FORK, how=NOT_FORKED))
                    continue
                if not await self._find_created_run(refusal):
                    raise refusal
                self._awaits_first_frame = True
                yield self._read(None)
                break
        while await self._follower.should_reconnect():
            yield self._read(None)
        yield self._confirm_start()
        yield self._end()
        if not self._is_attached:
            self._server.layout, self._server.accepts_modes = self._work.route.layout, True

    async def _prepare_to_create(self) -> None:
        """Detect the server's dialect and capabilities, choose the thread for the run, and encode the run's input."""
        server, work, call = self._server, self._work, self._call
        dialect = await server.detect_dialect()
        past = self._past = await call.past() if call.answers else ()
        await server.fetch_schemas()
        layout: Layout = "langgraph" if dialect == "langgraph" else server.layout or "readme"
        if layout == "readme":
            await server.recognize()
        await place(server.http, work, call, layout, forks=server.has_extension and "run" in call.origin)
        if any(answer.action == "decline" for answer in call.answers) and not server.has_extension:
            work.notes.append(LossNoted(feature=Feature.QUESTION, how="a refusal to answer is the answer null"))
        base = call.input.checkpoint if work.checkpoint is None else None
        log = await call.states() if dialect == "langgraph" else None
        tools = frozenset(tool.name for tool in call.tools)
        work.reader = EventReader(dialect, saved_checkpoints(past), base, server.outputs, log=log, tools=tools)
        self._run_input = self._encode_request(past)
        work.is_sent = True

    async def _prepare_to_join(self) -> None:
        """Set up the route and the frame reader for an existing run. Raises agent_invalid if the server never reported
        the run's id."""
        server, call = self._server, self._call
        run_id = call.upstream.get("run")
        if run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this run")
        dialect = await server.detect_dialect()
        await server.fetch_schemas()
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
        self._work.is_bound = self._work.is_sent = True
        self._follower = self._follow()

    def _follow(self) -> ResumableStream:
        # Without a reference to this object, which refers to the stream: only the collector would free both.
        work, records = self._work, self._records
        return ResumableStream(
            self._server.http,
            work.route,
            lambda: records.stopped or work.reader.has_ended,
            lambda: records.stopped or work.reader.is_complete,
            {HEADER: URI} if self._server.has_extension else {},
        )

    @property
    def _has_ended(self) -> bool:
        return self._records.stopped or self._work.reader.has_ended

    async def _read(self, body: JsonObject | None) -> Stage:
        """Open one connection and yield the events of its frames. With a `body` the connection creates the run; without
        one it joins the existing run. A refusal to create the run is stored in `_refusal`; other faults are raised."""
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
                if body is None or work.is_bound or work.reader.run_id:
                    raise
                self._refusal = error
        else:
            follower.end(None, creates=body is not None)

    async def _decode(self, frame: Frame) -> Sequence[Event]:
        work = self._work
        replayed = self._replay_past(frame)
        value = await parse_answer(frame.data)
        with blaming_the_agent():
            events = (
                await self._read_records(value) if frame.event == RECORDS else self._read_native(frame.event, value)
            )
        work.is_over = self._has_ended
        return (*replayed, *work.bind(), *events)

    def _read_native(self, event: str, value: Json) -> Sequence[Event]:
        """Return the events of a frame in LangGraph's own format. If the Babelgate extension is active, return only its
        `StateSaved` events, because the extension's records carry all others."""
        events = self._work.reader.read(event, value)
        if not self._records.active:
            return events
        return [item for item in events if isinstance(item, StateSaved)]

    async def _read_records(self, value: Json) -> Sequence[Event]:
        """Return the events of a frame of the Babelgate extension. The bytes of files that the records name by hash are
        fetched from the server."""
        events = self._records.read(as_object(value).get(URI))
        if self._work.reader.has_states:
            events = [event for event in events if not isinstance(event, StateSaved)]
        named = [_with_interrupt_id(event) if isinstance(event, InterruptRaised) else event for event in events]
        return await with_files(named, self._server.file)

    def _replay_past(self, first: Frame | None) -> Sequence[Event]:
        """Return the log's events that precede the first frame of a joined run; later calls return nothing.

        If `first` begins the run again from its start, only its binding and early losses are returned. None for `first`
        means that no frame arrived.
        """
        if not self._awaits_first_frame:
            return ()
        self._awaits_first_frame = False
        is_from_start = first is not None and first.event in ("metadata", RECORDS)
        self._follower.missed = not is_from_start
        if not self._is_attached:
            return ()
        past = agent_events(self._past, self._call.run_id)
        if not is_from_start:
            self._work.reader.recall(record for record in self._past if record.run_id == self._call.run_id)
            return past
        # The binding of the run, and the losses before its first frame, are replayed in any case.
        bindings = [i for i, event in enumerate(past) if isinstance(event, UpstreamBound)]
        self._work.is_bound = bool(bindings)
        return past[: _end_of_losses(past, bindings[0] + 1)] if bindings else ()

    async def _confirm_start(self) -> Stage:
        """Yield the log's events and the server's ids if no frame of the run has arrived, else nothing. Raises
        agent_invalid if the server never reported the run's id."""
        yield self._replay_past(None)
        yield self._work.bind()
        if self._work.route.run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")

    async def _find_created_run(self, error: FaultError) -> bool:
        """Return True if the creation failed with agent_unreachable, but the server lists the run. Its id is then
        stored in the route."""
        if error.fault.code is not FaultCode.AGENT_UNREACHABLE or self._work.route.run_id is not None:
            return False
        with suppress(FaultError):
            async with time_limit(LOOK_TIMEOUT):
                self._work.route.run_id = await self._find_run()
        return self._work.route.run_id is not None

    async def _try_other_form(self, error: FaultError) -> bool:
        """Change the request after a refusal, and return True if it is worth sending again. Tries the other layout of
        URLs, fewer stream modes, or a separate request that creates the thread."""
        status, layout = status_of(error.fault), self._work.route.layout
        # OpenAPI 0.1.6 creates runs at `/runs`, the README's layout below their thread.
        if status in (404, 405) and layout == "readme" and self._server.layout is None:
            self._work.route.layout = "openapi"
            return True
        if layout != "langgraph":
            return False
        if status in (400, 422) and self._use_fewer_modes(error):
            return True
        return status == 404 and self._work.creates_thread and await self._create_thread(error)

    def _use_fewer_modes(self, error: FaultError) -> bool:
        """Switch to the next form of `FEWER_MODES`, and return True if there is one to try. Servers refuse the whole
        list if they do not know one of its modes. `UpstreamServer.modes` keeps the form for later runs."""
        server = self._server
        index = -1 if server.modes is None else FEWER_MODES.index(server.modes)
        # A refusal that names no mode may still be about one, so one smaller list is tried.
        if index + 1 < len(FEWER_MODES) and (
            isinstance(error, ModeRefused) or (index < 0 and not self._has_accepted_modes)
        ):
            server.modes = FEWER_MODES[index + 1]
            return True
        if not self._has_accepted_modes:
            server.modes = None
        return False

    async def _create_thread(self, error: FaultError) -> bool:
        """Create the thread by `POST /threads`, for servers that ignore `if_not_exists` in the request for a run.
        Return True if the server created it."""
        if "assistant" in error.fault.message.lower():  # langgraph-api 0.16.7: the agent does not exist
            return False
        with suppress(FaultError):
            thread = decode_reply(w.Thread, await self._server.http.post("/threads", {}))
            self._work.route.thread_id, self._work.creates_thread = check_id(thread.thread_id), False
            return True
        return False

    def _encode_request(self, past: Sequence[Record]) -> JsonObject:
        """Return the members of the request that hold the run's input, or its answers to questions, and the caller's
        `command`. `past` are the records of the paused run."""
        call = self._call_without_extension
        if call.answers:
            members = encode_answers(call, past)
        elif self._work.route.layout == "langgraph":
            members = {"input": encode_input(call, self._server.input_schema or InputSchema(), self._work.history)}
        else:
            members = encode_messages(call, self._work.history)
        command = {**encode_command(call), **as_object(members.get("command"))}
        return {**members, "command": command} if command else members

    def _body(self) -> JsonObject:
        """Return the JSON body that creates the run, with its stream modes for this server."""
        route = self._work.route
        form: str = route.layout
        if form == "langgraph":
            form = self._server.modes or form
        elif form == "readme" and self._server.is_gateway:
            form = "readme-debug"
        modes = MODES[form]
        if form in ("langgraph", "langgraph-basic") and has_events_mode(self._call.input):
            modes = (*modes, EVENTS)
        body = encode_run(
            self._call_without_extension,
            self._run_input,
            dialect="langgraph" if route.layout == "langgraph" else "agent-protocol",
            agent=self._server.agent,
            modes=modes,
            thread_id=route.thread_id if route.layout == "openapi" else None,
            checkpoint=self._work.checkpoint,
            extension=self._extended_request(),
        )
        # LangGraph needs it: without it a run on an unknown thread is 404 (langgraph-api 0.16.7).
        return {**body, "if_not_exists": "create"} if self._work.creates_thread else body

    def _extended_request(self) -> JsonObject | None:
        """Return the part of the request that the Babelgate extension defines, or None if it is not active."""
        if not self._server.has_extension:
            return None
        call, uploads = split_uploads(self._call)
        messages = (*self._work.history, *call.messages)
        lossy = not call.answers and any(map(is_lossy, messages))
        members = {**encode_request(call, self._past, messages=messages if lossy else ()), **encode_uploads(uploads)}
        if not call.answers:
            members |= encode_start(call, "run" if self._work.forks else "")
        # Sent even if empty: the run's own metadata contain an id of this client.
        return {"metadata": dict(self._call.metadata), **members}

    @property
    def _call_without_extension(self) -> Invocation:
        """The invocation as native members of the request express it. If the Babelgate extension is active, the
        caller's tools and uploads are removed, because the extension's part of the request carries them."""
        if not self._server.has_extension:
            return self._call
        config = {name: value for name, value in self._call.config.items() if name != "tools"}
        call = split_uploads(self._call)[0]
        return replace(call, input=call.input.replace(config=config))

    async def _end(self) -> Stage:
        """Yield the events at the end of the run. If frames were missed, read its missing output from the server.
        Raises the fault of a failed run."""
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
            self._work.is_over = True
            raise FaultError.of(reader.fault)
        if follower.missed and (final := await self._read_values(outcome)) is not None:
            with blaming_the_agent():
                missed_events = reader.settle(*final)
            yield missed_events
        if self._server.modes is not None:
            yield await self._read_checkpoint()
        if status == "interrupted" and not reader.has_questions:
            await self._read_questions()
        self._work.is_over = True
        with blaming_the_agent():
            events = self._end_events(reader, run, status)
        yield events

    def _end_events(self, reader: EventReader, run: w.Run | None, status: str) -> Sequence[Event]:
        """Return the events that end the run with its status. `run` is the server's description of the run, if it was
        read. Raises agent_invalid for an unknown status, and agent_failed for a failed run."""
        account = [] if run is None else list(reader.account(run.metadata))
        match status:
            case "success":
                return [*account, *reader.finish()]
            case "interrupted" | "cancelled" | "canceled":
                return [*account, *(reader.finish() if reader.has_questions else reader.end_by_cancel())]
            case "timeout":
                return [*account, *reader.end_by_timeout()]
            case "error":
                raise FaultError.of(decode_error(None))
            case _:
                raise FaultError(FaultCode.AGENT_INVALID, f"The agent's run has an unknown status: {status[:50]}")

    async def _read_values(self, outcome: Json) -> tuple[Json, Json] | None:
        """Return the values at the end of the run, and the messages if the server sends them as a separate member, else
        None. `outcome` is the result of `ResumableStream.outcome`.

        Return None instead of the pair if the server reports neither runs nor threads, but its stream ended regularly
        with a state.
        """
        result = as_object(outcome)
        if outcome is None and self._work.route.thread_id is not None:
            try:
                thread = decode_reply(w.Thread, await self._server.http.get(self._work.route.thread))
            except FaultError as error:
                if status_of(error.fault) in NOT_THERE and self._work.reader.values and not self._follower.is_cut:
                    return None
                raise
            return thread.values, thread.messages
        if self._work.route.layout == "langgraph" or "run" not in result:
            return outcome, None
        values = {**as_object(result.get("values")), **{k: v for k, v in result.items() if k == "__interrupt__"}}
        return values, result.get("messages")

    async def _read_checkpoint(self) -> Sequence[Event]:
        """Return the events of the thread's newest checkpoint, for a server whose stream contains no checkpoints.
        Return nothing if it belongs to another run, or if the request fails."""
        route, reader = self._work.route, self._work.reader
        if route.layout != "langgraph" or route.thread_id is None or reader.has_checkpoints:
            return ()
        try:
            state = decode_reply(w.State, await self._server.http.get(f"{route.thread}/state"))
        except FaultError:  # callers get the values of the stream, without a checkpoint id of the server
            return ()
        run_id = (state.metadata.model_extra or {}).get("run_id", route.run_id) if state.metadata else route.run_id
        if state.checkpoint is None or run_id != route.run_id:
            return ()
        with blaming_the_agent():
            return reader.read_state(state)

    async def _read_questions(self) -> None:
        """Fetch the open questions of the run's thread and add them to the reader. An interrupted run has no other sign
        of its questions if its stream contained none. Failures are ignored."""
        if self._work.route.thread_id is None:
            return
        with suppress(FaultError):
            state = as_object(await self._server.http.get(f"{self._work.route.thread}/state"))
            with blaming_the_agent():
                self._work.reader.ask(state.get("interrupts"))


def _with_interrupt_id(event: InterruptRaised) -> InterruptRaised:
    """Return the question with its id stored as the server's interrupt id, too. An answer then uses this id, with the
    Babelgate extension and without it."""
    event = named_question(event)
    return event.replace(extra={**event.extra, "langchain": {"id": event.interrupt_id}})


def _end_of_losses(events: Sequence[Event], start: int) -> int:
    """Return the index of the first event at or after `start` that is not a `LossNoted`."""
    while start < len(events) and isinstance(events[start], LossNoted):
        start += 1
    return start
