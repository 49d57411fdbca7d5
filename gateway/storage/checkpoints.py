"""Checkpoints of LangGraph graphs, as rows of the gateway's database.

Checkpoints belong to a thread, as its log does. They are erased and copied with the thread, and those of a run are
deleted when the run is removed. Their content is opaque here: `babelgate.gateway.agents.langgraph.checkpointer` encodes
and decodes it.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, insert, literal, select, update

from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.stored_checkpoint import ChannelValue, PendingWrite, StoredCheckpoint
from babelgate.gateway.storage.tables import CheckpointRow, CheckpointValueRow, CheckpointWriteRow

_CHECKPOINT: Final = table_of(CheckpointRow)
_VALUE: Final = table_of(CheckpointValueRow)
_WRITE: Final = table_of(CheckpointWriteRow)
_CHANNELS: Final = msgspec.json.Decoder(dict[str, str])
_OF_CHECKPOINT: Final = ("owner", "thread_id", "ns", "checkpoint_id")
_SINCE_SNAPSHOT: Final = b"counters_since_delta_snapshot"
"""Name that identifies the metadata of a langgraph 1.2 checkpoint with a `DeltaChannel`.

The value of such a channel is computed from the writes of earlier checkpoints, so these must be kept."""
_OF_CHANNEL: Final = tuple(
    _VALUE.c[name] == bindparam(f"b_{short}")
    for name, short in (("owner", "owner"), ("thread_id", "thread"), ("ns", "ns"), ("channel", "channel"))
)
_LINK: Final = (
    select(_VALUE.c.checkpoint_id, _VALUE.c.base_id, _VALUE.c.form, _VALUE.c.body)
    .where(*_OF_CHANNEL, _VALUE.c.checkpoint_id == bindparam("b_checkpoint"))
    .cte("chain", recursive=True)
)
_CHAIN: Final = select(
    _LINK.union_all(
        select(_VALUE.c.checkpoint_id, _VALUE.c.base_id, _VALUE.c.form, _VALUE.c.body).where(
            *_OF_CHANNEL, _VALUE.c.checkpoint_id == _LINK.c.base_id
        )
    )
)
"""Query for the stored value of a channel. If that is a difference, the rows after it are the values it is based on."""


def find(
    connection: Connection, owner: str, thread_id: str, ns: str, checkpoint_id: str | None = None
) -> StoredCheckpoint | None:
    """Return a checkpoint of a namespace: the one with `checkpoint_id`, or the newest if that is None. Return None if
    there is none."""
    checkpoints = page(connection, owner, thread_id, ns, checkpoint_id=checkpoint_id, limit=1)
    return checkpoints[0] if checkpoints else None


def page(
    connection: Connection,
    owner: str,
    thread_id: str,
    ns: str | None,
    *,
    checkpoint_id: str | None = None,
    before: str | None = None,
    limit: int,
) -> list[StoredCheckpoint]:
    """Return up to `limit` checkpoints of a thread, the newest first.

    Each of `ns`, `checkpoint_id` and `before` is a condition unless it is None: the namespace, the id, and an id that
    is newer than all results."""
    table = _CHECKPOINT
    wanted = select(table).where(table.c.owner == owner, table.c.thread_id == thread_id)
    if ns is not None:
        wanted = wanted.where(table.c.ns == ns)
    if checkpoint_id is not None:
        wanted = wanted.where(table.c.checkpoint_id == checkpoint_id)
    if before is not None:
        wanted = wanted.where(table.c.checkpoint_id < before)
    rows = connection.execute(wanted.order_by(table.c.checkpoint_id.desc()).limit(limit)).all()
    return [_decode_checkpoint(connection, row) for row in rows]


def _decode_checkpoint(connection: Connection, row: Row[Any]) -> StoredCheckpoint:
    table = _WRITE
    writes = connection.execute(
        select(table.c.task_id, table.c.idx, table.c.task_path, table.c.channel, table.c.form, table.c.body)
        .where(*(table.c[name] == getattr(row, name) for name in _OF_CHECKPOINT))
        .order_by(table.c.task_path, table.c.task_id, table.c.idx)
    )
    return StoredCheckpoint(
        ns=row.ns,
        checkpoint_id=row.checkpoint_id,
        parent_id=row.parent_id,
        run_id=row.run_id,
        form=row.form,
        body=row.body,
        channels=None if row.channels is None else _CHANNELS.decode(row.channels),
        values=_read_values(connection, row),
        writes=[
            PendingWrite(task_id=task_id, idx=idx, task_path=task_path, channel=channel, form=form, body=body)
            for task_id, idx, task_path, channel, form, body in writes
        ],
    )


def _read_values(connection: Connection, row: Row[Any]) -> list[ChannelValue]:
    channels = {} if row.channels is None else _CHANNELS.decode(row.channels)
    place = {"b_owner": row.owner, "b_thread": row.thread_id, "b_ns": row.ns}
    return [
        ChannelValue(channel=channel, checkpoint_id=checkpoint_id, base_id=base_id, form=form, body=body)
        for channel, stored_with in channels.items()
        for checkpoint_id, base_id, form, body in connection.execute(
            _CHAIN, {**place, "b_channel": channel, "b_checkpoint": stored_with}
        )
    ]


def put(connection: Connection, owner: str, thread_id: str, checkpoint: StoredCheckpoint) -> None:
    """Store a checkpoint and the channel values that it changed. `put_writes` stores its pending writes."""
    key = {"owner": owner, "thread_id": thread_id, "ns": checkpoint.ns, "checkpoint_id": checkpoint.checkpoint_id}
    for table in (_CHECKPOINT, _VALUE):
        connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))
    channels = None if checkpoint.channels is None else msgspec.json.encode(checkpoint.channels)
    row = {
        "parent_id": checkpoint.parent_id,
        "run_id": checkpoint.run_id,
        "form": checkpoint.form,
        "body": checkpoint.body,
    }
    connection.execute(insert(_CHECKPOINT), {**key, **row, "channels": channels})
    if checkpoint.values:
        rows = [
            {**key, "channel": v.channel, "base_id": v.base_id, "form": v.form, "body": v.body}
            for v in checkpoint.values
        ]
        connection.execute(insert(_VALUE), rows)


def put_writes(
    connection: Connection,
    owner: str,
    thread_id: str,
    ns: str,
    checkpoint_id: str,
    writes: Sequence[PendingWrite],
    run_id: str | None,
) -> None:
    table = _WRITE
    key = {"owner": owner, "thread_id": thread_id, "ns": ns, "checkpoint_id": checkpoint_id}
    here = [table.c[name] == value for name, value in key.items()]
    of_task = (*here, table.c.task_id == bindparam("b_task"), table.c.idx == bindparam("b_idx"))
    for write in writes:
        place = {"b_task": write.task_id, "b_idx": write.idx}
        if write.idx < 0:
            connection.execute(delete(table).where(*of_task), place)
        elif connection.execute(select(table.c.idx).where(*of_task), place).first() is not None:
            continue
        body = {"task_path": write.task_path, "channel": write.channel, "form": write.form, "body": write.body}
        connection.execute(insert(table), {**key, "task_id": write.task_id, "idx": write.idx, "run_id": run_id, **body})


def keep_newest(connection: Connection, owner: str, thread_id: str, head: str) -> None:
    """Delete the checkpoints of a thread that are older than `head`.

    If `head` is not a checkpoint of the thread's own graph, the newest one of that graph takes its place. Two kinds of
    older checkpoints are kept:

    - the newest one of a subgraph that keeps its state between calls (its namespace does not name a task);
    - those from which the values of a kept checkpoint are computed (`DeltaChannel`).
    """
    table = _CHECKPOINT
    here = (table.c.owner == owner, table.c.thread_id == thread_id)
    rows = connection.execute(
        select(table.c.ns, table.c.checkpoint_id, table.c.parent_id, table.c.body).where(*here)
    ).all()
    newest: dict[str, str] = {}
    for ns, checkpoint_id, _, _ in rows:
        newest[ns] = max(checkpoint_id, newest.get(ns, ""))
    since = head if any(each.checkpoint_id == head and not each.ns for each in rows) else newest.get("", "")
    keep = {(ns, newest[ns]) for ns in newest if ":" not in ns.rpartition("|")[2] or newest[ns] > since}
    keep |= {(ns, checkpoint_id) for ns, checkpoint_id, _, _ in rows if checkpoint_id >= since}
    parents = {(ns, checkpoint_id): (ns, parent_id) for ns, checkpoint_id, parent_id, _ in rows}
    computed = {(ns, checkpoint_id) for ns, checkpoint_id, _, body in rows if _SINCE_SNAPSHOT in body}
    for place in [*keep]:
        while place in computed and (place := parents[place]) in parents:
            keep.add(place)
    unwanted = [
        {"b_ns": ns, "b_checkpoint": checkpoint_id}
        for ns, checkpoint_id, _, _ in rows
        if (ns, checkpoint_id) not in keep
    ]
    if not unwanted:
        return
    for each in (_CHECKPOINT, _WRITE):
        is_it = (each.c.owner == owner, each.c.thread_id == thread_id, each.c.ns == bindparam("b_ns"))
        connection.execute(delete(each).where(*is_it, each.c.checkpoint_id == bindparam("b_checkpoint")), unwanted)
    orphans = [
        {"b_ns": ns, "b_checkpoint": checkpoint_id}
        for ns, checkpoint_id in keep
        if parents[ns, checkpoint_id][1] is not None and parents[ns, checkpoint_id] not in keep
    ]
    if orphans:
        is_it = (*here, table.c.ns == bindparam("b_ns"), table.c.checkpoint_id == bindparam("b_checkpoint"))
        connection.execute(update(table).where(*is_it).values(parent_id=None), orphans)
    _drop_unused_values(connection, owner, thread_id)


def forget_run(connection: Connection, owner: str, run_id: str) -> None:
    """Delete the checkpoints and writes of a run, so that the thread continues from the state before the run."""
    in_run = select(_CHECKPOINT.c.thread_id).where(_CHECKPOINT.c.owner == owner, _CHECKPOINT.c.run_id == run_id)
    threads = list(connection.execute(in_run.distinct()).scalars())
    for table in (_CHECKPOINT, _WRITE):
        connection.execute(delete(table).where(table.c.owner == owner, table.c.run_id == run_id))
    for thread_id in threads:
        _drop_unused_values(connection, owner, thread_id)


def _drop_unused_values(connection: Connection, owner: str, thread_id: str) -> None:
    """Delete the channel values that no checkpoint of the thread refers to, directly or through a difference."""
    rows = select(_CHECKPOINT.c.ns, _CHECKPOINT.c.channels).where(
        _CHECKPOINT.c.owner == owner, _CHECKPOINT.c.thread_id == thread_id, _CHECKPOINT.c.channels.is_not(None)
    )
    used = {
        (ns, channel, stored_with)
        for ns, channels in connection.execute(rows)
        for channel, stored_with in _CHANNELS.decode(channels).items()
    }
    key = (_VALUE.c.ns, _VALUE.c.channel, _VALUE.c.checkpoint_id)
    here = (_VALUE.c.owner == owner, _VALUE.c.thread_id == thread_id)
    bases = {
        (ns, channel, checkpoint_id): (ns, channel, base_id)
        for ns, channel, checkpoint_id, base_id in connection.execute(select(*key, _VALUE.c.base_id).where(*here))
    }
    todo = list(used)
    while todo:
        base = bases.get(todo.pop())
        if base in bases and base not in used:
            used.add(base)
            todo.append(base)
    names = ("b_ns", "b_channel", "b_checkpoint")
    unused: list[dict[str, Any]] = [dict(zip(names, each, strict=True)) for each in bases if each not in used]
    if unused:
        is_it = [column == bindparam(name) for column, name in zip(key, names, strict=True)]
        connection.execute(delete(_VALUE).where(*here, *is_it), unused)


def copy_thread(
    connection: Connection, owner: str, thread_id: str, new_id: str, *, until: str | None = None
) -> frozenset[str]:
    """Copy the checkpoints of a thread to another thread, up to and including `until` (None: all). Return their ids.

    The copies keep their ids: the newest checkpoint of a graph is the one with the greatest id.
    """
    for table in (_CHECKPOINT, _VALUE, _WRITE):
        columns = [column.name for column in table.columns]
        new: ColumnElement[str] = literal(new_id)
        selected = [new if name == "thread_id" else table.c[name] for name in columns]
        source = select(*selected).where(table.c.owner == owner, table.c.thread_id == thread_id)
        if until is not None:
            source = source.where(table.c.checkpoint_id <= until)
        connection.execute(insert(table).from_select(columns, source))
    copies = select(_CHECKPOINT.c.checkpoint_id).where(_CHECKPOINT.c.owner == owner, _CHECKPOINT.c.thread_id == new_id)
    return frozenset(connection.execute(copies).scalars())
