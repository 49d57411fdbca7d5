"""Unit of work: threads as the writer sees them, inside its transaction.

Commands (`babelgate.gateway.runs.submission`) decide on a `ThreadState` and append events to it. The state holds
what is open (tasks, live runs, questions) and nothing of the past, so that it is as small for a long thread as for a
new one. Everything here runs on the writer's own thread.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
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
from babelgate.gateway.storage.row_cache import RowChange
from babelgate.gateway.storage.short_form import created_id, decode_row, encode_row, refer, shorten, shorten_all
from babelgate.gateway.storage.statements import Sql, table_of
from babelgate.gateway.storage.tables import (
    MetaRow,
    RemnantRow,
    RunRow,
    ThreadRow,
    ThreadValueRow,
)
from babelgate.gateway.storage.waiting import Waiting, WaitingRuns

AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(slots=True, eq=False)
class ThreadState:
    """What of a thread is open, and where its log ends."""

    pk: int
    thread: Thread
    seq: int = 0
    at: int = 0
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    """Not terminal."""
    runs: dict[str, Run] = field(default_factory=dict[str, Run])
    """Pending and running, oldest first."""
    interrupts: dict[tuple[str, str], Interrupt] = field(default_factory=dict[tuple[str, str], Interrupt])
    """Unanswered, by task and id, oldest first."""
    references: dict[str, str | None] = field(default_factory=dict[str, str | None])
    """What the log keeps in the place of the ids of these tasks and runs."""
    newest_run: tuple[int, bool] | None = None
    """Of the runs that are not removed: the seq of the one that was created last, and whether it failed. None = not
    known here."""

    @property
    def running(self) -> Run | None:
        return next((run for run in self.runs.values() if run.status is RunStatus.RUNNING), None)

    @property
    def pending(self) -> list[Run]:
        return [run for run in self.runs.values() if run.status is RunStatus.PENDING]

    def open_interrupts(self, task_id: str) -> list[Interrupt]:
        return [asked for asked in self.interrupts.values() if asked.task_id == task_id]


def _read_back(event: AnyEvent) -> tuple[AnyEvent, bytes]:
    """The event as it will be read from the log, and as it is kept there."""
    try:
        body = encode_event(event)
        return cast("AnyEvent", decode_event(body)), body
    except (ValueError, TypeError, RecursionError) as error:
        raise FaultError(FaultCode.INVALID, f"The {event.kind} cannot be stored: {error}") from error


def _reference(state: ThreadState, kept_id: str | None) -> str | None:
    """What the log keeps of the id of a task or a run."""
    if kept_id is None:
        return None
    return state.references.get(kept_id) or refer(kept_id, None)


class Published(msgspec.Struct, frozen=True):
    """Committed records of a thread on their way to the readers."""

    pk: int
    owner: str
    thread_id: str
    records: list[Record]
    sizes: list[int]
    """Bytes of their events as JSON."""


class _Rows:
    """Rows that are to be written: one entry a row, whatever happened to it since the last flush. `new` rows are
    inserted."""

    def __init__(self) -> None:
        self.threads: dict[int, bool] = {}
        """Whether they are new."""
        self.tasks: dict[tuple[str, str], tuple[ThreadState, Task, bool]] = {}
        self.runs: dict[tuple[str, str], tuple[ThreadState, Run, bool]] = {}
        self.interrupts: dict[tuple[str, str, str], tuple[ThreadState, Interrupt, int]] = {}
        """With the seq of the record that raised it, 0 if the row exists."""
        self.taken: set[tuple[str, str]] = set()
        """The runs that this gateway is to see to from now on."""
        self.touched: dict[int, ThreadState] = {}
        """Whose logs have grown."""


class Transaction:
    """A unit of work: threads in memory, and what is to be written when the transaction ends. The writer uses one
    object for one transaction after another, so that threads stay in memory between them."""

    def __init__(self, sql: Sql, clock: Clock, cached: int = 4096) -> None:
        self.sql = sql
        self.now = clock.now
        self._steady = clock.steady
        self.connection: Connection = cast("Connection", None)
        self.published: list[Published] = []
        self._publishing: dict[int, Published] = {}
        """By thread, those of `published` that still grow."""
        self.changed: list[RowChange] = []
        """Rows as they were written, in order."""
        self.touched = 0
        """Goes up with every change, so that a command can be seen to have failed before it changed anything."""
        self.next_pk = 1
        self.node: str | None = None
        """This gateway, where several share the database."""
        self._waiting: WaitingRuns | None = None
        """The pending runs; None until they are counted."""
        self._cached = cached
        self._states: OrderedDict[tuple[str, str], ThreadState] = OrderedDict()
        self._events: list[tuple[Any, ...]] = []
        self._rows = _Rows()
        self._starts: dict[tuple[int, str], int] = {}
        """When the pending runs that are to start later may start, on the steady clock; by thread and run."""
        self._starts_added: list[tuple[int, str]] = []
        """In this transaction."""

    # The transaction, driven by the journal

    def begin(self, connection: Connection) -> None:
        self.connection = connection
        self.published = []
        self.seal()
        self.changed = []
        self._events = []
        self._rows = _Rows()
        self._starts_added = []

    def seal(self) -> None:
        """What is appended from here on is published for itself, so that it can be taken back alone."""
        self._publishing = {}

    def finish(self) -> list[Published]:
        """Write what is buffered; the commit follows."""
        self.flush()
        while len(self._states) > self._cached:
            self._states.popitem(last=False)
        return self.published

    def forget(self) -> None:
        """What was done since the last commit, or since the last savepoint, is undone: nothing in memory may remember
        it. Threads and counts are read again as they are needed."""
        self._states.clear()
        self._events = []
        self._rows = _Rows()
        self._waiting = None
        for key in self._starts_added:
            self._starts.pop(key, None)
        self._starts_added = []

    def forget_all(self) -> None:
        """Other gateways may have had the database meanwhile."""
        self.forget()

    def flush(self) -> None:
        """Write what is buffered, a table at a time: each call into the database gives up the interpreter's lock, and
        getting it back from a busy event loop costs more than the call."""
        rows, self._rows = self._rows, _Rows()
        if self._events:
            self.sql.insert_event.run_many(self.connection, self._events)
            self._events = []
        self._write_tasks(rows)
        self._write_runs(rows)
        self._write_interrupts(rows)
        self._write_threads(rows)

    def note_rewritten(self, pk: int) -> None:
        """Rows of the thread were changed or deleted past this object."""
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
        """Raises not_found."""
        state = self.thread(owner, thread_id)
        if state is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
        return state

    def is_erased(self, owner: str, thread_id: str) -> bool:
        return bool(self.sql.tombstone.run(self.connection, (owner, thread_id)))

    def forget_erased(self, owner: str, thread_id: str) -> None:
        """The id of an erased thread is given out again."""
        if self.is_erased(owner, thread_id):
            self.sql.delete_tombstone.execute(self.connection, (owner, thread_id))
            self.touched += 1

    def create_thread(self, owner: str, thread_id: str, event: ThreadChanged) -> ThreadState:
        """Raises FaultError: invalid, as `append`."""
        event, body = _read_back(event)
        record = Record(1, self.now(), None, None, 0, event)
        thread = thread_after(thread_created(thread_id, owner, record), record)
        state = ThreadState(pk=self.new_key(), thread=thread, newest_run=(0, False))
        self._states[owner, thread_id] = state
        self._rows.threads[state.pk] = True
        self._append(state, record, body)
        return state

    def begin_keys(self, latest: int) -> None:
        """The highest one that is in use."""
        self.next_pk = latest + 1

    def new_key(self) -> int:
        self.next_pk += 1
        return self.next_pk - 1

    def forget_thread(self, state: ThreadState) -> None:
        """The current command erases the thread: write what is known of it, so that its rows are all there to be
        deleted."""
        self.flush()
        self.touched += 1
        owner = state.thread.owner
        self._states.pop((owner, state.thread.thread_id), None)
        for run_id in state.runs:
            self._discount(owner, run_id)
            self._starts.pop((state.pk, run_id), None)

    def fold_anew(self, pk: int, owner: str, thread_id: str, records: Iterator[Record]) -> None:
        """Write the rows of a thread that has none but its own, as its log says."""
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
        """Its row, and the end of its log."""
        found = self.sql.thread.run(self.connection, (owner, thread_id))
        if not found:
            return None
        pk, body = found[0]
        state = ThreadState(pk=pk, thread=decode_row(Thread, body))
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
        """Raises not_found."""
        task = self.find_task(owner, task_id)
        if task is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Task {task_id} not found")
        return task

    def find_run(self, owner: str, run_id: str) -> tuple[Run, str] | None:
        """The run and the id of its thread."""
        changed = self._rows.runs.get((owner, run_id))
        if changed is not None:
            return changed[1], changed[0].thread.thread_id
        found = self.sql.run.run(self.connection, (owner, run_id))
        return (decode_row(Run, found[0][0]), found[0][2]) if found else None

    def has_asked(self, owner: str, task_id: str, interrupt_id: str) -> bool:
        """Whether the task has a question of this id, open or not."""
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
        """Add one event to the end of the thread's log. `body` is the event as JSON, if it is encoded and read back
        already.

        Raises:
            FaultError: invalid, if it could not be read from the log again: what callers gave is in it as it came.
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
        said: Sequence[tuple[Event, bytes]],
        *,
        task_id: str | None,
        run_id: str | None,
        attempt: int,
    ) -> None:
        """Add what an agent said, all at one time. Each event comes with its JSON, of which it was read back."""
        if not said:
            return
        self.touched += 1
        self._rows.touched[state.pk] = state
        pk, at = state.pk, max(self.now(), state.at)
        task, run = _reference(state, task_id), _reference(state, run_id)
        bodies = [body for _, body in said]
        seqs = range(state.seq + 1, state.seq + 1 + len(said))
        records = [Record(seq, at, task_id, run_id, attempt, event) for seq, (event, _) in zip(seqs, said, strict=True)]
        self._events += [
            (pk, seq, at, task, run, attempt, kept) for seq, kept in zip(seqs, shorten_all(bodies), strict=True)
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
        made = created_id(record.event)
        if made is not None:
            state.references[made] = refer(made, record.seq)
        task, run = _reference(state, record.task_id), _reference(state, record.run_id)
        self._events.append((state.pk, record.seq, record.at, task, run, record.attempt, shorten(body)))
        published = self._publication(state)
        published.records.append(record)
        published.sizes.append(len(body))

    def _publication(self, state: ThreadState) -> Published:
        found = self._publishing.get(state.pk)
        if found is None:
            found = self._publishing[state.pk] = Published(state.pk, state.thread.owner, state.thread.thread_id, [], [])
            self.published.append(found)
        return found

    def _fold(self, state: ThreadState, record: Record) -> None:
        """Apply a record to the snapshots of what is open, and note which rows change."""
        event = record.event
        if type(event) is PartDelta:  # most events of a long answer, and no row says anything of them
            return
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
                raised = interrupt_raised(record, event)
                state.interrupts[raised.task_id, raised.interrupt_id] = raised
                key = (state.thread.owner, raised.task_id, raised.interrupt_id)
                self._rows.interrupts[key] = (state, raised, record.seq)
            case InterruptAnswered():
                asked = state.interrupts.pop((record.task_id or "", event.interrupt_id))
                self._note_answer(state, interrupt_after(asked, event))
            case _:
                pass

    def _note_task(self, state: ThreadState, task: Task, *, new: bool) -> None:
        if task.is_terminal:
            state.tasks.pop(task.task_id, None)
            state.references.pop(task.task_id, None)
        else:
            state.tasks[task.task_id] = task
        key = (state.thread.owner, task.task_id)
        known = self._rows.tasks.get(key)
        self._rows.tasks[key] = (state, task, new or (known is not None and known[2]))

    def _note_ended_run(self, state: ThreadState, event: RunRemoved | RunChanged, record: Record) -> None:
        found = self.find_run(state.thread.owner, event.run_id)
        if found is not None:
            self._note_run(state, run_after(found[0], record), new=False)
        if isinstance(event, RunRemoved):  # what it left in the state is in no cache either
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
        known = self._rows.runs.get(key)
        self._rows.runs[key] = (state, run, new or (known is not None and known[2]))
        if run.status is RunStatus.PENDING:
            self._count(key[0], run.run_id, run.agent, run.start_after)
            self._note_start(state, run)
        else:
            self._discount(key[0], run.run_id)
            self._starts.pop((state.pk, run.run_id), None)

    def _note_answer(self, state: ThreadState, interrupt: Interrupt) -> None:
        key = (state.thread.owner, interrupt.task_id, interrupt.interrupt_id)
        known = self._rows.interrupts.get(key)
        self._rows.interrupts[key] = (state, interrupt, 0 if known is None else known[2])

    # Writing

    def _many(self, statement: Statement, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            statement.run_many(self.connection, rows)

    def _write_threads(self, rows: _Rows) -> None:
        """Last, as what the rows of its runs say is needed for it."""
        new: list[tuple[Any, ...]] = []
        changed: list[tuple[Any, ...]] = []
        only_touched: list[tuple[Any, ...]] = []
        for pk, state in rows.touched.items():
            standing = (self._status_of(state), state.at)
            if pk not in rows.threads:
                only_touched.append((pk, *standing))
                continue
            thread = state.thread
            body = encode_row(thread)
            self.changed.append(RowChange(pk, thread.owner, thread, len(body)))
            if rows.threads[pk]:
                owner, thread_id = thread.owner, thread.thread_id
                span = (thread.created_at, thread.changed_at)
                new.append((pk, owner, thread_id, *span, thread.ephemeral, thread.can_expire, *standing, body))
            else:
                changed.append((pk, thread.changed_at, thread.ephemeral, thread.can_expire, *standing, body))
        self._many(self.sql.insert_thread, new)
        self._many(self.sql.update_thread, changed)
        self._many(self.sql.update_standing, only_touched)

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
        """What stops running goes first: the index on running runs is checked row by row."""
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
        for (owner, task_id, interrupt_id), (state, asked, seq) in rows.interrupts.items():
            body = encode_row(asked)
            if seq:
                new.append((owner, task_id, interrupt_id, state.pk, asked.run_id, seq, asked.action, body))
            else:
                changed.append((owner, task_id, interrupt_id, asked.action, body))
        self._many(self.sql.insert_interrupt, new)
        self._many(self.sql.update_interrupt, changed)

    def _agent_of(self, state: ThreadState, task_id: str) -> str:
        task = state.tasks.get(task_id)
        return (task or self.need_task(state.thread.owner, task_id)).agent

    def take(self, owner: str, run_id: str) -> None:
        """See to a run that waits: of gateways that share the database, this one starts it when its turn comes."""
        if self.node is not None:
            run = table_of(RunRow)
            waits = (run.c.owner == owner, run.c.run_id == run_id, run.c.status == str(RunStatus.PENDING))
            self.connection.execute(update(run).where(*waits).values(node=self.node))
            self.touched += 1

    # Starts to come

    def wait(self, state: ThreadState, run: Run) -> int:
        """Microseconds before a pending run may start; not above 0 if it may."""
        return self._starts.get((state.pk, run.run_id), 0) - self._steady() if run.start_after is not None else 0

    def _note_start(self, state: ThreadState, run: Run) -> None:
        """From the moment that it is known here, a start is waited for on the steady clock."""
        key = (state.pk, run.run_id)
        if run.start_after is None or run.status is not RunStatus.PENDING or key in self._starts:
            return
        self._starts[key] = self._steady() + max(0, run.start_after - self.now())
        self._starts_added.append(key)

    # Bounds on what waits

    def waiting(self, owner: str, agent: str) -> Waiting:
        """How many runs wait for the agent, and how many of the owner."""
        if self._waiting is None:
            self._waiting = self._count_rows()
        return self._waiting.look(owner, agent, self.now())

    def _count(self, owner: str, run_id: str, agent: str, start_after: int | None) -> None:
        if self._waiting is not None:
            self._waiting.add(owner, run_id, agent, start_after, self.now())

    def _discount(self, owner: str, run_id: str) -> None:
        if self._waiting is not None:
            self._waiting.discard(owner, run_id)

    def _count_rows(self) -> WaitingRuns:
        self.flush()
        found, now, run = WaitingRuns(), self.now(), table_of(RunRow).c
        pending = select(run.owner, run.run_id, run.agent, run.start_after).where(run.status == str(RunStatus.PENDING))
        for owner, run_id, agent, start_after in self.connection.execute(pending):
            found.add(owner, run_id, agent, start_after, now)
        return found


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
    pk: int
    running: str | None
    """The run that was running."""
    tasks: frozenset[str]
    """Ids of those that had not ended."""
    runs: frozenset[str]
    """Ids of those that had not ended."""
    long: bool = False
    """Its log goes bit by bit."""


def need_idle_thread(tx: Transaction, owner: str, thread_id: str) -> ThreadState:
    """The thread, if its state may be changed. Raises not_found, conflict."""
    state = tx.need_thread(owner, thread_id)
    if state.runs:
        raise FaultError(
            FaultCode.CONFLICT, f"Thread {thread_id} is busy: its state cannot be changed while a run is active"
        )
    return state
