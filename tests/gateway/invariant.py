"""Invariants of every database that a hub has written: the log is complete and legal, and every row follows from it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from babelgate.canonical import Fold, Record, RunStatus, TaskState
from babelgate.canonical.event import (
    InterruptAnswered,
    InterruptRaised,
    MessageEnded,
    MessageStarted,
    PartAdded,
    PartDelta,
    PartEnded,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    StepEnded,
    StepStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
    ToolEnded,
    ToolStarted,
    files_of,
)
from babelgate.canonical.state import ENDED, ERRED, TERMINAL, WAITING, can_become, can_run_become
from babelgate.canonical.thread import Interrupt, Run, Task, Thread, ThreadStatus
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import (
    BlobUseRow,
    GrantRow,
    InterruptRow,
    RunRow,
    TaskRow,
    ThreadMemberRow,
    ThreadRow,
)
from babelgate.gateway.storage.thread_members import keys_of

_THREAD, _TASK, _RUN = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
_INTERRUPT, _USE, _GRANT = table_of(InterruptRow), table_of(BlobUseRow), table_of(GrantRow)
_MEMBER = table_of(ThreadMemberRow)


@dataclass
class _Open:
    """Open messages, tool calls and steps of one run."""

    messages: dict[str, set[int]] = field(default_factory=dict[str, set[int]])
    """The open parts of each open message."""
    tools: set[str] = field(default_factory=set[str])
    steps: set[str] = field(default_factory=set[str])

    def follow(self, record: Record) -> None:
        event = record.event
        match event:
            case MessageStarted():
                assert event.message_id not in self.messages, f"{record}: the message is open already"
                self.messages[event.message_id or ""] = set()
            case PartAdded():
                if event.open:
                    self.messages[event.message_id or ""].add(event.index or 0)
                else:
                    assert event.message_id in self.messages, f"{record}: the message is not open"
            case PartDelta():
                assert event.index in self.messages[event.message_id or ""], f"{record}: the part is not open"
            case PartEnded():
                self.messages[event.message_id or ""].remove(event.index or 0)
            case MessageEnded():
                assert not self.messages.pop(event.message_id or ""), f"{record}: a part is still open"
            case ToolStarted():
                self.tools.add(event.call_id or "")
            case ToolEnded():
                self.tools.remove(event.call_id or "")
            case StepStarted():
                self.steps.add(event.step_id or "")
            case StepEnded():
                self.steps.remove(event.step_id or "")
            case RunEnded():
                assert not (self.messages or self.tools or self.steps), f"{record}: left open: {self}"
            case _:
                pass


@dataclass
class _Walk:
    """State of one thread while its log is checked record by record."""

    seq: int = 0
    at: int = 0
    tasks: dict[str, TaskState] = field(default_factory=dict[str, TaskState])
    runs: dict[str, RunStatus] = field(default_factory=dict[str, RunStatus])
    attempts: dict[str, RunStarted] = field(default_factory=dict[str, RunStarted])
    """Last start of each run, by run id."""
    task_of: dict[str, str] = field(default_factory=dict[str, str])
    idle: set[str] = field(default_factory=set[str])
    """Runs whose agent is not called: an answer that leaves other questions open starts and pauses in one commit."""
    open: dict[str, _Open] = field(default_factory=lambda: defaultdict(_Open))
    is_open: dict[tuple[str, str], bool] = field(default_factory=dict[tuple[str, str], bool])
    """True for each open question, False for each answered one, by task id and interrupt id."""

    def follow(self, record: Record) -> None:
        assert record.seq == self.seq + 1, f"{record} comes after seq {self.seq}"
        assert record.at >= self.at, f"{record} is older than the record before"
        self.seq, self.at = record.seq, record.at
        assert isinstance(record.event, ThreadChanged) or record.seq > 1
        if record.task_id is not None and not isinstance(record.event, TaskCreated | RunRemoved):
            assert self.tasks[record.task_id] not in TERMINAL, f"{record} comes after the end of its task"
        if record.run_id is not None:
            self._run(record, record.run_id)
        self._task(record)

    def _run(self, record: Record, run_id: str) -> None:
        event = record.event
        assert record.task_id is not None
        before = self.runs.get(run_id)
        assert before not in ENDED, f"{record} comes after the end of its run"
        if before is None:
            assert isinstance(event, RunCreated), f"{record}: its run does not exist"
            self.runs[run_id] = RunStatus.PENDING
            self.task_of[run_id] = record.task_id
            return
        assert self.task_of[run_id] == record.task_id
        after: RunStatus | None = None
        assert not isinstance(event, RunCreated), f"{record}: its run exists already"
        if isinstance(event, RunEnded):
            after = event.status
            assert after in ENDED, record
        if isinstance(event, RunStarted):
            after = RunStatus.RUNNING
            last = self.attempts.get(run_id, RunStarted(attempt=0))
            # A run that was resumed may start over in the same attempt, if its upstream has different output.
            number = last.attempt if last.resumed and not event.resumed else last.attempt + 1
            assert event.attempt == record.attempt == number, f"{record}: wrong attempt"
            if event.is_restart:
                left = self.open[run_id]
                void = [message_id for message_id in left.messages if event.is_void(message_id)]
                # A message that is not void continues: its agent keeps a state.
                assert not (void or left.tools or left.steps), f"{record}: the run starts over and leaves open {left}"
            self.attempts[run_id] = event
            others = [other for other, status in self.runs.items() if status is RunStatus.RUNNING and other != run_id]
            assert not others or run_id in self.idle, f"{record}: {others} are running"
        if after is not None:
            assert can_run_become(before, after), f"{record}: the run is {before}"
            self.runs[run_id] = after
        elif not isinstance(event, InterruptAnswered):
            assert before is RunStatus.RUNNING, f"{record}: the run is {before}"
            assert record.attempt == self.attempts[run_id].attempt, f"{record}: an old attempt"
        self.open[run_id].follow(record)

    def _task(self, record: Record) -> None:
        event, task_id = record.event, record.task_id or ""
        match event:
            case TaskCreated():
                assert event.task_id == task_id and task_id not in self.tasks
                self.tasks[task_id] = TaskState.SUBMITTED
            case TaskChanged():
                assert can_become(self.tasks[task_id], event.state), f"{record}: the task is {self.tasks[task_id]}"
                self.tasks[task_id] = event.state
                if event.state in WAITING:
                    assert self._asks(task_id), f"{record}: no question is open"
                    assert not self._active(task_id), f"{record}: a run is active"
                if event.state in TERMINAL:
                    assert not self._asks(task_id), f"{record}: a question is open"
                    alive = [run for run, status in self.runs.items() if status not in ENDED]
                    assert not [run for run in alive if self.task_of[run] == task_id], f"{record}: {alive} are alive"
            case InterruptRaised():
                assert event.interrupt_id and (task_id, event.interrupt_id) not in self.is_open
                self.is_open[task_id, event.interrupt_id] = True
            case InterruptAnswered():
                assert self.is_open[task_id, event.interrupt_id], f"{record}: answered before"
                self.is_open[task_id, event.interrupt_id] = False
            case RunRemoved():
                assert self.runs[event.run_id] in ENDED, record
            case _:
                pass

    def _asks(self, task_id: str) -> bool:
        return any(is_open and key[0] == task_id for key, is_open in self.is_open.items())

    def _active(self, task_id: str) -> bool:
        return any(s is RunStatus.RUNNING and self.task_of[run] == task_id for run, s in self.runs.items())

    def end(self) -> None:
        """Check that no task is between two states at the end of the log."""
        for task_id, state in self.tasks.items():
            if state not in TERMINAL and state is not TaskState.CANCELLING:
                waits = self._asks(task_id) and not self._active(task_id)
                assert (state in WAITING) == waits, f"task {task_id} is {state}, waiting for an answer: {waits}"
            if state is TaskState.CANCELLING:
                assert self._active(task_id), f"task {task_id} is cancelling, and nothing of it is active"


def _without_activation(records: Sequence[Record]) -> set[str]:
    idle: set[str] = set()
    for record, following in pairwise(records):
        event, run_id = following.event, following.run_id
        paused = isinstance(event, RunEnded) and event.status is RunStatus.PAUSED
        if paused and isinstance(record.event, RunStarted) and run_id is not None and record.run_id == run_id:
            idle.add(run_id)
    return idle


def check_log(records: Sequence[Record]) -> None:
    """Check that a hub may write this log of a whole thread."""
    walk = _Walk(idle=_without_activation(records))
    for record in records:
        walk.follow(record)
    walk.end()


def log_of(connection: Connection, pk: int) -> list[Record]:
    records: list[Record] = []
    while page := read_page(connection, pk, len(records), 2048):
        records += page
    return records


def check_database(connection: Connection, blobs: Path | None = None) -> None:
    """Check every thread, in one transaction. `blobs` is the artifact store's folder."""
    threads = connection.execute(select(_THREAD)).mappings().all()
    keys = {row["pk"] for row in threads}
    for table in (_TASK, _RUN, _INTERRUPT, _USE, _GRANT, _MEMBER):
        orphans = {pk for (pk,) in connection.execute(select(table.c.thread_pk))} - keys
        assert not orphans, f"{table.name} has rows of threads that do not exist"
    for row in threads:
        records = log_of(connection, row["pk"])
        try:
            check_log(records)
            _check_rows(connection, row["pk"], row["owner"], row["thread_id"], records)
            _check_blobs(connection, row["pk"], records, blobs)
        except AssertionError as error:
            story = "\n".join(f"{r.seq} task {r.task_id} run {r.run_id} #{r.attempt}: {r.event!r}" for r in records)
            raise AssertionError(f"{error}\nin the log of {row['thread_id']}:\n{story}") from error


def _status(fold: Fold) -> ThreadStatus:
    if any(not run.has_ended for run in fold.runs.values()):
        return "busy"
    if any(task.is_waiting for task in fold.tasks.values()):
        return "interrupted"
    visible = [run for run in fold.runs.values() if not run.removed]
    newest = max(visible, key=lambda run: run.first_seq, default=None)
    return "idle" if newest is None or newest.status not in ERRED else "error"


def _check_rows(connection: Connection, pk: int, owner: str, thread_id: str, records: Sequence[Record]) -> None:
    fold = Fold(thread_id, owner, records)
    thread = connection.execute(select(_THREAD).where(_THREAD.c.pk == pk)).mappings().one()
    assert decode_row(Thread, thread["body"]) == fold.thread
    members = connection.execute(select(_MEMBER.c.key).where(_MEMBER.c.thread_pk == pk)).scalars()
    assert fold.thread is not None and set(members) == keys_of(fold.thread)
    assert (thread["status"], thread["updated_at"]) == (_status(fold), records[-1].at)
    rows = connection.execute(select(_TASK).where(_TASK.c.thread_pk == pk)).mappings()
    tasks = {row["task_id"]: (row, decode_row(Task, row["body"])) for row in rows}
    assert {task_id: task for task_id, (_, task) in tasks.items()} == fold.tasks
    for row, task in tasks.values():
        _columns(row, task, "task_id", "thread_id", "agent", "state", "created_at", "changed_at", "first_seq")
        _columns(row, task, "last_seq", "continues")
        assert row["owner"] == owner
    rows = connection.execute(select(_RUN).where(_RUN.c.thread_pk == pk)).mappings()
    runs = {row["run_id"]: (row, decode_row(Run, row["body"])) for row in rows}
    assert {run_id: run for run_id, (_, run) in runs.items()} == fold.runs
    for row, run in runs.values():
        _columns(row, run, "run_id", "task_id", "status", "attempt", "created_at", "start_after", "first_seq")
        assert row["owner"] == owner and row["last_seq"] == run.last_seq
        task = fold.tasks[run.task_id]
        assert row["agent"] == task.agent
        assert task.first_seq < run.first_seq and (run.first_seq < task.last_seq or not task.is_terminal)
    rows = connection.execute(select(_INTERRUPT).where(_INTERRUPT.c.thread_pk == pk)).mappings()
    interrupts = {(row["task_id"], row["interrupt_id"]): (row, decode_row(Interrupt, row["body"])) for row in rows}
    assert {key: interrupt for key, (_, interrupt) in interrupts.items()} == fold.interrupts
    for row, interrupt in interrupts.values():
        _columns(row, interrupt, "interrupt_id", "task_id", "run_id", "action")
        assert row["owner"] == owner
        seq: int = row["seq"]
        raised = records[seq - 1].event
        assert isinstance(raised, InterruptRaised) and raised.interrupt_id == interrupt.interrupt_id


def _columns(row: Any, value: object, *names: str) -> None:
    for name in names:
        assert row[name] == getattr(value, name), f"column {name}: {row[name]!r}, but {value!r}"


def _check_blobs(connection: Connection, pk: int, records: Sequence[Record], blobs: Path | None) -> None:
    """Check that every file that an event names is stored and recorded as used by the thread."""
    named = {part.blob for record in records for part in files_of(record.event)}
    for record in records:
        if isinstance(record.event, RunCreated):
            parts = [part for message in record.event.messages for part in message.parts]
            named |= {blob for part in parts if (blob := getattr(part, "blob", None)) is not None}
    used = {blob for (blob,) in connection.execute(select(_USE.c.blob).where(_USE.c.thread_pk == pk))}
    assert named == used
    if blobs is not None:
        missing = [blob for blob in used if not (blobs / blob[:2] / blob).is_file()]
        assert not missing, f"files that events name but the store lacks: {missing}"
