"""Unit of work on a database that several gateways write to (PostgreSQL): optimistic concurrency on the log of a
thread.

A command decides on the state in memory, which a commit of another gateway may have made stale. The gateway does not
check that in advance. The primary key of the log, `(thread_pk, seq)`, refuses a second record with the same number. In
addition, the threads that a group has read are compared with the database before the commit. If they differ, the group
is repeated on threads that are read again. So the rules of one gateway hold for all of them together: one running run
per thread, the attempt of a run as a fence, the first answer wins.

This rests on four properties:

- Every change of a thread appends to its log, also the removal of a run and the pruning of states. Only erasure appends
  nothing. It locks the thread's row and compares the end of the log under this lock. A gateway that appends meanwhile
  finds in its own comparison that the row is gone.
- A transaction is READ COMMITTED, so that the counters that all gateways update (`tally`) make them wait, not fail.
  Each statement sees another snapshot of the database. The row of a thread and the end of its log are therefore read in
  one statement, and the rest of the thread after it: the comparison detects anything newer. A command that knows only a
  task or a run reads its row twice, before and after the thread.
- Rows that depend on a thread without changing it (checkpoints of graphs) are written under a lock on the thread's row,
  which is taken before the comparison. No other gateway appends, takes over or erases between it and the commit.
- All gateways take locks in one order: records by key, then tasks, runs, interrupts and threads, each by owner. Two
  groups with common threads wait for each other without a deadlock. A command that flushes in the middle of a group may
  deadlock. PostgreSQL ends one of the two transactions after a second, and its gateway repeats it.
"""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, LiteralString, cast

from sqlalchemy import Connection

from babelgate.canonical.event import RunRemoved, StatesPruned, ThreadChanged
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Run, Task, Thread
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.notices import ADMINISTRATION, GRANTS, Remote
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import Sql
from babelgate.gateway.storage.thread_members import keys_of
from babelgate.gateway.storage.transaction import Published, ThreadState, Transaction
from babelgate.gateway.storage.waiting import Waiting

if TYPE_CHECKING:
    import psycopg

_KEYS: Final = 64
"""Number of keys for new threads that one statement takes from the sequence. Chosen."""
_BEHIND: Final = 16_384
"""Maximum number of threads in `SharedTransaction._behind`; the oldest are dropped. Chosen."""
_THREAD: Final = (
    "SELECT thread.pk, thread.body, last.seq, last.at FROM thread CROSS JOIN LATERAL (SELECT seq, at FROM event "
    "WHERE thread_pk = thread.pk ORDER BY seq DESC LIMIT 1) AS last WHERE thread.owner = %s AND thread.thread_id = %s"
)
_RESERVE: Final = (
    "INSERT INTO event (thread_pk, seq, at, attempt, body) VALUES (%s, %s, 0, 0, '') ON CONFLICT DO NOTHING RETURNING 1"
)
_FREE: Final = "DELETE FROM event WHERE thread_pk = %s AND seq = %s"
_NEW_KEYS: Final = "SELECT nextval('thread_key') FROM generate_series(1, %s)"
_SKIP_KEYS: Final = (
    "SELECT setval('thread_key', %s) FROM thread_key WHERE last_value < %s OR (last_value = %s AND NOT is_called)"
)
_ENDS: Final = (
    "SELECT pk, (SELECT max(seq) FROM event WHERE thread_pk = pk) FROM thread WHERE pk = ANY(%s::bigint[]) ORDER BY pk"
)
_KEEP: Final = "SELECT pk FROM thread WHERE pk = ANY(%s::bigint[]) ORDER BY pk FOR SHARE"
_TAKE: Final = "SELECT pk FROM thread WHERE pk = %s FOR UPDATE"
_WAITING: Final = """
SELECT agent, owner, coalesce(start_after > %s, false), count(*) FROM run WHERE status = 'pending' GROUP BY 1, 2, 3
"""
CHANNEL: Final = "'babelgate_' || md5(current_schema())"
"""SQL expression for the name of the channel on which the gateways of a database and schema listen. PostgreSQL allows
63 bytes."""
REWRITES: Final = (RunRemoved, StatesPruned)
"""Types of events that change the meaning of earlier records, so that caches of the thread become invalid."""


class Stale(Exception):
    """Raised if another gateway has written to a thread since this transaction read it. The commands are then
    repeated."""


@dataclass(slots=True, eq=False)
class _TouchedThread:
    """A thread that the transaction has read or created."""

    state: ThreadState
    start: int
    """Sequence number of the thread's newest record when the transaction first read the thread. 0 if the transaction
    creates it."""
    end: int
    """Sequence number that the thread's newest record must have in the database before the commit, if no other gateway
    has written."""


class SharedTransaction(Transaction):
    def __init__(self, sql: Sql, clock: Clock, node: str) -> None:
        super().__init__(sql, clock)
        self.node = node
        self._keys: deque[int] = deque()
        self._touched_threads: dict[int, _TouchedThread] = {}
        """Threads that the transaction has read or created, by database key."""
        self.reserves = False
        """True if the transaction locks each thread when it first reads it, so that no other gateway can append to it
        until the end.

        Without that, the slowest of several gateways that keep writing to one thread would never succeed."""
        self._ends: psycopg.Cursor[Any] | None = None
        self.remotes: list[Remote] = []
        """Notices to send to the other gateways after the commit."""
        self._queued: Counter[tuple[str, str, bool]] | None = None
        """Number of pending runs in the database by agent, owner, and whether they are delayed. None until it is
        counted."""
        self._queueing: Counter[tuple[str, str, bool]] = Counter()
        """Changes of the numbers in `_queued` by this transaction that are not written to the database yet."""
        self._behind: OrderedDict[int, int] = OrderedDict()
        """Newest sequence number of each thread in the notices of other gateways, by database key."""

    def note_remote(self, remote: Remote) -> None:
        """Remember that the thread in memory is out of date, because another gateway has announced a commit. Called on
        the event loop.

        This only avoids a failed attempt: `confirm` detects the change without a notice, too. Notices of different
        gateways may arrive in another order than their commits."""
        seq = 2**62 if remote.erased else remote.seq
        self._behind[remote.pk] = max(seq, self._behind.get(remote.pk, 0))
        if len(self._behind) > _BEHIND:
            self._behind.popitem(last=False)

    # The transaction

    def begin(self, connection: Connection) -> None:
        super().begin(connection)
        self._touched_threads = {}
        self.remotes = []
        self._queued = None
        self._queueing.clear()

    def finish(self) -> list[Published]:
        """Write the buffered changes, and send the query whose result `confirm` compares. Return the records to
        publish."""
        published = super().finish()
        self.remotes = [_remote_of(each) for each in published] + self.remotes
        unchanged = [pk for pk, look in self._touched_threads.items() if look.start == look.end]
        if unchanged:
            self._ask(_KEEP, unchanged)
        self._ends = (
            _driver(self.connection).execute(_ENDS, (list(self._touched_threads),)) if self._touched_threads else None
        )
        return published

    def confirm(self) -> None:
        """Raise Stale if another gateway has written to a thread of this transaction. Called just before the commit."""
        if self._ends is not None and self._differs(self._ends.fetchall()):
            raise Stale

    def is_stale(self) -> bool:
        """Query now whether another gateway has written to a thread of this transaction.

        Return False also if the transaction has failed, so that no query is possible."""
        if not self._touched_threads or _is_failed(self.connection):
            return False
        return self._differs(self._read(_ENDS, list(self._touched_threads)))

    def _differs(self, rows: list[tuple[Any, ...]]) -> bool:
        ends = dict(rows)
        return any(ends.get(pk) != (look.end or None) for pk, look in self._touched_threads.items())

    def forget(self) -> None:
        """Discard the changes of the transaction in memory, and drop from the cache the threads that the transaction
        used.

        All other threads stay cached, because races against other gateways are frequent."""
        threads, self._touched_threads = self._touched_threads, {}
        states = self._states
        self._states = OrderedDict()
        super().forget()
        self._states = states
        for look in threads.values():
            self._drop(look.state)

    def forget_all(self) -> None:
        """Drop all threads from the cache. Called after a lost connection, during which another gateway may have reused
        their keys."""
        self.forget()
        self._states.clear()
        self._behind.clear()

    def flush(self) -> None:
        rows = self._rows
        self._events.sort(key=itemgetter(0, 1))
        # Tallies are by owner and agent, and their rows are locked as tasks are inserted.
        rows.tasks = dict(sorted(rows.tasks.items(), key=lambda row: (row[0][0], row[1][1].agent, row[0][1])))
        rows.runs = dict(sorted(rows.runs.items()))
        rows.interrupts = dict(sorted(rows.interrupts.items()))
        rows.touched = dict(sorted(rows.touched.items(), key=lambda row: (row[1].thread.owner, row[0])))
        super().flush()
        for pk in rows.touched:
            if pk in self._touched_threads:
                self._touched_threads[pk].end = rows.touched[pk].seq
        self._queued = None
        self._queueing.clear()

    # Threads

    def thread(self, owner: str, thread_id: str) -> ThreadState | None:
        cached = self._states.get((owner, thread_id))
        if (
            cached is not None
            and cached.pk not in self._touched_threads
            and cached.seq < self._behind.get(cached.pk, 0)
        ):
            self._drop(cached)
        state = super().thread(owner, thread_id)
        if state is not None and state.pk not in self._touched_threads:
            self._touched_threads[state.pk] = _TouchedThread(state, state.seq, state.seq)
        return state

    def find_task(self, owner: str, task_id: str) -> Task | None:
        """Return a task, or None if it does not exist.

        If its thread was not read yet, read the thread and then the task again: it may have ended in between."""
        task = super().find_task(owner, task_id)
        if task is None or self._has_read(owner, task.thread_id):
            return task
        self.thread(owner, task.thread_id)
        return super().find_task(owner, task_id)

    def find_run(self, owner: str, run_id: str) -> tuple[Run, str] | None:
        found = super().find_run(owner, run_id)
        if found is None or self._has_read(owner, found[1]):
            return found
        self.thread(owner, found[1])
        return super().find_run(owner, run_id)

    def _has_read(self, owner: str, thread_id: str) -> bool:
        """Return True if this transaction has read the thread, so that `confirm` will detect changes by other
        gateways."""
        cached = self._states.get((owner, thread_id))
        return cached is not None and cached.pk in self._touched_threads

    def create_thread(self, owner: str, thread_id: str, event: ThreadChanged) -> ThreadState:
        state = super().create_thread(owner, thread_id, event)
        self._touched_threads[state.pk] = _TouchedThread(state, 0, 0)
        return state

    def begin_keys(self, latest: int) -> None:
        """Advance the sequence of thread keys beyond `latest`, the highest key in use.

        While the database was not shared, a gateway assigned keys without the sequence."""
        self._ask(_SKIP_KEYS, latest, latest, latest)

    def new_key(self) -> int:
        if not self._keys:
            self._keys.extend(pk for (pk,) in self._read(_NEW_KEYS, _KEYS))
        return self._keys.popleft()

    def forget_thread(self, state: ThreadState) -> None:
        """Lock the row of a thread that is about to be erased, and drop the thread from the cache.

        Raises Stale if another gateway has written to it."""
        super().forget_thread(state)
        self._queued = None
        del self._touched_threads[state.pk]
        if not self._read(_TAKE, state.pk) or self._read(_ENDS, [state.pk]) != [(state.pk, state.seq)]:
            raise Stale
        self.remotes.append(Remote(state.pk, state.seq, erased=True))

    def announce_administration(self) -> None:
        super().announce_administration()
        self.remotes.append(Remote(ADMINISTRATION, 0))

    def announce_grants(self) -> None:
        super().announce_grants()
        self.remotes.append(Remote(GRANTS, 0))

    def _drop(self, state: ThreadState) -> None:
        thread = state.thread
        self._states.pop((thread.owner, thread.thread_id), None)
        for run_id in state.runs:  # another gateway may have started it, and the next load reads the start times again
            self._starts.pop((state.pk, run_id), None)

    def _load(self, owner: str, thread_id: str) -> ThreadState | None:
        state = super()._load(owner, thread_id)
        if state is not None and not state.runs:  # read now, because a query inside of a pipeline may fail
            self._read_newest_run(state)
        return state

    def _load_thread(self, owner: str, thread_id: str) -> ThreadState | None:
        while found := self._read(_THREAD, owner, thread_id):
            pk, body, seq, at = found[0]
            if not self.reserves or self._reserve(pk, seq + 1):
                thread = decode_row(Thread, body)
                return ThreadState(pk=pk, thread=thread, seq=seq, at=at, member_keys=keys_of(thread))
        return None

    def _reserve(self, pk: int, seq: int) -> bool:
        """Reserve the next sequence number of a thread until the transaction ends. Return False if it is already used.

        The reservation inserts a record and deletes it again. Another gateway that inserts the same number then waits
        for the end of this transaction."""
        if not self._read(_RESERVE, pk, seq):
            return False
        self._ask(_FREE, pk, seq)
        return True

    # Bounds on what waits

    def waiting(self, owner: str, agent: str) -> Waiting:
        """Return the numbers of waiting runs that count against limits, including the committed ones of other gateways.

        Several gateways that accept runs at the same time may exceed a limit together."""
        if self._queued is None:
            rows = self._read(_WAITING, self.now())
            self._queued = Counter({(its, whose, later): count for its, whose, later, count in rows})
        by_owner, of_owner = Counter[str](), Counter[bool]()
        for (its, whose, later), count in (*self._queued.items(), *self._queueing.items()):
            if its == agent and not later:
                by_owner[whose] += count
            if whose == owner:
                of_owner[later] += count
        return Waiting.of(by_owner, owner, in_all=of_owner[False], delayed=of_owner[True])

    def _note_run(self, state: ThreadState, run: Run, *, new: bool) -> None:
        before = state.runs.get(run.run_id)
        waited = before is not None and before.status is RunStatus.PENDING
        is_delayed = run.start_after is not None and run.start_after > self.now()
        self._queueing[run.agent, state.thread.owner, is_delayed] += (run.status is RunStatus.PENDING) - waited
        super()._note_run(state, run, new=new)

    # Statements of this database alone

    def _ask(self, sql: LiteralString, *values: Any) -> None:
        _driver(self.connection).execute(sql, values)

    def _read(self, sql: LiteralString, *values: Any) -> list[tuple[Any, ...]]:
        return _driver(self.connection).execute(sql, values).fetchall()


def _driver(connection: Connection) -> "psycopg.Connection[Any]":
    return cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)


def _is_failed(connection: Connection) -> bool:
    """Return True if the server refuses further statements in this transaction."""
    return _driver(connection).info.transaction_status.name in ("INERROR", "UNKNOWN")


def _remote_of(each: Published) -> Remote:
    rewritten = any(isinstance(record.event, REWRITES) for record in each.records)
    return Remote(each.pk, each.records[-1].seq, rewritten=rewritten, created=each.records[0].seq == 1)
