"""Thread commands: create, change, copy, upload, revise, and the metadata of ended runs. Like the commands on runs
(`babelgate.gateway.runs.submission`), each function runs whole in the writer's transaction and raises before it
changes anything.
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

_MOST_RECORDS: Final = 2**31


def create(
    tx: Transaction,
    owner: str,
    thread_id: str | None,
    new_id: str,
    asked: ThreadChange,
    if_exists: Literal["raise", "return"],
) -> Thread:
    """`new_id` = for a thread whose id is the gateway's choice: nobody had it before. Raises conflict."""
    if thread_id is not None:
        known = tx.thread(owner, thread_id)
        if known is not None and if_exists == "return":
            return known.thread
        if known is not None:
            raise FaultError(FaultCode.CONFLICT, f"Thread {thread_id} exists already")
        tx.forget_erased(owner, thread_id)
    return tx.create_thread(owner, thread_id or new_id, _change_event(asked)).thread


def change(tx: Transaction, owner: str, thread_id: str, asked: ThreadChange, most: int) -> Thread:
    """Raises too_large where the metadata would be more than `most` bytes together."""
    state = tx.need_thread(owner, thread_id)
    if asked.metadata:
        check_size(most, {**state.thread.metadata, **asked.metadata})
    tx.append(state, _change_event(asked))
    return state.thread


def change_run(tx: Transaction, owner: str, run_id: str, metadata: JsonObject) -> Run:
    """Raises not_found, conflict."""
    found = tx.find_run(owner, run_id)
    if found is None or found[0].removed:
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
    run, thread_id = found
    if not run.has_ended:
        raise FaultError(
            FaultCode.CONFLICT, f"Run {run_id} is {run.status}: its metadata can be changed once it has ended"
        )
    tx.append(tx.need_thread(owner, thread_id), RunChanged(run_id=run_id, metadata=metadata))
    return run.replace(metadata=metadata)


def _change_event(asked: ThreadChange) -> ThreadChanged:
    return ThreadChanged(
        metadata=asked.metadata,
        config=asked.config,
        ttl=asked.ttl,
        keeps_latest=asked.keeps_latest,
        extra=asked.extra,
    )


def upload(tx: Transaction, owner: str, thread_id: str, added: ArtifactAdded, after: int | None = None) -> Record:
    """Returns the record of the upload. Where one of the same id may be in the log, after a seq, that one if it is."""
    state = tx.need_thread(owner, thread_id)
    if after is not None:
        tx.flush()
        for record in read_page(tx.connection, state.pk, after, _MOST_RECORDS):
            if isinstance(record.event, ArtifactAdded) and record.event.artifact_id == added.artifact_id:
                return record
    record = tx.append(state, added)
    if isinstance(added.part, FilePart):
        use_blob(tx, state, added.part)
    return record


def update(tx: Transaction, owner: str, asked: StateUpdate, checkpoint_id: str) -> None:
    """Append a revision, after what is said in it. Raises not_found, conflict."""
    state = need_idle_thread(tx, owner, asked.thread_id)
    say(tx, state, asked.messages)
    saved = StateSaved(
        checkpoint_id=checkpoint_id,
        parent_id=asked.checkpoint,
        source="fork" if asked.checkpoint is not None else "update",
        as_node=asked.as_node,
        delta=asked.values,
        removed_ids=asked.removed_ids,
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
    """Append a revision that was made by the agent whose state it is: the shorter form of it, if `seq` is still the
    newest record, so that what it is told by is still there.

    The questions of `agent` are about the state before, so their tasks are cancelled, except for those that are
    `elsewhere`: in another state of the agent's server. Raises not_found, conflict.
    """
    state = need_idle_thread(tx, owner, thread_id)
    chosen = saved if shorter is None or state.seq != seq else shorter
    for task in list(state.tasks.values()):
        if task.is_waiting and task.agent == agent and task.task_id not in elsewhere:
            supersede(tx, state, task.task_id)
    tx.append(state, chosen)


def say(tx: Transaction, state: ThreadState, messages: Sequence[Message]) -> None:
    """Messages that belong to no run: they were said elsewhere."""
    for message in messages:
        for event in whole_message(message):
            tx.append(state, event)
    use_blobs(tx, state, messages)


def copy(
    tx: Transaction, owner: str, thread_id: str, new_id: str, revisions: Sequence[Revision], names: Mapping[str, str]
) -> Thread:
    """A thread with the metadata of another one and the given revisions, oldest first. Their checkpoints, too, are
    copies: `names` has their new ids. Those that a graph keeps stay under the ids that it knows."""
    source = tx.need_thread(owner, thread_id).thread
    extra = source.extra
    made = ThreadChanged(
        metadata=source.metadata,
        config=source.config,
        ttl=source.ttl,
        keeps_latest=source.keeps_latest or None,
        extra=extra,
    )
    state = tx.create_thread(owner, new_id, made)
    names = {**names, **{kept: kept for kept in checkpoints.copy_thread(tx.connection, owner, thread_id, new_id)}}
    by_id: dict[str, Revision] = {}
    for revision in revisions:
        parent = by_id.get(revision.parent_id or "")
        before = {} if parent is None else {message.message_id: message for message in parent.messages}
        now = {message.message_id for message in revision.messages}
        say(tx, state, [message for message in revision.messages if message.message_id not in before])
        since = None if parent is None else names[parent.checkpoint_id]
        change = None if parent is None or since is None else state_change(since, parent.values, revision.values)
        saved = StateSaved(
            checkpoint_id=names[revision.checkpoint_id],
            parent_id=since,
            source=revision.source,
            step=revision.step,
            as_node=revision.node,
            values=revision.values if change is None else None,
            change=change,
            removed_ids=tuple(message_id or "" for message_id in before if message_id not in now),
            ns=revision.ns,
        )
        tx.append(state, saved)
        by_id[revision.checkpoint_id] = revision
    return state.thread
