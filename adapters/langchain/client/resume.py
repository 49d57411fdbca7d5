"""Resumable SSE streams (reconnect, Last-Event-ID): the frames of one run, each exactly once, over several connections.

A stream that breaks is resumed after the last event received. Several events may have the same id: langgraph-api 0.16.7
in memory counts ids by the millisecond. So the client requests the events after the previous, different id, and skips
as many events as it already received with the last id.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Final

import httpx

from babelgate.adapters.kit.client.backoff import Backoff
from babelgate.adapters.kit.client.blame import decode_reply
from babelgate.adapters.kit.client.frames import is_stream
from babelgate.adapters.kit.client.sse import Frame
from babelgate.adapters.kit.client.status import is_gone
from babelgate.adapters.langchain.client.http import HttpClient
from babelgate.adapters.langchain.client.urls import Route, run_id_in
from babelgate.adapters.langchain.errors.decode import status_of
from babelgate.adapters.langchain.wire import replies as w
from babelgate.canonical import FaultCode, FaultError
from babelgate.canonical.value import Json, JsonObject

MAX_FAILURES: Final = 6
"""Number of consecutive connections without a new event after which the stream fails with agent_unreachable or
agent_invalid. Chosen."""
FIRST_WAIT: Final = 0.5
"""Wait after the first connection without a new event, in seconds. Chosen, not measured."""
LAST_WAIT: Final = 5.0
"""Longest wait between connections, in seconds.

Chosen, not measured. The waits are longer than those of `babelgate.adapters.kit.client.backoff`, because the run
continues without readers, and each connection starts where the last one ended.
"""
START: Final = "-1"
"""Last-Event-ID that requests a stream from its first event. langgraph-api 0.16.7 compares ids as text, so `-1` is
smaller than all; Babelgate servers accept it, too."""
ACTIVE: Final = frozenset({"pending", "running"})
"""Statuses of a run that has not stopped."""
_MAX_ID_LENGTH: Final = 1024
"""Maximum length of an event id that the client sends as Last-Event-ID, in characters. Chosen: the ids of langgraph-api
0.16.7 have 15, and servers refuse headers of 8 KiB."""
NOT_THERE: Final = frozenset({404, 405, 501})
"""HTTP statuses with which servers respond to a path that they do not have."""


class _Cursor:
    """Position in a stream of events with possibly repeated ids. After a reconnect it recognizes events that were
    received before."""

    def __init__(self) -> None:
        self.total = 0
        """Number of different events received over all connections."""
        self._previous_id = START
        """Newest received id that differs from `_last_id`, or `START`. Each reconnect requests the events after this
        id."""
        self._last_id = ""
        self._count = 0
        """Number of events received with `_last_id`."""
        self._skip = 0
        """Number of repeated events still to skip after a reconnect."""

    @property
    def is_resumable(self) -> bool:
        """True if the last new event had an id, so that the server can resume the stream."""
        return self._last_id != ""

    def rewind(self) -> str:
        """Prepare to skip the events that the next connection will repeat. Return the id to send as Last-Event-ID."""
        self._skip = self.total if self._previous_id == START else self._count
        return self._previous_id

    def takes(self, frame: Frame) -> bool:
        """Advance by one received event. Return True if the event is new, or False if it repeats one from before the
        reconnect."""
        event_id = frame.id if _fits_header(frame.id) else ""
        if self._skip > 0 and (self._previous_id == START or event_id == self._last_id):
            self._skip -= 1
            return False
        self._skip = 0
        if event_id == self._last_id:
            self._count += 1
        else:
            self._previous_id, self._last_id, self._count = self._last_id or START, event_id, 1
        self.total += 1
        return True


def _fits_header(event_id: str) -> bool:
    """Return True if the id can be sent in `Last-Event-ID`. Events with other ids are read as events without one."""
    return len(event_id) <= _MAX_ID_LENGTH and event_id.isascii() and event_id.isprintable()


class ResumableStream:
    """Frames of one run, over all connections to its server.

    `ended` returns True if the frames show that no more will come. `complete` returns True if no output is missing from
    the frames of a successful run.
    """

    def __init__(
        self,
        http: HttpClient,
        route: Route,
        ended: Callable[[], bool],
        complete: Callable[[], bool],
        headers: Mapping[str, str],
    ) -> None:
        self._headers = headers
        self.route = route
        self.run: w.Run | None = None
        """Last description of the run that the server sent after the run had stopped. None: the server does not report
        single runs, or was not asked."""
        self.missed = False
        """True if some output of the run may be missing from the frames, so that the client must read it from the
        thread's state."""
        self._http = http
        self._has_ended = ended
        self._is_complete = complete
        self._cursor = _Cursor()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, MAX_FAILURES)
        self._is_cut = False
        """True if a connection broke, and no frame was received since, not even a repeated one."""
        self._is_broken = False
        """True if the last connection broke."""
        self._can_join = True
        """True unless the server has no stream for existing runs."""
        self._earlier_frames = 0
        """Number of new frames received before the current connection."""
        self._is_accepted = False
        """True if the server has accepted the request of this connection."""
        self._has_frame = False
        """True if this connection has delivered a frame, even a repeated one."""

    @property
    def is_cut(self) -> bool:
        """True if a connection broke, and no frame was received since."""
        return self._is_cut

    def connect(self, body: JsonObject | None) -> AbstractAsyncContextManager[httpx.Response]:
        """Return a context manager that opens the next connection. `body` is the request that creates the run; None
        joins the existing run after the last received event."""
        self._earlier_frames, self._is_accepted, self._has_frame = self._cursor.total, False, False
        if body is not None:
            return self._http.open_response("POST", self.route.create, body, headers=self._headers, streams=True)
        headers = {**self._headers, "Last-Event-ID": self._cursor.rewind()}
        return self._http.open_response("GET", self.route.stream, headers=headers, streams=True)

    def begin(self, response: httpx.Response) -> None:
        """Check the response of a connection, and read the run's id from it. Raises agent_invalid for a response that
        is not a stream."""
        self._is_accepted = True
        if self.route.run_id is None:
            # langgraph-api 0.16.7 sends it with every stream. OpenAPI 0.1.6 has no such header: there the frame
            # `metadata` has the id.
            self.route.run_id = run_id_in(response.headers.get("content-location", ""))
        if not is_stream(response):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a stream of events")

    def takes(self, frame: Frame) -> bool:
        """Return True if the frame is new, and False if it repeats a frame from before a reconnect."""
        self._has_frame = True
        return self._cursor.takes(frame)

    def end(self, error: FaultError | None, *, creates: bool) -> None:
        """Finish a connection. `error` is the reason why it broke, or None. `creates` is True if the connection was to
        create the run.

        A broken connection to an existing run is not an error, because the stream is resumed. Raises `error` otherwise,
        or a fault after `MAX_FAILURES` consecutive connections without a new frame.
        """
        if error is not None:
            is_known = self.route.run_id is not None and (self._is_accepted or not creates)
            # The output of the run is read from the state instead.
            if status_of(error.fault) in NOT_THERE and not creates:
                self._can_join = False
            elif not (is_gone(error.fault) and is_known):
                raise error
        self._is_broken = error is not None
        self._is_cut = self._is_broken or (self._is_cut and not self._has_frame)
        if self._cursor.total > self._earlier_frames:
            self._backoff.reset()
        else:
            no_progress = FaultError(FaultCode.AGENT_INVALID, "The agent's stream ends before the run does")
            self._backoff.count_failure(error or no_progress)

    async def should_reconnect(self) -> bool:
        """Return True if the caller should join the run again to receive more frames. Waits first if the last
        connection brought nothing new. Sets `run` and `missed` if the run has stopped. Raises the fault of a failed
        request."""
        if self._has_ended() or self.route.run_id is None:
            return False
        can_join = self._can_join and self._cursor.is_resumable
        if self._is_broken and can_join:
            await self._pause()
            return True
        run = await self._fetch_run()
        if run is not None and run.status not in ACTIVE:
            self.run = run
            is_whole = run.status != "success" or self._is_complete()
            if not is_whole and can_join and self._backoff.failures == 0:
                return True  # the stream was closed before the run ended
            self.missed = self._is_cut or not is_whole
            return False
        if run is None or not can_join:
            # The server does not repeat what the run says from now on. So the client waits for its end and reads it
            # from the state.
            self.missed = True
            return False
        await self._pause()
        return True

    async def _pause(self) -> None:
        if self._backoff.failures:
            await self._backoff.wait()

    async def _fetch_run(self) -> w.Run | None:
        """Fetch the run, or return None if the server does not report single runs."""
        try:
            return decode_reply(w.Run, await self._backoff.retry(partial(self._http.get, self.route.run)))
        except FaultError as error:
            if status_of(error.fault) in NOT_THERE:
                return None
            raise

    async def outcome(self) -> Json:
        """Wait until the run has stopped, and return its result: a JSON object, or None if the server does not report
        single runs or sends null. Raises agent_invalid for any other result."""
        try:
            backoff = Backoff(FIRST_WAIT, LAST_WAIT, MAX_FAILURES)
            result = await backoff.retry(partial(self._http.get, self.route.join))
        except FaultError as error:
            if status_of(error.fault) in NOT_THERE:
                return None
            raise
        if result is not None and not isinstance(result, dict):
            raise FaultError(
                FaultCode.AGENT_INVALID, "The agent breaks its protocol: the result of its run is not a JSON object"
            )
        self.run = await self._fetch_run() or self.run
        return result
