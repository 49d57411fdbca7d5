"""Resumable SSE streams (reconnect, Last-Event-ID): the frames of one run, each once, over all connections that it
takes to read them.

Where a stream breaks it is taken up again after the last event that was heard. Ids of events may repeat (LangGraph's
development server counts them by the millisecond), so it is asked for what follows the last id before, and as many
events as were heard of the last one are passed over.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

import httpx

from adapters._client.status import is_gone
from adapters._json import validate
from adapters._sse import Frame, read_frames
from adapters.langchain.client.http import HttpClient
from adapters.langchain.client.urls import Route, run_id_in
from adapters.langchain.errors.decode import status_of
from adapters.langchain.wire import replies as w
from canonical import FaultCode, FaultError
from canonical.value import Json, JsonObject

MAX_FAILURES: Final = 5
"""Connections in a row that bring nothing new before the agent counts as gone."""
FIRST_WAIT: Final = 0.5
LAST_WAIT: Final = 5.0
"""Seconds between them."""
DRAIN: Final = 0.2
"""Seconds that a server has to end its stream after the run has ended."""

START: Final = "-1"
"""The id of an event before all others."""
ACTIVE: Final = frozenset({"pending", "running"})
NOT_THERE: Final = frozenset({404, 405, 501})

Frames = AsyncGenerator[Frame, None]


class _Cursor:
    """What was heard of a stream."""

    def __init__(self) -> None:
        self.total = 0
        self._before = START
        self._last = ""
        self._count = 0
        """Events with the last id."""
        self._skip = 0

    @property
    def resumable(self) -> bool:
        """The server gives its events ids."""
        return self._last != ""

    def again(self) -> str:
        """What to ask for when the stream is taken up."""
        self._skip = self.total if self._before == START else self._count
        return self._before

    def takes(self, frame: Frame) -> bool:
        """Whether it is new."""
        if self._skip > 0 and (self._before == START or frame.id == self._last):
            self._skip -= 1
            return False
        self._skip = 0
        if frame.id == self._last:
            self._count += 1
        else:
            self._before, self._last, self._count = self._last or START, frame.id, 1
        self.total += 1
        return True


class ResumableStream:
    """`ended` = whether the frames have told that nothing more will come, `complete` = whether a run that has succeeded
    was told to its end."""

    def __init__(
        self, upstream: HttpClient, route: Route, ended: Callable[[], bool], complete: Callable[[], bool]
    ) -> None:
        self.route = route
        self.run: w.Run | None = None
        """As it was after the last of its frames, if the server tells."""
        self.missed = False
        """Something may have been said that was not heard."""
        self._upstream = upstream
        self._ended = ended
        self._complete = complete
        self._cursor = _Cursor()
        self._failures = 0
        self._gap = False
        """A connection broke, and nothing was heard since, not even what was known."""
        self._broke = False
        self._joinable = True

    async def create_run(self, body: JsonObject) -> Frames:
        """Of a run that the body creates."""
        path = self.route.create
        async with aclosing(self._read("POST", path, body)) as frames:
            async for frame in frames:
                yield frame
        async with aclosing(self._rest()) as frames:
            async for frame in frames:
                yield frame

    async def join_run(self) -> Frames:
        """Of a run that is known, from its start, if the server has kept them."""
        async with aclosing(self._read("GET", self.route.stream)) as frames:
            async for frame in frames:
                yield frame
        async with aclosing(self._rest()) as frames:
            async for frame in frames:
                yield frame

    async def _rest(self) -> Frames:
        """As long as the run goes on, and there is more of it."""
        while not self._ended() and self.route.run_id is not None and await self._goes_on():
            async with aclosing(self._read("GET", self.route.stream)) as frames:
                async for frame in frames:
                    yield frame

    async def _read(self, method: str, path: str, body: JsonObject | None = None) -> Frames:
        """One connection. One that breaks is a stream that ends, once the run is known."""
        before, heard, retold = self._cursor.total, False, False
        headers = {} if body is not None else {"Last-Event-ID": self._cursor.again()}
        try:
            async with self._upstream.open_response(method, path, body, headers=headers, streams=True) as response:
                heard = True
                if self.route.run_id is None:
                    self.route.run_id = run_id_in(response.headers.get("content-location", ""))
                _check_streams(response)
                async with aclosing(read_frames(response)) as frames:
                    async for frame in frames:
                        retold = True
                        if self._cursor.takes(frame):
                            yield frame
                        if self._ended():
                            await _drain(frames)
                            return
        except FaultError as error:
            known = self.route.run_id is not None and (heard or body is None)
            if status_of(error.fault) in NOT_THERE and body is None:  # what there is of the run is told elsewhere
                self._joinable = False
            elif not (is_gone(error.fault) and known):
                raise
            self._broke = self._gap = True
            self._count_failure(error, before)
        else:
            self._broke, self._gap = False, self._gap and not retold
            self._count_failure(None, before)

    def _count_failure(self, error: FaultError | None, before: int) -> None:
        self._failures = 0 if self._cursor.total > before else self._failures + 1
        if self._failures > MAX_FAILURES:
            raise error or FaultError(FaultCode.AGENT_INVALID, "The agent's stream ends before the run does")

    async def _goes_on(self) -> bool:
        """Whether to connect again."""
        can_join = self._joinable and self._cursor.resumable
        if self._broke and can_join:
            await self._pause()
            return True
        run = await self._look()
        if run is not None and run.status not in ACTIVE:
            self.run = run
            whole = run.status != "success" or self._complete()
            if not whole and can_join and self._failures == 0:
                return True  # what closed the stream was not the end of the run
            self.missed = self._gap or not whole
            return False
        if run is None or not can_join:
            # Nobody repeats what is said meanwhile: its end is waited for, and told from the state.
            self.missed = True
            return False
        await self._pause()
        return True

    async def _pause(self) -> None:
        if self._failures:
            await asyncio.sleep(min(FIRST_WAIT * 2 ** (self._failures - 1), LAST_WAIT))

    async def _look(self) -> w.Run | None:
        """The run; None where the server does not tell of single runs."""
        while True:
            try:
                return _run(await self._upstream.get(self.route.run))
            except FaultError as error:
                if status_of(error.fault) in NOT_THERE:
                    return None
                if not is_gone(error.fault):
                    raise
                self._failures += 1
                if self._failures > MAX_FAILURES:
                    raise
                await self._pause()

    async def outcome(self) -> Json:
        """What the run has left behind, when it has stopped; None where the server does not tell of single runs. Raises
        agent_invalid for what is no object: nobody could tell it from the state."""
        failures = 0
        while True:
            try:
                told = await self._upstream.get(self.route.join)
            except FaultError as error:
                failures += 1
                if status_of(error.fault) in NOT_THERE:
                    return None
                if not is_gone(error.fault) or failures > MAX_FAILURES:
                    raise
                await asyncio.sleep(min(FIRST_WAIT * 2 ** (failures - 1), LAST_WAIT))
                continue
            if told is not None and not isinstance(told, dict):
                raise FaultError(
                    FaultCode.AGENT_INVALID, "The agent breaks its protocol: what its run has left behind is no object"
                )
            self.run = await self._look() or self.run
            return told


def _run(value: Json) -> w.Run:
    try:
        return validate(w.Run, value)
    except FaultError as error:
        raise FaultError(FaultCode.AGENT_INVALID, f"The agent breaks its protocol: {error.fault.message}") from error


def _check_streams(response: httpx.Response) -> None:
    if "text/event-stream" not in response.headers.get("content-type", ""):
        raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a stream of events")


async def _drain(frames: Frames) -> None:
    """Read to its end, a connection can be used again."""
    try:
        async with asyncio.timeout(DRAIN):
            async for _ in frames:
                pass
    except (TimeoutError, FaultError, httpx.HTTPError):
        pass
