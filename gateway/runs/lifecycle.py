"""Run lifecycle: the activations of agents on a thread's tasks, as decisions on its `ThreadState`.

The functions decide which run starts next, which events a running run may append, and how the end of a run changes the
state of its task. Like the commands of callers (`babelgate.gateway.runs.submission`), each function runs in the
writer's transaction and raises before it changes anything.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from babelgate.canonical.event import (
    Event,
    InterruptAnswered,
    InterruptRaised,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskChanged,
)
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import FilePart
from babelgate.canonical.state import RunReason, RunStatus, TaskState
from babelgate.canonical.thread import Run, Task
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.runs.budgets import RunAccount
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.blob_uses import use_blob
from babelgate.gateway.storage.run_rows import count_crashes
from babelgate.gateway.storage.transaction import ThreadState, Transaction


class StartedRun(msgspec.Struct, frozen=True):
    """Run that was started by a command. The engine executes it after the commit."""

    owner: str
    thread_id: str
    task: Task
    run: Run
    """Row of the run after its start. Events that a pump appends with an older `run.attempt` are refused."""
    pk: int
    """Database key of the thread."""
    created: RunCreated | None = None
    """Event that created the run, with its input; None if the command that started the run did not have it in
    memory."""
    last_edit_seq: int = 0
    """Seq of the newest record by which a caller changed messages of the thread (`Thread.last_edit_seq`); 0 if there is
    none."""
    changed_values: int = 0
    """Seq of the newest revision of the thread that a caller made (`Thread.changed_values`); 0 if there is none."""
    crashes: int = 0
    """Number of gateway processes that ended while they executed the run, without releasing it first."""


class Later(msgspec.Struct, frozen=True):
    """Next run of a thread that was not started: another agent executes it, or it is not due yet."""

    agent: str
    wait: int
    """Time until the run is due, in microseconds."""


class RunOutcome(msgspec.Struct, frozen=True):
    """Result of an activation, as the engine observed it. A success with open questions is stored as a pause."""

    status: RunStatus = RunStatus.SUCCESS
    reason: RunReason = RunReason.DONE
    fault: Fault | None = None
    output: Json = None
    usage: JsonObject | None = None
    question: InterruptRaised | None = None
    """Question of the gateway itself, which pauses the run; None if the gateway asks none."""


class TakenOver(FaultError):
    """Conflict: another node considered this node dead, and now executes the run."""


class Moved(FaultError):
    """Conflict: the log has new records since the thread was read for a command, so the decision of the command may be
    wrong."""


_CHANGING: Final = frozenset((RunStarted, InterruptRaised))
"""Events of an agent that need more than an append: `RunStarted` closes questions, and `InterruptRaised` may get a new
id."""


def start(tx: Transaction, owner: str, thread_id: str, agent: str) -> StartedRun | Later | None:
    """Start the thread's next run if it is due and `agent` executes it.

    Otherwise return the agent that executes the next run, and the time until it is due. Return None if no run waits, or
    if the end of the running run will start the next one.
    """
    state = tx.thread(owner, thread_id)
    if state is None:
        return None
    run = next_pending(tx, state)
    if run is not None and state.tasks[run.task_id].agent == agent:
        return begin(tx, state, run)
    return _find_next(tx, state)


def begin(
    tx: Transaction, state: ThreadState, run: Run, created: RunCreated | None = None, *, resumed: bool = False
) -> StartedRun:
    """Append the start of a run's next attempt, and return the started run. `created` is the event that created the
    run, if it is in memory. `resumed` is true if the start continues a lost attempt."""
    task = state.tasks[run.task_id]
    attempt = run.attempt + 1
    started = RunStarted(attempt=attempt, node=task.agent, resumed=resumed)
    tx.append(state, started, task_id=run.task_id, run_id=run.run_id, attempt=attempt)
    if task.state is not TaskState.WORKING:
        tx.append(state, TaskChanged(state=TaskState.WORKING), task_id=run.task_id)
    owner, thread_id = state.thread.owner, state.thread.thread_id
    task, run = state.tasks[run.task_id], state.runs[run.run_id]
    return StartedRun(
        owner, thread_id, task, run, state.pk, created, state.thread.last_edit_seq, state.thread.changed_values
    )


def next_pending(tx: Transaction, state: ThreadState) -> Run | None:
    """Return the run of the thread that starts next: the oldest one that is due and whose task has no open question.
    Return None if there is no such run, or if a run is running.

    An answer precedes other inputs of its task, which were sent before the agent asked its question.
    """
    if state.running is not None:
        return None
    pending = state.pending
    for run in pending:
        if tx.wait(state, run) <= 0 and not state.tasks[run.task_id].is_waiting:
            answers = (other for other in pending if other.task_id == run.task_id and other.cause == "answer")
            return next(answers, run)
    return None


def _find_next(tx: Transaction, state: ThreadState) -> Later | None:
    """Return the agent of the thread's next run, and when it is due, or None if no run waits.

    The run is assigned to this node, because no other node may know that it is next.
    """
    run = next_pending(tx, state)
    if run is not None:
        tx.take(state.thread.owner, run.run_id)
        return Later(state.tasks[run.task_id].agent, 0)
    waits = {run.run_id: tx.wait(state, run) for run in state.pending}
    scheduled = [run for run in state.pending if waits[run.run_id] > 0]
    if state.running is not None or not scheduled:
        return None
    run = min(scheduled, key=lambda run: waits[run.run_id])
    tx.take(state.thread.owner, run.run_id)
    return Later(state.tasks[run.task_id].agent, waits[run.run_id])


def append(
    tx: Transaction,
    start: StartedRun,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
    account: RunAccount | None = None,
) -> None:
    """Append events of a running run, each with its JSON, and record that the thread uses their `files`. `account` has
    the budgets of the run, if any counts it.

    Raises conflict if the run has ended or was started again: this fences the pump of the earlier attempt.
    """
    _append_events(tx, _fence_attempt(tx, start), start, events, files)
    if account is not None:
        account.charge_events(tx, start.thread_id, start.run.run_id, events)


def _append_events(
    tx: Transaction,
    state: ThreadState,
    start: StartedRun,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
) -> None:
    """Append events of the run's agent, and record that the thread uses their files."""
    owner, task_id, run_id = start.owner, start.task.task_id, start.run.run_id
    if not any(type(event) in _CHANGING for event, _ in events):
        tx.append_all(state, events, task_id=task_id, run_id=run_id, attempt=start.run.attempt)
        events = ()
    for event, body in events:
        encoded: bytes | None = body
        if isinstance(event, RunStarted):  # the agent starts over, and asks its questions again
            close_questions(tx, state, task_id)
        if isinstance(event, InterruptRaised) and tx.has_question(owner, task_id, event.interrupt_id or ""):
            event, encoded = _renumber_question(tx, owner, task_id, event), None
        tx.append(state, event, task_id=task_id, run_id=run_id, attempt=start.run.attempt, body=encoded)
    for part in files:
        use_blob(tx, state, part)


def _renumber_question(tx: Transaction, owner: str, task_id: str, question: InterruptRaised) -> InterruptRaised:
    """Return a question with a unique id: an earlier question of the task has the id that the agent chose."""
    number = 2
    while tx.has_question(owner, task_id, f"{question.interrupt_id}-{number}"):
        number += 1
    return question.replace(interrupt_id=f"{question.interrupt_id}-{number}")


def _fence_attempt(tx: Transaction, start: StartedRun) -> ThreadState:
    """Return the state of the thread of an attempt. Raises conflict if the attempt is no longer the running one."""
    state = tx.thread(start.owner, start.thread_id)
    if state is not None and state.pk != start.pk:  # erased, and created again with the same ids
        state = None
    run = None if state is None else state.runs.get(start.run.run_id)
    if state is None or run is None or run.status is not RunStatus.RUNNING or run.attempt != start.run.attempt:
        is_taken_over = run is not None and run.attempt > start.run.attempt
        conflict = TakenOver if is_taken_over else FaultError
        raise conflict(FaultCode.CONFLICT, f"Run {start.run.run_id} is no longer attempt {start.run.attempt}")
    return state


def _check_unmoved(state: ThreadState, seq: int | None) -> None:
    """Check that the log has no records after `seq`. Raises `Moved`, which is a conflict. None checks nothing."""
    if seq is not None and state.seq != seq:
        raise Moved(FaultCode.CONFLICT, f"Thread {state.thread.thread_id} has been written to")


def end(
    tx: Transaction,
    start: StartedRun,
    outcome: RunOutcome,
    closing: Sequence[tuple[Event, bytes]] = (),
    files: Sequence[FilePart] = (),
    seq: int | None = None,
    account: RunAccount | None = None,
) -> Later | None:
    """End an activation, and change the state of its task accordingly. Return the thread's next run, or None if no run
    waits.

    `closing` are the remaining events with their JSON, and `files` the files in them. `account` has the budgets of the
    run, if any counts it. If `seq` is not None, raises `Moved` if the log has a record after it. Raises conflict if the
    attempt is no longer the running one.
    """
    state = _fence_attempt(tx, start)
    _check_unmoved(state, seq)
    task_id, run_id, attempt = start.task.task_id, start.run.run_id, start.run.attempt
    _append_events(tx, state, start, closing, files)
    status, reason, fault = outcome.status, outcome.reason, outcome.fault
    if outcome.question is not None:
        tx.append(state, outcome.question, task_id=task_id, run_id=run_id, attempt=attempt)
    if account is not None:
        _charge_end(tx, start, outcome, closing, account)
    if state.tasks[task_id].state is TaskState.CANCELLING:
        # The cancel was committed first: the task ends as cancelled, even if the agent has completed it since.
        status, fault = RunStatus.CANCELLED, None
        reason = reason if reason in (RunReason.SUPERSEDED, RunReason.ROLLED_BACK) else _cancel_reason(state, start.run)
    elif status is RunStatus.SUCCESS and state.open_interrupts(task_id):
        status, reason = RunStatus.PAUSED, waiting_reason(state, task_id)
    tx.append(
        state,
        RunEnded(status=status, reason=reason, fault=fault, output=outcome.output, usage=outcome.usage or {}),
        task_id=task_id,
        run_id=run_id,
        attempt=attempt,
    )
    _settle_task(tx, state, task_id, status, fault)
    if reason is RunReason.ROLLED_BACK:
        tx.append(state, RunRemoved(run_id=run_id, why="rollback"), task_id=task_id)
        checkpoints.forget_run(tx.connection, start.owner, run_id)
    return _find_next(tx, state)


def _charge_end(
    tx: Transaction,
    start: StartedRun,
    outcome: RunOutcome,
    closing: Sequence[tuple[Event, bytes]],
    account: RunAccount,
) -> None:
    """Charge the budgets of a run for its end: its usage, and the price of a run. A run that the gateway has paused
    with a question is not counted until it continues."""
    account.charge_events(tx, start.thread_id, start.run.run_id, closing)
    if outcome.question is not None:
        if not account.is_resumed:  # otherwise it is not counted yet
            account.refund_run(tx, start.thread_id)
        return
    has_succeeded = outcome.status is RunStatus.SUCCESS
    account.settle(tx, start.thread_id, start.run.run_id, outcome.usage or {}, has_succeeded=has_succeeded)


def _cancel_reason(state: ThreadState, run: Run) -> RunReason:
    """Return why a run was cancelled: a rollback of its task, a newer input that supersedes it, or its caller.

    The reason is derived from the log, because nothing else is known after a restart.
    """
    if state.tasks[run.task_id].rollback:
        return RunReason.ROLLED_BACK
    for waiting in state.pending:
        if waiting.first_seq > run.first_seq and waiting.strategy in ("interrupt", "rollback"):
            return RunReason.SUPERSEDED if waiting.strategy == "interrupt" else RunReason.ROLLED_BACK
    return RunReason.CALLER


def _settle_task(tx: Transaction, state: ThreadState, task_id: str, status: RunStatus, fault: Fault | None) -> None:
    """Append the new state of a task after one of its runs has ended with `status`. If the run succeeded and other runs
    of the task are active, append nothing. `fault` is the reason of a failure; None if the run did not fail."""
    if status is RunStatus.PAUSED:
        tx.append(state, TaskChanged(state=waiting_state(state, task_id)), task_id=task_id)
        return
    if status is RunStatus.SUCCESS:
        if not live_of(state, task_id):
            tx.append(state, TaskChanged(state=TaskState.COMPLETED), task_id=task_id)
        return
    give_up(tx, state, task_id, _end_of(status, fault), fault)


def _end_of(status: RunStatus, fault: Fault | None) -> TaskState:
    """Return the final state of a task after a run of it that did not succeed. `fault` is the reason of a failure, if
    it failed.

    An agent that does not accept a task sets `rejected` in the details of its fault. A2A distinguishes this from a
    failure (specification 1.0, 4.1.3).
    """
    if status is RunStatus.CANCELLED:
        return TaskState.CANCELLED
    return TaskState.REJECTED if fault is not None and fault.details.get("rejected") is True else TaskState.FAILED


def give_up(tx: Transaction, state: ThreadState, task_id: str, ended: TaskState, fault: Fault | None) -> None:
    """End a task that has no running run, in the state `ended`. `fault` is the reason of a failure; None if it did not
    fail."""
    drop_waiting(tx, state, task_id, RunReason.CALLER)
    close_questions(tx, state, task_id)
    tx.append(state, TaskChanged(state=ended, fault=fault), task_id=task_id)


def waiting_state(state: ThreadState, task_id: str) -> TaskState:
    """Return the state of a task with open questions.

    It is `input-required` or `auth-required` in A2A and AIEF, `awaiting` in ACP, `interrupted` in LangGraph.
    """
    questions = state.open_interrupts(task_id)
    return TaskState.AUTH_REQUIRED if all(q.ask == "auth" for q in questions) else TaskState.INPUT_REQUIRED


def waiting_reason(state: ThreadState, task_id: str) -> RunReason:
    return RunReason.AUTH if waiting_state(state, task_id) is TaskState.AUTH_REQUIRED else RunReason.INPUT


def close_questions(tx: Transaction, state: ThreadState, task_id: str) -> None:
    for question in state.open_interrupts(task_id):
        tx.append(
            state,
            InterruptAnswered(interrupt_id=question.interrupt_id, action="superseded"),
            task_id=task_id,
            run_id=None,
        )


def supersede(tx: Transaction, state: ThreadState, task_id: str) -> None:
    """Cancel a task that waits for an answer, because a change of the thread has made its question obsolete."""
    drop_waiting(tx, state, task_id, RunReason.SUPERSEDED)
    close_questions(tx, state, task_id)
    tx.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task_id)


def drop_waiting(tx: Transaction, state: ThreadState, task_id: str, reason: RunReason) -> None:
    """Cancel the pending runs of a task that has ended."""
    for run in live_of(state, task_id):
        if run.status is RunStatus.PENDING:
            ended = RunEnded(status=RunStatus.CANCELLED, reason=reason)
            tx.append(state, ended, task_id=task_id, run_id=run.run_id)


def drop_pending(tx: Transaction, state: ThreadState, run: Run, reason: RunReason, fault: Fault | None = None) -> None:
    """End a run that never started, and its task if it has no open question and no other active run. They fail with
    `fault`, or are cancelled if `fault` is None."""
    status = RunStatus.CANCELLED if fault is None else RunStatus.ERROR
    tx.append(state, RunEnded(status=status, reason=reason, fault=fault), task_id=run.task_id, run_id=run.run_id)
    task = state.tasks.get(run.task_id)
    if task is not None and not task.is_waiting and not live_of(state, run.task_id):
        ended = TaskState.CANCELLED if fault is None else TaskState.FAILED
        tx.append(state, TaskChanged(state=ended, fault=fault), task_id=run.task_id)
    if reason is RunReason.ROLLED_BACK:
        tx.append(state, RunRemoved(run_id=run.run_id, why="rollback"), task_id=run.task_id)


def live_of(state: ThreadState, task_id: str) -> list[Run]:
    return [run for run in state.runs.values() if run.task_id == task_id]


def restart(tx: Transaction, lost: StartedRun, seq: int | None = None) -> StartedRun:
    """Start the next attempt of a run whose gateway process has ended.

    The attempt continues where the lost one stopped, unless its agent produces other events than before. If `seq` is
    not None, raises `Moved` if the log has a record after it.
    """
    state = _fence_attempt(tx, lost)
    _check_unmoved(state, seq)
    count_crashes(tx, lost.owner, lost.run.run_id, lost.pk, 1)
    return msgspec.structs.replace(
        begin(tx, state, state.runs[lost.run.run_id], resumed=True), crashes=lost.crashes + 1
    )


def release(tx: Transaction, starts: Sequence[StartedRun]) -> None:
    """Record that this process stops, and that the runs `starts` did not crash it.

    Decrements the number of crashes of each run, because `restart` will increment it.
    """
    for start in starts:
        count_crashes(tx, start.owner, start.run.run_id, start.pk, -1)


def fail_pending(tx: Transaction, owner: str, thread_id: str, run_id: str, fault: Fault) -> None:
    """End a pending run that can never start, for example because its agent was removed from the configuration."""
    state = tx.thread(owner, thread_id)
    run = None if state is None else state.runs.get(run_id)
    if state is not None and run is not None and run.status is RunStatus.PENDING:
        drop_pending(tx, state, run, RunReason.FAULT, fault)
