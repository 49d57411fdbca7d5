"""Resumable SSE streams (reconnect, Last-Event-ID): the frames of one run, each once, over all connections that it
takes to read them.

Where a stream breaks it is taken up again after the last event that was heard. Ids of events may repeat (langgraph-api
0.16.7 in memory counts them by the millisecond), so it is asked for what follows the last id before, and as many
events as were heard of the last one are passed over.
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
"""Connections in a row that bring nothing new, of which the last one tells that the agent is gone."""
FIRST_WAIT: Final = 0.5
LAST_WAIT: Final = 5.0
"""Seconds between them. Chosen, not measured: longer than `babelgate.adapters.kit.client.backoff` waits, because a run
goes on there without its readers, and each connection is told the stream from where the last one ended."""
START: Final = "-1"
"""The id of an event before all others: langgraph-api 0.16.7 compares ids as text, and a gateway like this one knows
it."""
ACTIVE: Final = frozenset({"pending", "running"})
_ID_LENGTH: Final = 1024
"""Characters. Chosen: the ids of langgraph-api 0.16.7 have 15, and servers refuse headers of 8 KiB."""
NOT_THERE: Final = frozenset({404, 405, 501})
"""Statuses of a path that a server does not have."""


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
    def is_resumable(self) -> bool:
        """The server gives its events ids."""
        return self._last != ""

    def again(self) -> str:
        """What to ask for when the stream is taken up."""
        self._skip = self.total if self._before == START else self._count
        return self._before

    def takes(self, frame: Frame) -> bool:
        """Whether it is new."""
        event_id = frame.id if _fits_header(frame.id) else ""
        if self._skip > 0 and (self._before == START or event_id == self._last):
            self._skip -= 1
            return False
        self._skip = 0
        if event_id == self._last:
            self._count += 1
        else:
            self._before, self._last, self._count = self._last or START, event_id, 1
        self.total += 1
        return True


def _fits_header(event_id: str) -> bool:
    """Whether the id can be sent in `Last-Event-ID`. A stream whose ids cannot is read as one that has none."""
    return len(event_id) <= _ID_LENGTH and event_id.isascii() and event_id.isprintable()


class ResumableStream:
    """What was heard of a run, over all connections. `ended` = whether the frames have told that nothing more will
    come, `complete` = whether a run that has succeeded was told to its end."""

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
        """As it was after the last of its frames, if the server tells."""
        self.missed = False
        """Something may have been said that was not heard."""
        self._http = http
        self._ended = ended
        self._complete = complete
        self._cursor = _Cursor()
        self._backoff = Backoff(FIRST_WAIT, LAST_WAIT, MAX_FAILURES)
        self._gap = False
        """A connection broke, and nothing was heard since, not even what was known."""
        self._broke = False
        self._joinable = True
        self._before = 0
        """Frames that were heard on earlier connections."""
        self._answered = False
        """The server has taken the request of this connection."""
        self._retold = False
        """There was a frame on this connection."""

    @property
    def is_cut(self) -> bool:
        """Whether a connection broke, and nothing was heard since."""
        return self._gap

    def connect(self, body: JsonObject | None) -> AbstractAsyncContextManager[httpx.Response]:
        """The next connection: to a run that the body creates, or to the one that is known, from where it was left."""
        self._before, self._answered, self._retold = self._cursor.total, False, False
        if body is not None:
            return self._http.open_response("POST", self.route.create, body, headers=self._headers, streams=True)
        headers = {**self._headers, "Last-Event-ID": self._cursor.again()}
        return self._http.open_response("GET", self.route.stream, headers=headers, streams=True)

    def begin(self, response: httpx.Response) -> None:
        """Raises agent_invalid for an answer that is no stream."""
        self._answered = True
        if self.route.run_id is None:
            # langgraph-api 0.16.7, of every stream. OpenAPI 0.1.6 has no such header: the frame `metadata` tells it.
            self.route.run_id = run_id_in(response.headers.get("content-location", ""))
        if not is_stream(response):
            raise FaultError(FaultCode.AGENT_INVALID, "The agent's server did not answer with a stream of events")

    def takes(self, frame: Frame) -> bool:
        """Whether it is new."""
        self._retold = True
        return self._cursor.takes(frame)

    def end(self, error: FaultError | None, *, creates: bool) -> None:
        """A connection is over. One that breaks is a stream that ends, once the run is known: raises the error
        otherwise, and the one that is one too many. `creates` = the run was to begin with it."""
        if error is not None:
            known = self.route.run_id is not None and (self._answered or not creates)
            if status_of(error.fault) in NOT_THERE and not creates:  # what there is of the run is told elsewhere
                self._joinable = False
            elif not (is_gone(error.fault) and known):
                raise error
        self._broke = error is not None
        self._gap = self._broke or (self._gap and not self._retold)
        if self._cursor.total > self._before:
            self._backoff.reset()
        else:
            ended = FaultError(FaultCode.AGENT_INVALID, "The agent's stream ends before the run does")
            self._backoff.count_failure(error or ended)

    async def should_reconnect(self) -> bool:
        """As long as the run goes on, and there is more of it."""
        if self._ended() or self.route.run_id is None:
            return False
        can_join = self._joinable and self._cursor.is_resumable
        if self._broke and can_join:
            await self._pause()
            return True
        run = await self._look()
        if run is not None and run.status not in ACTIVE:
            self.run = run
            whole = run.status != "success" or self._complete()
            if not whole and can_join and self._backoff.failures == 0:
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
        if self._backoff.failures:
            await self._backoff.wait()

    async def _look(self) -> w.Run | None:
        """The run; None where the server does not tell of single runs."""
        try:
            return decode_reply(w.Run, await self._backoff.insist(partial(self._http.get, self.route.run)))
        except FaultError as error:
            if status_of(error.fault) in NOT_THERE:
                return None
            raise

    async def outcome(self) -> Json:
        """What the run has left behind, when it has stopped; None where the server does not tell of single runs. Raises
        agent_invalid for what is no object: nobody could tell it from the state."""
        try:
            backoff = Backoff(FIRST_WAIT, LAST_WAIT, MAX_FAILURES)
            told = await backoff.insist(partial(self._http.get, self.route.join))
        except FaultError as error:
            if status_of(error.fault) in NOT_THERE:
                return None
            raise
        if told is not None and not isinstance(told, dict):
            raise FaultError(
                FaultCode.AGENT_INVALID, "The agent breaks its protocol: what its run has left behind is no object"
            )
        self.run = await self._look() or self.run
        return told
