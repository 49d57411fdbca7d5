"""A task's log → the events of a stream, or the task as it is when it stops."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from adapters.a2a.view import Snapshot, StatusUpdate, Update
from adapters.a2a.writer import EventWriter
from canonical import Hub, Receipt, Record, Scope, Task
from canonical.event import RunCreated, TaskChanged
from canonical.state import TERMINAL, WAITING

__all__ = ("folded", "follow", "replay", "settled")


def _stops(record: Record) -> bool:
    event = record.event
    return isinstance(event, TaskChanged) and (event.state in TERMINAL or event.state in WAITING)


class _Begin:
    """Finds the record that completes a submission: with it the stream's first event, the task, is taken.

    An input is complete with its run. An answer is only with the change of state that follows it, in the same commit:
    before it the task would show as waiting still, and clients leave when they see that.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._answer = False

    def __call__(self, record: Record) -> bool:
        event = record.event
        if isinstance(event, RunCreated) and event.run_id == self._run_id:
            self._answer = event.cause == "answer"
            return not self._answer
        return self._answer and isinstance(event, TaskChanged)


def _reading(hub: Hub, owner: str, task: Task, after: int) -> aclosing[AsyncGenerator[Sequence[Record]]]:
    """The task's records from `after` on; the reader is closed as soon as nobody follows it."""
    reading = hub.read(owner, Scope.task(task), after, inline=True)
    return aclosing(cast("AsyncGenerator[Sequence[Record]]", reading))


async def follow(hub: Hub, owner: str, receipt: Receipt, writer: EventWriter) -> AsyncGenerator[Sequence[Update]]:
    """What a send's stream shows: the task as of the submission, then its updates until it stops."""
    task = receipt.task
    due = _Begin(receipt.run_id)
    begun = False
    async with _reading(hub, owner, task, task.first_seq - 1) as batches:
        async for batch in batches:
            ready: list[Update] = []
            for record in batch:
                updates = writer.write(record)
                if begun:
                    ready += updates
                    if _stops(record):
                        yield ready
                        return
                elif due(record):
                    begun = True
                    ready.append(writer.snapshot())
            if ready:
                yield ready


async def settled(hub: Hub, owner: str, receipt: Receipt, writer: EventWriter) -> Snapshot:
    """The task as it is when it stops, or when the gateway does."""
    async with aclosing(cast("Any", follow(hub, owner, receipt, writer))) as batches:
        async for _ in batches:
            pass
    return writer.snapshot()


async def folded(hub: Hub, owner: str, task: Task, context_id: str) -> EventWriter:
    """All that is known of the task now."""
    writer = EventWriter(task, context_id)
    for record in await hub.records(owner, Scope.task(task), task.first_seq - 1, inline=True):
        writer.write(record)
    return writer


async def replay(
    hub: Hub, owner: str, task: Task, writer: EventWriter, start: int | None
) -> AsyncGenerator[Sequence[Update]]:
    """The task as it was at seq `start` (None = now), what has happened since, and what happens until it stops.

    A question that was answered since does not end the stream, one that is open does, unless the stream began with it:
    whoever subscribes to a waiting task wants to see what becomes of it.
    """
    known = await hub.records(owner, Scope.task(task), task.first_seq - 1, inline=True)
    last = known[-1].seq if known else 0
    start = last if start is None else start
    ready: list[Update] = []
    begun = False
    for record in known:
        updates = writer.write(record)
        if begun:
            ready += updates
        elif writer.run_id is not None and (record.seq >= start or record.seq == last):
            begun = True
            ready.append(writer.snapshot())
    if ready:
        yield ready
    shown = ready[-1] if ready else None
    if writer.status.state in TERMINAL or (isinstance(shown, StatusUpdate) and shown.status.stops):
        return
    async with _reading(hub, owner, task, last) as batches:
        async for batch in batches:
            ready = []
            for record in batch:
                ready += writer.write(record)
                if _stops(record):
                    yield ready
                    return
            if ready:
                yield ready
