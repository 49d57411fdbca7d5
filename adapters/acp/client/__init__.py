"""Client for an agent on another ACP server. It creates, resumes and cancels a streamed run, and reads the rest after a
broken stream."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Final, Literal, Unpack
from urllib.parse import quote

import httpx
from pydantic_core import to_json

from babelgate.adapters.acp import wire as w
from babelgate.adapters.acp.agents import decode_agents, is_announced
from babelgate.adapters.acp.client.http import HttpClient, run_path
from babelgate.adapters.acp.client.losses import losses
from babelgate.adapters.acp.codec.messages import dump_sent, encode_answer, encode_input, requested_agent
from babelgate.adapters.acp.codec.parts import EncodingContext, extra_of
from babelgate.adapters.acp.read.run_events import ACTIVATION, EventReader, decode_event
from babelgate.adapters.kit.client.answers import LISTING_LIMIT, parse_answer
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, POLL_TIMEOUT, Backoff, time_limit
from babelgate.adapters.kit.client.blame import blaming_the_agent, decode_reply
from babelgate.adapters.kit.client.blobs import with_files
from babelgate.adapters.kit.client.calls import Connection
from babelgate.adapters.kit.client.catch_up import catch_up
from babelgate.adapters.kit.client.driver import ReattachableClient, Stage, UpstreamRun
from babelgate.adapters.kit.client.frames import DRAIN, FrameStream, is_stream
from babelgate.adapters.kit.client.status import is_gone
from babelgate.adapters.kit.extension import (
    HEADER,
    NOT_FORKED,
    RecordReader,
    encode_ids,
    encode_request,
    encode_start,
    encode_uploads,
    has_start,
    is_named,
    is_refusal,
    named_answers,
    split_uploads,
    without_start,
)
from babelgate.canonical import AgentInfo, Event, FaultCode, FaultError, Invocation, Record
from babelgate.canonical.agent import DEFAULT_OWNER
from babelgate.canonical.event import InterruptRaised, LossNoted, UpstreamBound
from babelgate.canonical.feature import Feature
from babelgate.canonical.value import Json, JsonObject

__all__ = ("Client", "discover")

_BATCH: Final = 200
"""Number of events in a list that are read before other tasks of the event loop run. Chosen."""


class Client(ReattachableClient[HttpClient]):
    """Client for one agent on an ACP server. `agent` is the server's name for it. With `extension` "on", requests
    activate the Babelgate extension, which other servers ignore."""

    def __init__(
        self, url: str, agent: str, *, extension: Literal["on", "off"] = "on", **connection: Unpack[Connection]
    ) -> None:
        super().__init__(HttpClient(url, **connection))
        self._agent = agent
        self._http.extended = extension == "on"

    def start(self, call: Invocation) -> UpstreamRun:
        """Return the run that creates or resumes a run on the server for this call."""
        return _Run(self._http, self._agent, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        """Return the run that the server already has for this call, to reattach to it."""
        return _Run(self._http, self._agent, call, is_attached=True)


class _Run(UpstreamRun):
    """One run of the agent on its ACP server. It is created, or resumed by an answer, or, with `is_attached`, read
    again after a restart of the gateway."""

    def __init__(self, http: HttpClient, agent: str, call: Invocation, *, is_attached: bool) -> None:
        self._http = http
        self._agent = agent
        self._call = call
        self._is_attached = is_attached
        self._reader = EventReader(agent, extended=http.extended)
        self._extension: JsonObject = {}
        """Members that the Babelgate extension adds to the request."""
        self._answers: list[JsonObject] = []
        """Answers to the questions of another gateway that asked several at once, each with the id of its question."""
        self._is_refused = False
        """True if the server refused to start the run from another state. The run is then created again without that
        state."""
        self._has_begun = False
        """True if `_begin` was called, so that the ids of the run and the losses of the input were reported."""

    @property
    def is_cancellable(self) -> bool:
        """True from the time when the id of the run is known until the run stops."""
        return self._reader.run_id is not None and not self._reader.stopped

    async def cancel(self) -> None:
        """Cancel the run on the server."""
        if self._reader.run_id is not None:
            await self._http.cancel(self._reader.run_id)

    async def stages(self) -> AsyncGenerator[Stage]:
        """Yield the stages of the run: the stream of its request, and then polling or reconnecting until the run stops.

        Raises agent_invalid if the run must be resumed, and the server never sent its id.
        """
        run_id = self._call.upstream.get("run") if self._is_attached or self._call.answers else None
        if run_id is None and (self._is_attached or self._call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never sent the id of this run")
        if self._http.extended and (self._is_attached or self._call.answers):
            self._recall(await self._call.past())
        if self._call.answers:
            self._answers = named_answers(self._call, await self._call.past())
        if not self._is_attached:
            await self._prepare_extension()
            yield self._stream(run_id)
            if self._is_refused:
                self._call, self._extension = without_start(self._call), {}
                await self._prepare_extension()
                yield self._stream(run_id)
        if self._reader.stopped:
            return
        yield self._catch_up(run_id) if self._reader.is_recorded else self._poll(run_id)

    def _recall(self, past: Sequence[Record]) -> None:
        """Restore the reader of the extension's records from the recorded events of the task. Records of earlier runs
        are skipped, and those of the current run are read from its start."""
        bound = [
            (each.run_id, each.event.ids[ACTIVATION])
            for each in past
            if isinstance(each.event, UpstreamBound) and ACTIVATION in each.event.ids
        ]
        own_ids = [id for run_id, id in bound if run_id == self._call.run_id]
        self._reader.records = RecordReader(
            own_ids[-1] if own_ids else None, frozenset(id for run_id, id in bound if run_id != self._call.run_id)
        )
        self._reader.is_recorded = bool(bound)

    async def _prepare_extension(self) -> None:
        """Set the members that the Babelgate extension adds to the request, because ACP has no field for their content.
        They are sent only to a server that has announced the extension, or used it in a response."""
        call = self._call
        if not self._http.extended:
            return
        if call.answers:
            past = await call.past()
            self._extension = encode_request(call, past, messages=call.messages) if self._reader.is_recorded else {}
        elif (
            losses(call) or call.input.uploaded or encode_ids(call.messages) or has_start(call)
        ) and await self._is_announced():
            self._call, uploads = split_uploads(call)
            start = encode_start(call, ACTIVATION)
            history = () if "fork" in start else call.history
            messages = (*history, *self._call.input_messages) if losses(call) or uploads else ()
            self._extension = {**encode_request(self._call, messages=messages), **encode_uploads(uploads), **start}

    async def _is_announced(self) -> bool:
        """Return True if the server supports the Babelgate extension, according to its latest response, or else to the
        agent's manifest. Return False if the manifest cannot be read."""
        if self._http.answers_extended is None:
            with suppress(FaultError):
                async with time_limit(POLL_TIMEOUT):
                    manifest = await self._http.get(f"/agents/{quote(self._agent, safe='')}")
                return is_announced(manifest)
        return self._http.answers_extended is True

    async def _stream(self, run_id: str | None) -> Stage:
        """Create the run if `run_id` is None, or resume the run with this id. Yield the events of the response until
        the stream ends or the run stops."""
        reader = self._reader
        path, body = ("/runs", self._create()) if run_id is None else (run_path(run_id), self._resume())
        try:
            async with self._http.open_response("POST", path, body) as response:
                if run_id is None:
                    # Not in the OpenAPI document, but sent by SDK 1.0.3: if a stream breaks before its first event, the
                    # run can still be found by this id.
                    reader.run_id = response.headers.get("run-id")
                if self._http.extended:
                    reader.is_recorded = self._http.answers_extended = is_named(response.headers.get(HEADER))
                yield self._begin(run_id)
                if not is_stream(response):
                    yield self._snapshot(_run(await self._http.json(response)))
                    return
                async with aclosing(FrameStream(response)) as frames:
                    async for frame in frames:
                        # The last frame of OpenAI's streams; ACP has none.
                        if frame.data != b"[DONE]":
                            yield await self._read(await parse_answer(frame.data))
                        if reader.records.behind:
                            return
                        if reader.stopped:
                            await frames.drain(DRAIN)  # events after the end of the run are ignored
                            return
            if reader.run_id is None:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")
        except FaultError as error:
            has_start_state = bool(self._extension.keys() & {"fork", "state"})
            if run_id is None and reader.run_id is None and has_start_state and is_refusal(error):
                self._is_refused = True
            elif run_id is None or reader.run_id is not None or not await self._has_resumed(run_id, error):
                raise

    def _begin(self, run_id: str | None) -> Sequence[Event]:
        """Return the first events of an activation: the losses of its input and, for a resumed run, the server's ids,
        so that each activation has them in the log. A new run (`run_id` is None) reports its ids with its first
        event."""
        self._has_begun = True
        extended = self._extension.keys() if self._reader.is_recorded else ("answers",) if self._answers else ()
        if run_id is None:
            refused = [LossNoted(feature=Feature.FORK, how=NOT_FORKED)] if self._is_refused else []
            return (*refused, *losses(self._call, extended))
        self._reader.run_id = run_id
        bound = self._reader.resume(run_id, self._call.upstream.get("session")) if self._call.answers else ()
        return (*losses(self._call, extended), *bound)

    async def _has_resumed(self, run_id: str, error: FaultError) -> bool:
        """Return True if the server has accepted an answer although `error` occurred, because only the response was
        lost."""
        if not is_gone(error.fault):
            return False
        with suppress(FaultError):
            # Not by `await_request`, which SDK 1.0.3 never clears.
            return _run(await self._http.get(run_path(run_id))).status != "awaiting"
        return False

    async def _poll(self, run_id: str | None) -> Stage:
        """Request the list of events repeatedly, and yield the new ones, until the run stops. Needed for events that no
        stream delivered, because ACP cannot resume a stream. `run_id` is the id of a resumed run, or None for a new
        run."""
        if not self._has_begun:
            yield self._begin(run_id)
        reader, awaits, backoff = self._reader, await _questions_before(self._call), Backoff(FIRST_WAIT, LAST_WAIT)
        while not reader.stopped:
            run, listed = await backoff.poll(self._look) or (None, [])
            # The list has no cursor: it is read whole, and begins with the events that were already reported.
            rest = _after(listed, awaits)[reader.seen :]
            for number, event in enumerate(rest):
                if number % _BATCH == 0:  # other tasks run in between: there may be tens of thousands of events
                    await asyncio.sleep(0)
                yield await self._read(event)
                if reader.stopped:
                    return
            if run is not None and not rest:
                yield self._snapshot(run)
            if rest:
                backoff.reset()
            if not reader.stopped:
                await backoff.wait()

    async def _catch_up(self, run_id: str | None) -> Stage:
        """Read the rest of the run after its stream broke, from a server that offers the Babelgate extension, and yield
        its events in batches.

        The run is the one that the server named in its response (`reader.run_id`). `run_id` only says which events
        come first: it is the id of a run that an answer resumed, or None for a new run.
        """
        if not self._has_begun:
            yield self._begin(run_id)
        reader = self._reader
        if reader.records.seq is None:
            reader.records.seq = 0
        async with aclosing(catch_up(reader.records, self._stream_again, lambda: reader.stopped)) as batches:
            async for events in batches:
                yield events

    async def _stream_again(self, start: int) -> Stage:
        """Open a stream of the run's records after the seq `start` on another gateway, and yield their events."""
        reader = self._reader
        assert reader.run_id is not None
        async with (
            self._http.open_response("GET", f"{run_path(reader.run_id)}/events", start=start) as response,
            aclosing(FrameStream(response)) as frames,
        ):
            async for frame in frames:
                yield await self._read(await parse_answer(frame.data))
                if reader.stopped:
                    await frames.drain(DRAIN)
                if reader.stopped or reader.records.behind:
                    return

    async def _look(self) -> tuple[w.Run, list[Json]]:
        """Return the run object, and the list of all events of the run. The object is requested first, so that the list
        has an event for every status that the object shows."""
        assert self._reader.run_id is not None
        path = run_path(self._reader.run_id)
        async with time_limit(POLL_TIMEOUT):
            run = _run(await self._http.get(path))
        response = await self._http.get(f"{path}/events")
        listed = response.get("events") if isinstance(response, dict) else None
        if not isinstance(listed, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server answered without a list of events")
        return run, listed

    async def _read(self, value: Json) -> Sequence[Event]:
        """Return the canonical events for one wire event, with the bytes of the files that it references."""
        with blaming_the_agent():
            events = self._reader.read(decode_event(value))
        return await with_files(events, self._http.file)

    def _snapshot(self, run: w.Run) -> Sequence[Event]:
        """Return the canonical events for the status in a run object, if the run waits or has ended and no event has
        reported it."""
        events = self._reader.bind(run.run_id, run.session_id)
        with blaming_the_agent():
            if run.status == "awaiting":
                return [*events, *self._reader.read(w.RunEvent(type="run.awaiting", run=run))]
            if run.status in w.TERMINAL:
                return [*events, *self._reader.end(run)]
        return events

    # Requests

    @property
    def _view(self) -> EncodingContext:
        """Context for the encoding of the caller's messages."""
        return EncodingContext(run_id=self._call.task_id, session_id=self._call.thread_id, agent=self._agent)

    def _create(self) -> bytes:
        """Return the body of the request that creates the run."""
        session_id = self._call.upstream.get("session") or _same_session(self._call)
        call = replace(self._call, history=()) if "fork" in self._extension else self._call
        messages = encode_input(call, self._view)
        body: JsonObject = {
            **extra_of(self._call.input.extra),
            "agent_name": self._agent,
            "input": [dump_sent(message) for message in messages],
            "mode": "stream",
        }
        if self._call.metadata:
            body.setdefault("metadata", dict(self._call.metadata))
        if session_id is not None:
            body["session_id"] = session_id
        if self._extension:
            body[w.OWN] = self._extension
        return to_json(body)

    def _resume(self) -> bytes:
        """Return the body of the request that resumes the run with the caller's answer."""
        # Only while the gateway's own state says that the run is waiting: SDK 1.0.3 accepts an answer to an ended run
        # that once awaited, and leaves it in-progress permanently.
        answer = encode_answer(self._call, self._view, self._answers)
        request = w.RunResumeRequest(await_resume=answer, mode="stream")
        # Without `run_id`, as both official clients send it
        body = request.model_dump(exclude={"run_id"})
        return to_json({**body, w.OWN: self._extension} if self._extension else body)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """Return the agents of an ACP server, from `GET /agents`. `upstream_name` returns the server's own names. Raises
    agent_invalid for a malformed list."""
    response = await HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT).get("/agents")
    try:
        return decode_agents(response)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list agents as ACP does") from error


def _same_session(call: Invocation) -> str | None:
    """Return the session id to request for a new run: the caller's own, if the run opens a session of an ACP caller
    without API keys. Texts of the agent that mention the session id then contain the caller's id. Return None in all
    other cases.

    With API keys, different owners may choose the same id. For callers of other protocols, the id of an erased session
    could be reused.
    """
    keyless = call.owner == DEFAULT_OWNER
    return call.thread_id if call.opens_thread and keyless and requested_agent(call.input.extra) is not None else None


async def _questions_before(call: Invocation) -> int:
    """Return the number of questions in the earlier runs of the task. Return 0 for a call that does not answer."""
    if not call.answers:
        return 0
    past = await call.past()
    return sum(isinstance(record.event, InterruptRaised) and record.run_id != call.run_id for record in past)


def _after(events: list[Json], awaits: int) -> list[Json]:
    """Return the events of a list that follow the first `awaits` events of type `run.awaiting`: those of the run that
    continues."""
    for index, event in enumerate(events):
        if awaits == 0:
            return events[index:]
        awaits -= isinstance(event, dict) and event.get("type") == "run.awaiting"
    return []


def _run(value: Json) -> w.Run:
    """Return a server's response as a run object. Raises agent_invalid for a malformed one."""
    return decode_reply(w.Run, value)
