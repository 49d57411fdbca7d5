"""Unit of work: the threads that commands read and change inside the writer's transaction.

Commands (`babelgate.gateway.runs.submission`) decide on a `ThreadState` and append events to it. The state contains
only open tasks, active runs and open questions. So it is as small for a long thread as for a new one. Everything here
runs on the writer's thread."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from babelgate.canonical.event import (
    Event,
    InterruptAnswered,
    InterruptRaised,
    PartDelta,
    Record,
    RunChanged,
    RunCreated,
    RunRemoved,
    RunStarted,
    TaskCreated,
    ThreadChanged,
    encode_event,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.fold import (
    interrupt_after,
    interrupt_raised,
    run_after,
    run_created,
    task_after,
    task_created,
    thread_after,
    thread_created,
)
from babelgate.canonical.state import ERRED, RunStatus, can_become, can_run_become
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Interrupt, Run, Task, Thread, ThreadStatus
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.prepared import Statement
from babelgate.gateway.storage.row_cache import RowChange, ThreadStanding
from babelgate.gateway.storage.short_form import created_id, decode_row, encode_row, refer, shorten, shorten_all
from babelgate.gateway.storage.spend import Amount, Spend, SpendBuffer, SpendKey
from babelgate.gateway.storage.statements import Sql, table_of
from babelgate.gateway.storage.tables import (
    MetaRow,
    RemnantRow,
    RunRow,
    ThreadRow,
    ThreadValueRow,
)
from babelgate.gateway.storage.thread_members import keys_of, write_members
from babelgate.gateway.storage.waiting import Waiting, WaitingRuns

AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(slots=True, eq=False)
class ThreadState:
    """Open tasks, active runs and open questions of a thread, and the number and time of its newest record."""

    pk: int
    thread: Thread
    seq: int = 0
    at: int = 0
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    """Tasks that have not ended, by id."""
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    """Pending and running runs by id, oldest first."""
    interrupts: dict[tuple[str, str], Interrupt] = field(default_factory=dict[tuple[str, str], Interrupt])
    """Open questions by task id and question id, the oldest first."""
    references: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """Map from the id of each open task and active run to the short reference, such as `#17`, that the log stores
    instead of the id."""
    member_keys: frozenset[int] = frozenset()
    """Keys of the rows that the thread has in the index of metadata (`thread_members`)."""
    newest_run: tuple[int, bool] | None = None
    """Sequence number at which the newest run that is not removed begins, and True if that run failed. None if not read
    yet."""

    @property
    def running(self) -> Run | None:
        return next((run for run in self.runs.values() if run.status is RunStatus.RUNNING), None)

    @property
    def pending(self) -> list[Run]:
        return [run for run in self.runs.values() if run.status is RunStatus.PENDING]

    def open_interrupts(self, task_id: str) -> list[Interrupt]:
        return [interrupt for interrupt in self.interrupts.values() if interrupt.task_id == task_id]


def _read_back(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """Encode an event to JSON and decode it again. Return the decoded event, which readers of the log will see, and the
    JSON.

    Raises invalid if the event cannot be encoded."""
    try:
        body = encode_event(event)
        return cast("AnyEvent", decode_event(body)), body
    except (ValueError, TypeError, RecursionError) as error:
        raise FaultError(FaultCode.INVALID, f"The {event.kind} cannot be stored: {error}") from error


def _reference(state: ThreadState, full_id: str | None) -> str | None:
    """Return the short reference that the log stores for the id of a task or run, or None for no id."""
    if full_id is None:
        return None
    return state.references.get(full_id) or refer(full_id, None)


class Published(msgspec.Struct, frozen=True):
    """Records that a transaction has appended to one thread, for publication after the commit."""

    pk: int
    owner: str
    thread_id: str
    records: list[Record]
    sizes: list[int]
    """Size of each record's event as JSON, in bytes."""


class _Rows:
    """Rows to write at the next flush. A row that several records have changed has one entry."""

    def __init__(self) -> None:
        self.threads: dict[int, bool] = {}
        """Database keys of the threads whose rows have changed. True for a new row."""
        self.tasks: dict[tuple[str, str], tuple[ThreadState, Task, bool]] = {}
        self.runs: dict[tuple[str, str], tuple[ThreadState, Run, bool]] = {}
        self.interrupts: dict[tuple[str, str, str], tuple[ThreadState, Interrupt, int]] = {}
        """Changed questions. The number is that of the record that raised a new question, and 0 if the row exists."""
        self.taken: set[tuple[str, str]] = set()
        """Owner and id of the runs that this gateway has started, so that their rows get its node id."""
        self.touched: dict[int, ThreadState] = {}
        """Threads with new records, by database key."""


class Transaction:
    """Unit of work of the writer: cached threads, and the changes to write before the commit.

    The writer uses one object for all its transactions, so that threads stay cached between them."""

    def __init__(self, sql: Sql, clock: Clock, cached: int = 4096) -> None:
        self.sql = sql
        self.now = clock.now
        self._steady = clock.steady
        self.connection: Connection = cast("Connection", None)
        self.published: list[Published] = []
        self._publishing: dict[int, Published] = {}
        """Items of `published` to which further records are added, by database key of the thread."""
        self.changed: list[RowChange] = []
        """Rows that were written, in order."""
        self.touched = 0
        """Counter that each change increments. A failed command that has not incremented it needs no rollback."""
        self.next_pk = 1
        self.node: str | None = None
        """Id of this gateway in its cluster. None if no other gateway uses the database."""
        self._waiting: WaitingRuns | None = None
        """Pending runs in memory, for limits. None until they are first counted."""
        self._cached = cached
        self._states: OrderedDict[tuple[str, str], ThreadState] = OrderedDict()
        self._events: list[tuple[Any, ...]] = []
        self._rows = _Rows()
        self._spend = SpendBuffer()
        self._starts: dict[tuple[int, str], int] = {}
        """Start times of delayed pending runs, by database key of the thread and run id, in microseconds of the
        monotonic clock."""
        self._starts_added: list[tuple[int, str]] = []
        """Keys that this transaction has added to `_starts`, to be removed after a rollback."""

    # The transaction, driven by the journal

    def begin(self, connection: Connection) -> None:
        self.connection = connection
        self.published = []
        self.seal()
        self.changed = []
        self._events = []
        self._rows = _Rows()
        self._spend.clear()
        self._starts_added = []

    def seal(self) -> None:
        """Collect later records in new items of `published`, so that a rollback to a savepoint can remove them
        alone."""
        self._publishing = {}

    def finish(self) -> list[Published]:
        """Write the buffered changes, and return the records to publish. The commit has to follow."""
        self.flush()
        while len(self._states) > self._cached:
            self._states.popitem(last=False)
        return self.published

    def forget(self) -> None:
        """Discard all cached threads and buffered changes after a rollback to the last commit or savepoint.

        Threads and counts are read again when they are needed."""
        self._states.clear()
        self._events = []
        self._rows = _Rows()
        self._spend.clear()
        self._waiting = None
        for key in self._starts_added:
            self._starts.pop(key, None)
        self._starts_added = []

    def forget_all(self) -> None:
        """Discard all cached threads and buffered changes after a lost connection: other gateways may have used the
        database."""
        self.forget()

    def flush(self) -> None:
        """Write the buffered records and rows, table by table.

        They are buffered because each call into the database releases the GIL, and getting it back from a busy event
        loop takes longer than the call."""
        rows, self._rows = self._rows, _Rows()
        if self._events:
            self.sql.insert_event.run_many(self.connection, self._events)
            self._events = []
        self._write_tasks(rows)
        self._write_runs(rows)
        self._write_interrupts(rows)
        self._write_threads(rows)
        self._spend.flush(self.connection, self.now)

    def note_rewritten(self, pk: int) -> None:
        """Invalidate the cached rows of a thread whose rows a command has changed or deleted with its own SQL."""
        self.changed.append(RowChange(pk))

    # Threads

    def thread(self, owner: str, thread_id: str) -> ThreadState | None:
        key = (owner, thread_id)
        state = self._states.get(key)
        if state is None:
            state = self._load(owner, thread_id)
            if state is None:
                return None
            self._states[key] = state
        else:
            self._states.move_to_end(key)
        return state

    def need_thread(self, owner: str, thread_id: str) -> ThreadState:
        """Return the state of a thread. Raises not_found if it does not exist."""
        state = self.thread(owner, thread_id)
        if state is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
        return state

    def is_erased(self, owner: str, thread_id: str) -> bool:
        return bool(self.sql.tombstone.run(self.connection, (owner, thread_id)))

    def forget_erased(self, owner: str, thread_id: str) -> None:
        """Delete the tombstone of an erased thread, if there is one, because its id is used again."""
        if self.is_erased(owner, thread_id):
            self.sql.delete_tombstone.execute(self.connection, (owner, thread_id))
            self.touched += 1

    def create_thread(self, owner: str, thread_id: str, event: ThreadChanged) -> ThreadState:
        """Create a thread whose log begins with `event`, and return its state. Raises invalid, like `append`."""
        event, body = _read_back(event)
        record = Record(1, self.now(), None, None, 0, event)
        thread = thread_after(thread_created(thread_id, owner, record), record)
        state = ThreadState(pk=self.new_key(), thread=thread, newest_run=(0, False))
        self._states[owner, thread_id] = state
        self._rows.threads[state.pk] = True
        self._append(state, record, body)
        return state

    def begin_keys(self, latest: int) -> None:
        """Set the highest key that any thread has. New threads get the keys after it."""
        self.next_pk = latest + 1

    def new_key(self) -> int:
        self.next_pk += 1
        return self.next_pk - 1

    def forget_thread(self, state: ThreadState) -> None:
        """Drop a thread from memory that the current command is about to erase.

        Buffered rows are written first, so that the command deletes them with the others."""
        self.flush()
        self.touched += 1
        owner = state.thread.owner
        self._states.pop((owner, state.thread.thread_id), None)
        for run_id in state.runs:
            self._discount(owner, run_id)
            self._starts.pop((state.pk, run_id), None)

    def rebuild_rows(self, pk: int, owner: str, thread_id: str, records: Iterator[Record]) -> None:
        """Compute the rows of a thread's tasks, runs and questions from its log, and write them. No such rows may exist
        yet."""
        first = next(records)
        state = ThreadState(pk=pk, thread=thread_after(thread_created(thread_id, owner, first), first))
        self._rows.threads[pk] = False
        self._rows.touched[pk] = state
        state.at = first.at
        for record in records:
            state.at = record.at
            self._fold(state, record)
        self.flush()

    def _load(self, owner: str, thread_id: str) -> ThreadState | None:
        state = self._load_thread(owner, thread_id)
        if state is None:
            return None
        pk = state.pk
        for (body,) in self.sql.open_tasks.run(self.connection, (pk,)):
            task = decode_row(Task, body)
            state.tasks[task.task_id] = task
            state.references[task.task_id] = refer(task.task_id, task.first_seq)
        for (body,) in self.sql.live_runs.run(self.connection, (pk,)):
            run = decode_row(Run, body)
            state.runs[run.run_id] = run
            state.references[run.run_id] = refer(run.run_id, run.first_seq)
            self._note_start(state, run)
        for (body,) in self.sql.open_interrupts.run(self.connection, (pk,)):
            interrupt = decode_row(Interrupt, body)
            state.interrupts[interrupt.task_id, interrupt.interrupt_id] = interrupt
        return state

    def _load_thread(self, owner: str, thread_id: str) -> ThreadState | None:
        """Read the row of a thread and the end of its log, without tasks, runs and questions. Return None if it does
        not exist."""
        found = self.sql.thread.run(self.connection, (owner, thread_id))
        if not found:
            return None
        pk, body = found[0]
        thread = decode_row(Thread, body)
        state = ThreadState(pk=pk, thread=thread, member_keys=keys_of(thread))
        for state.seq, state.at in self.sql.head.run(self.connection, (pk,)):
            pass
        return state

    # Tasks and runs that may have ended long ago

    def find_task(self, owner: str, task_id: str) -> Task | None:
        changed = self._rows.tasks.get((owner, task_id))
        if changed is not None:
            return changed[1]
        found = self.sql.task.run(self.connection, (owner, task_id))
        return decode_row(Task, found[0][0]) if found else None

    def need_task(self, owner: str, task_id: str) -> Task:
        """Return a task, open or ended. Raises not_found if it does not exist."""
        task = self.find_task(owner, task_id)
        if task is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Task {task_id} not found")
        return task

    def find_run(self, owner: str, run_id: str) -> tuple[Run, str] | None:
        """Return a run and the id of its thread, or None if it does not exist."""
        changed = self._rows.runs.get((owner, run_id))
        if changed is not None:
            return changed[1], changed[0].thread.thread_id
        found = self.sql.run.run(self.connection, (owner, run_id))
        return (decode_row(Run, found[0][0]), found[0][2]) if found else None

    def has_question(self, owner: str, task_id: str, interrupt_id: str) -> bool:
        """Return True if the task has a question with this id, open or answered."""
        if (owner, task_id, interrupt_id) in self._rows.interrupts:
            return True
        return bool(self.sql.asked.run(self.connection, (owner, task_id, interrupt_id)))

    # The log

    def append(
        self,
        state: ThreadState,
        event: Event,
        *,
        task_id: str | None = None,
        run_id: str | None = None,
        attempt: int = 0,
        body: bytes | None = None,
    ) -> Record:
        """Append one event to the log of a thread, and return its record.

        `task_id` and `run_id` are None if the event concerns the whole thread. `attempt` is 0 outside of attempts.
        `body` is the event's JSON, if the event was already encoded and decoded again. Raises invalid if the event
        cannot be stored, for example because an input contains a value that JSON cannot represent.
        """
        if body is None:
            event, body = _read_back(event)
        record = Record(state.seq + 1, max(self.now(), state.at), task_id, run_id, attempt, event)
        self._append(state, record, body)
        self._fold(state, record)
        return record

    def append_all(
        self,
        state: ThreadState,
        events: Sequence[tuple[Event, bytes]],
        *,
        task_id: str | None,
        run_id: str | None,
        attempt: int,
    ) -> None:
        """Append events of an agent with their JSON. All get the same time, task, run and attempt.

        Each event must be equal to the result of decoding the JSON next to it."""
        if not events:
            return
        self.touched += 1
        self._rows.touched[state.pk] = state
        pk, at = state.pk, max(self.now(), state.at)
        task, run = _reference(state, task_id), _reference(state, run_id)
        bodies = [body for _, body in events]
        seqs = range(state.seq + 1, state.seq + 1 + len(events))
        records = [
            Record(seq, at, task_id, run_id, attempt, event) for seq, (event, _) in zip(seqs, events, strict=True)
        ]
        self._events += [
            (pk, seq, at, task, run, attempt, stored) for seq, stored in zip(seqs, shorten_all(bodies), strict=True)
        ]
        published = self._publication(state)
        published.records.extend(records)
        published.sizes.extend(map(len, bodies))
        for record in records:
            if type(record.event) is not PartDelta:
                self._fold(state, record)
        state.seq, state.at = seqs[-1], at

    def _append(self, state: ThreadState, record: Record, body: bytes) -> None:
        self.touched += 1
        self._rows.touched[state.pk] = state
        state.seq, state.at = record.seq, record.at
        new_id = created_id(record.event)
        if new_id is not None:
            state.references[new_id] = refer(new_id, record.seq)
        task, run = _reference(state, record.task_id), _reference(state, record.run_id)
        self._events.append((state.pk, record.seq, record.at, task, run, record.attempt, shorten(body)))
        published = self._publication(state)
        published.records.append(record)
        published.sizes.append(len(body))

    def _publication(self, state: ThreadState) -> Published:
        published = self._publishing.get(state.pk)
        if published is None:
            thread = state.thread
            published = self._publishing[state.pk] = Published(state.pk, thread.owner, thread.thread_id, [], [])
            self.published.append(published)
        return published

    def _fold(self, state: ThreadState, record: Record) -> None:
        """Apply a record to the thread's state in memory, and note which rows must be written."""
        event = record.event
        if type(event) is PartDelta:  # most events of a long answer; they change no row
            return
        self._advance(state, record)
        match event:
            case TaskCreated():
                self._note_task(state, task_created(state.thread.thread_id, record, event), new=True)
            case RunCreated():
                task_id = record.task_id or ""
                agent = self._agent_of(state, task_id)
                self._note_run(state, run_created(record, event, task_id, state.thread.thread_id, agent), new=True)
            case RunStarted():
                self._rows.taken.add((state.thread.owner, record.run_id or ""))
            case RunRemoved() | RunChanged():
                self._note_ended_run(state, event, record)
            case InterruptRaised():
                interrupt = interrupt_raised(record, event)
                state.interrupts[interrupt.task_id, interrupt.interrupt_id] = interrupt
                key = (state.thread.owner, interrupt.task_id, interrupt.interrupt_id)
                self._rows.interrupts[key] = (state, interrupt, record.seq)
            case InterruptAnswered():
                interrupt = state.interrupts.pop((record.task_id or "", event.interrupt_id))
                self._note_answer(state, interrupt_after(interrupt, event))
            case _:
                pass

    def _advance(self, state: ThreadState, record: Record) -> None:
        """Apply a record to its thread, and to its task and run if they are open.

        Raises AssertionError for a transition that the state machine forbids."""
        thread = thread_after(state.thread, record)
        if thread is not state.thread:
            state.thread = thread
            self._rows.threads.setdefault(state.pk, False)
        if record.task_id in state.tasks:
            before = state.tasks[record.task_id]
            after = task_after(before, record)
            if after is not before:
                if not can_become(before.state, after.state):
                    raise AssertionError(f"task {before.task_id}: {before.state} cannot become {after.state}")
                self._note_task(state, after, new=False)
        if record.run_id in state.runs:
            run = state.runs[record.run_id]
            changed = run_after(run, record)
            if changed is not run:
                if changed.status is not run.status and not can_run_become(run.status, changed.status):
                    raise AssertionError(f"run {run.run_id}: {run.status} cannot become {changed.status}")
                self._note_run(state, changed, new=False)

    def _note_task(self, state: ThreadState, task: Task, *, new: bool) -> None:
        if task.is_terminal:
            state.tasks.pop(task.task_id, None)
            state.references.pop(task.task_id, None)
        else:
            state.tasks[task.task_id] = task
        key = (state.thread.owner, task.task_id)
        row = self._rows.tasks.get(key)
        self._rows.tasks[key] = (state, task, new or (row is not None and row[2]))

    def _note_ended_run(self, state: ThreadState, event: RunRemoved | RunChanged, record: Record) -> None:
        found = self.find_run(state.thread.owner, event.run_id)
        if found is not None:
            self._note_run(state, run_after(found[0], record), new=False)
        if isinstance(event, RunRemoved):  # the state of the thread may contain values of the run
            values = table_of(ThreadValueRow)
            self.connection.execute(values.delete().where(values.c.thread_pk == state.pk))

    def _note_run(self, state: ThreadState, run: Run, *, new: bool) -> None:
        if run.has_ended:
            state.runs.pop(run.run_id, None)
            state.references.pop(run.run_id, None)
        else:
            state.runs[run.run_id] = run
        if state.newest_run is not None and run.first_seq >= state.newest_run[0]:
            state.newest_run = None if run.removed else (run.first_seq, run.status in ERRED)
        key = (state.thread.owner, run.run_id)
        row = self._rows.runs.get(key)
        self._rows.runs[key] = (state, run, new or (row is not None and row[2]))
        if run.status is RunStatus.PENDING:
            self._count(key[0], run.run_id, run.agent, run.start_after)
            self._note_start(state, run)
        else:
            self._discount(key[0], run.run_id)
            self._starts.pop((state.pk, run.run_id), None)

    def _note_answer(self, state: ThreadState, interrupt: Interrupt) -> None:
        key = (state.thread.owner, interrupt.task_id, interrupt.interrupt_id)
        row = self._rows.interrupts.get(key)
        self._rows.interrupts[key] = (state, interrupt, 0 if row is None else row[2])

    # Writing

    def _many(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            statement.run_many(self.connection, rows)

    def _write_threads(self, rows: _Rows) -> None:
        """Write the rows of threads. Called last, because the status of a thread depends on the rows of its runs."""
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        only_touched: list[tuple[Any, ...]] = []
        members: dict[int, tuple[Set[int], Set[int]]] = {}
        for pk, state in rows.touched.items():
            status = (self._status_of(state), state.at)
            owner, thread_id = state.thread.owner, state.thread.thread_id
            self.changed.append(RowChange(pk, owner, ThreadStanding(thread_id, *status)))
            if pk not in rows.threads:
                only_touched.append((pk, *status))
                continue
            thread = state.thread
            keys = keys_of(thread)
            if keys != state.member_keys:
                members[pk] = (state.member_keys, keys)
                state.member_keys = keys
            body = encode_row(thread)
            self.changed.append(RowChange(pk, owner, thread, len(body)))
            if rows.threads[pk]:
                span = (thread.created_at, thread.changed_at)
                new.append((pk, owner, thread_id, *span, thread.ephemeral, thread.can_expire, *status, body))
            else:
                changed.append((pk, thread.changed_at, thread.ephemeral, thread.can_expire, *status, body))
        self._many(self.sql.insert_thread, new)
        self._many(self.sql.update_thread, changed)
        self._many(self.sql.update_standing, only_touched)
        if members:
            write_members(self.sql, self.connection, members)

    def _status_of(self, state: ThreadState) -> ThreadStatus:
        if state.runs:
            return "busy"
        if any(task.is_waiting for task in state.tasks.values()):
            return "interrupted"
        newest = state.newest_run or self._read_newest_run(state)
        return "error" if newest[1] else "idle"

    def _read_newest_run(self, state: ThreadState) -> tuple[int, bool]:
        state.newest_run = (0, False)
        for seq, status in self.sql.newest_run.run(self.connection, (state.pk,)):
            state.newest_run = (seq, status in ERRED)
        return state.newest_run

    def _write_tasks(self, rows: _Rows) -> None:
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        for (owner, task_id), (state, task, inserted) in rows.tasks.items():
            body = encode_row(task)
            self.changed.append(RowChange(state.pk, owner, task, len(body)))
            if inserted:
                span = (task.created_at, task.changed_at, task.first_seq, task.last_seq)
                place = (state.pk, task.thread_id, task.agent)
                new.append((owner, task_id, *place, str(task.state), *span, task.continues, body))
            else:
                changed.append((owner, task_id, str(task.state), task.changed_at, task.last_seq, body))
        self._many(self.sql.insert_task, new)
        self._many(self.sql.update_task, changed)

    def _write_runs(self, rows: _Rows) -> None:
        """Write the changed rows of runs. Runs that stop are written first.

        The unique index that allows one running run per thread is checked row by row."""
        new: list[tuple[Any, ...]] = []
        stopped: list[tuple[Any, ...]] = []
        started: list[tuple[Any, ...]] = []
        for (owner, run_id), (state, run, inserted) in rows.runs.items():
            body, status = encode_row(run), str(run.status)
            self.changed.append(RowChange(state.pk, owner, run, len(body)))
            if inserted:
                place = (state.pk, run.task_id, run.agent)
                span = (run.created_at, run.start_after, run.first_seq, run.last_seq)
                new.append((owner, run_id, *place, status, run.attempt, *span, run.removed, self.node, body))
            else:
                changed = started if run.status is RunStatus.RUNNING else stopped
                node = self.node if (owner, run_id) in rows.taken else None
                changed.append((owner, run_id, status, run.attempt, run.last_seq, run.removed, node, body))
        self._many(self.sql.update_run, stopped)
        self._many(self.sql.insert_run, new)
        self._many(self.sql.update_run, started)

    def _write_interrupts(self, rows: _Rows) -> None:
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        for (owner, task_id, interrupt_id), (state, interrupt, seq) in rows.interrupts.items():
            body = encode_row(interrupt)
            if seq:
                new.append((owner, task_id, interrupt_id, state.pk, interrupt.run_id, seq, interrupt.action, body))
            else:
                changed.append((owner, task_id, interrupt_id, interrupt.action, body))
        self._many(self.sql.insert_interrupt, new)
        self._many(self.sql.update_interrupt, changed)

    def _agent_of(self, state: ThreadState, task_id: str) -> str:
        task = state.tasks.get(task_id)
        return (task or self.need_task(state.thread.owner, task_id)).agent

    def take(self, owner: str, run_id: str) -> None:
        """Store this gateway as the node that will start a pending run. Does nothing on an unshared database."""
        if self.node is not None:
            run = table_of(RunRow)
            waits = (run.c.owner == owner, run.c.run_id == run_id, run.c.status == str(RunStatus.PENDING))
            self.connection.execute(update(run).where(*waits).values(node=self.node))
            self.touched += 1

    def announce_administration(self) -> None:
        """Mark a change of the administration, so that other gateways on the database are notified after the commit."""
        self.touched += 1

    def announce_grants(self) -> None:
        """Mark a grant to a new grantee, so that other gateways on the database are notified after the commit."""
        self.touched += 1

    # Budgets

    def add_spend(self, key: SpendKey, amount: Amount) -> None:
        """Add an amount that a run has used to a budget's scope and period."""
        self.touched += 1
        self._spend.add(key, amount)

    def forget_spend(self, key: SpendKey) -> None:
        """Delete the amounts of a budget's scope and period."""
        self.touched += 1
        self._spend.forget(key)

    def read_spend(self, keys: Sequence[SpendKey]) -> Mapping[SpendKey, Spend]:
        """Return the used amounts of budgets by key, including what this transaction has added. Keys without amounts
        are left out."""
        return self._spend.read(self.connection, keys)

    # Delayed starts

    def wait(self, state: ThreadState, run: Run) -> int:
        """Return the microseconds until a delayed pending run may start. 0 or less means now."""
        return self._starts.get((state.pk, run.run_id), 0) - self._steady() if run.start_after is not None else 0

    def _note_start(self, state: ThreadState, run: Run) -> None:
        """Compute the start time of a delayed run on the monotonic clock, when this gateway first sees the run."""
        key = (state.pk, run.run_id)
        if run.start_after is None or run.status is not RunStatus.PENDING or key in self._starts:
            return
        self._starts[key] = self._steady() + max(0, run.start_after - self.now())
        self._starts_added.append(key)

    # Limits of pending runs

    def waiting(self, owner: str, agent: str) -> Waiting:
        """Return how many runs wait for an agent, by all owners and by this one, and how many of the owner's runs wait
        in all."""
        if self._waiting is None:
            self._waiting = self._count_rows()
        return self._waiting.count(owner, agent, self.now())

    def _count(self, owner: str, run_id: str, agent: str, start_after: int | None) -> None:
        if self._waiting is not None:
            self._waiting.add(owner, run_id, agent, start_after, self.now())

    def _discount(self, owner: str, run_id: str) -> None:
        if self._waiting is not None:
            self._waiting.discard(owner, run_id)

    def _count_rows(self) -> WaitingRuns:
        self.flush()
        waiting, now, run = WaitingRuns(), self.now(), table_of(RunRow).c
        pending = select(run.owner, run.run_id, run.agent, run.start_after).where(run.status == str(RunStatus.PENDING))
        for owner, run_id, agent, start_after in self.connection.execute(pending):
            waiting.add(owner, run_id, agent, start_after, now)
        return waiting


def latest_pk(connection: Connection) -> int:
    keys = (table_of(ThreadRow).c.pk, table_of(RemnantRow).c.thread_pk)
    return max(connection.execute(select(func.max(key))).scalar() or 0 for key in keys)


def read_meta(connection: Connection, name: str) -> str | None:
    meta = table_of(MetaRow)
    return connection.execute(select(meta.c.value).where(meta.c.name == name)).scalar()


def write_meta(connection: Connection, name: str, value: str) -> None:
    meta = table_of(MetaRow)
    connection.execute(delete(meta).where(meta.c.name == name))
    connection.execute(insert(meta).values(name=name, value=value))


@dataclass(frozen=True, slots=True)
class Erased:
    """Facts about an erased thread, by which its runs are stopped and it is removed from memory."""

    pk: int
    running: str | None
    """Id of the run that was running, or None."""
    tasks: frozenset[str]
    """Ids of the tasks that had not ended."""
    runs: frozenset[str]
    """Ids of the runs that had not ended."""
    long: bool = False
    """True if the log is too long to be deleted in one transaction, so that `erase_remnant` deletes it in parts."""


def need_idle_thread(tx: Transaction, owner: str, thread_id: str) -> ThreadState:
    """Return the state of a thread that has no active run. Raises not_found, and conflict if it has one."""
    state = tx.need_thread(owner, thread_id)
    if state.runs:
        raise FaultError(
            FaultCode.CONFLICT, f"Thread {thread_id} is busy: its state cannot be changed while a run is active"
        )
    return state
