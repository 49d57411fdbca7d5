"""Export of threads with their logs, files and other data to a file in the format of `form`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table, bindparam, exists, select, text, union

from babelgate.canonical.event import encode_event
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.json import has_members
from babelgate.canonical.message import FilePart
from babelgate.canonical.thread import Thread
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.database import HEAD
from babelgate.gateway.storage.log_key import newest_seq
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.short_form import decode_row, lengthen
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import (
    LIVE,
    AliasRow,
    AssistantRow,
    AssistantVersionRow,
    BlobUseRow,
    CheckpointRow,
    CheckpointValueRow,
    CheckpointWriteRow,
    CronRow,
    EventRow,
    ItemRow,
    RunRow,
    TaskRow,
    ThreadRow,
    WebhookRow,
)
from babelgate.gateway.storage.transfer.form import (
    VERSION,
    AliasLine,
    AssistantLine,
    BytesLine,
    CheckpointLine,
    CheckpointValueLine,
    CheckpointWriteLine,
    CronLine,
    ExportHeader,
    ExportWriter,
    FileLine,
    ItemLine,
    OfOwner,
    OfThread,
    OwnerLine,
    RecordLine,
    ThreadLine,
    WebhookLine,
)

_THREAD, _EVENT, _TASK, _RUN = (table_of(row) for row in (ThreadRow, EventRow, TaskRow, RunRow))
_USE, _ALIAS, _HOOK = (table_of(row) for row in (BlobUseRow, AliasRow, WebhookRow))
_CHECKPOINT, _VALUE, _WRITE = (table_of(row) for row in (CheckpointRow, CheckpointValueRow, CheckpointWriteRow))
_ITEM, _ASSISTANT, _VERSION, _CRON = (table_of(row) for row in (ItemRow, AssistantRow, AssistantVersionRow, CronRow))

_THREADS: Final = 200
_RECORDS: Final = 2048
_ROWS: Final = 8
"""Number of rows that are fetched at once. Chosen: their bodies may be large."""


def _select(table: Table, where: ColumnElement[bool]) -> Select[Any]:
    """Return a query for the rows of a table that match, sorted by primary key and fetched in small batches."""
    return select(table).where(where).order_by(*table.primary_key.columns).execution_options(yield_per=_ROWS)


_ROWS_OF_THREAD: Final = {
    table: _select(table, (table.c.owner == bindparam("its_owner")) & (table.c.thread_id == bindparam("its_thread")))
    for table in (_ALIAS, _HOOK, _CHECKPOINT, _VALUE, _WRITE)
}
"""Queries for the rows of a thread, one per table. Built once: building a statement takes longer than executing it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSelection:
    """Conditions for the threads to export, from the options of the command. A thread must meet all that are set."""

    owners: frozenset[str] = frozenset()
    threads: frozenset[str] = frozenset()
    agents: frozenset[str] = frozenset()
    """Names of agents, at least one of which must have a task on the thread. Empty matches all."""
    metadata: JsonObject = field(default_factory=dict[str, Any])
    """Members that the thread's metadata must have."""
    active: bool = False
    """True if threads with an active run are exported, too."""

    @property
    def is_of_owners(self) -> bool:
        """True if only owners are selected, so that their store items, assistants and crons are exported, too."""
        return not (self.threads or self.agents or self.metadata)


@dataclass(slots=True)
class Exported:
    """Progress of an export: how much was written so far."""

    threads: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    others: int = 0
    """Number of exported store items, assistants and crons."""
    left_out: list[str] = field(default_factory=list[str])
    """One line for each thread that was not exported, with the reason."""


async def export(
    connection: Connection,
    blobs: Blobs,
    file: BinaryIO,
    selection: ThreadSelection,
    *,
    release: str,
    now: int,
    on_progress: Callable[[Exported], object],
) -> Exported:
    """Write the selected data to a file, and return the numbers of what was written.

    Each thread is read in one snapshot of the database. `on_progress` is called after each page of a log. `release` and
    `now` go into the header. Raises TransferError, and FaultError if a stored file cannot be read."""
    writer = ExportWriter(file, ExportHeader(version=VERSION, release=release, revision=HEAD, made_at=now))
    done = Exported()
    after, missing = 0, set(selection.threads)
    while threads := _threads_after(connection, selection, after):
        for pk, thread in threads:
            after = pk
            if thread is not None:
                missing.discard(thread.thread_id)
                with connection.begin():
                    await _export_thread(connection, blobs, writer, selection, pk, thread, done, on_progress)
    done.left_out += [
        f"thread {thread_id}: not found, or not selected by --owner, --agent and --metadata"
        for thread_id in sorted(missing)
    ]
    if selection.is_of_owners:
        for owner in _owners(connection, selection):
            with connection.begin():
                _export_owner(connection, writer, owner, done)
    writer.end()
    done.bytes = writer.written
    return done


def _threads_after(connection: Connection, selection: ThreadSelection, after: int) -> list[tuple[int, Thread | None]]:
    """Return the next `_THREADS` selected threads with a database key above `after`: the key, and the thread.

    The thread is None if its metadata does not match."""
    selected = select(_THREAD.c.pk, _THREAD.c.body).where(_THREAD.c.pk > after)
    if selection.owners:
        selected = selected.where(_THREAD.c.owner.in_(selection.owners))
    if selection.threads:
        selected = selected.where(_THREAD.c.thread_id.in_(selection.threads))
    if selection.agents:
        is_for_agent = (_TASK.c.thread_pk == _THREAD.c.pk) & _TASK.c.agent.in_(selection.agents)
        selected = selected.where(exists().where(is_for_agent))
    with connection.begin():
        rows = connection.execute(selected.order_by(_THREAD.c.pk).limit(_THREADS)).all()
    threads = [(pk, decode_row(Thread, body)) for pk, body in rows]
    return [(pk, each if has_members(each.metadata, selection.metadata) else None) for pk, each in threads]


async def _export_thread(
    connection: Connection,
    blobs: Blobs,
    writer: ExportWriter,
    selection: ThreadSelection,
    pk: int,
    thread: Thread,
    done: Exported,
    tell: Callable[[Exported], object],
) -> None:
    last = connection.execute(select(newest_seq(pk))).scalar()
    if last is None:  # the thread was erased meanwhile
        return
    is_live = select(_RUN.c.run_id).where(_RUN.c.thread_pk == pk, text(f"run.{LIVE}")).limit(1)
    if not selection.active and connection.execute(is_live).first() is not None:
        done.left_out.append(
            f"thread {thread.thread_id} of {thread.owner}: a run of it is working or waiting (--active exports it)"
        )
        return
    uses = select(_USE.c.blob, _USE.c.body).where(_USE.c.thread_pk == pk).order_by(_USE.c.blob)
    files = connection.execute(uses).all()
    try:
        for blob, _ in files:
            await blobs.size(blob)
    except FaultError as error:
        if error.fault.code is not FaultCode.NOT_FOUND:
            raise
        done.left_out.append(f"thread {thread.thread_id} of {thread.owner}: a file of it is missing in the file store")
        return
    writer.write(ThreadLine(owner=thread.owner, thread_id=thread.thread_id))
    for blob, body in files:
        writer.write(FileLine(part=msgspec.Raw(msgspec.json.encode(decode_row(FilePart, body)))))
        async for piece in blobs.pieces(blob):
            writer.write(BytesLine(data=piece))
        done.files += 1
    after = 0
    while page := read_page(connection, pk, after, _RECORDS, last):
        for record in page:
            writer.write(
                RecordLine(
                    seq=record.seq,
                    at=record.at,
                    task_id=record.task_id,
                    run_id=record.run_id,
                    attempt=record.attempt,
                    event=msgspec.Raw(encode_event(record.event)),
                )
            )
        after = page[-1].seq
        done.records += len(page)
        done.bytes = writer.written
        tell(done)
    for line in _lines_of_thread(connection, thread.owner, thread.thread_id):
        writer.write(line)
    writer.end_section()
    done.threads += 1


def _lines_of_thread(connection: Connection, owner: str, thread_id: str) -> Iterator[OfThread]:
    def rows(table: Table) -> Iterator[Any]:
        yield from connection.execute(_ROWS_OF_THREAD[table], {"its_owner": owner, "its_thread": thread_id})

    for row in rows(_ALIAS):
        yield AliasLine(protocol=row.protocol, agent=row.agent, alias=row.alias)
    for row in rows(_HOOK):
        yield WebhookLine(
            task_id=row.task_id,
            webhook_id=row.webhook_id,
            dialect=row.dialect,
            url=row.url,
            delivered_seq=row.delivered_seq,
            done=row.done,
            config=msgspec.Raw(row.body),
            failures=row.failures,
            next_try=row.next_try,
            reason=row.reason,
            given_up_at=row.given_up_at,
        )
    for row in rows(_CHECKPOINT):
        yield CheckpointLine(
            ns=row.ns,
            checkpoint_id=row.checkpoint_id,
            parent_id=row.parent_id,
            run_id=row.run_id,
            form=row.form,
            body=row.body,
            channels=None if row.channels is None else msgspec.json.decode(row.channels),
        )
    for row in rows(_VALUE):
        yield CheckpointValueLine(
            ns=row.ns,
            channel=row.channel,
            checkpoint_id=row.checkpoint_id,
            base_id=row.base_id,
            form=row.form,
            body=row.body,
        )
    for row in rows(_WRITE):
        yield CheckpointWriteLine(
            ns=row.ns,
            checkpoint_id=row.checkpoint_id,
            task_id=row.task_id,
            idx=row.idx,
            task_path=row.task_path,
            channel=row.channel,
            run_id=row.run_id,
            form=row.form,
            body=row.body,
        )


def _rows(connection: Connection, table: Table, where: ColumnElement[bool]) -> Iterator[Any]:
    yield from connection.execute(_select(table, where))


def _owners(connection: Connection, selection: ThreadSelection) -> list[str]:
    """Return the selected owners that have store items, assistants or crons, in order."""
    with connection.begin():
        owners = connection.execute(union(*(select(each.c.owner) for each in (_ITEM, _ASSISTANT, _CRON)))).scalars()
        return sorted(owner for owner in owners if not selection.owners or owner in selection.owners)


def _export_owner(connection: Connection, writer: ExportWriter, owner: str, done: Exported) -> None:
    writer.write(OwnerLine(owner=owner))
    for line in _lines_of_owner(connection, owner):
        writer.write(line)
        done.others += 1
    writer.end_section()


def _lines_of_owner(connection: Connection, owner: str) -> Iterator[OfOwner]:
    for row in _rows(connection, _ITEM, _ITEM.c.owner == owner):
        yield ItemLine(
            namespace=row.namespace,
            key=row.key,
            created_at=row.created_at,
            updated_at=row.updated_at,
            expires_at=row.expires_at,
            ttl=row.ttl,
            value=msgspec.Raw(row.value),
        )
    for row in _rows(connection, _ASSISTANT, _ASSISTANT.c.owner == owner):
        is_of_assistant = (_VERSION.c.owner == owner) & (_VERSION.c.assistant_id == row.assistant_id)
        versions = [msgspec.Raw(lengthen(each.body)) for each in _rows(connection, _VERSION, is_of_assistant)]
        yield AssistantLine(in_use=msgspec.Raw(lengthen(row.body)), versions=versions)
    for row in _rows(connection, _CRON, _CRON.c.owner == owner):
        yield CronLine(cron=msgspec.Raw(lengthen(row.body)))
