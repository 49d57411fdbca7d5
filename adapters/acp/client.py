"""Drives an agent on another ACP server: a streamed run, its resumes, its cancel, and the rest of a stream that broke."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from adapters._body import parse_json, validate
from adapters._sse import read_frames
from adapters.acp import wire as w
from adapters.acp.codec import View, encode_answer, encode_input
from adapters.acp.fault import decode_error
from adapters.acp.manifest import decode_agents
from adapters.acp.reader import EventReader, decode_event
from canonical import AgentInfo, Event, Fault, FaultCode, FaultError, Invocation
from canonical.agent import DETACH
from canonical.event import InterruptRaised
from canonical.value import Json

__all__ = ("Client", "discover")

log = logging.getLogger("babelgate.acp")

ANSWER_LIMIT: Final = 64 * 1024 * 1024
"""Bytes of one answer."""
CANCEL_TIMEOUT: Final = 3.0
"""Seconds that telling the upstream of a cancel may take."""
FIRST_WAIT: Final = 0.1
LAST_WAIT: Final = 2.0
"""Seconds between looks at a run whose stream broke: ACP has nothing to wait on there."""
MAX_FAILURES: Final = 5
"""Looks in a row that may fail before the agent counts as gone."""
DEFAULT_TIMEOUT: Final = httpx.Timeout(connect=5.0, read=None, write=60.0, pool=None)

Events = AsyncGenerator[Event, None]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the upstream's list of events the activation began: after so many awaits."""

    awaits: int = 0

    def rest(self, events: list[w.Event], seen: int) -> list[w.Event]:
        start = 0
        for _ in range(self.awaits):
            while start < len(events) and not _is_await(events[start]):
                start += 1
            start += 1
        return events[start + seen :]


def _is_await(event: w.Event) -> bool:
    return isinstance(event, w.RunEvent) and event.type == "run.awaiting"


class Client:
    """An agent on an ACP server. `agent` is the server's own name of it."""

    def __init__(
        self,
        url: str,
        agent: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: httpx.Timeout | float = DEFAULT_TIMEOUT,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        self._agent = agent
        self._server = _Server(url, headers or {}, timeout, http)

    async def aclose(self) -> None:
        await self._server.aclose()

    def run(self, call: Invocation) -> AsyncIterator[Event]:
        return self._cancelling(EventReader(self._agent), call, attached=False)

    def reattach(self, call: Invocation) -> AsyncIterator[Event]:
        """The events of this activation, told again from its start."""
        return self._cancelling(EventReader(self._agent), call, attached=True)

    async def _cancelling(self, reader: EventReader, call: Invocation, *, attached: bool) -> Events:
        """Whoever stops listening before the run has stopped wants it cancelled."""
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
                await asyncio.shield(asyncio.ensure_future(self._server.cancel(reader.run_id)))

    async def _events(self, reader: EventReader, call: Invocation, *, attached: bool) -> Events:
        run_id = call.upstream.get("run") if attached or call.answers else None
        if attached and run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server never told which run this is")
        place = _Place()
        if run_id is not None and call.answers:
            place = _Place(awaits=await _awaits_before(call))
        if not attached:
            async with aclosing(self._streamed(reader, call, run_id)) as events:
                async for event in events:
                    yield event
        elif run_id is not None:
            reader.run_id = run_id
            if call.answers:
                for event in reader.resume(run_id, call.upstream.get("session")):
                    yield event
        if not reader.stopped:
            async with aclosing(self._looked_up(reader, place)) as events:
                async for event in events:
                    yield event

    async def _streamed(self, reader: EventReader, call: Invocation, run_id: str | None) -> Events:
        """Start or resume the run, and read its stream for as long as it lasts."""
        path = "/runs" if run_id is None else _run_path(run_id)
        body = self._create(call) if run_id is None else self._resume(call)
        async with self._server.opened("POST", path, body) as response:
            if run_id is not None:
                for event in reader.resume(run_id, call.upstream.get("session")):
                    yield event
            elif response.headers.get("run-id"):
                reader.run_id = response.headers["run-id"]
            if not _is_stream(response):
                for event in _snapshot(reader, validate_run(await _read(response))):
                    yield event
                return
            async with aclosing(_frames(reader, response)) as events:
                async for event in events:
                    yield event
        if reader.run_id is None:
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's stream ended before it told of a run")

    async def _looked_up(self, reader: EventReader, place: _Place) -> Events:
        """What the stream did not tell: the list of events, read again and again until the run stops. A server that can
        stream the list (a Babelgate can) is followed."""
        assert reader.run_id is not None
        path = _run_path(reader.run_id)
        wait, failures = FIRST_WAIT, 0
        while True:
            try:
                # The run first: whatever it says has its event in the list that is read after it.
                run = validate_run(await self._server.get(path))
                found = await self._list(path)
                failures = 0
            except FaultError as error:
                failures += 1
                if error.fault.code is not FaultCode.AGENT_UNREACHABLE or failures >= MAX_FAILURES:
                    raise
                run, found = None, []
            rest = place.rest(found, reader.seen)
            for event in _read_all(reader, rest):
                yield event
            if not reader.stopped and run is not None and _has_stopped(run):
                for event in _snapshot(reader, run):
                    yield event
            if reader.stopped:
                return
            wait = FIRST_WAIT if rest else min(wait * 2, LAST_WAIT)
            await asyncio.sleep(wait)

    async def _list(self, path: str) -> list[w.Event]:
        answer = await self._server.get(f"{path}/events")
        listed = answer.get("events") if isinstance(answer, dict) else None
        if not isinstance(listed, list):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server answered without a list of events")
        return [_decoded(event) for event in listed]

    def _create(self, call: Invocation) -> bytes:
        view = View(run_id=call.task_id, session_id=call.thread_id, agent=self._agent)
        # Extra keys would be dropped by name if `session_id` were null: it is left out where there is none.
        request = w.RunCreateRequest(
            agent_name=self._agent,
            input=encode_input(call, view),
            mode="stream",
            session_id=call.upstream.get("session"),
        )
        exclude: Any = {"session": True, "input": {"__all__": {"created_at", "completed_at"}}}
        if request.session_id is None:
            exclude["session_id"] = True
        return request.model_dump_json(exclude=exclude).encode()

    def _resume(self, call: Invocation) -> bytes:
        view = View(run_id=call.task_id, session_id=call.thread_id, agent=self._agent)
        request = w.RunResumeRequest(await_resume=encode_answer(call, view), mode="stream")
        return request.model_dump_json(exclude={"run_id"}).encode()
