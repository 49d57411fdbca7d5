"""Deletion of threads and runs.

A thread is erased with everything that belongs to it. A removed run leaves its records in the log, without their
content, so that the sequence numbers have no gap."""

from collections.abc import Set
from typing import Final

from sqlalchemy import ColumnElement, Connection, Integer, bindparam, select, update

from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import (
    ArtifactAdded,
    Custom,
    Event,
    InterruptAnswered,
    InterruptRaised,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunChanged,
    RunCreated,
    RunEnded,
    RunRemoved,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
    encode_event,
)
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.message import Message, TextPart
from babelgate.canonical.run_input import RunInput
from babelgate.canonical.stored import UNKNOWN, decode_event
from babelgate.canonical.thread import Interrupt, Run
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.log_key import is_in_log, is_record
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, decode_row, encode_row, lengthen, refer, shorten
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import (
    BlobUseRow,
    EventRow,
    InterruptRow,
    RemnantRow,
    RunRow,
    TombstoneRow,
)
from babelgate.gateway.storage.transaction import Erased, ThreadState, Transaction

_SAVED: Final = beginnings("state_saved")
_WITH_STATES: Final = _SAVED + beginnings("step_started") + beginnings("native")
"""First bytes of the stored form of events that may contain a `StateChange`."""
_RECORDS: Final = 1000
"""Maximum number of log records that one transaction deletes. Chosen: other commands wait for the transaction."""
_TOMBSTONES: Final = 200
"""Maximum number of tombstones that one transaction deletes. Chosen."""
_BYTES: Final = 4 * 2**20
"""Maximum total size of the log records that one transaction deletes, in bytes. Chosen. A larger record is deleted
alone."""


def erase_thread(tx: Transaction, owner: str, thread_id: str) -> Erased:
    """Delete the rows and the log of a thread, and insert a tombstone for its id. Raises not_found.

    Of a long log, only the rows are deleted now, so that no reader can find it. `erase_remnant` deletes its records
    later, in parts, so that other commands need not wait."""
    return _erase(tx, tx.need_thread(owner, thread_id))


def erase_unchanged(
    tx: Transaction, pk: int, owner: str, thread_id: str, seq: int, *, unfinished: bool = False
) -> Erased | None:
    """Erase a thread like `erase_thread`, unless it has changed since it was read. Return None if it has.

    The thread is unchanged if `pk` is its database key and `seq` the number of its newest record. With pending or
    running runs, it is only erased if `unfinished` is set.
    """
    state = tx.thread(owner, thread_id)
    if state is None or state.pk != pk or state.seq != seq or (state.runs and not unfinished):
        return None
    return _erase(tx, state)


def forget_tombstones(tx: Transaction, until: int) -> bool:
    """Delete up to `_TOMBSTONES` tombstones of threads that were erased before `until`, in microseconds since 1970.
    Return True if there may be more."""
    table = table_of(TombstoneRow)
    found = select(table.c.owner, table.c.thread_id).where(table.c.at < until).order_by(table.c.at).limit(_TOMBSTONES)
    rows = tx.connection.execute(found).all()
    for owner, thread_id in rows:
        tx.sql.delete_tombstone.execute(tx.connection, (owner, thread_id))
    return len(rows) == _TOMBSTONES


def erase_remnant(tx: Transaction) -> bool:
    """Delete some records of a long log whose thread `erase_thread` has erased. Return True if there may be more."""
    connection, remnant, event = tx.connection, table_of(RemnantRow), table_of(EventRow)
    pk = connection.execute(select(remnant.c.thread_pk).limit(1)).scalar()
    if pk is None:
        return False
    until = _part_of_log(tx, pk)
    if until is None:
        connection.execute(remnant.delete().where(remnant.c.thread_pk == pk))
    else:
        connection.execute(event.delete().where(is_in_log(pk, until=until)))
    return True


def _part_of_log(tx: Transaction, pk: int) -> int | None:
    """Return the number of the last record that one transaction may delete, within `_RECORDS` and `_BYTES`.

    Return None if the log is empty."""
    until: int | None = None
    left = _BYTES
    for seq, size in tx.sql.sizes.iterate(tx.connection, (pk, _RECORDS)):
        left -= size
        if until is not None and left < 0:
            break
        until = seq
    return until


def _erase(tx: Transaction, state: ThreadState) -> Erased:
    owner, thread_id = state.thread.owner, state.thread.thread_id
    running = None if state.running is None else state.running.run_id
    tx.forget_thread(state)
    connection, pk = tx.connection, state.pk
    is_long = _part_of_log(tx, pk) != state.seq
    erased = Erased(pk, running, frozenset(state.tasks), frozenset(state.runs), is_long)
    if not is_long:
        tx.sql.delete_log.execute(connection, (pk,))
    else:
        connection.execute(table_of(RemnantRow).insert().values(thread_pk=pk))
    # Every stateless run ends with this: the statements are prepared, and one query tells which of them are needed.
    keys = {"thread_pk": pk, "owner": owner, "thread_id": thread_id}
    [has_rows] = tx.sql.has_rows_in_tables.run(connection, tuple(keys.values()))
    for statement, names, is_needed in zip(tx.sql.delete_from_tables, tx.sql.keys_of_tables, has_rows, strict=True):
        if is_needed:
            statement.execute(connection, tuple(keys[name] for name in names))
    tx.sql.delete_thread.execute(connection, (pk,))
    tx.sql.insert_tombstone.execute(connection, (owner, thread_id, tx.now()))
    tx.note_rewritten(pk)
    return erased


def remove_run(tx: Transaction, owner: str, run_id: str) -> int:
    """Append `RunRemoved` for an ended run, and erase the content of its events and rows. Return the database key of
    its thread.

    Raises not_found, and conflict if the run or its task has not ended."""
    found = tx.find_run(owner, run_id)
    if found is None or found[0].removed:
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
    run, thread_id = found
    if not run.has_ended:
        raise FaultError(FaultCode.CONFLICT, f"Run {run_id} is {run.status}: cancel it first")
    state = tx.need_thread(owner, thread_id)
    if run.task_id in state.tasks:
        raise FaultError(FaultCode.CONFLICT, f"Run {run_id} belongs to a task that has not ended: cancel it first")
    tx.append(state, RunRemoved(run_id=run_id, why="deleted"), task_id=run.task_id)
    tx.flush()
    connection = tx.connection
    event = table_of(EventRow)
    is_of_run = _events_of(run, state.pk)
    rows = connection.execute(select(event.c.seq, event.c.body).where(is_of_run)).all()
    events = {seq: decode_event(lengthen(body)) for seq, body in rows}
    events |= _read_changes(connection, state.pk, run_id)
    hidden, removed = _read_removed(connection, state.pk)
    needed = _find_needed(connection, state, hidden, removed)
    events |= {seq: saved for seq, saved in removed.items() if seq not in needed}
    connection.execute(
        update(event).where(is_record(state.pk, bindparam("b_seq", type_=Integer()))).values(body=bindparam("b_body")),
        [
            {"b_seq": seq, "b_body": shorten(encode_event(empty_event(each)))}
            for seq, each in events.items()
            if seq not in needed
        ],
    )
    _empty_rows(connection, owner, run, state.pk)
    tx.note_rewritten(state.pk)
    checkpoints.forget_run(connection, owner, run_id)
    _drop_blobs(connection, state.pk)
    return state.pk


def _events_of(run: Run, pk: int) -> ColumnElement[bool]:
    """Return the SQL condition for the events of a run."""
    event = table_of(EventRow)
    stored_ids = (refer(run.run_id, None), refer(run.run_id, run.first_seq))
    return is_in_log(pk) & event.c.run_id.in_(stored_ids)


def _read_changes(connection: Connection, pk: int, run_id: str) -> dict[int, RunChanged]:
    """Return the `RunChanged` events of a run, by sequence number.

    They are stored as events of the thread without a run id. A thread has few such events."""
    event = table_of(EventRow)
    is_of_thread = is_in_log(pk) & event.c.run_id.is_(None) & event.c.task_id.is_(None)
    rows = connection.execute(select(event.c.seq, event.c.body).where(is_of_thread)).all()
    events = ((seq, decode_event(lengthen(body))) for seq, body in rows)
    return {seq: each for seq, each in events if isinstance(each, RunChanged) and each.run_id == run_id}


def _read_removed(connection: Connection, pk: int) -> tuple[set[int], dict[int, StateSaved]]:
    """Read the events of all removed runs of a thread.

    Return the set of their sequence numbers, and those that are `StateSaved`, by sequence number."""
    run, event = table_of(RunRow), table_of(EventRow)
    rows = connection.execute(select(run.c.body).where(run.c.thread_pk == pk, run.c.removed)).all()
    hidden: set[int] = set()
    found: dict[int, StateSaved] = {}
    for each in [decode_row(Run, body) for (body,) in rows]:
        for seq, body in connection.execute(select(event.c.seq, event.c.body).where(_events_of(each, pk))):
            hidden.add(seq)
            if body.startswith(_SAVED) and isinstance(saved := decode_event(lengthen(body)), StateSaved):
                found[seq] = saved
    return hidden, dict(sorted(found.items()))


def _find_needed(
    connection: Connection, state: ThreadState, hidden: Set[int], removed: dict[int, StateSaved]
) -> set[int]:
    """Return the sequence numbers of saved states of removed runs to which states of other runs are stored as a
    difference. `hidden` and `removed` are the results of `_read_removed`.

    The content of these states must be kept until the last of those other runs is removed.
    """
    if not removed:
        return set()
    event = table_of(EventRow)
    needed: set[str | None] = set()
    log = select(event.c.seq, event.c.body).where(is_in_log(state.pk))
    for seq, body in connection.execute(stream_rows(log)):
        if seq not in hidden and body.startswith(_WITH_STATES) and b'"since":"' in body:
            change = _change_of(decode_event(lengthen(body)))
            needed.add(None if change is None else change.since)
    if state.runs:  # an active run continues from them, and the log may not show that yet
        newest = {saved.ns: saved.checkpoint_id for saved in removed.values()}
        needed |= {*newest.values()}
        for run in state.runs.values():
            first = is_record(state.pk, run.first_seq)
            for (body,) in connection.execute(select(event.c.body).where(first)):
                needed.add(getattr(decode_event(lengthen(body)), "checkpoint", None))
    needed_seqs: set[int] = set()
    for seq, saved in reversed(removed.items()):
        if saved.checkpoint_id in needed:
            needed_seqs.add(seq)
            needed.add(None if saved.change is None else saved.change.since)
    return needed_seqs


def _without_content(event: MessageStarted | PartAdded | PartDelta | ArtifactAdded) -> Event:
    match event:
        case MessageStarted():
            return event.replace(metadata={}, extra={})
        case PartAdded():
            return event.replace(part=TextPart(text=""), extra={})
        case PartDelta():
            return event.replace(text="", extra={})
        case ArtifactAdded():
            return event.replace(
                name=None, description=None, part=TextPart(text=""), folder=None, metadata={}, extra={}
            )


def _without_data(event: ToolStarted | ToolEnded | StepEnded) -> Event:
    match event:
        case ToolStarted():
            return event.replace(input=None, extra={})
        case ToolEnded():
            return event.replace(output=None, extra={})
        case StepEnded():
            return event.replace(update=None, extra={})


def _without_state(event: StepStarted | StateSaved | Native) -> Event:
    match event:
        case StepStarted():
            return event.replace(input=None, input_change=None, extra={})
        case StateSaved():
            return event.replace(values={}, delta=None, change=None, extra={})
        case Native():
            return event.replace(data=None, change=None, extra={})


def _change_of(event: Event) -> StateChange | None:
    match event:
        case StateSaved() | Native():
            return event.change
        case StepStarted():
            return event.input_change
        case _:
            return None


def _empty_rows(connection: Connection, owner: str, removed: Run, pk: int) -> None:
    """Erase the copies of a removed run's content in its row, and in the rows of its task's questions."""
    run, interrupt, run_id = table_of(RunRow), table_of(InterruptRow), removed.run_id
    is_run = (run.c.owner == owner) & (run.c.run_id == run_id)
    task_id, body = connection.execute(select(run.c.task_id, run.c.body).where(is_run)).one()
    emptied_run = encode_row(decode_row(Run, body).replace(output=None, metadata={}))
    connection.execute(update(run).where(is_run).values(body=emptied_run))
    answered = _answered_interrupts(connection, pk, removed)
    for interrupt_id, body in connection.execute(
        select(interrupt.c.interrupt_id, interrupt.c.body).where(
            interrupt.c.owner == owner, interrupt.c.task_id == task_id
        )
    ).all():
        question = decode_row(Interrupt, body)
        if question.run_id == run_id:
            question = question.replace(message=_empty_message(question.message), value=None)
        if interrupt_id in answered:
            question = question.replace(answer=None)
        connection.execute(
            update(interrupt)
            .where(interrupt.c.owner == owner, interrupt.c.task_id == task_id, interrupt.c.interrupt_id == interrupt_id)
            .values(body=encode_row(question))
        )


def _answered_interrupts(connection: Connection, pk: int, run: Run) -> set[str]:
    rows = connection.execute(select(table_of(EventRow).c.body).where(_events_of(run, pk)))
    events = [decode_event(lengthen(body)) for (body,) in rows]
    return {event.interrupt_id for event in events if isinstance(event, InterruptAnswered)}


def _drop_blobs(connection: Connection, pk: int) -> None:
    """Delete the rows in the table of blob uses for files that no event of the thread refers to any more.

    The sweep deletes a file that no thread refers to."""
    event, uses = table_of(EventRow), table_of(BlobUseRow)
    blobs = [blob for (blob,) in connection.execute(select(uses.c.blob).where(uses.c.thread_pk == pk))]
    if not blobs:
        return
    unnamed = set(blobs)
    for (body,) in connection.execute(stream_rows(select(event.c.body).where(is_in_log(pk)))):
        unnamed -= {blob for blob in unnamed if blob.encode() in body}
    for blob in unnamed:
        connection.execute(uses.delete().where(uses.c.thread_pk == pk, uses.c.blob == blob))


def _empty_message(message: Message) -> Message:
    return Message(message_id=message.message_id, role=message.role, phase=message.phase)


def empty_event(event: Event) -> Event:
    """Return a copy of the event without text, data, metadata and files. Ids, kinds and states remain."""
    match event:
        case RunCreated():
            messages = tuple(_empty_message(message) for message in event.messages)
            empty = RunInput(messages=messages, checkpoint=event.checkpoint, assistant=event.assistant)
            return event.replace(**empty.members())
        case RunEnded():
            return event.replace(output=None, extra={})
        case RunChanged():
            return event.replace(metadata={}, extra={})
        case MessageStarted() | PartAdded() | PartDelta() | ArtifactAdded():
            return _without_content(event)
        case ToolStarted() | ToolEnded() | StepEnded():
            return _without_data(event)
        case InterruptRaised():
            return event.replace(message=_empty_message(event.message), value=None, extra={})
        case InterruptAnswered():
            return event.replace(value=None, extra={})
        case StepStarted() | StateSaved() | Native():
            return _without_state(event)
        case Custom():
            return event.replace(value=None, extra={})
        case _ if UNKNOWN in event.extra:
            return event.replace(extra={})
        case _:
            return event
