"""Drives an agent on another ACP server: a streamed run, its resumes, its cancel, the rest of a stream that broke."""

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
from babelgate.adapters.acp.codec.messages import agent_called, dump_given, encode_answer, encode_input
from babelgate.adapters.acp.codec.parts import View, extra_of
from babelgate.adapters.acp.read import ACTIVATION, EventReader, decode_event
from babelgate.adapters.kit.client.answers import LISTING_LIMIT, parse_answer
from babelgate.adapters.kit.client.backoff import FIRST_WAIT, LAST_WAIT, LOOK_TIMEOUT, Backoff, in_time
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

_AT_ONCE: Final = 200
"""Events of a list."""


class Client(ReattachableClient[HttpClient]):
    """An agent on an ACP server. `agent` is the server's own name of it; `extension` = whether the Babelgate extension
    is asked for, which other servers know nothing of."""

    def __init__(
        self, url: str, agent: str, *, extension: Literal["on", "off"] = "on", **connection: Unpack[Connection]
    ) -> None:
        super().__init__(HttpClient(url, **connection))
        self._agent = agent
        self._http.extended = extension == "on"

    def start(self, call: Invocation) -> UpstreamRun:
        return _Run(self._http, self._agent, call, is_attached=False)

    def find(self, call: Invocation) -> UpstreamRun:
        return _Run(self._http, self._agent, call, is_attached=True)


class _Run(UpstreamRun):
    """A run that is created, resumed or, with `is_attached`, found again."""

    def __init__(self, http: HttpClient, agent: str, call: Invocation, *, is_attached: bool) -> None:
        self._http = http
        self._agent = agent
        self._call = call
        self._is_attached = is_attached
        self._reader = EventReader(agent, extended=http.extended)
        self._told: JsonObject = {}
        """What is said by the extension."""
        self._answers: list[JsonObject] = []
        """To questions of a gateway that told several at once."""
        self._is_refused = False
        """The server does not start the run where it was to."""
        self._has_begun = False
        """What comes before the first event of the server: its ids, and what of the input was lost."""

    @property
    def is_cancellable(self) -> bool:
        return self._reader.run_id is not None and not self._reader.stopped

    async def cancel(self) -> None:
        if self._reader.run_id is not None:
            await self._http.cancel(self._reader.run_id)

    async def stages(self) -> AsyncGenerator[Stage]:
        known = self._call.upstream.get("run") if self._is_attached or self._call.answers else None
        if known is None and (self._is_attached or self._call.answers):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never gave the id of this run")
        if self._http.extended and (self._is_attached or self._call.answers):
            self._recall(await self._call.past())
        if self._call.answers:
            self._answers = named_answers(self._call, await self._call.past())
        if not self._is_attached:
            await self._tell()
            yield self._stream(known)
            if self._is_refused:
                self._call, self._told = without_start(self._call), {}
                await self._tell()
                yield self._stream(known)
        if self._reader.stopped:
            return
        yield self._catch_up(known) if self._reader.is_recorded else self._poll(known)

    def _recall(self, past: Sequence[Record]) -> None:
        """Which runs of the task the server has told by the extension; this one is told again from its start."""
        bound = [
            (each.run_id, each.event.ids[ACTIVATION])
            for each in past
            if isinstance(each.event, UpstreamBound) and ACTIVATION in each.event.ids
        ]
        mine = [id for run_id, id in bound if run_id == self._call.run_id]
        self._reader.records = RecordReader(
            mine[-1] if mine else None, frozenset(id for run_id, id in bound if run_id != self._call.run_id)
        )
        self._reader.is_recorded = bool(bound)

    async def _tell(self) -> None:
        """What ACP has no field for goes to a server that has announced the extension, or was heard to speak it."""
        call = self._call
        if not self._http.extended:
            return
        if call.answers:
            past = await call.past()
            self._told = encode_request(call, past, messages=call.messages) if self._reader.is_recorded else {}
        elif (
            losses(call) or call.input.uploaded or encode_ids(call.messages) or has_start(call)
        ) and await self._is_announced():
            self._call, uploads = split_uploads(call)
            start = encode_start(call, ACTIVATION)
            history = () if "fork" in start else call.history
            said = (*history, *self._call.input_messages) if losses(call) or uploads else ()
            self._told = {**encode_request(self._call, messages=said), **encode_uploads(uploads), **start}

    async def _is_announced(self) -> bool:
        """By the manifest of the agent, unless an answer has shown it. Who cannot be asked has announced nothing."""
        if self._http.answers_extended is None:
            with suppress(FaultError):
                async with in_time(LOOK_TIMEOUT):
                    manifest = await self._http.get(f"/agents/{quote(self._agent, safe='')}")
                return is_announced(manifest)
        return self._http.answers_extended is True

    async def _stream(self, known: str | None) -> Stage:
        """Create the run, or resume the one that is known, and read its stream for as long as it lasts."""
        reader = self._reader
        path, body = ("/runs", self._create()) if known is None else (run_path(known), self._resume())
        try:
            async with self._http.open_response("POST", path, body) as response:
                if known is None:
                    # Not in the OpenAPI, and sent by SDK 1.0.3: a stream that breaks before its first event leaves an
                    # id to look for.
                    reader.run_id = response.headers.get("run-id")
                if self._http.extended:
                    reader.is_recorded = self._http.answers_extended = is_named(response.headers.get(HEADER))
                yield self._begin(known)
                if not is_stream(response):
                    yield self._snapshot(_run(await self._http.json(response)))
                    return
                async with aclosing(FrameStream(response)) as frames:
                    async for frame in frames:
                        # OpenAI's last frame. ACP has none of its own.
                        if frame.data != b"[DONE]":
                            yield await self._read(await parse_answer(frame.data))
                        if reader.records.behind:
                            return
                        if reader.stopped:
                            await frames.drain(DRAIN)  # what comes after that is nobody's
                            return
            if reader.run_id is None:
                raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before its run had begun")
        except FaultError as error:
            starts_elsewhere = bool(self._told.keys() & {"fork", "state"})
            if known is None and reader.run_id is None and starts_elsewhere and is_refusal(error):
                self._is_refused = True
            elif known is None or reader.run_id is not None or not await self._has_gone_on(known, error):
                raise

    def _begin(self, known: str | None) -> Sequence[Event]:
        """A resumed run is bound again: each activation tells for itself what it can be re-attached to by. One that
        starts afresh says so by its own first event."""
        self._has_begun = True
        heard = self._told.keys() if self._reader.is_recorded else ("answers",) if self._answers else ()
        if known is None:
            refused = [LossNoted(feature=Feature.FORK, how=NOT_FORKED)] if self._is_refused else []
            return (*refused, *losses(self._call, heard))
        self._reader.run_id = known
        bound = self._reader.resume(known, self._call.upstream.get("session")) if self._call.answers else ()
        return (*losses(self._call, heard), *bound)

    async def _has_gone_on(self, run_id: str, error: FaultError) -> bool:
        """Whether an answer was taken whose receipt was lost."""
        if not is_gone(error.fault):
            return False
        with suppress(FaultError):
            # Not by `await_request`: SDK 1.0.3 never clears it.
            return _run(await self._http.get(run_path(run_id))).status != "awaiting"
        return False

    async def _poll(self, known: str | None) -> Stage:
        """What no stream told: the list of events, read again and again until the run stops. ACP has nothing to wait on
        there."""
        if not self._has_begun:
            yield self._begin(known)
        reader, awaits, backoff = self._reader, await _questions_before(self._call), Backoff(FIRST_WAIT, LAST_WAIT)
        while not reader.stopped:
            run, listed = await backoff.look(self._look) or (None, [])
            # The list has no cursor: it is read whole, and begins with what was told.
            rest = _after(listed, awaits)[reader.seen :]
            for number, event in enumerate(rest):
                if number % _AT_ONCE == 0:  # others come in between: there may be tens of thousands
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

    async def _catch_up(self, known: str | None) -> Stage:
        if not self._has_begun:
            yield self._begin(known)
        reader = self._reader
        if reader.records.seq is None:
            reader.records.seq = 0
        async with aclosing(catch_up(reader.records, self._tell_again, lambda: reader.stopped)) as told:
            async for events in told:
                yield events

    async def _tell_again(self, start: int) -> Stage:
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
        """The run first: whatever it says has its event in the list that is read after it."""
        assert self._reader.run_id is not None
        path = run_path(self._reader.run_id)
        async with in_time(LOOK_TIMEOUT):
            run = _run(await self._http.get(path))
        answer = await self._http.get(f"{path}/events")
        listed = answer.get("events") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server answered without a list of events")
        return run, listed

    async def _read(self, value: Json) -> Sequence[Event]:
        with blaming_the_agent():
            events = self._reader.read(decode_event(value))
        return await with_files(events, self._http.file)

    def _snapshot(self, run: w.Run) -> Sequence[Event]:
        """What a run says where no event did."""
        told = self._reader.bind(run.run_id, run.session_id)
        with blaming_the_agent():
            if run.status == "awaiting":
                return [*told, *self._reader.read(w.RunEvent(type="run.awaiting", run=run))]
            if run.status in w.TERMINAL:
                return [*told, *self._reader.end(run)]
        return told

    # What is sent

    @property
    def _view(self) -> View:
        return View(run_id=self._call.task_id, session_id=self._call.thread_id, agent=self._agent)

    def _create(self) -> bytes:
        session_id = self._call.upstream.get("session") or _same_session(self._call)
        call = replace(self._call, history=()) if "fork" in self._told else self._call
        messages = encode_input(call, self._view)
        body: JsonObject = {
            **extra_of(self._call.input.extra),
            "agent_name": self._agent,
            "input": [dump_given(message) for message in messages],
            "mode": "stream",
        }
        if self._call.metadata:
            body.setdefault("metadata", dict(self._call.metadata))
        if session_id is not None:
            body["session_id"] = session_id
        if self._told:
            body[w.OWN] = self._told
        return to_json(body)

    def _resume(self) -> bytes:
        # Only while the gateway's own state says that it waits: SDK 1.0.3 takes an answer to a run that has ended if it
        # once awaited, and leaves it in-progress for ever.
        answer = encode_answer(self._call, self._view, self._answers)
        request = w.RunResumeRequest(await_resume=answer, mode="stream")
        # Without `run_id`, as both official clients send it.
        body = request.model_dump(exclude={"run_id"})
        return to_json({**body, w.OWN: self._told} if self._told else body)


async def discover(url: str, http: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> list[AgentInfo]:
    """The agents of an ACP server, by `GET /agents`; `manifest.upstream_name` tells what it calls them itself. Raises
    agent_invalid."""
    answer = await HttpClient(url, headers=headers, timeout=10.0, http=http).within(LISTING_LIMIT).get("/agents")
    try:
        return decode_agents(answer)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, "The server does not list agents as ACP does") from error


def _same_session(call: Invocation) -> str | None:
    """The caller's own session, where the run is its first: an agent that tells its session's id tells the one that the
    caller knows. Only where nobody has a key, because owners may choose the same id; and only for callers of ACP, to
    whom the id of a session that was erased is not free again."""
    keyless = call.owner == DEFAULT_OWNER
    return call.thread_id if call.opens_thread and keyless and agent_called(call.input.extra) is not None else None


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


def _run(value: Json) -> w.Run:
    return decode_reply(w.Run, value)
