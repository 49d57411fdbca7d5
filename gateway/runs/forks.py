"""Forks: runs that start from what a thread once was, on this thread or on another one."""

from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from babelgate.canonical.event import StateSaved
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.history import ORIGIN_AGENT, Origin, Revision, StateHistory
from babelgate.canonical.hub import Fork, Submission
from babelgate.canonical.value import JsonObject
from babelgate.gateway.runs.thread_commands import say
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.reads import Reads
from babelgate.gateway.storage.transaction import ThreadState, Transaction


class Base(NamedTuple):
    """A state of one thread, from which a run on another one starts."""

    thread_id: str
    revision: Revision
    origin: dict[str, str]
    """As of `StateSaved`."""
    seq: int
    """Of the newest record of the thread that takes it; 0 = that one is made."""


async def find_base(reads: Reads, owner: str, ask: Submission) -> tuple[Submission, Base | None]:
    """The submission with the revision that its run starts from, if that is one of its own thread; else the state that
    this thread is to begin with.

    Raises:
        FaultError: not_found for what is not there, or is another owner's; invalid where the thread has a past of its
            own; conflict for a run that has not ended; too_large as `Reads.snapshot`.
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
    if revision is None or revision.ns:  # a state within the agent is none of the thread's
        raise FaultError(
            FaultCode.NOT_FOUND, "The task, run or checkpoint to fork from does not exist, or was deleted."
        )
    if target == source:
        return replace(ask, input=ask.input.replace(checkpoint=revision.checkpoint_id)), None
    seq = 0 if target is None else await _need_unused(reads, owner, target)
    return ask, Base(source, revision, _origin(history, revision), seq)


def _origin(history: StateHistory, revision: Revision) -> dict[str, str]:
    """What a copy of the revision says of where it comes from. One of a copy says the same."""
    if revision.origin:
        return dict(revision.origin)
    task = history.task(revision.task_id)
    known = Origin() if task is None else history.origin(revision, task.agent)
    return {} if task is None or known.changed or not known.ids else {**known.ids, ORIGIN_AGENT: task.agent}


async def _find_source(reads: Reads, owner: str, fork: Fork, target: str | None) -> tuple[str, str | None]:
    """The thread that it starts from, and the run after which."""
    if fork.run_id is not None:
        run = await reads.run(owner, fork.run_id)
    elif fork.task_id is not None:
        task = await reads.task(owner, fork.task_id)
        history = await _history(reads, owner, task.thread_id)
        runs = [each for each in history.fold.runs.values() if each.task_id == task.task_id and not each.removed]
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


async def _history(reads: Reads, owner: str, thread_id: str) -> StateHistory:
    return await reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))


async def _need_unused(reads: Reads, owner: str, thread_id: str) -> int:
    """The seq of a thread on which nothing was said yet; 0 where there is none."""
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


def check_unused(found: ThreadState | None, base: Base | None) -> None:
    """Raises conflict where the thread is no more what it was when it was looked at."""
    if base is not None and found is not None and found.seq != base.seq:
        raise FaultError(FaultCode.CONFLICT, "The thread has changed meanwhile: try again.")


def put_base(tx: Transaction, state: ThreadState, base: Base, checkpoint_id: str, *, is_told: bool) -> str | None:
    """Begin a thread with the state of another one; returns its id, where a graph of this process has to start from
    it. `is_told` = more was said on the thread than its upstream heard. Raises not_found."""
    owner, revision = state.thread.owner, base.revision
    tx.need_thread(owner, base.thread_id)
    # A graph of this process finds its checkpoint by the id that it gave it.
    # What came after it is no part of the new thread, whose first run may fail before it has a checkpoint of its own.
    kept = checkpoints.copy_thread(
        tx.connection, owner, base.thread_id, state.thread.thread_id, until=revision.checkpoint_id
    )
    is_kept = revision.checkpoint_id in kept
    say(tx, state, revision.messages)
    saved = StateSaved(
        checkpoint_id=revision.checkpoint_id if is_kept else checkpoint_id,
        source="fork",
        step=revision.step,
        as_node=revision.node,
        values=revision.values,
        origin={} if is_told else base.origin,
    )
    tx.append(state, saved)
    return revision.checkpoint_id if is_kept else None


def put_state(
    tx: Transaction, state: ThreadState, values: JsonObject, parent: str | None, as_node: str | None, checkpoint_id: str
) -> str:
    """Change members of the state that a run is to start from. Raises conflict while another run is active."""
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
