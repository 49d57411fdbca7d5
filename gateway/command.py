"""What callers and the engine do to a thread, as decisions on its `ThreadState`. Each function runs whole in the writer's
transaction: it checks first, raises before it changes anything, and appends events. First commit wins.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from canonical.event import (
    Event,
    InterruptAnswered,
    MessageEnded,
    MessageStarted,
    PartAdded,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
)
from canonical.fault import Fault, FaultCode, FaultError
from canonical.hub import Answers, Receipt, Submission, Webhook
from canonical.message import FilePart, Message
from canonical.state import RunReason, RunStatus, TaskState
from canonical.thread import Run, Task
from canonical.value import Json, JsonObject
from gateway.ledger import RUN, Ledger, ThreadState, table_of
from gateway.table import BlobUseRow, RunRow, WebhookRow

__all__ = (
    "Bounds",
    "Cancelled",
    "Ids",
    "Outcome",
    "Start",
    "Submitted",
    "answer",
    "append",
    "bound_runs",
    "cancel",
    "end",
    "fail_pending",
    "restart",
    "start",
    "submit",
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many runs may wait."""

    agent: int = 1000
    thread: int = 100
    owner: int = 5000


@dataclass(frozen=True, slots=True)
class Ids:
    """Fresh ids for what a command may have to create."""

    thread: str
    task: str
    run: str


@dataclass(frozen=True, slots=True)
class Start:
    """A run that was started: the pump takes over after the commit."""

    owner: str
    thread_id: str
    task: Task
    run: Run
    """As it stands after the start; `run.attempt` fences what the pump appends."""
    pk: int
    created: RunCreated | None = None
    """The run's input, where the command that started it had it at hand."""


@dataclass(frozen=True, slots=True)
class Submitted:
    receipt: Receipt
    start: Start | None
    stop: tuple[str, RunReason] | None = None
    """A running run that has to make room, and why."""
    idle: bool = False
    """Nothing runs on the thread: the new run waits for its agent, not for the thread."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    task: Task
    stop: str | None
    """The running run that has to be stopped."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an activation ended, as the pump saw it. A success with open questions is a pause."""

    status: RunStatus = RunStatus.SUCCESS
    reason: RunReason = RunReason.DONE
    fault: Fault | None = None
    output: Json = None
    usage: JsonObject | None = None


def submit(ledger: Ledger, owner: str, ask: Submission, ids: Ids, bounds: Bounds, *, may_start: bool) -> Submitted:
    """Append a new run, and start it in the same commit if its turn is now and `may_start` says that the agent has room."""
    state, after = _thread_for(ledger, owner, ask, ids)
    follow = _followed(ledger, state, ask)
    if ask.task_id is not None and ledger.find_task(owner, ask.task_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.task_id} exists already")
    if ask.run_id is not None and ledger.find_run(owner, ask.run_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Run {ask.run_id} exists already")
    stop = _make_room(ledger, state, ask)
    starts = may_start and state.running is None and not state.pending and ask.start_after is None
    if not starts:
        _check_bounds(ledger, state, ask.agent, bounds)
    if follow is None:
        task_id = ask.task_id or ids.task
        ledger.append(
            state,
            TaskCreated(
                task_id=task_id,
                agent=ask.agent,
                continues=ask.continues,
                references=ask.references,
                metadata=ask.metadata,
                protocol=ask.protocol,
                version=ask.version,
            ),
            task_id=task_id,
        )
    else:
        task_id = follow.task_id
    run_id = ask.run_id or ids.run
    created = RunCreated(
        run_id=run_id,
        cause="input" if follow is None else "follow_up",
        messages=ask.messages,
        data=ask.data,
        config=ask.config,
        strategy=ask.strategy,
        start_after=ask.start_after,
        extra=ask.extra,
    )
    ledger.append(state, created, task_id=task_id, run_id=run_id)
    use_blobs(ledger, state, ask.messages)
    if ask.webhook is not None:
        insert_webhook(ledger, state, task_id, ask.webhook, after)
    begun = _start(ledger, state, state.runs[run_id], created) if starts else None
    receipt = Receipt(
        thread_id=state.thread.thread_id, task_id=task_id, run_id=run_id, seq=after, task=state.tasks[task_id]
    )
    return Submitted(receipt, begun, stop, idle=state.running is None)


def _thread_for(ledger: Ledger, owner: str, ask: Submission, ids: Ids) -> tuple[ThreadState, int]:
    """The thread that the submission means, made if need be, and its last seq before the submission's task."""
    known = ask.follow_up or ask.continues
    if known is not None:
        task = ledger.need_task(owner, known)
        if ask.thread_id is not None and ask.thread_id != task.thread_id:
            raise FaultError(FaultCode.INVALID, f"Task {known} is not of thread {ask.thread_id}")
        state = ledger.need_thread(owner, task.thread_id)
        return state, state.seq
    thread_id = ask.thread_id
    named = ask.alias is not None and thread_id is None
    alias = (owner, ask.protocol, ask.agent, ask.alias)
    if named:
        thread_id = ledger.sql.thread_of.run(ledger.connection, alias).scalar()
    state = None if thread_id is None else ledger.thread(owner, thread_id)
    if state is not None:
        return state, state.seq
    if thread_id is not None and (ask.if_missing == "reject" or ledger.erased(owner, thread_id)):
        raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
    made = ThreadChanged(metadata=ask.thread_metadata)
    state = ledger.create_thread(owner, thread_id or ids.thread, made)
    if named:
        ledger.sql.insert_alias.run(ledger.connection, (*alias, state.thread.thread_id))
    for message in ask.history:
        for event in whole_message(message):
            ledger.append(state, event)
    return state, state.seq


def whole_message(message: Message) -> list[Event]:
    """A finished message as events."""
    return [
        MessageStarted(
            message_id=message.message_id,
            role=message.role,
            name=message.name,
            phase=message.phase,
            metadata=message.metadata,
            extra=message.extra,
        ),
        *(PartAdded(message_id=message.message_id, index=i, part=part) for i, part in enumerate(message.parts)),
        MessageEnded(message_id=message.message_id),
    ]


def _followed(ledger: Ledger, state: ThreadState, ask: Submission) -> Task | None:
    if ask.follow_up is None:
        return None
    task = state.tasks.get(ask.follow_up)
    if task is None:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} has ended and takes no more messages")
    if task.state is TaskState.CANCELLING:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} is being cancelled")
    if task.waiting:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.follow_up} waits for an answer")
    return task


def _make_room(ledger: Ledger, state: ThreadState, ask: Submission) -> tuple[str, RunReason] | None:
    """Apply the multitask strategy; returns the running run that has to stop."""
    active = [run for run in state.runs.values() if run.status is not RunStatus.RESERVED]
    if active and ask.strategy == "reject":
        raise FaultError(
            FaultCode.CONFLICT,
            "Thread is already running a task. Wait for it to finish or choose a different multitask strategy.",
        )
    stop: tuple[str, RunReason] | None = None
    if ask.strategy in ("interrupt", "rollback"):
        reason = RunReason.SUPERSEDED if ask.strategy == "interrupt" else RunReason.ROLLED_BACK
        for run in active:
            if run.status is RunStatus.RUNNING:
                stop = (run.run_id, reason)
                if state.tasks[run.task_id].state is not TaskState.CANCELLING:
                    ledger.append(state, TaskChanged(state=TaskState.CANCELLING), task_id=run.task_id)
            else:
                _drop_pending(ledger, state, run, reason)
    if ask.supersede:
        for task in [task for task in state.tasks.values() if task.waiting]:
            close_questions(ledger, state, task.task_id)
            ledger.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task.task_id)
    return stop


def _drop_pending(ledger: Ledger, state: ThreadState, run: Run, reason: RunReason, fault: Fault | None = None) -> None:
    """End a run that never started, and its task if nothing else of it is alive."""
    status = RunStatus.CANCELLED if fault is None else RunStatus.ERROR
    ledger.append(state, RunEnded(status=status, reason=reason, fault=fault), task_id=run.task_id, run_id=run.run_id)
    task = state.tasks.get(run.task_id)
    if task is not None and not task.waiting and not _live_of(state, run.task_id):
        ended = TaskState.CANCELLED if fault is None else TaskState.FAILED
        ledger.append(state, TaskChanged(state=ended, fault=fault), task_id=run.task_id)
    if reason is RunReason.ROLLED_BACK:
        ledger.append(state, RunRemoved(run_id=run.run_id, why="rollback"), task_id=run.task_id)


def _live_of(state: ThreadState, task_id: str) -> list[Run]:
    return [run for run in state.runs.values() if run.task_id == task_id and run.status is not RunStatus.RESERVED]


def _check_bounds(ledger: Ledger, state: ThreadState, agent: str, bounds: Bounds) -> None:
    for waiting, bound, what in (
        (len(state.pending), bounds.thread, "this thread"),
        (ledger.pending_by_agent[agent], bounds.agent, f"agent {agent}"),
        (ledger.pending_by_owner[state.thread.owner], bounds.owner, "this caller"),
    ):
        if waiting >= bound:
            raise FaultError(
                FaultCode.QUEUE_FULL, f"{waiting} runs are waiting already for {what}; try again later", retry_after=1
            )


def insert_webhook(ledger: Ledger, state: ThreadState, task_id: str, hook: Webhook, after: int) -> None:
    """Register a webhook, or replace the one of the same id. It is told what comes after seq `after`."""
    table = table_of(WebhookRow)
    same = (
        (table.c.owner == state.thread.owner) & (table.c.task_id == task_id) & (table.c.webhook_id == hook.webhook_id)
    )
    ledger.connection.execute(table.delete().where(same))
    ledger.connection.execute(
        table.insert(),
        {
            "owner": state.thread.owner,
            "task_id": task_id,
            "webhook_id": hook.webhook_id,
            "thread_id": state.thread.thread_id,
            "dialect": hook.dialect,
            "url": hook.url,
            "delivered_seq": after,
            "done": False,
            "body": json.dumps(hook.config, ensure_ascii=False).encode(),
        },
    )


def use_blobs(ledger: Ledger, state: ThreadState, messages: Sequence[Message]) -> None:
    for message in messages:
        for part in message.parts:
            if isinstance(part, FilePart) and part.blob is not None:
                use_blob(ledger, state, part)


def use_blob(ledger: Ledger, state: ThreadState, part: FilePart) -> None:
    """Note that the thread names a stored file: the file is reachable and kept while it does."""
    uses = table_of(BlobUseRow)
    seen = select(uses.c.blob).where(uses.c.thread_pk == state.pk, uses.c.blob == part.blob)
    if ledger.connection.execute(seen).first() is None:
        ledger.connection.execute(
            uses.insert(), {"thread_pk": state.pk, "blob": part.blob, "body": part.model_dump_json().encode()}
        )


def answer(ledger: Ledger, owner: str, given: Answers, ids: Ids, bounds: Bounds, *, may_start: bool) -> Submitted:
    """Answer open questions. If none is left the task works on; otherwise it waits for the rest."""
    task = ledger.need_task(owner, given.task_id)
    if task.terminal or task.state is TaskState.CANCELLING:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {task.task_id} has ended and takes no answers")
    state = ledger.need_thread(owner, task.thread_id)
    asked = state.asked(task.task_id)
    if not task.waiting or not asked:
        raise FaultError(FaultCode.NOT_AWAITING, f"Task {task.task_id} has no open question")
    values = {asked[0].interrupt_id: given.bare} if given.values is None else dict(given.values)
    unknown = values.keys() - {question.interrupt_id for question in asked}
    if unknown:
        raise FaultError(
            FaultCode.NOT_AWAITING,
            f"No open question has the id {sorted(unknown)[0]}",
            interrupts=[question.interrupt_id for question in asked],
        )
    starts = may_start and state.running is None and not state.pending
    if not starts and len(values) == len(asked):
        _check_bounds(ledger, state, task.agent, bounds)
    after = state.seq
    created = RunCreated(run_id=ids.run, cause="answer", messages=given.messages, extra=given.extra)
    ledger.append(state, created, task_id=task.task_id, run_id=ids.run)
    use_blobs(ledger, state, given.messages)
    if given.webhook is not None:
        insert_webhook(ledger, state, task.task_id, given.webhook, after)
    for interrupt_id, value in values.items():
        ledger.append(
            state,
            InterruptAnswered(interrupt_id=interrupt_id, action=given.action, value=value),
            task_id=task.task_id,
            run_id=ids.run,
        )
    ledger.append(state, TaskChanged(state=TaskState.WORKING), task_id=task.task_id)
    begun: Start | None = None
    left = state.asked(task.task_id)
    if left:  # an answer that leaves others open is a run without activation
        reason = RunReason.AUTH if task.state is TaskState.AUTH_REQUIRED else RunReason.INPUT
        ledger.append(state, RunStarted(attempt=1, node=task.agent), task_id=task.task_id, run_id=ids.run, attempt=1)
        paused = RunEnded(status=RunStatus.PAUSED, reason=reason)
        ledger.append(state, paused, task_id=task.task_id, run_id=ids.run, attempt=1)
        ledger.append(state, TaskChanged(state=_waiting_state(state, task.task_id)), task_id=task.task_id)
    elif starts:
        begun = _start(ledger, state, state.runs[ids.run], created)
    receipt = Receipt(
        thread_id=task.thread_id,
        task_id=task.task_id,
        run_id=ids.run,
        seq=after,
        task=state.tasks[task.task_id],
    )
    return Submitted(receipt, begun, idle=state.running is None)


def _waiting_state(state: ThreadState, task_id: str) -> TaskState:
    asked = state.asked(task_id)
    return TaskState.AUTH_REQUIRED if all(q.ask == "auth" for q in asked) else TaskState.INPUT_REQUIRED


def _start(ledger: Ledger, state: ThreadState, run: Run, created: RunCreated | None = None) -> Start:
    task = state.tasks[run.task_id]
    attempt = run.attempt + 1
    started = RunStarted(attempt=attempt, node=task.agent)
    ledger.append(state, started, task_id=run.task_id, run_id=run.run_id, attempt=attempt)
    if task.state is not TaskState.WORKING:
        ledger.append(state, TaskChanged(state=TaskState.WORKING), task_id=run.task_id)
    owner, thread_id = state.thread.owner, state.thread.thread_id
    return Start(owner, thread_id, state.tasks[run.task_id], state.runs[run.run_id], state.pk, created)


def next_pending(state: ThreadState, now: int) -> Run | None:
    """The run whose turn it is: the oldest that is due and whose task waits for nobody."""
    if state.running is not None:
        return None
    for run in state.pending:
        if (run.start_after is None or run.start_after <= now) and not state.tasks[run.task_id].waiting:
            return run
    return None


def start(ledger: Ledger, owner: str, thread_id: str, agent: str) -> Start | str | None:
    """Start the thread's next run if it is one of `agent`; otherwise say whose it is, or None if nothing can start."""
    state = ledger.thread(owner, thread_id)
    run = None if state is None else next_pending(state, ledger.clock())
    if state is None or run is None:
        return None
    wanted = state.tasks[run.task_id].agent
    return _start(ledger, state, run) if wanted == agent else wanted


def append(
    ledger: Ledger,
    start: Start,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
) -> None:
    """Events of a running run. Raises conflict if the run has ended or was started again: its pump is fenced."""
    state = _fenced(ledger, start)
    task_id, run_id, attempt = start.task.task_id, start.run.run_id, start.run.attempt
    for event, body in events:
        ledger.append(state, event, task_id=task_id, run_id=run_id, attempt=attempt, body=body)
    for part in files:
        use_blob(ledger, state, part)


def bound_runs(connection: Connection, pk: int, agent: str) -> list[Run]:
    """The newest runs of an agent on a thread, oldest of them first: they know the upstream's ids."""
    run = table_of(RunRow)
    newest = (
        select(run.c.body).where(run.c.thread_pk == pk, run.c.agent == agent).order_by(run.c.first_seq.desc()).limit(20)
    )
    return [RUN.validate_json(body) for (body,) in reversed(connection.execute(newest).all())]


def _fenced(ledger: Ledger, start: Start) -> ThreadState:
    state = ledger.thread(start.owner, start.thread_id)
    run = None if state is None else state.runs.get(start.run.run_id)
    if state is None or run is None or run.status is not RunStatus.RUNNING or run.attempt != start.run.attempt:
        raise FaultError(FaultCode.CONFLICT, f"Run {start.run.run_id} is no longer attempt {start.run.attempt}")
    return state


def end(
    ledger: Ledger,
    start: Start,
    outcome: Outcome,
    closing: Sequence[tuple[Event, bytes]] = (),
    files: Sequence[FilePart] = (),
) -> str | None:
    """End an activation and say what becomes of its task. Returns the agent of the thread's next run, if one waits."""
    state = _fenced(ledger, start)
    task_id, run_id, attempt = start.task.task_id, start.run.run_id, start.run.attempt
    for event, body in closing:
        ledger.append(state, event, task_id=task_id, run_id=run_id, attempt=attempt, body=body)
    for part in files:
        use_blob(ledger, state, part)
    status, reason, fault = outcome.status, outcome.reason, outcome.fault
    if state.tasks[task_id].state is TaskState.CANCELLING:
        # Cancel was committed first: whatever the agent did since, the task ends cancelled.
        status, fault = RunStatus.CANCELLED, None
        reason = reason if reason in (RunReason.SUPERSEDED, RunReason.ROLLED_BACK) else RunReason.CALLER
    elif status is RunStatus.SUCCESS and state.asked(task_id):
        status = RunStatus.PAUSED
        auth = _waiting_state(state, task_id) is TaskState.AUTH_REQUIRED
        reason = RunReason.AUTH if auth else RunReason.INPUT
    ledger.append(
        state,
        RunEnded(status=status, reason=reason, fault=fault, output=outcome.output, usage=outcome.usage or {}),
        task_id=task_id,
        run_id=run_id,
        attempt=attempt,
    )
    _settle_task(ledger, state, task_id, status, fault)
    if reason is RunReason.ROLLED_BACK:
        ledger.append(state, RunRemoved(run_id=run_id, why="rollback"), task_id=task_id)
    following = next_pending(state, ledger.clock())
    return None if following is None else state.tasks[following.task_id].agent


def _settle_task(ledger: Ledger, state: ThreadState, task_id: str, status: RunStatus, fault: Fault | None) -> None:
    """The task's state after a run of it ended."""
    if status is RunStatus.PAUSED:
        ledger.append(state, TaskChanged(state=_waiting_state(state, task_id)), task_id=task_id)
        return
    waiting = _live_of(state, task_id)
    if status is RunStatus.SUCCESS:
        if not waiting:
            ledger.append(state, TaskChanged(state=TaskState.COMPLETED), task_id=task_id)
        return
    for run in waiting:  # the task is over: its further inputs go nowhere
        ledger.append(
            state,
            RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER),
            task_id=task_id,
            run_id=run.run_id,
        )
    close_questions(ledger, state, task_id)
    ended = TaskState.CANCELLED if status is RunStatus.CANCELLED else TaskState.FAILED
    ledger.append(state, TaskChanged(state=ended, fault=fault), task_id=task_id)


def close_questions(ledger: Ledger, state: ThreadState, task_id: str) -> None:
    for question in state.asked(task_id):
        ledger.append(
            state,
            InterruptAnswered(interrupt_id=question.interrupt_id, action="superseded"),
            task_id=task_id,
            run_id=None,
        )


def cancel(ledger: Ledger, owner: str, task_id: str) -> Cancelled:
    """Cancel a task: at once where no agent is at work, else the running run has to stop first."""
    task = ledger.need_task(owner, task_id)
    if task.terminal:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {task_id} has ended as {task.state}", state=str(task.state))
    state = ledger.need_thread(owner, task.thread_id)
    runs = _live_of(state, task_id)
    running = next((run for run in runs if run.status is RunStatus.RUNNING), None)
    if task.state is TaskState.CANCELLING:
        return Cancelled(task, running.run_id if running else None)
    ledger.append(state, TaskChanged(state=TaskState.CANCELLING), task_id=task_id)
    for run in runs:
        if run.status is RunStatus.PENDING:
            ended = RunEnded(status=RunStatus.CANCELLED, reason=RunReason.CALLER)
            ledger.append(state, ended, task_id=task_id, run_id=run.run_id)
    close_questions(ledger, state, task_id)
    cancelling = state.tasks[task_id]
    if running is not None:
        return Cancelled(cancelling, running.run_id)
    ledger.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task_id)
    return Cancelled(replace(cancelling, state=TaskState.CANCELLED, changed_at=state.at, last_seq=state.seq), None)


def restart(ledger: Ledger, lost: Start, closing: Sequence[tuple[Event, bytes]] = ()) -> Start:
    """Begin the next attempt of a run whose pump is gone. `closing` ends what the lost attempt left open."""
    state = _fenced(ledger, lost)
    for event, body in closing:
        ledger.append(
            state, event, task_id=lost.task.task_id, run_id=lost.run.run_id, attempt=lost.run.attempt, body=body
        )
    return _start(ledger, state, state.runs[lost.run.run_id])


def fail_pending(ledger: Ledger, owner: str, thread_id: str, run_id: str, fault: Fault) -> None:
    """End a waiting run that can never start, such as one of an agent that is gone from the configuration."""
    state = ledger.thread(owner, thread_id)
    run = None if state is None else state.runs.get(run_id)
    if state is not None and run is not None and run.status is RunStatus.PENDING:
        _drop_pending(ledger, state, run, RunReason.FAULT, fault)
