"""Run lifecycle: the activations of agents on a thread's tasks, as decisions on its `ThreadState`.

Which run starts next, what a running run may say, and what its end makes of its task. Like the commands of callers
(`babelgate.gateway.runs.submission`), each function runs whole in the writer's transaction and raises before it
changes anything.
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
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.blob_uses import use_blob
from babelgate.gateway.storage.run_rows import count_crashes
from babelgate.gateway.storage.transaction import ThreadState, Transaction


class Start(msgspec.Struct, frozen=True):
    """A run that was started: the pump takes over after the commit."""

    owner: str
    thread_id: str
    task: Task
    run: Run
    """As it stands after the start; `run.attempt` fences what the pump appends."""
    pk: int
    created: RunCreated | None = None
    """The run's input, where the command that started it had it at hand."""
    last_edit_seq: int = 0
    """As `Thread.last_edit_seq`."""
    changed_values: int = 0
    """As `Thread.changed_values`."""
    crashes: int = 0
    """Number of processes that ended while they ran it, without releasing it first."""


class Later(msgspec.Struct, frozen=True):
    """A thread's next run is one of another agent, or not due yet."""

    agent: str
    wait: int
    """Microseconds."""


class Outcome(msgspec.Struct, frozen=True):
    """How an activation ended, as the pump saw it. A success with open questions is a pause."""

    status: RunStatus = RunStatus.SUCCESS
    reason: RunReason = RunReason.DONE
    fault: Fault | None = None
    output: Json = None
    usage: JsonObject | None = None


class TakenOver(FaultError):
    """Another node runs the run: it took this one for gone."""


class Moved(FaultError):
    """The log has grown since what is to be stored was decided on."""


_CHANGING: Final = frozenset((RunStarted, InterruptRaised))
"""Events of an agent that are not simply added to what it said before."""


def start(tx: Transaction, owner: str, thread_id: str, agent: str) -> Start | Later | None:
    """Start the thread's next run if it is one of `agent`; otherwise say whose it is and when, or None if nothing can
    start that nobody else will see to."""
    state = tx.thread(owner, thread_id)
    if state is None:
        return None
    run = next_pending(tx, state)
    if run is not None and state.tasks[run.task_id].agent == agent:
        return begin(tx, state, run)
    return _find_next(tx, state)


def begin(
    tx: Transaction, state: ThreadState, run: Run, created: RunCreated | None = None, *, resumed: bool = False
) -> Start:
    task = state.tasks[run.task_id]
    attempt = run.attempt + 1
    started = RunStarted(attempt=attempt, node=task.agent, resumed=resumed)
    tx.append(state, started, task_id=run.task_id, run_id=run.run_id, attempt=attempt)
    if task.state is not TaskState.WORKING:
        tx.append(state, TaskChanged(state=TaskState.WORKING), task_id=run.task_id)
    owner, thread_id = state.thread.owner, state.thread.thread_id
    task, run = state.tasks[run.task_id], state.runs[run.run_id]
    return Start(
        owner, thread_id, task, run, state.pk, created, state.thread.last_edit_seq, state.thread.changed_values
    )


def next_pending(tx: Transaction, state: ThreadState) -> Run | None:
    """The run whose turn it is: the oldest that is due and whose task waits for nobody. An answer goes before the other
    inputs of its task, which were made while the agent was at work on what it then asked about."""
    if state.running is not None:
        return None
    pending = state.pending
    for run in pending:
        if tx.wait(state, run) <= 0 and not state.tasks[run.task_id].is_waiting:
            answers = (other for other in pending if other.task_id == run.task_id and other.cause == "answer")
            return next(answers, run)
    return None


def _find_next(tx: Transaction, state: ThreadState) -> Later | None:
    """Whose the thread's next run is, and when. This node is to start it: no other may know that its turn comes."""
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
    tx: Transaction, start: Start, events: Sequence[tuple[Event, bytes]], files: Sequence[FilePart] = ()
) -> None:
    """Events of a running run. Raises conflict if the run has ended or was started again: its pump is fenced."""
    _say(tx, _fence_attempt(tx, start), start, events, files)


def _say(
    tx: Transaction,
    state: ThreadState,
    start: Start,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
) -> None:
    """Append what the run's agent said, and note the files that it named."""
    owner, task_id, run_id = start.owner, start.task.task_id, start.run.run_id
    if not any(type(event) in _CHANGING for event, _ in events):
        tx.append_all(state, events, task_id=task_id, run_id=run_id, attempt=start.run.attempt)
        events = ()
    for event, body in events:
        said: bytes | None = body
        if isinstance(event, RunStarted):  # it starts over, and asks again what it has to ask
            close_questions(tx, state, task_id)
        if isinstance(event, InterruptRaised) and tx.has_asked(owner, task_id, event.interrupt_id or ""):
            event, said = _renumber_question(tx, owner, task_id, event), None
        tx.append(state, event, task_id=task_id, run_id=run_id, attempt=start.run.attempt, body=said)
    for part in files:
        use_blob(tx, state, part)


def _renumber_question(tx: Transaction, owner: str, task_id: str, asked: InterruptRaised) -> InterruptRaised:
    """The question under an id of its own: the agent gave it one that an earlier question of the task has."""
    number = 2
    while tx.has_asked(owner, task_id, f"{asked.interrupt_id}-{number}"):
        number += 1
    return asked.replace(interrupt_id=f"{asked.interrupt_id}-{number}")


def _fence_attempt(tx: Transaction, start: Start) -> ThreadState:
    state = tx.thread(start.owner, start.thread_id)
    if state is not None and state.pk != start.pk:  # erased, and another one was made with the same ids
        state = None
    run = None if state is None else state.runs.get(start.run.run_id)
    if state is None or run is None or run.status is not RunStatus.RUNNING or run.attempt != start.run.attempt:
        taken = run is not None and run.attempt > start.run.attempt
        fenced = TakenOver if taken else FaultError
        raise fenced(FaultCode.CONFLICT, f"Run {start.run.run_id} is no longer attempt {start.run.attempt}")
    return state


def _check_unmoved(state: ThreadState, seq: int | None) -> None:
    """Raises Moved, which is a conflict."""
    if seq is not None and state.seq != seq:
        raise Moved(FaultCode.CONFLICT, f"Thread {state.thread.thread_id} has been written to")


def end(
    tx: Transaction,
    start: Start,
    outcome: Outcome,
    closing: Sequence[tuple[Event, bytes]] = (),
    files: Sequence[FilePart] = (),
    seq: int | None = None,
) -> Later | None:
    """End an activation and say what becomes of its task. Returns what the thread's next run is, if one waits. `seq` =
    only if the log still ends there."""
    state = _fence_attempt(tx, start)
    _check_unmoved(state, seq)
    task_id, run_id, attempt = start.task.task_id, start.run.run_id, start.run.attempt
    _say(tx, state, start, closing, files)
    status, reason, fault = outcome.status, outcome.reason, outcome.fault
    if state.tasks[task_id].state is TaskState.CANCELLING:
        # Cancel was committed first: whatever the agent did since, the task ends cancelled.
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


def _cancel_reason(state: ThreadState, run: Run) -> RunReason:
    """Why a run was cancelled, as its task and the inputs that wait tell it: after a restart nobody else knows."""
    if state.tasks[run.task_id].rollback:
        return RunReason.ROLLED_BACK
    for waiting in state.pending:
        if waiting.first_seq > run.first_seq and waiting.strategy in ("interrupt", "rollback"):
            return RunReason.SUPERSEDED if waiting.strategy == "interrupt" else RunReason.ROLLED_BACK
    return RunReason.CALLER


def _settle_task(tx: Transaction, state: ThreadState, task_id: str, status: RunStatus, fault: Fault | None) -> None:
    """The task's state after a run of it ended."""
    if status is RunStatus.PAUSED:
        tx.append(state, TaskChanged(state=waiting_state(state, task_id)), task_id=task_id)
        return
    if status is RunStatus.SUCCESS:
        if not live_of(state, task_id):
            tx.append(state, TaskChanged(state=TaskState.COMPLETED), task_id=task_id)
        return
    give_up(tx, state, task_id, _end_of(status, fault), fault)


def _end_of(status: RunStatus, fault: Fault | None) -> TaskState:
    """What a run that did not succeed makes of its task. An agent that did not take the task on says so by `rejected`
    in the details of its fault; A2A tells that apart from a failure (specification 1.0, 4.1.3)."""
    if status is RunStatus.CANCELLED:
        return TaskState.CANCELLED
    return TaskState.REJECTED if fault is not None and fault.details.get("rejected") is True else TaskState.FAILED


def give_up(tx: Transaction, state: ThreadState, task_id: str, ended: TaskState, fault: Fault | None) -> None:
    """End a task on which nobody is at work."""
    drop_waiting(tx, state, task_id, RunReason.CALLER)
    close_questions(tx, state, task_id)
    tx.append(state, TaskChanged(state=ended, fault=fault), task_id=task_id)


def waiting_state(state: ThreadState, task_id: str) -> TaskState:
    """What a question makes of its task: `input-required` or `auth-required` in A2A and AIEF, `awaiting` in ACP,
    `interrupted` in LangGraph."""
    asked = state.open_interrupts(task_id)
    return TaskState.AUTH_REQUIRED if all(q.ask == "auth" for q in asked) else TaskState.INPUT_REQUIRED


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
    """Cancel a task that waits for an answer: what it asked about is no longer what would be done."""
    drop_waiting(tx, state, task_id, RunReason.SUPERSEDED)
    close_questions(tx, state, task_id)
    tx.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task_id)


def drop_waiting(tx: Transaction, state: ThreadState, task_id: str, reason: RunReason) -> None:
    """End the runs of a task that wait for their turn: the task is over, and its further inputs go nowhere."""
    for run in live_of(state, task_id):
        if run.status is RunStatus.PENDING:
            ended = RunEnded(status=RunStatus.CANCELLED, reason=reason)
            tx.append(state, ended, task_id=task_id, run_id=run.run_id)


def drop_pending(tx: Transaction, state: ThreadState, run: Run, reason: RunReason, fault: Fault | None = None) -> None:
    """End a run that never started, and its task if nothing else of it is alive."""
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


def restart(tx: Transaction, lost: Start, seq: int | None = None) -> Start:
    """Begin the next attempt of a run whose pump is gone. It goes on where the lost one was cut off, until its agent
    says something else than before. `seq` = only if the log still ends there."""
    state = _fence_attempt(tx, lost)
    _check_unmoved(state, seq)
    count_crashes(tx, lost.owner, lost.run.run_id, lost.pk, 1)
    return msgspec.structs.replace(
        begin(tx, state, state.runs[lost.run.run_id], resumed=True), crashes=lost.crashes + 1
    )


def release(tx: Transaction, starts: Sequence[Start]) -> None:
    """Note that this process stops without the fault of these runs: `restart` will count a crash, which is none."""
    for start in starts:
        count_crashes(tx, start.owner, start.run.run_id, start.pk, -1)


def fail_pending(tx: Transaction, owner: str, thread_id: str, run_id: str, fault: Fault) -> None:
    """End a waiting run that can never start, such as one of an agent that is gone from the configuration."""
    state = tx.thread(owner, thread_id)
    run = None if state is None else state.runs.get(run_id)
    if state is not None and run is not None and run.status is RunStatus.PENDING:
        drop_pending(tx, state, run, RunReason.FAULT, fault)
