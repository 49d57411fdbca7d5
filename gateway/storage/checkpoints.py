"""Checkpoints: what graphs keep of their threads, as rows of the gateway's database.

They belong to the thread as its log does: they are erased with it, copied with it, and those of a run go when the run
is removed. What is in them is the graph library's own affair (`babelgate.gateway.agents.langgraph.checkpointer`),
and nothing of it is needed here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, insert, literal, select, update

from babelgate.canonical.store import Store
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import CheckpointRow, CheckpointValueRow, CheckpointWriteRow

_CHECKPOINT: Final = table_of(CheckpointRow)
_VALUE: Final = table_of(CheckpointValueRow)
_WRITE: Final = table_of(CheckpointWriteRow)
_CHANNELS: Final = msgspec.json.Decoder(dict[str, str])
_OF_CHECKPOINT: Final = ("owner", "thread_id", "ns", "checkpoint_id")
_SINCE_SNAPSHOT: Final = b"counters_since_delta_snapshot"
"""In the metadata of a checkpoint of langgraph 1.2 whose values are told by what was written to those before it
(`DeltaChannel`)."""
_OF_CHANNEL: Final = tuple(
    _VALUE.c[name] == bindparam(f"b_{short}")
    for name, short in (("owner", "owner"), ("thread_id", "thread"), ("ns", "ns"), ("channel", "channel"))
)
_FIRST: Final = (
    select(_VALUE.c.checkpoint_id, _VALUE.c.base_id, _VALUE.c.form, _VALUE.c.body)
    .where(*_OF_CHANNEL, _VALUE.c.checkpoint_id == bindparam("b_checkpoint"))
    .cte("chain", recursive=True)
)
_CHAIN: Final = select(
    _FIRST.union_all(
        select(_VALUE.c.checkpoint_id, _VALUE.c.base_id, _VALUE.c.form, _VALUE.c.body).where(
            *_OF_CHANNEL, _VALUE.c.checkpoint_id == _FIRST.c.base_id
        )
    )
)
"""A value, and one after the other what it goes on from."""


@runtime_checkable
class Attached(Protocol):
    """An agent that keeps something of its own in the database. The hub gives it the journal when it starts, and the
    memory of its callers. A Protocol although it has one implementation, which keeps layers apart: the hub and storage
    need not import LangGraph's agents."""

    def attach(self, journal: Journal, store: Store) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    task_id: str
    idx: int
    """Below zero: the newest one of its kind counts. Otherwise the first."""
    task_path: str
    channel: str
    form: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelValue:
    """The value of a channel that was stored with a checkpoint."""

    channel: str
    checkpoint_id: str
    base_id: str | None
    """The checkpoint with the value that this one is the difference to; None = it is whole."""
    form: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    ns: str
    checkpoint_id: str
    parent_id: str | None
    run_id: str | None
    form: str
    body: bytes
    channels: Mapping[str, str] | None = None
    """By channel, the checkpoint with which its value was stored. None = the values are in the body."""
    values: Sequence[ChannelValue] = ()
    """To be stored with it; where it is read, all that it has, each before what it goes on from."""
    writes: Sequence[Write] = ()
    """In the order in which their step applies them."""


def find(
    connection: Connection, owner: str, thread_id: str, ns: str, checkpoint_id: str | None = None
) -> Stored | None:
    """A checkpoint of a place, or its newest one."""
    found = page(connection, owner, thread_id, ns, checkpoint_id=checkpoint_id, limit=1)
    return found[0] if found else None


def page(
    connection: Connection,
    owner: str,
    thread_id: str,
    ns: str | None,
    *,
    checkpoint_id: str | None = None,
    before: str | None = None,
    limit: int,
) -> list[Stored]:
    """Newest first; of all places if `ns` is None."""
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


def _decode_checkpoint(connection: Connection, row: Row[Any]) -> Stored:
    table = _WRITE
    writes = connection.execute(
        select(table.c.task_id, table.c.idx, table.c.task_path, table.c.channel, table.c.form, table.c.body)
        .where(*(table.c[name] == getattr(row, name) for name in _OF_CHECKPOINT))
        .order_by(table.c.task_path, table.c.task_id, table.c.idx)
    )
    return Stored(
        ns=row.ns,
        checkpoint_id=row.checkpoint_id,
        parent_id=row.parent_id,
        run_id=row.run_id,
        form=row.form,
        body=row.body,
        channels=None if row.channels is None else _CHANNELS.decode(row.channels),
        values=_read_values(connection, row),
        writes=[
            Write(task_id=task_id, idx=idx, task_path=task_path, channel=channel, form=form, body=body)
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


def put(connection: Connection, owner: str, thread_id: str, made: Stored) -> None:
    """Keep a checkpoint with its new values; its writes come by themselves."""
    key = {"owner": owner, "thread_id": thread_id, "ns": made.ns, "checkpoint_id": made.checkpoint_id}
    for table in (_CHECKPOINT, _VALUE):
        connection.execute(delete(table).where(*(table.c[name] == value for name, value in key.items())))
    channels = None if made.channels is None else msgspec.json.encode(made.channels)
    told = {"parent_id": made.parent_id, "run_id": made.run_id, "form": made.form, "body": made.body}
    connection.execute(insert(_CHECKPOINT), {**key, **told, "channels": channels})
    if made.values:
        rows = [
            {**key, "channel": v.channel, "base_id": v.base_id, "form": v.form, "body": v.body} for v in made.values
        ]
        connection.execute(insert(_VALUE), rows)


def put_writes(
    connection: Connection,
    owner: str,
    thread_id: str,
    ns: str,
    checkpoint_id: str,
    writes: Sequence[Write],
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
        told = {"task_path": write.task_path, "channel": write.channel, "form": write.form, "body": write.body}
        connection.execute(insert(table), {**key, "task_id": write.task_id, "idx": write.idx, "run_id": run_id, **told})


def keep_newest(connection: Connection, owner: str, thread_id: str, head: str) -> None:
    """Forget the checkpoints that were made before one of the thread; where it is none of these, before their newest.
    Of a graph within that keeps its state from call to call, so that its place names no task, the newest stays; and all
    by which the values of one that stays are told."""
    table = _CHECKPOINT
    here = (table.c.owner == owner, table.c.thread_id == thread_id)
    found = connection.execute(
        select(table.c.ns, table.c.checkpoint_id, table.c.parent_id, table.c.body).where(*here)
    ).all()
    newest: dict[str, str] = {}
    for ns, checkpoint_id, _, _ in found:
        newest[ns] = max(checkpoint_id, newest.get(ns, ""))
    since = head if any(each.checkpoint_id == head and not each.ns for each in found) else newest.get("", "")
    kept = {(ns, newest[ns]) for ns in newest if ":" not in ns.rpartition("|")[2] or newest[ns] > since}
    kept |= {(ns, checkpoint_id) for ns, checkpoint_id, _, _ in found if checkpoint_id >= since}
    parents = {(ns, checkpoint_id): (ns, parent_id) for ns, checkpoint_id, parent_id, _ in found}
    told_by_others = {(ns, checkpoint_id) for ns, checkpoint_id, _, body in found if _SINCE_SNAPSHOT in body}
    for place in [*kept]:
        while place in told_by_others and (place := parents[place]) in parents:
            kept.add(place)
    gone = [
        {"b_ns": ns, "b_checkpoint": checkpoint_id}
        for ns, checkpoint_id, _, _ in found
        if (ns, checkpoint_id) not in kept
    ]
    if not gone:
        return
    for each in (_CHECKPOINT, _WRITE):
        is_it = (each.c.owner == owner, each.c.thread_id == thread_id, each.c.ns == bindparam("b_ns"))
        connection.execute(delete(each).where(*is_it, each.c.checkpoint_id == bindparam("b_checkpoint")), gone)
    orphans = [
        {"b_ns": ns, "b_checkpoint": checkpoint_id}
        for ns, checkpoint_id in kept
        if parents[ns, checkpoint_id][1] is not None and parents[ns, checkpoint_id] not in kept
    ]
    if orphans:
        is_it = (*here, table.c.ns == bindparam("b_ns"), table.c.checkpoint_id == bindparam("b_checkpoint"))
        connection.execute(update(table).where(*is_it).values(parent_id=None), orphans)
    _drop_unused_values(connection, owner, thread_id)


def forget_run(connection: Connection, owner: str, run_id: str) -> None:
    """The run is removed: the thread goes on from where it was before."""
    mine = select(_CHECKPOINT.c.thread_id).where(_CHECKPOINT.c.owner == owner, _CHECKPOINT.c.run_id == run_id)
    threads = list(connection.execute(mine.distinct()).scalars())
    for table in (_CHECKPOINT, _WRITE):
        connection.execute(delete(table).where(table.c.owner == owner, table.c.run_id == run_id))
    for thread_id in threads:
        _drop_unused_values(connection, owner, thread_id)


def _drop_unused_values(connection: Connection, owner: str, thread_id: str) -> None:
    """Values that no checkpoint of the thread has any more."""
    kept = select(_CHECKPOINT.c.ns, _CHECKPOINT.c.channels).where(
        _CHECKPOINT.c.owner == owner, _CHECKPOINT.c.thread_id == thread_id, _CHECKPOINT.c.channels.is_not(None)
    )
    used = {
        (ns, channel, stored_with)
        for ns, channels in connection.execute(kept)
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
    """Copy what one thread has to another one, up to the checkpoint `until`. Ids stay: a graph finds its newest
    checkpoint by them, which is the greatest. Returns them."""
    for table in (_CHECKPOINT, _VALUE, _WRITE):
        columns = [column.name for column in table.columns]
        new: ColumnElement[str] = literal(new_id)
        there = [new if name == "thread_id" else table.c[name] for name in columns]
        kept = select(*there).where(table.c.owner == owner, table.c.thread_id == thread_id)
        if until is not None:
            kept = kept.where(table.c.checkpoint_id <= until)
        connection.execute(insert(table).from_select(columns, kept))
    mine = select(_CHECKPOINT.c.checkpoint_id).where(_CHECKPOINT.c.owner == owner, _CHECKPOINT.c.thread_id == new_id)
    return frozenset(connection.execute(mine).scalars())
