"""Run commands of callers: submit, answer and cancel, as decisions on a `ThreadState`.

Each function runs in the writer's transaction. It checks first, raises before it changes anything where possible, and
then appends events. If two commands conflict, the first commit wins.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import NAMESPACE_OID, uuid5

import msgspec
from msgspec.structs import replace

from babelgate.canonical.event import (
    ArtifactAdded,
    InterruptAnswered,
    RunCreated,
    RunEnded,
    RunRemoved,
    RunStarted,
    TaskChanged,
    TaskCreated,
    ThreadChanged,
)
from babelgate.canonical.fault import BUSY, THREAD_EXISTS, Fault, FaultCode, FaultError
from babelgate.canonical.hub import Answers, Receipt, Submission
from babelgate.canonical.json import as_object
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.state import RunReason, RunStatus, TaskState
from babelgate.canonical.thread import Interrupt, Task, next_run_id
from babelgate.gateway.runs.budget_question import is_approval, is_budget_question
from babelgate.gateway.runs.budgets import RunAccount
from babelgate.gateway.runs.forks import Base, check_unused, put_base, put_state
from babelgate.gateway.runs.lifecycle import (
    StartedRun,
    begin,
    close_questions,
    drop_pending,
    drop_waiting,
    give_up,
    live_of,
    next_pending,
    supersede,
    waiting_reason,
    waiting_state,
)
from babelgate.gateway.runs.thread_commands import append_messages
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.blob_uses import use_blobs
from babelgate.gateway.storage.transaction import ThreadState, Transaction
from babelgate.gateway.storage.webhook_rows import insert_webhook


class Ids(msgspec.Struct, frozen=True):
    """Unused ids for the thread, task, run, message and revisions that a command may have to create."""

    thread: str
    task: str
    run: str
    message: str
    base: str = ""
    """Checkpoint id of a revision that a fork creates."""
    state: str = ""
    """Checkpoint id of a revision that a state change creates."""


class RunStop(NamedTuple):
    """Running run that the engine has to stop after the commit, and the reason."""

    pk: int
    """Database key of the run's thread."""
    run_id: str
    reason: RunReason


class Submitted(msgspec.Struct, frozen=True):
    """Outcome of a submission or an answer: the caller's receipt, and the runs to start and to stop."""

    receipt: Receipt
    pk: int
    """Database key of the thread."""
    start: StartedRun | None
    stop: RunStop | None = None
    """Running run that the multitask strategy replaces and that the engine has to stop; None if there is none."""
    idle: bool = False
    """True if no run is running on the thread, so that only its agent's slots delay the new run."""


class Cancelled(msgspec.Struct, frozen=True):
    """Outcome of a cancel: the task, and the run to stop, if one is running."""

    task: Task
    stop: RunStop | None


def submit(
    tx: Transaction,
    owner: str,
    ask: Submission,
    ids: Ids,
    limits: Limits,
    *,
    may_start: bool,
    stateful: bool = False,
    base: Base | None = None,
    account: RunAccount | None = None,
) -> Submitted:
    """Append a new run, and start it in the same commit if it is next on its thread and its agent has a free slot
    (`may_start`).

    `stateful` is true if the agent keeps its own state. `base` is the state of another thread to start from, and
    `account` has the budgets that count the run. Raises conflict if the task or run exists already, or the thread is
    busy and the strategy refuses it; not_found, invalid, task_ended, queue_full, limited.
    """
    if ask.task_id is not None and tx.find_task(owner, ask.task_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.task_id} exists already")
    if ask.run_id is not None and tx.find_run(owner, ask.run_id) is not None:
        raise FaultError(FaultCode.CONFLICT, f"Run {ask.run_id} exists already")
    may_start = may_start and ask.start_in is None
    existing = _thread_for(tx, owner, ask)
    check_unused(existing, base)
    follow = None if existing is None else _followed_task(existing, ask)
    if account is not None:
        account.admit(tx, (ask.thread_id or ids.thread) if existing is None else existing.thread.thread_id)
    if existing is None and not may_start:
        _check_queue(tx, owner, None, ask.agent, limits, is_delayed=bool(ask.start_in))
    state = existing or _make_thread(tx, owner, ask, ids)
    stop = _make_room(tx, state, ask)
    starts = may_start and state.running is None and not state.pending
    if existing is not None and not starts:
        _check_queue(tx, owner, state, ask.agent, limits, is_delayed=bool(ask.start_in))
    if not ask.thread_metadata.items() <= state.thread.metadata.items():
        tx.append(state, ThreadChanged(metadata=ask.thread_metadata))
    ask = _append_base(tx, state, ask, ids, base)
    run_id = ask.run_id or ids.run
    run_input = _with_uploads(state, ask.input, ids)
    _append_uploads(tx, state, ask.input, run_id)
    after = state.seq
    task_id = _create_task(tx, state, ask, ids, stateful=stateful) if follow is None else follow.task_id
    start_after = None if ask.start_in is None else tx.now() + ask.start_in
    created = _describe_run(ask, run_input, run_id, start_after, is_new=follow is None)
    record = tx.append(state, created, task_id=task_id, run_id=run_id)
    if account is not None:
        account.charge_run(tx, state.thread.thread_id)
    use_blobs(tx, state, created.messages)
    if ask.webhook is not None:
        insert_webhook(tx, state, task_id, ask.webhook, after, limits.webhooks)
    started = begin(tx, state, state.runs[run_id], created) if starts else None
    receipt = Receipt(
        thread_id=state.thread.thread_id,
        task_id=task_id,
        run_id=run_id,
        seq=after,
        created_at=record.at,
        task=state.tasks[task_id],
    )
    return Submitted(receipt, state.pk, started, stop, idle=state.running is None)


def _describe_run(
    ask: Submission, run_input: RunInput, run_id: str, start_after: int | None, *, is_new: bool
) -> RunCreated:
    """Return the event that creates the run of a submission. `is_new` is true if its task is new."""
    return RunCreated.of(
        run_input,
        run_id=run_id,
        cause="input" if is_new else "follow_up",
        strategy=ask.strategy,
        start_after=start_after,
        key_id=ask.key_id,
        subject=ask.subject,
    )


def _create_task(tx: Transaction, state: ThreadState, ask: Submission, ids: Ids, *, stateful: bool) -> str:
    """Append the task of a submission, and return its id. `stateful` is true if the agent keeps its own state."""
    task_id = ask.task_id or ids.task
    created = TaskCreated(
        task_id=task_id,
        agent=ask.agent,
        continues=ask.continues,
        references=ask.references,
        metadata=ask.input.metadata,
        protocol=ask.protocol,
        version=ask.version,
        stateful=stateful,
    )
    tx.append(state, created, task_id=task_id)
    return task_id


def prepare(tx: Transaction, owner: str, ask: Submission, ids: Ids, base: Base | None) -> Submission:
    """Create the thread of a submission, unless it exists, and append the submission's history and the state of the
    fork `base`. This is done for an agent that keeps its own state, before the agent changes this state for the
    submission.

    Return the submission without these parts, to be submitted afterwards. `base` is None if the submission is no fork.
    Raises the faults of `submit` about threads.
    """
    existing = _thread_for(tx, owner, ask)
    check_unused(existing, base)
    state = existing or _make_thread(tx, owner, ask, ids)
    rest = _append_base(tx, state, replace(ask, state={}), ids, base)
    remaining = replace(rest, thread_id=state.thread.thread_id, alias=None, history=(), state=ask.state)
    return replace(remaining, fork=None, if_missing="reject", if_exists="continue")


def forget(tx: Transaction, owner: str, thread_id: str) -> None:
    """Release the id of a thread that `prepare` has created and that was erased, because its submission failed."""
    tx.forget_erased(owner, thread_id)


def _append_base(tx: Transaction, state: ThreadState, ask: Submission, ids: Ids, base: Base | None) -> Submission:
    """Append the submission's history, and the state that its run starts from. `base` is the state of another thread;
    None if the submission is no fork.

    Return the submission with the id of the checkpoint from which its run starts, if it starts from one.
    """
    append_messages(tx, state, ask.history)
    if base is None and not ask.state:
        return ask
    checkpoint = ask.input.checkpoint
    if base is not None:
        checkpoint = put_base(tx, state, base, ids.base, has_history=bool(ask.history))
    if ask.state:
        changed = put_state(tx, state, ask.state, checkpoint, ask.as_node, ids.state)
        checkpoint = None if checkpoint is None else changed
    return replace(ask, input=ask.input.replace(checkpoint=checkpoint))


def _thread_for(tx: Transaction, owner: str, ask: Submission) -> ThreadState | None:
    """Return the thread that the submission names by an id, an alias or a task. Return None if it has to be created.
    Raises not_found for an unknown task or thread, conflict for a thread that exists and must not, and invalid if the
    task is on another thread than the one that is named."""
    task_id = ask.follow_up or ask.continues
    if task_id is not None:
        task = tx.need_task(owner, task_id)
        if ask.thread_id is not None and ask.thread_id != task.thread_id:
            raise FaultError(FaultCode.INVALID, f"Task {task_id} is not of thread {ask.thread_id}")
        return tx.need_thread(owner, task.thread_id)
    thread_id = ask.thread_id
    if thread_id is None and ask.alias is not None:
        for (alias_thread,) in tx.sql.thread_of.run(tx.connection, (owner, ask.protocol, ask.agent, ask.alias)):
            thread_id = alias_thread
    if thread_id is None:
        return None
    state = tx.thread(owner, thread_id)
    missing = ask.if_missing
    if state is None and missing != "recreate" and (missing == "reject" or tx.is_erased(owner, thread_id)):
        raise FaultError(FaultCode.NOT_FOUND, f"Thread {thread_id} not found")
    if state is not None and ask.if_exists == "reject":
        raise FaultError(FaultCode.CONFLICT, f"Thread {thread_id} exists already", reason=THREAD_EXISTS)
    return state


def _make_thread(tx: Transaction, owner: str, ask: Submission, ids: Ids) -> ThreadState:
    thread_id = ask.thread_id or ids.thread
    if ask.if_missing == "recreate" and ask.thread_id is not None:  # an id that the gateway chose is new
        tx.forget_erased(owner, thread_id)
    ephemeral = True if ask.ephemeral else None
    state = tx.create_thread(owner, thread_id, ThreadChanged(metadata=ask.thread_metadata, ephemeral=ephemeral))
    if ask.thread_id is None and ask.alias is not None:
        tx.sql.insert_alias.execute(tx.connection, (owner, ask.protocol, ask.agent, ask.alias, thread_id))
    return state


def _with_uploads(state: ThreadState, run_input: RunInput, ids: Ids) -> RunInput:
    """Return a run's input with the files that were uploaded to the thread since the last run, as parts of the caller's
    last message."""
    uploads, messages = state.thread.uploads, run_input.messages
    if not uploads:
        return run_input
    if messages and messages[-1].role == "user":
        last = messages[-1]
        messages = (*messages[:-1], last.replace(parts=(*last.parts, *uploads)))
    else:
        messages = (*messages, Message(message_id=ids.message, role="user", parts=uploads))
    return run_input.replace(messages=messages, uploaded=run_input.uploaded + len(uploads))


def _append_uploads(tx: Transaction, state: ThreadState, run_input: RunInput, run_id: str) -> None:
    """Append an artifact for each file that was uploaded in the same request as the messages.

    So the log has the same records as for a file that was uploaded before the request.
    """
    if not run_input.uploaded:
        return
    for number, part in enumerate(run_input.messages[-1].parts[-run_input.uploaded :]):
        assert isinstance(part, FilePart)
        artifact_id = str(uuid5(NAMESPACE_OID, f"{run_id}/upload/{number}"))
        tx.append(state, ArtifactAdded(artifact_id=artifact_id, name=part.name, part=part, origin="caller"))


def _followed_task(state: ThreadState, ask: Submission) -> Task | None:
    if ask.follow_up is None:
        return None
    if ask.strategy in ("interrupt", "rollback"):
        raise FaultError(FaultCode.INVALID, f"A follow-up cannot {ask.strategy} the task that it follows")
    task = state.tasks.get(ask.follow_up)
    if task is None:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} has ended and takes no more messages")
    if task.state is TaskState.CANCELLING:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {ask.follow_up} is being cancelled")
    if task.is_waiting:
        raise FaultError(FaultCode.CONFLICT, f"Task {ask.follow_up} waits for an answer")
    if task.agent != ask.agent:
        raise FaultError(FaultCode.INVALID, f"Task {ask.follow_up} belongs to agent {task.agent}, not to {ask.agent}")
    return task


def _make_room(tx: Transaction, state: ThreadState, ask: Submission) -> RunStop | None:
    """Apply the submission's multitask strategy to the active runs. Return the running run that has to stop, or None.
    Raises conflict if the strategy is `reject` and the thread is busy."""
    active = list(state.runs.values())
    if active and ask.strategy == "reject":
        raise FaultError(FaultCode.CONFLICT, "The thread is busy: a run on it has not ended", reason=BUSY)
    stop: RunStop | None = None
    if ask.strategy in ("interrupt", "rollback"):
        reason = RunReason.SUPERSEDED if ask.strategy == "interrupt" else RunReason.ROLLED_BACK
        for run in active:
            if run.status is RunStatus.RUNNING:
                stop = RunStop(state.pk, run.run_id, reason)
                if state.tasks[run.task_id].state is not TaskState.CANCELLING:
                    cancelling = TaskChanged(state=TaskState.CANCELLING, rollback=ask.strategy == "rollback")
                    tx.append(state, cancelling, task_id=run.task_id)
            else:
                drop_pending(tx, state, run, reason)
    if ask.supersede:
        for task in [task for task in state.tasks.values() if task.is_waiting]:
            supersede(tx, state, task.task_id)
    return stop


def _check_queue(
    tx: Transaction, owner: str, state: ThreadState | None, agent: str, limits: Limits, *, is_delayed: bool = False
) -> None:
    """Raise queue_full if one more run would exceed a limit of waiting runs. `state` is that of the run's thread; None
    if the thread is new.

    If the queue of an agent is full, the owners whose runs wait in it have equal shares: an owner that has not used its
    share may still add a run. Runs that start at a later time (`is_delayed`) have a separate limit, and count towards
    no queue.
    """
    counts, queue = tx.waiting(owner, agent), limits.queue
    on_thread = sum(tx.wait(state, run) <= 0 for run in state.pending) if state is not None else 0
    bounds = [
        (on_thread, queue.thread, "are already waiting for this thread"),
        (counts.owner, queue.owner, "are already waiting for this caller"),
    ]
    if counts.owner_at_agent >= max(1, queue.agent // counts.owners):  # its share
        bounds.append((counts.agent, queue.agent, f"are already waiting for agent {agent}"))
    if is_delayed:
        bounds = [(counts.delayed, queue.owner, "of this caller already start at a later time")]
    for waiting, bound, what in bounds:
        if waiting >= bound:
            raise FaultError(FaultCode.QUEUE_FULL, f"{waiting} runs {what}; try again later", retry_after=1)


def answer(
    tx: Transaction,
    owner: str,
    answers: Answers,
    ids: Ids,
    limits: Limits,
    *,
    may_start: bool,
    account: RunAccount | None = None,
) -> Submitted:
    """Answer open questions of a task. The task continues once all its questions are answered: at once if `may_start`
    (its agent has a free slot), else when its turn comes. `account` has the budgets that count the run.

    Raises task_ended, not_awaiting if no such question is open, invalid, limited, forbidden.
    """
    task = tx.need_task(owner, answers.task_id)
    if task.is_terminal or task.state is TaskState.CANCELLING:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {task.task_id} has ended and takes no answers")
    state = tx.need_thread(owner, task.thread_id)
    questions = state.open_interrupts(task.task_id)
    if not task.is_waiting or not questions:
        raise FaultError(FaultCode.NOT_AWAITING, f"Task {task.task_id} has no open question")
    values = {questions[0].interrupt_id: answers.bare} if answers.values is None else dict(answers.values)
    answers = replace(answers, values=values)
    if not values:
        raise FaultError(FaultCode.INVALID, "The answer is empty: give a value for at least one open question")
    unknown = values.keys() - {question.interrupt_id for question in questions}
    if unknown:
        raise FaultError(
            FaultCode.NOT_AWAITING,
            f"No open question has the id {sorted(unknown)[0]}",
            interrupts=[question.interrupt_id for question in questions],
        )
    held = _find_held(questions, answers)
    if held is not None or all(question.asker == "gateway" for question in questions):
        account = None  # the run was admitted before the gateway paused it
    if account is not None:
        account.admit(tx, task.thread_id)
    starts = may_start and state.running is None and next_pending(tx, state) is None
    if not starts and len(values) == len(questions):
        _check_queue(tx, owner, state, task.agent, limits)
    after = state.seq
    run_id = next_run_id(questions[0].run_id)
    while tx.find_run(owner, run_id) is not None:  # an earlier answer to another question of the same pause
        run_id = next_run_id(run_id)
    created = _answer_created(state, answers, ids, run_id, held)
    record = tx.append(state, created, task_id=task.task_id, run_id=run_id)
    if account is not None:
        account.charge_run(tx, task.thread_id)
    use_blobs(tx, state, created.messages)
    if answers.webhook is not None:
        insert_webhook(tx, state, task.task_id, answers.webhook, after, limits.webhooks)
    for interrupt_id, value in values.items():
        tx.append(
            state,
            InterruptAnswered(interrupt_id=interrupt_id, action=answers.action, value=value),
            task_id=task.task_id,
            run_id=run_id,
        )
    tx.append(state, TaskChanged(state=TaskState.WORKING), task_id=task.task_id)
    started = _continue_task(tx, state, task, created, answers, held, starts=starts)
    receipt = Receipt(
        thread_id=task.thread_id,
        task_id=task.task_id,
        run_id=run_id,
        seq=after,
        created_at=record.at,
        task=state.tasks.get(task.task_id) or tx.need_task(owner, task.task_id),
    )
    return Submitted(receipt, state.pk, started, idle=state.running is None)


def _continue_task(
    tx: Transaction,
    state: ThreadState,
    task: Task,
    created: RunCreated,
    answers: Answers,
    held: Interrupt | None,
    *,
    starts: bool,
) -> StartedRun | None:
    """Continue a task with the run of an answer, and return the run if its agent starts now (`starts`).

    If the answer leaves questions open, the run ends at once as paused. `held` is the question of the gateway about a
    budget, if the answer is to it: a refusal fails the task.
    """
    task_id, run_id = task.task_id, created.run_id
    values = answers.values or {}
    if held is not None and not (answers.action == "answer" and is_approval(values.get(held.interrupt_id))):
        _end_held(tx, state, task_id, run_id, held)
        return None
    if state.open_interrupts(task_id):  # an answer that leaves other questions open does not activate the agent
        tx.append(state, RunStarted(attempt=1, node=task.agent), task_id=task_id, run_id=run_id, attempt=1)
        paused = RunEnded(status=RunStatus.PAUSED, reason=waiting_reason(state, task_id))
        tx.append(state, paused, task_id=task_id, run_id=run_id, attempt=1)
        tx.append(state, TaskChanged(state=waiting_state(state, task_id)), task_id=task_id)
        return None
    return begin(tx, state, state.runs[run_id], created) if starts else None


def _find_held(questions: Sequence[Interrupt], answers: Answers) -> Interrupt | None:
    """Return the open question by which the gateway has paused the run because of a budget, or None. Raises forbidden
    if the caller may not answer it."""
    held = next(filter(is_budget_question, questions), None)
    if held is None or answers.may_raise:
        return held
    value = as_object(held.value)
    if value.get("raised_by") != "owner":
        raise FaultError(
            FaultCode.FORBIDDEN,
            f"Only a caller with the right admin may let a run go on beyond the budget {value.get('budget')}.",
        )
    return held


def _answer_created(state: ThreadState, answers: Answers, ids: Ids, run_id: str, held: Interrupt | None) -> RunCreated:
    """Return the event that creates the run of an answer. If the answer is to the gateway's question about a budget
    (`held`), it has no input: the agent gets that of the paused run."""
    if held is None:
        run_input, resumes = _with_uploads(state, answers.input, ids), ""
    else:
        run_input, resumes = answers.input.replace(messages=(), uploaded=0), held.run_id
    return RunCreated.of(
        run_input,
        run_id=run_id,
        cause="answer",
        key_id=answers.key_id,
        subject=answers.subject,
        resumes=resumes,
    )


def _end_held(tx: Transaction, state: ThreadState, task_id: str, run_id: str, held: Interrupt) -> None:
    """Fail a task that the gateway has paused, because a caller has refused to let it continue beyond its budget."""
    name = as_object(held.value).get("budget")
    fault = Fault(
        code=FaultCode.LIMITED,
        message=f"The run did not go on beyond the budget {name}: a caller has refused it.",
        details={"limit": "budget"},
    )
    tx.append(state, RunStarted(attempt=1, node=state.tasks[task_id].agent), task_id=task_id, run_id=run_id, attempt=1)
    ended = RunEnded(status=RunStatus.ERROR, reason=RunReason.FAULT, fault=fault)
    tx.append(state, ended, task_id=task_id, run_id=run_id, attempt=1)
    give_up(tx, state, task_id, TaskState.FAILED, fault)


def cancel_run(tx: Transaction, owner: str, run_id: str, *, rollback: bool) -> Cancelled:
    """Cancel the task of a run that has not ended, and remove the run afterwards if `rollback` is true.

    Raises not_found, and task_ended if the run has ended.
    """
    run_and_thread = tx.find_run(owner, run_id)
    if run_and_thread is None or run_and_thread[0].removed:
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
    run, _ = run_and_thread
    if run.has_ended:
        raise FaultError(FaultCode.TASK_ENDED, f"Run {run_id} has ended as {run.status}", status=str(run.status))
    cancelled = cancel(tx, owner, run.task_id, rollback=rollback)
    if rollback and cancelled.stop is None:
        state = tx.need_thread(owner, run.thread_id)
        tx.append(state, RunRemoved(run_id=run_id, why="rollback"), task_id=run.task_id)
    return cancelled


def cancel(tx: Transaction, owner: str, task_id: str, *, rollback: bool = False) -> Cancelled:
    """Cancel a task: at once if no run of it is running, otherwise after that run has stopped. With `rollback`, its
    active runs are also removed from the thread.

    Raises task_ended if the task has ended already.
    """
    task = tx.need_task(owner, task_id)
    if task.is_terminal:
        raise FaultError(FaultCode.TASK_ENDED, f"Task {task_id} has ended as {task.state}", state=str(task.state))
    state = tx.need_thread(owner, task.thread_id)
    runs = live_of(state, task_id)
    running = next((run for run in runs if run.status is RunStatus.RUNNING), None)
    reason = RunReason.ROLLED_BACK if rollback else RunReason.CALLER
    stop = None if running is None else RunStop(state.pk, running.run_id, reason)
    if task.state is TaskState.CANCELLING:
        return Cancelled(task, stop)
    tx.append(state, TaskChanged(state=TaskState.CANCELLING, rollback=rollback), task_id=task_id)
    drop_waiting(tx, state, task_id, RunReason.CALLER)
    close_questions(tx, state, task_id)
    cancelling = state.tasks[task_id]
    if stop is not None:
        return Cancelled(cancelling, stop)
    tx.append(state, TaskChanged(state=TaskState.CANCELLED), task_id=task_id)
    return Cancelled(cancelling.replace(state=TaskState.CANCELLED, changed_at=state.at, last_seq=state.seq), None)
