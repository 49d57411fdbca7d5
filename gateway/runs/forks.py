"""Forks: runs that start from an earlier state of a thread, on this thread or on another one."""

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from babelgate.canonical.event import StateSaved
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.history import ORIGIN_AGENT, Revision, StateHistory, UpstreamState
from babelgate.canonical.hub import Fork, Submission
from babelgate.canonical.value import JsonObject
from babelgate.gateway.runs.thread_commands import append_messages
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.transaction import ThreadState, Transaction


class Base(NamedTuple):
    """State of one thread, from which a run on another thread starts."""

    thread_id: str
    revision: Revision
    origin: dict[str, str]
    """Ids of the upstream's run that ended with this state, to be stored as `StateSaved.origin` of the copy; empty if
    unknown."""
    seq: int
    """Seq of the newest record of the thread on which the run starts; 0 if that thread has to be created."""


async def find_base(reads: JournalReads, owner: str, ask: Submission) -> tuple[Submission, Base | None]:
    """Find the state from which the fork of a submission starts. A submission without a fork is returned with None.

    If the fork is on the same thread, return the submission with the checkpoint that its run starts from, and None.
    Otherwise return the submission and the state that its thread begins with.

    Raises:
        FaultError: not_found if the fork's source does not exist or belongs to another owner; invalid if the thread has
            its own history; conflict for a run that has not ended; too_large as `Reads.snapshot`.
    """
    if ask.fork is None:
        return ask, None
    if ask.follow_up is not None or ask.input.checkpoint is not None:
        raise FaultError(
            FaultCode.INVALID,
            "A fork starts a new task from one state: leave out the follow-up task and the checkpoint.",
        )
    target = ask.thread_id
    if target is None and ask.alias is not None:
        target = await reads.thread_of(owner, ask.protocol, ask.agent, ask.alias)
    source, run_id = await _find_source(reads, owner, ask.fork, target)
    history = await _history(reads, owner, source)
    revision = history.get(ask.fork.checkpoint or "") if run_id is None else history.of_run(run_id)
    if revision is None or revision.ns:  # a subgraph's state is not the thread's
        raise FaultError(
            FaultCode.NOT_FOUND, "The task, run or checkpoint to fork from does not exist, or was deleted."
        )
    if target == source:
        return replace(ask, input=ask.input.replace(checkpoint=revision.checkpoint_id)), None
    seq = 0 if target is None else await _need_unused(reads, owner, target)
    return ask, Base(source, revision, _origin(history, revision), seq)


def _origin(history: StateHistory, revision: Revision) -> dict[str, str]:
    """Return the ids by which the agent's own server knows the run that ended with a revision, and the agent's name
    under `ORIGIN_AGENT`.

    Return an empty dict if the server does not have exactly this state. A copy of a copy keeps the ids of the first
    original.
    """
    if revision.origin:
        return dict(revision.origin)
    task = history.task(revision.task_id)
    upstream = UpstreamState() if task is None else history.upstream_state(revision, task.agent)
    return {} if task is None or upstream.changed or not upstream.ids else {**upstream.ids, ORIGIN_AGENT: task.agent}


async def _find_source(reads: JournalReads, owner: str, fork: Fork, target: str | None) -> tuple[str, str | None]:
    """Return the thread that a fork starts from, and the run after which it starts; None if the fork names no run or
    task.

    `target` is the thread of the submission, used if the fork names no other one. Raises not_found, and conflict for a
    run that has not ended.
    """
    if fork.run_id is not None:
        run = await reads.run(owner, fork.run_id)
    elif fork.task_id is not None:
        task = await reads.task(owner, fork.task_id)
        history = await _history(reads, owner, task.thread_id)
        runs = [run for run in history.fold.runs.values() if run.task_id == task.task_id and not run.removed]
        if not runs:
            raise FaultError(
                FaultCode.NOT_FOUND, f"Task {task.task_id} has no run to fork from, or its runs were deleted."
            )
        run = runs[-1]
    else:
        source = fork.thread_id or target
        if source is None:
            raise FaultError(FaultCode.NOT_FOUND, f"Checkpoint {fork.checkpoint} not found on any of your threads.")
        return source, None
    if not run.has_ended:
        raise FaultError(
            FaultCode.CONFLICT, f"Run {run.run_id} has not ended: wait for its end before you fork from it."
        )
    return run.thread_id, run.run_id


async def _history(reads: JournalReads, owner: str, thread_id: str) -> StateHistory:
    return await reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))


async def _need_unused(reads: JournalReads, owner: str, thread_id: str) -> int:
    """Return the seq of a thread without history, or 0 if there is no such thread. Raises invalid if it has history."""
    try:
        history = await _history(reads, owner, thread_id)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        return 0
    if history.head is not None or history.fold.runs:
        raise FaultError(
            FaultCode.INVALID,
            "To fork from another thread, send no thread_id or that of an empty thread: this one has history.",
        )
    return history.seq


def check_unused(state: ThreadState | None, base: Base | None) -> None:
    """Check that the thread has not changed since `find_base` has read it. Raises conflict if it has.

    `state` is None if the thread does not exist yet, and `base` is None if the submission is no fork to another thread.
    In both cases there is no conflict.
    """
    if base is not None and state is not None and state.seq != base.seq:
        raise FaultError(FaultCode.CONFLICT, "The thread has changed meanwhile: try again.")


def put_base(tx: Transaction, state: ThreadState, base: Base, checkpoint_id: str, *, has_history: bool) -> str | None:
    """Append the state of another thread as the first state of a thread.

    If the state is the checkpoint of a graph in this process, copy the checkpoint and return its id: the run starts
    from it. Otherwise append the state under the id `checkpoint_id`, and return None. `has_history` is true if the
    submission adds messages that the agent's server does not know. Raises not_found.
    """
    owner, revision = state.thread.owner, base.revision
    tx.need_thread(owner, base.thread_id)
    # A graph in this process finds its checkpoint by the id that it assigned.
    # Later checkpoints are not part of the new thread, whose first run may fail before it has saved one.
    copied = checkpoints.copy_thread(
        tx.connection, owner, base.thread_id, state.thread.thread_id, until=revision.checkpoint_id
    )
    is_copied = revision.checkpoint_id in copied
    append_messages(tx, state, revision.messages)
    saved = StateSaved(
        checkpoint_id=revision.checkpoint_id if is_copied else checkpoint_id,
        source="fork",
        step=revision.step,
        as_node=revision.node,
        values=revision.values,
        origin={} if has_history else base.origin,
    )
    tx.append(state, saved)
    return revision.checkpoint_id if is_copied else None


def put_state(
    tx: Transaction, state: ThreadState, values: JsonObject, parent: str | None, as_node: str | None, checkpoint_id: str
) -> str:
    """Append a revision that changes members of the state from which a run will start, and return its checkpoint id.

    The changed state is that of the checkpoint `parent`, or the thread's newest state if `parent` is None. `as_node` is
    the node that the change is attributed to, if any. Raises conflict while another run is active.
    """
    if state.runs:
        raise FaultError(
            FaultCode.CONFLICT,
            f"Thread {state.thread.thread_id} is busy: its state cannot be changed while a run is active.",
        )
    source = "update" if parent is None else "fork"
    tx.append(
        state,
        StateSaved(checkpoint_id=checkpoint_id, parent_id=parent, source=source, as_node=as_node, delta=values),
    )
    return checkpoint_id
