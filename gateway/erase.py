"""Erasure: threads that go for good, and runs whose content goes while their numbers stay."""

from sqlalchemy import bindparam, select, update

from canonical.event import (
    EVENT,
    ArtifactAdded,
    Custom,
    Event,
    InterruptAnswered,
    InterruptRaised,
    MessageStarted,
    Native,
    PartAdded,
    PartDelta,
    RunCreated,
    RunEnded,
    RunRemoved,
    StateSaved,
    StepEnded,
    StepStarted,
    ToolEnded,
    ToolStarted,
)
from canonical.fault import FaultCode, FaultError
from canonical.message import Message, TextPart
from gateway.ledger import Ledger, table_of
from gateway.table import (
    AliasRow,
    BlobUseRow,
    EventRow,
    InterruptRow,
    RunRow,
    TaskRow,
    ThreadRow,
    WebhookRow,
)

__all__ = ("emptied", "erase_thread", "remove_run")


def erase_thread(ledger: Ledger, owner: str, thread_id: str) -> tuple[int, list[str]]:
    """Delete a thread's rows and log and leave a tombstone. Returns its key and the runs that were running."""
    state = ledger.need_thread(owner, thread_id)
    running = [state.running.run_id] if state.running is not None else []
    ledger.forget_thread(state)
    connection, pk = ledger.connection, state.pk
    for row in (EventRow, TaskRow, RunRow, InterruptRow, BlobUseRow):
        table = table_of(row)
        connection.execute(table.delete().where(table.c.thread_pk == pk))
    for row in (AliasRow, WebhookRow):
        table = table_of(row)
        connection.execute(table.delete().where(table.c.owner == owner, table.c.thread_id == thread_id))
    thread = table_of(ThreadRow)
    connection.execute(thread.delete().where(thread.c.pk == pk))
    ledger.sql.insert_tombstone.run(connection, (owner, thread_id, ledger.clock()))
    return pk, running


def remove_run(ledger: Ledger, owner: str, run_id: str) -> None:
    """Hide an ended run and empty its events under their numbers."""
    found = ledger.find_run(owner, run_id)
    if found is None or found[0].removed:
        raise FaultError(FaultCode.NOT_FOUND, f"Run {run_id} not found")
    run, thread_id = found
    ledger.flush()
    if not run.ended:
        raise FaultError(FaultCode.CONFLICT, f"Run {run_id} is {run.status}: cancel it first")
    state = ledger.need_thread(owner, thread_id)
    event = table_of(EventRow)
    mine = (event.c.thread_pk == state.pk) & (event.c.run_id == run_id)
    rows = ledger.connection.execute(select(event.c.seq, event.c.body).where(mine)).all()
    if rows:
        ledger.connection.execute(
            update(event)
            .where(event.c.thread_pk == state.pk, event.c.seq == bindparam("b_seq"))
            .values(body=bindparam("b_body")),
            [{"b_seq": seq, "b_body": EVENT.dump_json(emptied(EVENT.validate_json(body)))} for seq, body in rows],
        )
    ledger.append(state, RunRemoved(run_id=run_id, why="deleted"), task_id=run.task_id)


def _empty_message(message: Message) -> Message:
    return Message(message_id=message.message_id, role=message.role, phase=message.phase)


def emptied(event: Event) -> Event:
    """The event without what anybody said in it: ids, kinds and states stay."""
    match event:
        case RunCreated():
            messages = tuple(_empty_message(message) for message in event.messages)
            return event.model_copy(
                update={"messages": messages, "data": None, "config": {}, "metadata": {}, "extra": {}}
            )
        case RunEnded():
            return event.model_copy(update={"output": None, "extra": {}})
        case MessageStarted():
            return event.model_copy(update={"metadata": {}, "extra": {}})
        case PartAdded():
            return event.model_copy(update={"part": TextPart(text=""), "extra": {}})
        case PartDelta():
            return event.model_copy(update={"text": "", "extra": {}})
        case ToolStarted() | StepStarted():
            return event.model_copy(update={"input": None, "extra": {}})
        case ToolEnded():
            return event.model_copy(update={"output": None, "extra": {}})
        case StepEnded():
            return event.model_copy(update={"update": None, "extra": {}})
        case ArtifactAdded():
            return event.model_copy(
                update={
                    "name": None,
                    "description": None,
                    "part": TextPart(text=""),
                    "folder": None,
                    "metadata": {},
                    "extra": {},
                }
            )
        case InterruptRaised():
            return event.model_copy(update={"message": _empty_message(event.message), "value": None, "extra": {}})
        case InterruptAnswered():
            return event.model_copy(update={"value": None, "extra": {}})
        case StateSaved():
            return event.model_copy(update={"values": {}, "delta": None, "extra": {}})
        case Custom():
            return event.model_copy(update={"value": None, "extra": {}})
        case Native():
            return event.model_copy(update={"data": None, "extra": {}})
        case _:
            return event
