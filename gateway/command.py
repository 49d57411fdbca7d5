"""What callers and the engine do to a thread, as decisions on its `ThreadState`. Each function runs whole in the
writer's transaction: it checks first, raises before it changes anything where it can, and appends events. First commit
wins.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from canonical.event import (
    Event,
    InterruptAnswered,
    InterruptRaised,
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
    "Later",
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
class Later:
    """A thread's next run is one of another agent, or not due yet."""

    agent: str
    wait: int
    """Microseconds."""


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
    """Append a new run, and start it in the same commit if its turn is now and `may_start` says that the agent has
    room."""
    if ask.task_id is not None and ledger.find_task(owner, ask.task_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.task_id} exists already")
    if ask.run_id is not None and ledger.find_run(owner, ask.run_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Run {ask.run_id} exists already")
    may_start = may_start and ask.start_after is None
    found = _thread_for(ledger, owner, ask)
    follow = None if found is None else _followed(found, ask)
    if found is None and not may_start:
        _check_bounds(ledger, owner, 0, ask.agent, bounds)
    state = found or _make_thread(ledger, owner, ask, ids)
    stop = _make_room(ledger, state, ask)
    starts = may_start and state.running is None and not state.pending
    if found is not None and not starts:
        _check_bounds(ledger, owner, len(state.pending), ask.agent, bounds)
    _say_history(ledger, state, ask)
    after = state.seq
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


def _thread_for(ledger: Ledger, owner: str, ask: Submission) -> ThreadState | None:
    """The thread that the submission means; None if it has to be made."""
    known = ask.follow_up or ask.continues
    if known is not None:
        task = ledger.need_task(owner, known)
        if ask.thread_id is not None and ask.thread_id != task.thread_id:
            raise FaultError(FaultCode.INVALID, f"Task {known} is not of thread {ask.thread_id}")
        return ledger.need_thread(owner, task.thread_id)
    thread_id = ask.thread_id
    if thread_id is None and ask.alias is not None:
        thread_id = ledger.sql.thread_of.run(ledger.connection, (owner, ask.protocol, ask.agent, ask.alias)).scalar()
    if thread_id is None:
        return None
    state = ledger.thread(owner, thread_id)
    if state is None and (ask.if_missing == "reject" or ledger.erased(owner, thread_id)):
        raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
    return state


def _make_thread(ledger: Ledger, owner: str, ask: Submission, ids: Ids) -> ThreadState:
    thread_id = ask.thread_id or ids.thread
    state = ledger.create_thread(owner, thread_id, ThreadChanged(metadata=ask.thread_metadata))
    if ask.thread_id is None and ask.alias is not None:
        ledger.sql.insert_alias.run(ledger.connection, (owner, ask.protocol, ask.agent, ask.alias, thread_id))
    return state


def _say_history(ledger: Ledger, state: ThreadState, ask: Submission) -> None:
    for message in ask.history:
        for event in whole_message(message):
            ledger.append(state, event)
    use_blobs(ledger, state, ask.history)


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


def _followed(state: ThreadState, ask: Submission) -> Task | None:
    if ask.follow_up is None:
        return None
    if ask.strategy in ("interrupt", "rollback"):
        raise FaultError(FaultCode.INVALID, f"A follow-up cannot {ask.strategy} the task that it follows")
    task = state.tasks.get(ask.follow_up)
    if task is None:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} has ended and takes no more messages")
    if task.state is TaskState.CANCELLING:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} is being cancelled")
    if task.waiting:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.follow_up} waits for an answer")
    if task.agent != ask.agent:
        raise FaultError(FaultCode.INVALID, f"Task {ask.follow_up} is one of agent {task.agent}, not of {ask.agent}")
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
            _drop_waiting(ledger, state, task.task_id, RunReason.SUPERSEDED)
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


def _drop_waiting(ledger: Ledger, state: ThreadState, task_id: str, reason: RunReason) -> None:
    """End the runs of a task that wait for their turn: the task is over, and its further inputs go nowhere."""
    for run in _live_of(state, task_id):
        if run.status is RunStatus.PENDING:
            ended = RunEnded(status=RunStatus.CANCELLED, reason=reason)
            ledger.append(state, ended, task_id=task_id, run_id=run.run_id)


def _live_of(state: ThreadState, task_id: str) -> list[Run]:
    return [run for run in state.runs.values() if run.task_id == task_id and run.status is not RunStatus.RESERVED]


def _check_bounds(ledger: Ledger, owner: str, on_thread: int, agent: str, bounds: Bounds) -> None:
    by_agent, by_owner = ledger.waiting(owner, agent)
    for waiting, bound, what in (
        (on_thread, bounds.thread, "this thread"),
        (by_agent, bounds.agent, f"agent {agent}"),
        (by_owner, bounds.owner, "this caller"),
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
    if not values:
        raise FaultError(FaultCode.INVALID, "The answer answers no question")
    unknown = values.keys() - {question.interrupt_id for question in asked}
    if unknown:
        raise FaultError(
            FaultCode.NOT_AWAITING,
            f"No open question has the id {sorted(unknown)[0]}",
            interrupts=[question.interrupt_id for question in asked],
        )
    starts = may_start and state.running is None and next_pending(state, ledger.clock()) is None
    if not starts and len(values) == len(asked):
        _check_bounds(ledger, owner, len(state.pending), task.agent, bounds)
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
        ledger.append(state, RunStarted(attempt=1, node=task.agent), task_id=task.task_id, run_id=ids.run, attempt=1)
        paused = RunEnded(status=RunStatus.PAUSED, reason=_waiting_reason(state, task.task_id))
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


def _waiting_reason(state: ThreadState, task_id: str) -> RunReason:
    return RunReason.AUTH if _waiting_state(state, task_id) is TaskState.AUTH_REQUIRED else RunReason.INPUT


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
    """The run whose turn it is: the oldest that is due and whose task waits for nobody. An answer goes before the other
    inputs of its task, which were made while the agent was at work on what it then asked about."""
    if state.running is not None:
        return None
    pending = state.pending
    for run in pending:
        if _due(run, now) and not state.tasks[run.task_id].waiting:
            answers = (other for other in pending if other.task_id == run.task_id and other.cause == "answer")
            return next(answers, run)
    return None


def _due(run: Run, now: int) -> bool:
    return run.start_after is None or run.start_after <= now


def start(ledger: Ledger, owner: str, thread_id: str, agent: str) -> Start | Later | None:
    """Start the thread's next run if it is one of `agent`; otherwise say whose it is and when, or None if nothing can
    start that nobody else will see to."""
    state = ledger.thread(owner, thread_id)
    if state is None:
        return None
    now = ledger.clock()
    run = next_pending(state, now)
    if run is not None and state.tasks[run.task_id].agent == agent:
        return _start(ledger, state, run)
    return _following(state, now)


def _following(state: ThreadState, now: int) -> Later | None:
    """Whose the thread's next run is, and when."""
    run = next_pending(state, now)
    if run is not None:
        return Later(state.tasks[run.task_id].agent, 0)
    scheduled = [run for run in state.pending if not _due(run, now)]
    if state.running is not None or not scheduled:
        return None
    run = min(scheduled, key=lambda run: run.start_after or 0)
    return Later(state.tasks[run.task_id].agent, (run.start_after or 0) - now)


def append(
    ledger: Ledger,
    start: Start,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
) -> None:
    """Events of a running run. Raises conflict if the run has ended or was started again: its pump is fenced."""
    _say(ledger, _fenced(ledger, start), start, events, files)


def _say(
    ledger: Ledger,
    state: ThreadState,
    start: Start,
    events: Sequence[tuple[Event, bytes]],
    files: Sequence[FilePart] = (),
) -> None:
    """Append what the run's agent said, and note the files that it named."""
    owner, task_id, run_id = start.owner, start.task.task_id, start.run.run_id
    for event, body in events:
        said: bytes | None = body
        if isinstance(event, InterruptRaised) and ledger.has_asked(owner, task_id, event.interrupt_id or ""):
            event, said = _asked_anew(ledger, owner, task_id, event), None
        ledger.append(state, event, task_id=task_id, run_id=run_id, attempt=start.run.attempt, body=said)
    for part in files:
        use_blob(ledger, state, part)


def _asked_anew(ledger: Ledger, owner: str, task_id: str, asked: InterruptRaised) -> InterruptRaised:
    """The question under an id of its own: the agent gave it one that an earlier question of the task has."""
    number = 2
    while ledger.has_asked(owner, task_id, f"{asked.interrupt_id}-{number}"):
        number += 1
    return asked.model_copy(update={"interrupt_id": f"{asked.interrupt_id}-{number}"})


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
) -> Later | None:
    """End an activation and say what becomes of its task. Returns what the thread's next run is, if one waits."""
    state = _fenced(ledger, start)
    task_id, run_id, attempt = start.task.task_id, start.run.run_id, start.run.attempt
    _say(ledger, state, start, closing, files)
    status, reason, fault = outcome.status, outcome.reason, outcome.fault
    if state.tasks[task_id].state is TaskState.CANCELLING:
        # Cancel was committed first: whatever the agent did since, the task ends cancelled.
        status, fault = RunStatus.CANCELLED, None
        reason = reason if reason in (RunReason.SUPERSEDED, RunReason.ROLLED_BACK) else _displaced(state, start.run)
    elif status is RunStatus.SUCCESS and state.asked(task_id):
        status, reason = RunStatus.PAUSED, _waiting_reason(state, task_id)
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
    return _following(state, ledger.clock())


def _displaced(state: ThreadState, run: Run) -> RunReason:
    """Why a run was cancelled, as the inputs that wait tell it: after a restart nobody else knows."""
    for waiting in state.pending:
        if waiting.first_seq > run.first_seq and waiting.strategy in ("interrupt", "rollback"):
            return RunReason.SUPERSEDED if waiting.strategy == "interrupt" else RunReason.ROLLED_BACK
    return RunReason.CALLER


def _settle_task(ledger: Ledger, state: ThreadState, task_id: str, status: RunStatus, fault: Fault | None) -> None:
    """The task's state after a run of it ended."""
    if status is RunStatus.PAUSED:
        ledger.append(state, TaskChanged(state=_waiting_state(state, task_id)), task_id=task_id)
        return
    if status is RunStatus.SUCCESS:
        if not _live_of(state, task_id):
            ledger.append(state, TaskChanged(state=TaskState.COMPLETED), task_id=task_id)
        return
    _drop_waiting(ledger, state, task_id, RunReason.CALLER)
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
    _drop_waiting(ledger, state, task_id, RunReason.CALLER)
    close_questions(ledger, state, task_id)
    cancelling = state.tasks[task_id]
    if running is not None:
        return Cancelled(cancelling, running.run_id)
    ledger.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task_id)
    return Cancelled(replace(cancelling, state=TaskState.CANCELLED, changed_at=state.at, last_seq=state.seq), None)


def restart(ledger: Ledger, lost: Start, closing: Sequence[tuple[Event, bytes]] | None = None) -> Start:
    """Begin the next attempt of a run whose pump is gone. With `closing`, which ends what the lost attempt left open,
    the agent says everything again, and asks again what it had asked."""
    state = _fenced(ledger, lost)
    if closing is not None:
        _say(ledger, state, lost, closing)
        close_questions(ledger, state, lost.task.task_id)
    return _start(ledger, state, state.runs[lost.run.run_id])


def fail_pending(ledger: Ledger, owner: str, thread_id: str, run_id: str, fault: Fault) -> None:
    """End a waiting run that can never start, such as one of an agent that is gone from the configuration."""
    state = ledger.thread(owner, thread_id)
    run = None if state is None else state.runs.get(run_id)
    if state is not None and run is not None and run.status is RunStatus.PENDING:
        _drop_pending(ledger, state, run, RunReason.FAULT, fault)
