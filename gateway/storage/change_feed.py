"""Hints about changed runs, threads, agents and jobs, for pages that show lists.

A hint says what to read again, and nothing else. So hints may be merged and dropped, and a stream holds few of them,
however much changes. Without streams, a commit costs one comparison.

Commits of other gateways are known by the key of their thread only. Their rows are read from the database, all together
a few times a second, and only while there are streams.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal, Self

import msgspec
from sqlalchemy import Connection, and_, func, or_, select

from babelgate.canonical.fault import FaultError
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Run, Task, Thread
from babelgate.gateway.background import Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.row_cache import RowChange
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import RunRow, ThreadRow

Kind = Literal["run", "thread", "agent", "job"]

PAUSE: Final = 0.25
"""Minimum seconds from one hint of a stream to the next, and from one read of the rows of others to the next."""
_MAX_PENDING: Final = 16
"""Maximum number of hints per stream that are not sent. Beyond it, those of one kind become one without an id."""
_MAX_REMOTE: Final = 10_000
"""Maximum number of threads that others have changed and that were not read yet. Chosen: 1 MB."""
_READ_AT_ONCE: Final = 200
"""Maximum number of threads that one query reads. Chosen."""
_MAX_SEEN: Final = 1000
"""Maximum number of threads and runs of others whose last status is remembered. Tokens change no status."""

_THREAD, _RUN = table_of(ThreadRow), table_of(RunRow)


class Hint(msgspec.Struct, frozen=True):
    """Hint that something has changed."""

    kind: Kind
    id: str | None
    """Id of the run, thread or job, or name of the agent. None means several."""
    status: str | None
    """New status of a run or job, or of a thread that another gateway has changed."""
    agent: str | None
    """Name of the agent. None if several agents may be concerned."""
    at: int
    """Time of the change, in microseconds since 1970, UTC."""


class HintStream:
    """Hints for one reader: those of one owner, or of all owners. It is a context, within which it gets hints."""

    __slots__ = ("_is_closed", "_is_wanted", "_pending", "_streams", "_waiter", "is_operator", "owner")

    def __init__(
        self,
        streams: "set[HintStream]",
        owner: str | None,
        is_wanted: Callable[[Hint], bool] | None,
        *,
        is_operator: bool,
        is_closed: bool,
    ) -> None:
        """Create a stream of the feed with these open streams. `is_wanted` selects hints."""
        self._streams = streams
        self._is_wanted = is_wanted
        self.owner = owner
        """Owner of the rows; None for all owners."""
        self.is_operator = is_operator
        """True if the reader may see jobs."""
        self._pending: dict[tuple[Kind, str | None], Hint] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = is_closed

    def __enter__(self) -> Self:
        self._streams.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.discard(self)

    def add(self, hint: Hint) -> None:
        """Add a hint. It replaces an earlier one for the same thing."""
        if self._is_wanted is not None and not self._is_wanted(hint):
            return
        key = (hint.kind, hint.id)
        if (hint.kind, None) in self._pending:
            key = (hint.kind, None)
        elif key not in self._pending and len(self._pending) >= _MAX_PENDING:
            for pending_key in [each for each in self._pending if each[0] == hint.kind]:
                del self._pending[pending_key]
            key = (hint.kind, None)
        if key[1] is None:
            hint = Hint(hint.kind, None, None, None, hint.at)
        self._pending[key] = hint
        self._wake()

    def close(self) -> None:
        """End the stream."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> AsyncGenerator[Hint]:
        """Yield the hints, with pauses, until the stream ends."""
        while not self._is_closed:
            if not self._pending:
                await self._wait(None)
                continue
            yield self._pending.pop(next(iter(self._pending)))
            await self._pause()

    async def _pause(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + PAUSE
        while not self._is_closed and (seconds := until - loop.time()) > 0:
            await self._wait(seconds)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a hint or the end."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((self._waiter,), timeout=seconds)
        finally:
            self._waiter = None


class ChangeFeed:
    """Source of hints. Used only on the event loop."""

    def __init__(self, read_rows: "Callable[[Sequence[int]], Awaitable[list[RemoteRow]]]", clock: Clock) -> None:
        """Create a feed without streams. `read_rows` returns the result of `read_remote_rows`, or raises FaultError."""
        self._read_rows = read_rows
        self._clock = clock
        self._streams: set[HintStream] = set()
        self._is_closed = False
        self._remote: dict[int, None] = {}
        """Keys of threads that others have changed."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._failures = Failures("the hints about changes")
        self._seen: OrderedDict[str, str] = OrderedDict()
        """Last status of threads and runs of others, by id."""

    @property
    def has_streams(self) -> bool:
        """True if hints have a reader."""
        return bool(self._streams)

    def open(
        self, owner: str | None, is_wanted: Callable[[Hint], bool] | None = None, *, is_operator: bool = False
    ) -> HintStream:
        """Return the stream of an owner's hints, or of all owners' hints if it is None. It ends when the gateway
        stops."""
        return HintStream(self._streams, owner, is_wanted, is_operator=is_operator, is_closed=self._is_closed)

    def close(self) -> None:
        """End all streams, because the gateway stops."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stream in self._streams:
            stream.close()
        for task in self._tasks:
            task.cancel()

    def _add(self, owner: str, hint: Hint) -> None:
        for stream in self._streams:
            if stream.owner is None or stream.owner == owner:
                stream.add(hint)

    # Changes of this gateway

    def note_rows(self, changes: Iterable[RowChange]) -> None:
        """Report the rows that a commit has written."""
        now = self._clock.now()
        for change in changes:
            match change.value:
                case Run() as run:
                    status = "removed" if run.removed else str(run.status)
                    self._add(change.owner, Hint("run", run.run_id, status, run.agent, now))
                    self._add(change.owner, Hint("thread", run.thread_id, None, run.agent, now))
                case Task() as task:
                    self._add(change.owner, Hint("thread", task.thread_id, None, task.agent, now))
                case Thread() as thread:
                    self._add(change.owner, Hint("thread", thread.thread_id, None, None, now))
                case None:
                    pass

    def note_erased(self, owner: str, thread_id: str) -> None:
        """Report an erased thread."""
        self._add(owner, Hint("thread", thread_id, "erased", None, self._clock.now()))

    def note_agent(self, name: str | None) -> None:
        """Report a change of an agent, or of several if it is None."""
        hint = Hint("agent", name, None, name, self._clock.now())
        for stream in self._streams:
            stream.add(hint)

    def note_job(self, job_id: str, status: str) -> None:
        """Report a change of a job to operators."""
        hint = Hint("job", job_id, status, None, self._clock.now())
        for stream in self._streams:
            if stream.is_operator:
                stream.add(hint)

    # Changes of other gateways

    def note_remotes(self, remotes: Iterable[Remote]) -> None:
        """Report the commits of other gateways. Their rows are read a little later."""
        if not self._streams or self._is_closed:
            return
        for remote in remotes:
            if not remote.erased and remote.pk and len(self._remote) < _MAX_REMOTE:
                self._remote[remote.pk] = None
        if self._remote and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._start_reading)

    def _start_reading(self) -> None:
        self._tasks.spawn(self._read_remote(), "hints about changes of other gateways")

    async def _read_remote(self) -> None:
        keys = list(self._remote)[:_READ_AT_ONCE]
        for key in keys:
            del self._remote[key]
        try:
            rows = await self._read_rows(keys) if self._streams else []
        except FaultError:  # the database is away, which its readers notice themselves
            rows = []
        except Exception as error:
            self._failures.note(error)
            rows = []
        finally:
            self._timer = None
        now = self._clock.now()
        for row in rows:
            if self._seen.get(row.id) != row.status:
                self._seen[row.id] = row.status
                self._add(row.owner, Hint(row.kind, row.id, row.status, row.agent, now))
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        self.note_remotes(())


class RemoteRow(msgspec.Struct, frozen=True):
    """Row of a thread or run that another gateway may have changed."""

    owner: str
    kind: Kind
    id: str
    status: str
    agent: str | None


def read_remote_rows(connection: Connection, keys: Sequence[int]) -> list[RemoteRow]:
    """Return threads by key, and of each its newest run and those that have not ended."""
    threads = select(_THREAD.c.owner, _THREAD.c.thread_id, _THREAD.c.status).where(_THREAD.c.pk.in_(keys))
    found = [
        RemoteRow(owner, "thread", thread_id, status, None) for owner, thread_id, status in connection.execute(threads)
    ]
    other = _RUN.alias()
    newest = select(func.max(other.c.first_seq)).where(other.c.thread_pk == _RUN.c.thread_pk).scalar_subquery()
    is_live = _RUN.c.status.in_((str(RunStatus.PENDING), str(RunStatus.RUNNING)))
    runs = select(_RUN.c.owner, _RUN.c.run_id, _RUN.c.status, _RUN.c.agent).where(
        and_(_RUN.c.thread_pk.in_(keys), or_(is_live, _RUN.c.first_seq == newest))
    )
    return found + [
        RemoteRow(owner, "run", run_id, status, agent) for owner, run_id, status, agent in connection.execute(runs)
    ]
