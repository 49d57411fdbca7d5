"""Reading a run off the hub: as a snapshot, as the list of its events, or live until it stops."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, cast

from pydantic import BaseModel

from adapters._sse import frame
from adapters.acp import wire as w
from adapters.acp.codec import View
from adapters.acp.writer import EventWriter
from canonical import Hub, Record, Scope, Task
from canonical.event import TaskChanged

__all__ = ("Reading",)


class Reading:
    """One reading of a run's events, from its first task on."""

    def __init__(
        self,
        hub: Hub,
        owner: str,
        tasks: Sequence[Task],
        view: View,
        *,
        show_after: int = 0,
        stop_after: int = 0,
        skip: int = 0,
        end: int | None = None,
    ) -> None:
        self.writer = EventWriter(view)
        self._hub = hub
        self._owner = owner
        self._tasks = tasks
        self._show_after = show_after
        self._stop_after = stop_after
        self._skip = skip
        self._end = end

    async def snapshot(self, until: w.Status | None = None) -> EventWriter:
        """The run as it is; or as it was when its newest task came to the status `until`."""
        for task in self._tasks:
            for record in await self._hub.records(self._owner, Scope.task(task), inline=True):
                self.writer.write(record)
                if until == self.writer.status and task is self._tasks[-1] and record.seq > self._show_after:
                    return self.writer
        return self.writer

    async def events(self) -> AsyncGenerator[BaseModel]:
        """What there is by now."""
        for task in self._tasks:
            for record in await self._hub.records(self._owner, Scope.task(task), inline=True):
                for event in self.writer.write(record):
                    if self._shows(record.seq):
                        yield event

    def _shows(self, seq: int) -> bool:
        if self._skip > 0:
            self._skip -= 1
            return False
        return seq > self._show_after

    async def follow(self) -> AsyncGenerator[list[BaseModel]]:
        """Events in batches, until the run stops."""
        for task in self._tasks[:-1]:
            for record in await self._hub.records(self._owner, Scope.task(task), inline=True):
                yield [event for event in self.writer.write(record) if self._shows(record.seq)]
        last = self._tasks[-1]
        reading = self._hub.read(self._owner, Scope.task(last), last.first_seq - 1, inline=True)
        async with aclosing(cast("Any", reading)) as batches:
            async for batch in batches:
                shown: list[BaseModel] = []
                for record in batch:
                    shown += [event for event in self.writer.write(record) if self._shows(record.seq)]
                    if self._stops(record):
                        yield shown
                        return
                yield shown

    def _stops(self, record: Record) -> bool:
        """Only a change of the task is a stop: the first record of an answer finds the run still awaiting. A reader who
        comes when all is said finds the stop at the end of what there was."""
        if not self.writer.stopped:
            return False
        changed = isinstance(record.event, TaskChanged) and record.seq > self._stop_after
        return changed or record.seq == self._end

    async def frames(self) -> AsyncGenerator[bytes]:
        async with aclosing(self.follow()) as batches:
            async for events in batches:
                if events:
                    yield b"".join(frame(w.dump(event)) for event in events)

    async def stop(self) -> EventWriter:
        """Wait until the run stops, or the gateway does: then the run is as it was left."""
        async with aclosing(self.follow()) as batches:
            async for _ in batches:
                pass
        return self.writer
