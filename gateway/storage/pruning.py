"""Pruning of a thread: deletion of all its states except the newest. Messages, tasks and questions stay."""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Integer, bindparam, update

from babelgate.canonical.difference import StateChange
from babelgate.canonical.event import Event, Native, Record, StateSaved, StatesPruned, StepStarted, encode_event
from babelgate.canonical.history import StateHistory
from babelgate.canonical.hub import Scope
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage import checkpoints
from babelgate.gateway.storage.log_key import is_record
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.short_form import shorten
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import EventRow
from babelgate.gateway.storage.transaction import Transaction, need_idle_thread


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes that pruning makes to the log of one thread. They are computed before the writer's transaction."""

    seq: int
    """Sequence number of the thread's newest record. The plan is invalid once a newer record exists."""
    head: str
    """Id of the newest revision, the only one that stays."""
    rewritten: Mapping[int, Event]
    """Events to store in a new form, without the pruned states, by sequence number."""


async def make_plan(reads: JournalReads, owner: str, thread_id: str) -> Plan | None:
    """Compute the plan for a thread, or None if it has no states to prune.

    Raises not_found, and too_large if the thread is larger than `limits.thread`."""
    history = await reads.snapshot(owner, thread_id, StateHistory, partial(StateHistory, thread_id, owner))
    pruning = history.find_needed()
    if pruning is None:
        return None
    head, needed = pruning
    rewritten: dict[int, Event] = {}
    until = history.revision_seq(head)
    async with aclosing(reads.log(owner, Scope(thread_id))) as batches:
        async for records in batches:
            for record in records:
                event = _rewrite(record, history, needed, until)
                if event is not record.event and record.seq <= history.seq:
                    rewritten[record.seq] = event
    return Plan(history.seq, head, rewritten)


def _rewrite(record: Record, history: StateHistory, needed: Mapping[int, JsonObject | None], until: int) -> Event:
    """Return the event of a record in the form that it has after pruning. It may be the same event.

    `needed` has the sequence numbers of the states to keep, each with its whole values if it was stored as a difference
    to a state that is not kept. `until` is the number of the newest revision. Records after it keep their data."""
    event = record.event
    task = history.fold.tasks.get(record.task_id or "")
    if isinstance(event, StateSaved):
        if record.seq not in needed:
            return event if event.pruned else event.replace(values=None, delta=None, change=None, pruned=True)
        values = needed[record.seq]
        return event if values is None else event.replace(values=values, change=None)
    change = _change_of(event)
    is_kept = change is not None and history.revision_seq(change.since) in needed
    if is_kept or (task is not None and not task.is_terminal and change is None):
        return event
    is_later = record.seq > until or (task is not None and not task.is_terminal)
    match event:
        case StepStarted() if change is not None:
            step_input = history.resolve(change, event.input) if is_later else None
            return event.replace(input=step_input, input_change=None)
        case Native() if change is not None and is_later:
            return event.replace(data=history.resolve(change, event.data), change=None)
        case Native(event="values" | "checkpoints") if not is_later and event.data is not None:
            return event.replace(data=None, change=None)
        case Native() if change is not None:
            return event.replace(data=None, change=None)
        case _:
            return event


def _change_of(event: Event) -> StateChange | None:
    match event:
        case Native():
            return event.change
        case StepStarted():
            return event.input_change
        case _:
            return None


def prune(tx: Transaction, owner: str, thread_id: str, plan: Plan) -> int | None:
    """Execute a plan in the writer's transaction, and return the database key of the thread.

    Return None if the thread has newer records than the plan. Raises not_found, and conflict if a run of the thread is
    active."""
    state = need_idle_thread(tx, owner, thread_id)
    if state.seq != plan.seq:
        return None
    tx.append(state, StatesPruned(checkpoint_id=plan.head))
    tx.flush()
    if plan.rewritten:
        event = table_of(EventRow)
        tx.connection.execute(
            update(event)
            .where(is_record(state.pk, bindparam("b_seq", type_=Integer())))
            .values(body=bindparam("b_body")),
            [
                {"b_seq": seq, "b_body": shorten(encode_event(rewritten_event))}
                for seq, rewritten_event in plan.rewritten.items()
            ],
        )
    checkpoints.keep_newest(tx.connection, owner, thread_id, plan.head)
    return state.pk
