"""Thread commands: create, change, copy, upload, update the state, and change the metadata of ended runs.

Like the commands on runs (`babelgate.gateway.runs.submission`), each function runs in the writer's transaction and
raises before it changes anything.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Final, Literal

from babelgate.canonical.difference import state_change
from babelgate.canonical.event import (
    ArtifactAdded,
    Record,
    RunChanged,
    StateSaved,
    ThreadChanged,
    whole_message,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.history import Revision
from babelgate.canonical.hub import StateUpdate, ThreadChange
from babelgate.canonical.message import FilePart, Message
from babelgate.canonical.thread import Run, Thread
from babelgate.canonical.value import JsonObject
from babelgate.gateway.runs.lifecycle import supersede
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.blob_uses import use_blob, use_blobs
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.transaction import ThreadState, Transaction, need_idle_thread

_NO_LIMIT: Final = 2**31
"""Page size that is larger than any log, to read a log to its end."""


def create(
    tx: Transaction,
    owner: str,
    thread_id: str | None,
    new_id: str,
    change: ThreadChange,
    if_exists: Literal["raise", "return"],
) -> Thread:
    """Create a thread, or return the existing one if `if_exists` is "return".

    `new_id` is the unused id of a thread for which the caller gave none. Raises conflict if the thread exists already.
    """
    if thread_id is not None:
        existing = tx.thread(owner, thread_id)
        if existing is not None and if_exists == "return":
            return existing.thread
        if existing is not None:
            raise FaultError(FaultCode.CONFLICT, f"Thread {thread_id} exists already")
        tx.forget_erased(owner, thread_id)
    return tx.create_thread(owner, thread_id or new_id, _change_event(change)).thread


def change(tx: Transaction, owner: str, thread_id: str, requested: ThreadChange, most: int) -> Thread:
    """Apply a caller's change to a thread, and return the thread. Raises not_found, and too_large if its metadata would
    exceed `most` bytes in total."""
    state = tx.need_thread(owner, thread_id)
    if requested.metadata:
        check_size(most, {**state.thread.metadata, **requested.metadata})
    tx.append(state, _change_event(requested))
    return state.thread


def change_run(tx: Transaction, owner: str, run_id: str, metadata: JsonObject) -> Run:
    """Change the metadata of a run. Raises not_found if there is no such run, conflict if it has not ended."""
    run_and_thread = tx.find_run(owner, run_id)
    if run_and_thread is None or run_and_thread[0].removed:
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
    run, thread_id = run_and_thread
    if not run.has_ended:
        raise FaultError(
            FaultCode.CONFLICT, f"Run {run_id} is {run.status}: its metadata can be changed once it has ended"
        )
    tx.append(tx.need_thread(owner, thread_id), RunChanged(run_id=run_id, metadata=metadata))
    return run.replace(metadata=metadata)


def _change_event(change: ThreadChange) -> ThreadChanged:
    return ThreadChanged(
        metadata=change.metadata,
        config=change.config,
        ttl=change.ttl,
        keeps_latest=change.keeps_latest,
        extra=change.extra,
    )


def upload(tx: Transaction, owner: str, thread_id: str, added: ArtifactAdded, after: int | None = None) -> Record:
    """Append an upload and return its record.

    If `after` is given, return the record of the same artifact instead if the log already has it after this seq.
    """
    state = tx.need_thread(owner, thread_id)
    if after is not None:
        tx.flush()
        for record in read_page(tx.connection, state.pk, after, _NO_LIMIT):
            if isinstance(record.event, ArtifactAdded) and record.event.artifact_id == added.artifact_id:
                return record
    record = tx.append(state, added)
    if isinstance(added.part, FilePart):
        use_blob(tx, state, added.part)
    return record


def update(tx: Transaction, owner: str, update: StateUpdate, checkpoint_id: str) -> None:
    """Append the messages of a state update, and then a revision with the id `checkpoint_id`. Raises not_found for an
    unknown thread, and conflict if a run is active."""
    state = need_idle_thread(tx, owner, update.thread_id)
    append_messages(tx, state, update.messages)
    saved = StateSaved(
        checkpoint_id=checkpoint_id,
        parent_id=update.checkpoint,
        source="fork" if update.checkpoint is not None else "update",
        as_node=update.as_node,
        delta=update.values,
        removed_ids=update.removed_ids,
    )
    tx.append(state, saved)


def save(
    tx: Transaction,
    owner: str,
    thread_id: str,
    saved: StateSaved,
    shorter: StateSaved | None = None,
    seq: int = 0,
    *,
    agent: str = "",
    elsewhere: Container[str] = (),
) -> None:
    """Append a revision that was created by the agent that keeps the thread's state.

    `shorter` is the same revision, stored as a difference. It is used if `seq` is still the newest record, so that the
    revision to which it is a difference is unchanged.

    The open questions of `agent` refer to the previous state, so their tasks are cancelled. This excludes the tasks in
    `elsewhere`, which belong to another state of the agent's server. Raises not_found for an unknown thread, and
    conflict if a run is active.
    """
    state = need_idle_thread(tx, owner, thread_id)
    chosen = saved if shorter is None or state.seq != seq else shorter
    for task in list(state.tasks.values()):
        if task.is_waiting and task.agent == agent and task.task_id not in elsewhere:
            supersede(tx, state, task.task_id)
    tx.append(state, chosen)


def append_messages(tx: Transaction, state: ThreadState, messages: Sequence[Message]) -> None:
    """Append messages that belong to no run, such as the history of a conversation that the gateway did not see."""
    for message in messages:
        for event in whole_message(message):
            tx.append(state, event)
    use_blobs(tx, state, messages)


def copy(
    tx: Transaction, owner: str, thread_id: str, new_id: str, revisions: Sequence[Revision], names: Mapping[str, str]
) -> Thread:
    """Create a thread with the metadata of another one and copies of `revisions`, which are oldest first.

    `names` maps the old checkpoint ids to new ones. Checkpoints of a graph in this process are copied under their old
    ids, because the graph finds them by these.
    """
    source = tx.need_thread(owner, thread_id).thread
    extra = source.extra
    creation = ThreadChanged(
        metadata=source.metadata,
        config=source.config,
        ttl=source.ttl,
        keeps_latest=source.keeps_latest or None,
        extra=extra,
    )
    state = tx.create_thread(owner, new_id, creation)
    names = {
        **names,
        **{
            checkpoint_id: checkpoint_id
            for checkpoint_id in checkpoints.copy_thread(tx.connection, owner, thread_id, new_id)
        },
    }
    by_id: dict[str, Revision] = {}
    for revision in revisions:
        parent = by_id.get(revision.parent_id or "")
        before = {} if parent is None else {message.message_id: message for message in parent.messages}
        message_ids = {message.message_id for message in revision.messages}
        append_messages(tx, state, [message for message in revision.messages if message.message_id not in before])
        base_id = None if parent is None else names[parent.checkpoint_id]
        difference = (
            None if parent is None or base_id is None else state_change(base_id, parent.values, revision.values)
        )
        saved = StateSaved(
            checkpoint_id=names[revision.checkpoint_id],
            parent_id=base_id,
            source=revision.source,
            step=revision.step,
            as_node=revision.node,
            values=revision.values if difference is None else None,
            change=difference,
            removed_ids=tuple(message_id or "" for message_id in before if message_id not in message_ids),
            ns=revision.ns,
        )
        tx.append(state, saved)
        by_id[revision.checkpoint_id] = revision
    return state.thread
