"""Hints about changed runs, threads, agents and jobs, so that pages of the console with lists know what to read again.

A hint names a changed object and carries no data. So equal hints can be merged, and a stream holds few of them however
much changes. A hint without an id means that several objects have changed: the reader reads its whole list again.
Without streams, a commit costs one comparison.

Notices of commits by other gateways contain only the database key of the thread. The feed reads the rows of such
threads together, a few times a second, and only while there are streams. If it cannot find out what has changed, it
sends hints without an id."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Final, Literal, Self

import msgspec
from sqlalchemy import Connection, and_, case, select, text, true

from babelgate.canonical.fault import FaultError
from babelgate.canonical.thread import Run, Task, Thread
from babelgate.gateway.background import Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.row_cache import RowChange, ThreadStanding
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import LIVE, RunRow, ThreadRow

Kind = Literal["run", "thread", "agent", "job"]

PAUSE: Final = 0.25
"""Minimum seconds between two hints of one stream, and between two reads of threads that other gateways have changed.
Chosen."""
_MAX_PENDING: Final = 16
"""Maximum number of unsent hints per stream. A further hint is merged with all pending ones of its kind into one
without an id. Chosen."""
MAX_REMOTE: Final = 10_000
"""Maximum number of threads changed by other gateways that wait to be read. Chosen: 1 MB."""
_READ_AT_ONCE: Final = 200
"""Maximum number of threads changed by other gateways that one query reads. Chosen."""
RUNS_OF_THREAD: Final = 4
"""Number of the newest runs per thread that a read compares with the read before. If other gateways have created more
runs in between, the owner gets a hint without an id. Chosen: a thread rarely has more runs in one `PAUSE`."""
_LIVE_AT_ONCE: Final = 1000
"""Maximum number of active runs that one query reads in addition to the newest of each thread. Chosen: only queues have
more."""
_MAX_SEEN: Final = 1000
"""Maximum number of threads and runs whose last known status is kept. Chosen.

Other gateways send a notice for each commit of tokens, too. A status that is unchanged causes no hint."""

_THREAD, _RUN = table_of(ThreadRow), table_of(RunRow)


class Hint(msgspec.Struct, frozen=True):
    """Hint that one run, thread, agent or job has changed, or several of them."""

    kind: Kind
    id: str | None
    """Id of the run, thread or job, or name of the agent. None if several objects of this kind have changed."""
    status: str | None
    """New status of a run or job, or of a thread that another gateway has changed. None if not known."""
    agent: str | None
    """Name of the agent of the run or thread. None if it is not known, or if several agents are concerned."""
    at: int
    """Time of the change, in microseconds since 1970, UTC."""


class HintStream:
    """Pending hints for one reader, about the runs and threads of one owner or of all owners.

    The stream is a context manager: it receives hints only inside its `with` block."""

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
        """Create a stream that adds itself to `streams`, the open streams of the feed, when it is entered.

        `is_wanted` filters hints that have an id. None accepts all. `is_closed` is true if the gateway stops, so that
        the stream ends at once.
        """
        self._streams = streams
        self._is_wanted = is_wanted
        self.owner = owner
        """Owner whose runs and threads the hints are about. None for all owners."""
        self.is_operator = is_operator
        """True if the reader is an operator, who also receives hints about jobs."""
        self._pending: dict[tuple[Kind, str | None], Hint] = {}
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = is_closed

    def __enter__(self) -> Self:
        self._streams.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._streams.discard(self)

    def add(self, hint: Hint) -> None:
        """Add a hint. It replaces a pending one with the same kind and id."""
        if hint.id is not None and self._is_wanted is not None and not self._is_wanted(hint):
            return
        key = (hint.kind, hint.id)
        is_full = key not in self._pending and len(self._pending) >= _MAX_PENDING
        if hint.id is None or is_full or (hint.kind, None) in self._pending:
            for pending_key in [each for each in self._pending if each[0] == hint.kind]:
                del self._pending[pending_key]
            key = (hint.kind, None)
            hint = Hint(hint.kind, None, None, None, hint.at)
        self._pending[key] = hint
        self._wake()

    def close(self) -> None:
        """Close the stream, which ends `read`. Pending hints are dropped."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def read(self) -> AsyncGenerator[Hint]:
        """Yield the hints until the stream is closed, with a pause of `PAUSE` seconds after each."""
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
        """Wait until a hint is added or the stream is closed, at most `seconds` (None: without a limit)."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait((self._waiter,), timeout=seconds)
        finally:
            self._waiter = None


class ChangeFeed:
    """Source of hints: it turns the commits of this and of other gateways into hints for the open streams.

    It is used only on the event loop."""

    def __init__(self, read_threads: "Callable[[Sequence[int]], Awaitable[list[RemoteThread]]]", clock: Clock) -> None:
        """Create a feed without streams.

        `read_threads` takes keys of threads and calls `read_remote_threads` on a reader thread. It may raise
        FaultError."""
        self._read_threads = read_threads
        self._clock = clock
        self._streams: set[HintStream] = set()
        self._is_closed = False
        self._remote: dict[int, bool] = {}
        """Database keys of threads that other gateways have changed and that are not read yet. The value is True if a
        run of the thread may have been removed."""
        self._has_missed = False
        """True if notices were lost or dropped, so that other gateways may have changed threads that are not in
        `_remote`."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._failures = Failures("the hints about changes")
        self._seen: OrderedDict[tuple[str, Kind, str], str] = OrderedDict()
        """Last known status of threads and runs that other gateways have changed, by owner, kind and id."""

    @property
    def has_streams(self) -> bool:
        """True if at least one reader has an open stream."""
        return bool(self._streams)

    def open(
        self, owner: str | None, is_wanted: Callable[[Hint], bool] | None = None, *, is_operator: bool = False
    ) -> HintStream:
        """Return a new stream of hints for one owner, or for all owners if `owner` is None. It ends when the gateway
        stops. `is_wanted` filters hints that have an id; None accepts all. An operator also receives hints about
        jobs."""
        self._seen.clear()  # while there were no streams, changes were not noted
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
        """Add hints for the threads, tasks and runs that a commit of this gateway has written."""
        now = self._clock.now()
        for change in changes:
            match change.value:
                case Run() as run:
                    self._forget_seen(change.owner, run.thread_id, run.run_id)
                    status = "removed" if run.removed else str(run.status)
                    self._add(change.owner, Hint("run", run.run_id, status, run.agent, now))
                    self._add(change.owner, Hint("thread", run.thread_id, None, run.agent, now))
                case Task() as task:
                    self._forget_seen(change.owner, task.thread_id)
                    self._add(change.owner, Hint("thread", task.thread_id, None, task.agent, now))
                case Thread() as thread:
                    self._forget_seen(change.owner, thread.thread_id)
                    self._add(change.owner, Hint("thread", thread.thread_id, None, None, now))
                case ThreadStanding() | None:
                    pass  # the row of the run or the task that changed it has a hint

    def note_erased(self, owner: str, thread_id: str) -> None:
        """Add a hint with the status `erased` for a thread."""
        self._add(owner, Hint("thread", thread_id, "erased", None, self._clock.now()))

    def note_agent(self, name: str | None) -> None:
        """Add a hint for a changed agent to all streams. If the name is None, several agents have changed."""
        hint = Hint("agent", name, None, name, self._clock.now())
        for stream in self._streams:
            stream.add(hint)

    def note_job(self, job_id: str, status: str) -> None:
        """Add a hint for a changed job to the streams of operators."""
        hint = Hint("job", job_id, status, None, self._clock.now())
        for stream in self._streams:
            if stream.is_operator:
                stream.add(hint)

    # Changes of other gateways

    def note_remotes(self, remotes: Iterable[Remote]) -> None:
        """Receive notices of commits by other gateways, and schedule a read of the changed threads in `PAUSE`
        seconds."""
        if not self._streams or self._is_closed:
            return
        for remote in remotes:
            if remote.is_thread:
                self._remote[remote.pk] = remote.rewritten or self._remote.get(remote.pk, False)
        self._read_later()

    def note_missed(self) -> None:
        """Receive the report that notices of other gateways may be lost, and schedule hints without an id."""
        if self._streams and not self._is_closed:
            self._has_missed = True
            self._read_later()

    def _read_later(self) -> None:
        if not self._streams or self._is_closed:
            self._remote.clear()
            self._has_missed = False
        elif len(self._remote) > MAX_REMOTE:
            self._remote.clear()
            self._has_missed = True
        if (self._remote or self._has_missed) and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(PAUSE, self._start_reading)

    def _start_reading(self) -> None:
        self._tasks.spawn(self._read_remote(), "hints about changes of other gateways")

    async def _read_remote(self) -> None:
        """Read up to `_READ_AT_ONCE` threads that other gateways have changed, and add hints for each new status."""
        keys = {key: self._remote.pop(key) for key in list(self._remote)[:_READ_AT_ONCE]}
        try:
            threads = await self._read_threads(list(keys)) if keys else []
            if self._has_missed or len(threads) < len(keys):  # erased ones have no owner any more
                self._note_several()
            for thread in threads:
                self._note_thread(thread, is_rewritten=keys[thread.pk])
        except FaultError:  # the database is away: the next read repeats this one
            for key, is_rewritten in keys.items():
                self._remote[key] = is_rewritten or self._remote.get(key, False)
        except Exception as error:
            self._failures.note(error)
            self._note_several()
        finally:
            self._timer = None
        while len(self._seen) > _MAX_SEEN:
            self._seen.popitem(last=False)
        self._read_later()

    def _note_several(self) -> None:
        """Add hints without an id for runs and threads to all streams."""
        self._has_missed = False
        self._seen.clear()
        now = self._clock.now()
        for stream in self._streams:
            stream.add(Hint("run", None, None, None, now))
            stream.add(Hint("thread", None, None, None, now))

    def _note_thread(self, thread: "RemoteThread", *, is_rewritten: bool) -> None:
        """Add hints for a thread of another gateway, if its status or that of a run differs from the read before.

        With `is_rewritten`, a run may have been removed: add a hint for all runs of the owner."""
        owner, now = thread.owner, self._clock.now()
        newest = thread.runs[:RUNS_OF_THREAD]
        is_known = len(newest) < RUNS_OF_THREAD or any((owner, "run", run.run_id) in self._seen for run in newest)
        changed = [run for run in thread.runs if self._is_new(owner, "run", run.run_id, run.status)]
        if is_rewritten or (changed and not is_known):  # an older run may have ended or been removed, too
            self._add(owner, Hint("run", None, None, None, now))
        else:
            for run in changed:
                self._add(owner, Hint("run", run.run_id, run.status, run.agent, now))
        if self._is_new(owner, "thread", thread.thread_id, thread.status) or changed or is_rewritten:
            agent = changed[0].agent if changed else None
            self._add(owner, Hint("thread", thread.thread_id, thread.status, agent, now))

    def _is_new(self, owner: str, kind: Kind, row_id: str, status: str) -> bool:
        """Remember the status of a thread or run. Return False if it is the status that was remembered before."""
        key = (owner, kind, row_id)
        if self._seen.get(key) == status:
            return False
        self._seen[key] = status
        return True

    def _forget_seen(self, owner: str, thread_id: str, run_id: str = "") -> None:
        """Drop the remembered status of a thread and a run that this gateway has changed."""
        self._seen.pop((owner, "thread", thread_id), None)
        self._seen.pop((owner, "run", run_id), None)


class RemoteRun(msgspec.Struct, frozen=True):
    """Id, status and agent of a run in a thread that another gateway has changed."""

    run_id: str
    status: str
    agent: str


class RemoteThread(msgspec.Struct, frozen=True):
    """Status of a thread that another gateway has changed, and of some of its runs."""

    pk: int
    owner: str
    thread_id: str
    status: str
    runs: list[RemoteRun]
    """The newest `RUNS_OF_THREAD` runs, and all older ones that have not ended, the newest first."""


def read_remote_threads(connection: Connection, keys: Sequence[int]) -> list[RemoteThread]:
    """Return the status of the threads with these database keys, and of their newest and active runs.

    Erased threads are left out. Only for PostgreSQL, which alone can be shared."""
    columns = (_THREAD.c.pk, _THREAD.c.owner, _THREAD.c.thread_id, _THREAD.c.status)
    found_threads = connection.execute(select(*columns).where(_THREAD.c.pk.in_(keys)))
    threads = {row.pk: RemoteThread(row.pk, row.owner, row.thread_id, row.status, []) for row in found_threads}
    status = case((_RUN.c.removed, "removed"), else_=_RUN.c.status).label("status")
    of_run = (_RUN.c.thread_pk, _RUN.c.first_seq, _RUN.c.run_id, status, _RUN.c.agent)
    newest = select(*of_run[1:]).where(_RUN.c.thread_pk == _THREAD.c.pk).order_by(_RUN.c.first_seq.desc())
    recent = newest.limit(RUNS_OF_THREAD).lateral()
    of_threads = select(_THREAD.c.pk, *recent.c).join(recent, true()).where(_THREAD.c.pk.in_(keys))
    live = select(*of_run).where(and_(_RUN.c.thread_pk.in_(keys), text(f"run.{LIVE}"))).limit(_LIVE_AT_ONCE)
    found = {(pk, seq): RemoteRun(*run) for each in (of_threads, live) for pk, seq, *run in connection.execute(each)}
    for (pk, _), run in sorted(found.items(), key=lambda each: each[0][1], reverse=True):
        if pk in threads:
            threads[pk].runs.append(run)
    return list(threads.values())
