"""The ledger: threads as the writer sees them, inside its transaction.

Commands (`gateway.command`) decide on a `ThreadState` and append events to it. The state holds what is open (tasks, live
runs, questions) and nothing of the past, so that it is as small for a long thread as for a new one. Everything here runs
on the writer's own thread.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import TypeAdapter
from sqlalchemy import Connection, Dialect, Table, bindparam, delete, func, insert, select, update

from canonical.event import (
    EVENT,
    Event,
    InterruptAnswered,
    InterruptRaised,
    Record,
    RunCreated,
    RunRemoved,
    TaskCreated,
    ThreadChanged,
)
from canonical.fault import FaultCode, FaultError
from canonical.fold import (
    interrupt_after,
    interrupt_raised,
    run_after,
    run_created,
    task_after,
    task_created,
    thread_after,
    thread_created,
)
from canonical.state import RunStatus, may_become, run_may_become
from canonical.thread import Interrupt, Run, Task, Thread
from gateway.statement import Statement, inserting
from gateway.table import AliasRow, EventRow, InterruptRow, MetaRow, RunRow, TaskRow, ThreadRow, TombstoneRow

__all__ = ("INTERRUPT", "RUN", "TASK", "THREAD", "Ledger", "Published", "Sql", "ThreadState", "table_of")

THREAD: TypeAdapter[Thread] = TypeAdapter(Thread)
TASK: TypeAdapter[Task] = TypeAdapter(Task)
RUN: TypeAdapter[Run] = TypeAdapter(Run)
INTERRUPT: TypeAdapter[Interrupt] = TypeAdapter(Interrupt)

LIVE = ("reserved", "pending", "running")
OPEN = ("submitted", "working", "input_required", "auth_required", "cancelling")


def table_of(model: Any) -> Table:
    return cast(Table, model.__table__)


class Sql:
    """Every statement of the writer, compiled for one database."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        thread, task, run = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
        interrupt, event, tombstone = table_of(InterruptRow), table_of(EventRow), table_of(TombstoneRow)
        self.insert_event = inserting(event, dialect)
        self.insert_task = inserting(task, dialect)
        self.insert_run = inserting(run, dialect)
        self.insert_interrupt = inserting(interrupt, dialect)
        self.insert_tombstone = inserting(tombstone, dialect)
        alias = table_of(AliasRow)
        self.insert_alias = inserting(alias, dialect)
        named = ("owner", "protocol", "agent", "alias")
        self.thread_of = Statement(
            select(alias.c.thread_id).where(*(alias.c[name] == bindparam(name) for name in named)), dialect, named
        )
        columns = ("owner", "thread_id", "created_at", "changed_at", "ephemeral", "body")
        self.insert_thread = Statement(insert(thread).returning(thread.c.pk), dialect, columns, columns)
        self.update_thread = Statement(
            update(thread)
            .where(thread.c.pk == bindparam("b_pk"))
            .values(changed_at=bindparam("b_at"), ephemeral=bindparam("b_ephemeral"), body=bindparam("b_body")),
            dialect,
            ("b_pk", "b_at", "b_ephemeral", "b_body"),
        )
        self.update_task = Statement(
            update(task)
            .where(task.c.owner == bindparam("b_owner"), task.c.task_id == bindparam("b_id"))
            .values(
                state=bindparam("b_state"),
                changed_at=bindparam("b_at"),
                last_seq=bindparam("b_seq"),
                body=bindparam("b_body"),
            ),
            dialect,
            ("b_owner", "b_id", "b_state", "b_at", "b_seq", "b_body"),
        )
        self.update_run = Statement(
            update(run)
            .where(run.c.owner == bindparam("b_owner"), run.c.run_id == bindparam("b_id"))
            .values(
                status=bindparam("b_status"),
                attempt=bindparam("b_attempt"),
                last_seq=bindparam("b_seq"),
                body=bindparam("b_body"),
            ),
            dialect,
            ("b_owner", "b_id", "b_status", "b_attempt", "b_seq", "b_body"),
        )
        self.update_interrupt = Statement(
            update(interrupt)
            .where(interrupt.c.owner == bindparam("b_owner"), interrupt.c.interrupt_id == bindparam("b_id"))
            .values(action=bindparam("b_action"), body=bindparam("b_body")),
            dialect,
            ("b_owner", "b_id", "b_action", "b_body"),
        )
        self.thread = Statement(
            select(thread.c.pk, thread.c.body).where(
                thread.c.owner == bindparam("owner"), thread.c.thread_id == bindparam("id")
            ),
            dialect,
            ("owner", "id"),
        )
        self.tombstone = Statement(
            select(tombstone.c.at).where(
                tombstone.c.owner == bindparam("owner"), tombstone.c.thread_id == bindparam("id")
            ),
            dialect,
            ("owner", "id"),
        )
        last = select(func.max(event.c.seq)).where(event.c.thread_pk == bindparam("pk")).scalar_subquery()
        self.head = Statement(
            select(event.c.seq, event.c.at).where(event.c.thread_pk == bindparam("pk"), event.c.seq == last),
            dialect,
            ("pk",),
        )
        self.open_tasks = Statement(
            select(task.c.body).where(
                task.c.thread_pk == bindparam("pk"),
                task.c.state.in_([bindparam(f"s{i}", s) for i, s in enumerate(OPEN)]),
            ),
            dialect,
            ("pk", *(f"s{i}" for i in range(len(OPEN)))),
        )
        self.live_runs = Statement(
            select(run.c.body)
            .where(
                run.c.thread_pk == bindparam("pk"),
                run.c.status.in_([bindparam(f"s{i}", s) for i, s in enumerate(LIVE)]),
            )
            .order_by(run.c.first_seq),
            dialect,
            ("pk", *(f"s{i}" for i in range(len(LIVE)))),
        )
        self.open_interrupts = Statement(
            select(interrupt.c.body)
            .where(interrupt.c.thread_pk == bindparam("pk"), interrupt.c.action.is_(None))
            .order_by(interrupt.c.seq),
            dialect,
            ("pk",),
        )
        self.task = Statement(
            select(task.c.body).where(task.c.owner == bindparam("owner"), task.c.task_id == bindparam("id")),
            dialect,
            ("owner", "id"),
        )
        self.run = Statement(
            select(run.c.body, run.c.thread_pk, task.c.thread_id)
            .join(task, (task.c.owner == run.c.owner) & (task.c.task_id == run.c.task_id))
            .where(run.c.owner == bindparam("owner"), run.c.run_id == bindparam("id")),
            dialect,
            ("owner", "id"),
        )


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
    """Reserved, pending and running, oldest first."""
    interrupts: dict[str, Interrupt] = field(default_factory=dict[str, Interrupt])
    """Unanswered, oldest first."""

    @property
    def running(self) -> Run | None:
        return next((run for run in self.runs.values() if run.status is RunStatus.RUNNING), None)

    @property
    def pending(self) -> list[Run]:
        return [run for run in self.runs.values() if run.status is RunStatus.PENDING]

    def asked(self, task_id: str) -> list[Interrupt]:
        return [asked for asked in self.interrupts.values() if asked.task_id == task_id]


@dataclass(frozen=True, slots=True)
class Published:
    """A committed record on its way to the readers."""

    pk: int
    owner: str
    thread_id: str
    record: Record


@dataclass(slots=True, eq=False)
class _Change:
    """Rows that the current command has touched."""

    states: dict[int, ThreadState] = field(default_factory=dict[int, ThreadState])
    threads: dict[int, ThreadState] = field(default_factory=dict[int, ThreadState])
    tasks: dict[str, tuple[ThreadState, Task, bool]] = field(default_factory=dict[str, tuple[ThreadState, Task, bool]])
    runs: dict[str, tuple[ThreadState, Run, bool]] = field(default_factory=dict[str, tuple[ThreadState, Run, bool]])
    interrupts: dict[str, tuple[ThreadState, Interrupt, int]] = field(
        default_factory=dict[str, tuple[ThreadState, Interrupt, int]]
    )
    """With the seq of the record that raised it, 0 if the row exists."""


class Ledger:
    def __init__(self, sql: Sql, clock: Callable[[], int] | None = None, cached: int = 4096) -> None:
        self.sql = sql
        self.clock = clock or (lambda: time.time_ns() // 1000)
        self.connection: Connection = cast(Connection, None)
        self.published: list[Published] = []
        self.pending_by_agent: Counter[str] = Counter()
        self.pending_by_owner: Counter[str] = Counter()
        self._counted: dict[tuple[str, str], str] = {}
        self._cached = cached
        self._states: OrderedDict[tuple[str, str], ThreadState] = OrderedDict()
        self._events: list[tuple[Any, ...]] = []
        self._change = _Change()
        self._mark = 0

    # The group, driven by the journal

    def begin(self, connection: Connection) -> None:
        self.connection = connection
        self.published = []
        self._events = []
        self._change = _Change()

    def finish(self) -> list[Published]:
        """Write what is buffered; the commit follows."""
        self.flush()
        while len(self._states) > self._cached:
            self._states.popitem(last=False)
        return self.published

    def abandon(self) -> None:
        """The group's transaction is lost: nothing in memory may remember it."""
        self._states.clear()
        self._events = []
        self.published = []

    # One command, under its own savepoint

    def start_command(self) -> None:
        self._change = _Change()
        self._mark = len(self.published)

    def end_command(self) -> None:
        self._write_rows()

    def fail_command(self) -> None:
        """The savepoint was rolled back: forget the threads that the command touched. What earlier commands of the group
        said on them is written now, because the next one may load them again."""
        del self._events[max(0, len(self._events) - (len(self.published) - self._mark)) :]
        del self.published[self._mark :]
        for state in self._change.states.values():
            self._states.pop((state.thread.owner, state.thread.thread_id), None)
        self._change = _Change()
        self.flush()

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
        state = self.thread(owner, thread_id)
        if state is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
        return state

    def erased(self, owner: str, thread_id: str) -> bool:
        return self.sql.tombstone.run(self.connection, (owner, thread_id)).first() is not None

    def create_thread(self, owner: str, thread_id: str, event: ThreadChanged) -> ThreadState:
        record = Record(1, self.clock(), None, None, 0, event)
        thread = thread_after(thread_created(thread_id, owner, record), record)
        pk = self.sql.insert_thread.run(
            self.connection,
            (owner, thread_id, thread.created_at, thread.changed_at, thread.ephemeral, THREAD.dump_json(thread)),
        ).scalar_one()
        state = ThreadState(pk=pk, thread=thread)
        self._states[owner, thread_id] = state
        self._append(state, record)
        return state

    def forget_thread(self, state: ThreadState) -> None:
        """The thread was erased by the current command."""
        self._change.states[state.pk] = state
        self._states.pop((state.thread.owner, state.thread.thread_id), None)
        for changed in (self._change.tasks, self._change.runs, self._change.interrupts):
            for key in [key for key, entry in changed.items() if entry[0] is state]:
                del changed[key]
        self._change.threads.pop(state.pk, None)
        for run_id in [
            run_id for owner, run_id in self._counted if owner == state.thread.owner and run_id in state.runs
        ]:
            self._discount(state.thread.owner, run_id)

    def _load(self, owner: str, thread_id: str) -> ThreadState | None:
        row = self.sql.thread.run(self.connection, (owner, thread_id)).first()
        if row is None:
            return None
        pk, body = row
        head = self.sql.head.run(self.connection, (pk,)).first()
        state = ThreadState(pk=pk, thread=THREAD.validate_json(body))
        state.seq, state.at = (head[0], head[1]) if head else (0, 0)
        for (body,) in self.sql.open_tasks.run(self.connection, (pk, *OPEN)):
            task = TASK.validate_json(body)
            state.tasks[task.task_id] = task
        for (body,) in self.sql.live_runs.run(self.connection, (pk, *LIVE)):
            run = RUN.validate_json(body)
            state.runs[run.run_id] = run
        for (body,) in self.sql.open_interrupts.run(self.connection, (pk,)):
            interrupt = INTERRUPT.validate_json(body)
            state.interrupts[interrupt.interrupt_id] = interrupt
        return state

    # Tasks and runs that may have ended long ago

    def find_task(self, owner: str, task_id: str) -> Task | None:
        """Rows are written at the end of each command, so the row is current for every other command."""
        row = self.sql.task.run(self.connection, (owner, task_id)).first()
        return None if row is None else TASK.validate_json(row[0])

    def need_task(self, owner: str, task_id: str) -> Task:
        task = self.find_task(owner, task_id)
        if task is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Task {task_id} not found")
        return task

    def find_run(self, owner: str, run_id: str) -> tuple[Run, str] | None:
        """The run and the id of its thread."""
        row = self.sql.run.run(self.connection, (owner, run_id)).first()
        return None if row is None else (RUN.validate_json(row[0]), row[2])

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
        """Add one event to the end of the thread's log. `body` is the event as JSON, if it is encoded already."""
        record = Record(state.seq + 1, max(self.clock(), state.at), task_id, run_id, attempt, event)
        self._append(state, record, body)
        self._fold(state, record)
        return record

    def _append(self, state: ThreadState, record: Record, body: bytes | None = None) -> None:
        if body is None:
            body = EVENT.dump_json(record.event)
        self._change.states[state.pk] = state
        state.seq, state.at = record.seq, record.at
        self._events.append((state.pk, record.seq, record.at, record.task_id, record.run_id, record.attempt, body))
        self.published.append(Published(state.pk, state.thread.owner, state.thread.thread_id, record))

    def _fold(self, state: ThreadState, record: Record) -> None:
        """Apply a record to the snapshots of what is open, and note which rows change."""
        event = record.event
        if record.task_id in state.tasks:
            before = state.tasks[record.task_id]
            after = task_after(before, record)
            if after is not before:
                if not may_become(before.state, after.state):
                    raise AssertionError(f"task {before.task_id}: {before.state} cannot become {after.state}")
                self._note_task(state, after, new=False)
        if record.run_id in state.runs:
            run = state.runs[record.run_id]
            changed = run_after(run, record)
            if changed is not run:
                if changed.status is not run.status and not run_may_become(run.status, changed.status):
                    raise AssertionError(f"run {run.run_id}: {run.status} cannot become {changed.status}")
                self._note_run(state, changed, new=False)
        match event:
            case ThreadChanged():
                state.thread = thread_after(state.thread, record)
                self._change.threads[state.pk] = state
            case TaskCreated():
                self._note_task(state, task_created(state.thread.thread_id, record, event), new=True)
            case RunCreated() if event.run_id not in state.runs:
                self._note_run(state, run_created(record, event, record.task_id or ""), new=True)
            case RunRemoved():
                found = self.find_run(state.thread.owner, event.run_id)
                if found is not None:
                    self._note_run(state, run_after(found[0], record), new=False)
            case InterruptRaised():
                raised = interrupt_raised(record, event)
                state.interrupts[raised.interrupt_id] = raised
                self._change.interrupts[raised.interrupt_id] = (state, raised, record.seq)
            case InterruptAnswered():
                asked = state.interrupts.pop(event.interrupt_id)
                self._note_answer(state, interrupt_after(asked, event))
            case _:
                pass

    def _note_task(self, state: ThreadState, task: Task, *, new: bool) -> None:
        if task.terminal:
            state.tasks.pop(task.task_id, None)
        else:
            state.tasks[task.task_id] = task
        known = self._change.tasks.get(task.task_id)
        self._change.tasks[task.task_id] = (state, task, new or (known is not None and known[2]))

    def _note_run(self, state: ThreadState, run: Run, *, new: bool) -> None:
        if run.ended:
            state.runs.pop(run.run_id, None)
        else:
            state.runs[run.run_id] = run
        known = self._change.runs.get(run.run_id)
        self._change.runs[run.run_id] = (state, run, new or (known is not None and known[2]))

    def _note_answer(self, state: ThreadState, interrupt: Interrupt) -> None:
        known = self._change.interrupts.get(interrupt.interrupt_id)
        self._change.interrupts[interrupt.interrupt_id] = (state, interrupt, 0 if known is None else known[2])

    # Writing

    def flush(self) -> None:
        """Write buffered events. Never inside a savepoint: its rollback would take other commands' events along."""
        if self._events:
            self.sql.insert_event.run_many(self.connection, self._events)
            self._events = []

    def _write_rows(self) -> None:
        change, sql, connection = self._change, self.sql, self.connection
        for state in change.threads.values():
            thread = state.thread
            sql.update_thread.run(connection, (state.pk, thread.changed_at, thread.ephemeral, THREAD.dump_json(thread)))
        for state, task, new in change.tasks.values():
            self._write_task(state, task, new=new)
        # What stops running goes first: the index on running runs is checked row by row.
        for state, run, new in sorted(change.runs.values(), key=lambda entry: entry[1].status is RunStatus.RUNNING):
            self._write_run(state, run, new=new)
        for state, interrupt, seq in change.interrupts.values():
            body = INTERRUPT.dump_json(interrupt)
            owner = state.thread.owner
            if seq:
                sql.insert_interrupt.run(
                    connection,
                    (
                        owner,
                        interrupt.interrupt_id,
                        state.pk,
                        interrupt.task_id,
                        interrupt.run_id,
                        seq,
                        interrupt.action,
                        body,
                    ),
                )
            else:
                sql.update_interrupt.run(connection, (owner, interrupt.interrupt_id, interrupt.action, body))
        self._change = _Change()

    def _write_task(self, state: ThreadState, task: Task, *, new: bool) -> None:
        owner, body = state.thread.owner, TASK.dump_json(task)
        if new:
            self.sql.insert_task.run(
                self.connection,
                (
                    owner,
                    task.task_id,
                    state.pk,
                    task.thread_id,
                    task.agent,
                    str(task.state),
                    task.created_at,
                    task.changed_at,
                    task.first_seq,
                    task.last_seq,
                    task.continues,
                    body,
                ),
            )
        else:
            self.sql.update_task.run(
                self.connection, (owner, task.task_id, str(task.state), task.changed_at, task.last_seq, body)
            )

    def _write_run(self, state: ThreadState, run: Run, *, new: bool) -> None:
        owner, body = state.thread.owner, RUN.dump_json(run)
        if new:
            agent = self._agent_of(state, run)
            self.sql.insert_run.run(
                self.connection,
                (
                    owner,
                    run.run_id,
                    state.pk,
                    run.task_id,
                    agent,
                    str(run.status),
                    run.attempt,
                    run.created_at,
                    run.start_after,
                    run.first_seq,
                    run.last_seq,
                    body,
                ),
            )
        else:
            agent = ""
            self.sql.update_run.run(
                self.connection, (owner, run.run_id, str(run.status), run.attempt, run.last_seq, body)
            )
        if run.status is RunStatus.PENDING:
            self.count_pending(owner, run.run_id, agent or self._agent_of(state, run))
        else:
            self._discount(owner, run.run_id)

    def _agent_of(self, state: ThreadState, run: Run) -> str:
        changed = self._change.tasks.get(run.task_id)
        task = changed[1] if changed else state.tasks.get(run.task_id)
        return task.agent if task else self.need_task(state.thread.owner, run.task_id).agent

    # Bounds on what waits

    def count_pending(self, owner: str, run_id: str, agent: str) -> None:
        if (owner, run_id) not in self._counted:
            self._counted[owner, run_id] = agent
            self.pending_by_agent[agent] += 1
            self.pending_by_owner[owner] += 1

    def _discount(self, owner: str, run_id: str) -> None:
        agent = self._counted.pop((owner, run_id), None)
        if agent is not None:
            self.pending_by_agent[agent] -= 1
            self.pending_by_owner[owner] -= 1


def latest_seq(connection: Connection, pk: int) -> int:
    event = table_of(EventRow)
    return connection.execute(select(func.max(event.c.seq)).where(event.c.thread_pk == pk)).scalar() or 0


def read_meta(connection: Connection, name: str) -> str | None:
    meta = table_of(MetaRow)
    return connection.execute(select(meta.c.value).where(meta.c.name == name)).scalar()


def write_meta(connection: Connection, name: str, value: str) -> None:
    meta = table_of(MetaRow)
    connection.execute(delete(meta).where(meta.c.name == name))
    connection.execute(insert(meta).values(name=name, value=value))
