"""Unit of work on a database that other gateways write to, too (PostgreSQL): optimistic concurrency by the log's key.

A command decides on what is in memory, which another gateway may have made stale. Nothing is asked before: the key of
the log `(thread_pk, seq)` refuses a record in the place of another one's, and what a group looked at is compared with
the database before its commit. Then the group is done again, on threads that are read anew. So the rules that hold
within one gateway hold among all: one running run a thread, the attempt of a run as a fence, the first answer wins.

What that rests on:

- Whoever changes a thread appends to its log, also who hides a run or prunes states. Erasure appends nothing: it locks
  the thread's row and compares the end of the log under this lock, and whoever appends meanwhile finds at its own
  comparison that the row is gone.
- A transaction is READ COMMITTED, so that counters that all gateways keep (`tally`) make them wait and not fail: each
  statement sees another moment. A thread's row and the end of its log are read in one statement, and all else of it
  after that: what is newer than this end is found at the comparison. A command that knows only a task or a run reads
  its row twice, before and after the thread.
- Rows that say something of a thread that was only looked at (checkpoints of graphs) are written under a lock on its
  row, taken before the comparison: nobody appends, takes over, or erases between it and the commit.
- All take locks in one order: records by their key, then tasks, runs, interrupts and threads, each by owner. Two groups
  that meet on some threads wait for one another, and do not deadlock. A command that flushes in the middle of a group
  may; PostgreSQL ends one of both after a second, and that one is done again.
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
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import Sql
from babelgate.gateway.storage.transaction import Published, ThreadState, Transaction
from babelgate.gateway.storage.waiting import Waiting

if TYPE_CHECKING:
    import psycopg

_KEYS: Final = 64
"""Keys of threads that are taken from the sequence at once."""
_BEHIND: Final = 16_384
"""Threads of which it is kept that another gateway has written to them."""
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
"""Where gateways of a database and schema listen: a name is 63 bytes at most."""
REWRITES: Final = (RunRemoved, StatesPruned)
"""Records with which earlier ones change."""


class Stale(Exception):
    """Another gateway has written to a thread since it was read here."""


@dataclass(slots=True, eq=False)
class _Look:
    """A thread of this transaction."""

    state: ThreadState
    begun: int
    """Where its log ended when the transaction began with it; 0 = it makes the thread."""
    end: int
    """Where it ends in the database, if nobody else has written to it."""


class SharedTransaction(Transaction):
    def __init__(self, sql: Sql, clock: Clock, node: str) -> None:
        super().__init__(sql, clock)
        self.node = node
        self._keys: deque[int] = deque()
        self._looked: dict[int, _Look] = {}
        """By key."""
        self.reserves = False
        """A thread that is read is nobody else's to append to until the transaction ends: where several gateways write
        to it all the time, the slowest would lose for ever."""
        self._ends: psycopg.Cursor[Any] | None = None
        self.remotes: list[Remote] = []
        """Notices for the other gateways, to be sent after the commit."""
        self._queued: Counter[tuple[str, str, bool]] | None = None
        """Waiting runs by agent, owner and whether they are delayed, as they are in the database; None until they are
        counted."""
        self._queueing: Counter[tuple[str, str, bool]] = Counter()
        """The difference that is not in the database yet."""
        self._behind: OrderedDict[int, int] = OrderedDict()

    def note_remote(self, remote: Remote) -> None:
        """Note on the event loop that the thread in memory is out of date.

        This only saves a failed attempt: `confirm` finds out without a notice, too. Notices of two gateways may arrive
        in another order than their commits.
        """
        seq = 2**62 if remote.erased else remote.seq
        self._behind[remote.pk] = max(seq, self._behind.get(remote.pk, 0))
        if len(self._behind) > _BEHIND:
            self._behind.popitem(last=False)

    # The transaction

    def begin(self, connection: Connection) -> None:
        super().begin(connection)
        self._looked = {}
        self.remotes = []
        self._queued = None
        self._queueing.clear()

    def finish(self) -> list[Published]:
        """The comparison is asked for with the rest; `confirm` looks at it."""
        published = super().finish()
        self.remotes = [_remote_of(each) for each in published] + self.remotes
        unchanged = [pk for pk, look in self._looked.items() if look.begun == look.end]
        if unchanged:
            self._ask(_KEEP, unchanged)
        self._ends = _driver(self.connection).execute(_ENDS, (list(self._looked),)) if self._looked else None
        return published

    def confirm(self) -> None:
        """After what was sent together, before the commit: what was looked at is what is there. Raises Stale."""
        if self._ends is not None and self._differs(self._ends.fetchall()):
            raise Stale

    def is_stale(self) -> bool:
        """Whether another gateway has written to a thread that was looked at."""
        if not self._looked or _is_failed(self.connection):
            return False
        return self._differs(self._read(_ENDS, list(self._looked)))

    def _differs(self, rows: list[tuple[Any, ...]]) -> bool:
        ends = dict(rows)
        return any(ends.get(pk) != (look.end or None) for pk, look in self._looked.items())

    def forget(self) -> None:
        """Of threads only those of this transaction: what other gateways do often must not cost all others of this
        one."""
        looked, self._looked = self._looked, {}
        kept = self._states
        self._states = OrderedDict()
        super().forget()
        self._states = kept
        for look in looked.values():
            self._drop(look.state)

    def forget_all(self) -> None:
        """Whoever had the database meanwhile may have given keys out again."""
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
            if pk in self._looked:
                self._looked[pk].end = rows.touched[pk].seq
        self._queued = None
        self._queueing.clear()

    # Threads

    def thread(self, owner: str, thread_id: str) -> ThreadState | None:
        known = self._states.get((owner, thread_id))
        if known is not None and known.pk not in self._looked and known.seq < self._behind.get(known.pk, 0):
            self._drop(known)
        state = super().thread(owner, thread_id)
        if state is not None and state.pk not in self._looked:
            self._looked[state.pk] = _Look(state, state.seq, state.seq)
        return state

    def find_task(self, owner: str, task_id: str) -> Task | None:
        """Read the task after its thread: a task that was read before may have ended when the thread is read."""
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
        """Whether the thread was read in this transaction, or is in memory: what is newer in a row is found by
        `confirm`."""
        known = self._states.get((owner, thread_id))
        return known is not None and known.pk in self._looked

    def create_thread(self, owner: str, thread_id: str, event: ThreadChanged) -> ThreadState:
        state = super().create_thread(owner, thread_id, event)
        self._looked[state.pk] = _Look(state, 0, 0)
        return state

    def begin_keys(self, latest: int) -> None:
        """A gateway that had the database to itself has given keys that the sequence does not know of."""
        self._ask(_SKIP_KEYS, latest, latest, latest)

    def new_key(self) -> int:
        if not self._keys:
            self._keys.extend(pk for (pk,) in self._read(_NEW_KEYS, _KEYS))
        return self._keys.popleft()

    def forget_thread(self, state: ThreadState) -> None:
        """Raises Stale."""
        super().forget_thread(state)
        self._queued = None
        del self._looked[state.pk]
        if not self._read(_TAKE, state.pk) or self._read(_ENDS, [state.pk]) != [(state.pk, state.seq)]:
            raise Stale
        self.remotes.append(Remote(state.pk, state.seq, erased=True))

    def _drop(self, state: ThreadState) -> None:
        thread = state.thread
        self._states.pop((thread.owner, thread.thread_id), None)
        for run_id in state.runs:  # another gateway may have started it: what is read anew says when it may start
            self._starts.pop((state.pk, run_id), None)

    def _load(self, owner: str, thread_id: str) -> ThreadState | None:
        state = super()._load(owner, thread_id)
        if state is not None and not state.runs:  # not while the rest is sent together, which may fail
            self._read_newest_run(state)
        return state

    def _load_thread(self, owner: str, thread_id: str) -> ThreadState | None:
        while found := self._read(_THREAD, owner, thread_id):
            pk, body, seq, at = found[0]
            if not self.reserves or self._reserve(pk, seq + 1):
                return ThreadState(pk=pk, thread=decode_row(Thread, body), seq=seq, at=at)
        return None

    def _reserve(self, pk: int, seq: int) -> bool:
        """Whether the place in the log is free, and nobody else's until this transaction ends. The record that was
        inserted and deleted is there for those who insert another one: they wait."""
        if not self._read(_RESERVE, pk, seq):
            return False
        self._ask(_FREE, pk, seq)
        return True

    # Bounds on what waits

    def waiting(self, owner: str, agent: str) -> Waiting:
        """With those of other gateways that are committed: a bound may be passed by what several take at once."""
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
    """Whether the server does nothing more in this transaction."""
    return _driver(connection).info.transaction_status.name in ("INERROR", "UNKNOWN")


def _remote_of(each: Published) -> Remote:
    rewritten = any(isinstance(record.event, REWRITES) for record in each.records)
    return Remote(each.pk, each.records[-1].seq, rewritten=rewritten, created=each.records[0].seq == 1)
