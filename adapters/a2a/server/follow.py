"""A task's log → the events of a stream, or the task as it is when it stops."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from pydantic_core import to_json

from adapters._shared import Encoder, Follower, Lines, Told
from adapters.a2a.dialect import Dialect
from adapters.a2a.view import Snapshot, StatusUpdate
from adapters.a2a.writer import EventWriter
from canonical import Hub, Receipt, Record, Scope, Task
from canonical.event import RunCreated, TaskChanged
from canonical.state import TERMINAL, WAITING

__all__ = ("Reading", "folded", "settled")


def _stops(record: Record) -> bool:
    event = record.event
    return isinstance(event, TaskChanged) and (event.state in TERMINAL or event.state in WAITING)


def _ended(record: Record) -> bool:
    return isinstance(record.event, TaskChanged) and record.event.state in TERMINAL


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


async def settled(hub: Hub, owner: str, receipt: Receipt, writer: EventWriter) -> Snapshot:
    """The task as it is when it stops after a submission, or when the gateway does."""
    due = _Begin(receipt.run_id)
    begun = False
    async with _reading(hub, owner, receipt.task, receipt.task.first_seq - 1) as batches:
        async for batch in batches:
            for record in batch:
                writer.write(record)
                if begun and _stops(record):
                    return writer.snapshot()
                begun = begun or due(record)
    return writer.snapshot()


async def folded(hub: Hub, owner: str, task: Task, context_id: str) -> EventWriter:
    """All that is known of the task now."""
    writer = EventWriter(task, context_id)
    for record in await hub.records(owner, Scope.task(task), task.first_seq - 1, inline=True):
        writer.write(record)
    return writer


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Records → the events of a stream, each as JSON."""

    writer: EventWriter
    dialect: Dialect

    def write(self, record: Record) -> Told:
        updates = self.writer.write(record)
        stopped = bool(updates) and isinstance(updates[-1], StatusUpdate) and updates[-1].status.stops
        return Told([to_json(self.dialect.encode_update(update)) for update in updates], stopped)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of a task, as a stream in one dialect."""

    hub: Hub
    owner: str
    task: Task
    context_id: str
    dialect: Dialect
    lines: Lines

    def _fresh(self) -> _Encoder:
        return _Encoder(EventWriter(self.task, self.context_id), self.dialect)

    def _join(self, encoder: _Encoder, seen: Sequence[Record]) -> Follower:
        """Go on from a snapshot with whoever reads the same."""
        view = (self.owner, self.task.task_id, self.context_id, self.dialect.name, self.dialect.base_url)
        return self.lines.join(view, encoder, seen, self._again)

    async def _again(self, seq: int) -> Encoder:
        encoder = self._fresh()
        for record in await self.hub.records(self.owner, Scope.task(self.task), inline=True):
            if record.seq < seq:
                encoder.writer.write(record)
        return encoder

    async def follow(self, run_id: str, history_length: int | None) -> AsyncGenerator[Sequence[bytes]]:
        """What a send's stream shows: the task as of the submission, then its updates until it stops."""
        due = _Begin(run_id)
        encoder = self._fresh()
        seen: list[Record] = []
        follower: Follower | None = None
        async with _reading(self.hub, self.owner, self.task, self.task.first_seq - 1) as batches:
            async for batch in batches:
                ready: list[bytes] = []
                for record in batch:
                    if follower is not None:
                        ready += (await follower.told(record)).frames
                        if _stops(record):
                            yield ready
                            return
                        continue
                    encoder.writer.write(record)
                    seen.append(record)
                    if due(record):
                        ready.append(to_json(self.dialect.encode_update(encoder.writer.snapshot(), history_length)))
                        follower = self._join(encoder, seen)
                        seen.clear()
                if ready:
                    yield ready

    async def replay(self, start: int | None) -> AsyncGenerator[Sequence[bytes]]:
        """The task as it was at seq `start` (None = now), what has happened since, and what happens until it stops.

        A question that was answered since does not end the stream, one that is open does, unless the stream began with
        it: whoever subscribes to a waiting task wants to see what becomes of it.
        """
        known = await self.hub.records(self.owner, Scope.task(self.task), self.task.first_seq - 1, inline=True)
        last = known[-1].seq
        start = last if start is None else start
        encoder = self._fresh()
        begun = 0
        for record in known:
            encoder.writer.write(record)
            begun += 1
            if encoder.writer.run_id is not None and (record.seq >= start or record.seq == last):
                break
        ready: list[bytes] = [to_json(self.dialect.encode_update(encoder.writer.snapshot()))]
        follower = self._join(encoder, known[:begun])
        over = _ended(known[begun - 1])
        for record in known[begun:]:
            told = await follower.told(record)
            ready += told.frames
            if told.frames:
                over = told.stopped
        del known  # the stream may last longer than anybody wants to keep them
        yield ready
        if over:
            return
        async with _reading(self.hub, self.owner, self.task, last) as batches:
            async for batch in batches:
                ready = []
                for record in batch:
                    ready += (await follower.told(record)).frames
                    if _stops(record):
                        yield ready
                        return
                if ready:
                    yield ready
