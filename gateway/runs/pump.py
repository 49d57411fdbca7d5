"""Backpressure between an agent and the log: a pump takes what an agent says and stores it, some events at a time, and
does not let the agent run ahead of the journal.

A pump owns the agent's iterator: nothing else touches it, so cancelling the task that it runs in is the cancel. When a
run is started and how it ends is the engine's.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from babelgate.canonical.agent import DETACH
from babelgate.canonical.event import ArtifactAdded, Event, InterruptRaised, PartAdded, PartDelta, files_of
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import FilePart
from babelgate.canonical.state import RunReason, RunStatus
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.attempt import Attempt, Entry
from babelgate.gateway.runs.lifecycle import Outcome, Start, TakenOver
from babelgate.gateway.runs.window import Window
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.live import Channel
from babelgate.gateway.storage.unavailable import Unstored

RunKey = tuple[int, str]
"""A thread's key and a run's id. The key is the gateway's own and never given out twice: callers choose ids, so another
owner's run may have the same one, and so may a run on a thread that was made after this one's was erased."""

_BATCH = 128
"""Events that a pump takes from an agent that never waits, before it lets others have the loop. Instead of 64, and
prepared together: 0.94 of the CPU time over A2A, 0.79 over chat completions (docs/performance.md)."""
_BYTES = 4 * 2**20
"""The same, of them as JSON. They are stored together, and everything else that is to be stored waits meanwhile."""

_WITH_FILES = (PartAdded, ArtifactAdded, InterruptRaised)
"""Events that may carry some."""


@dataclass(slots=True, eq=False)
class Pump:
    """Of one active run."""

    journal: Journal
    blobs: Blobs
    start: Start
    channel: Channel
    task: "asyncio.Task[Outcome] | None" = None
    attempt: Attempt | None = None
    reason: RunReason | None = None
    """Why it is being stopped."""
    buffer: list[Entry] = field(default_factory=list[Entry])
    size: int = 0
    """Bytes of what is in the buffer."""
    files: list[FilePart] = field(default_factory=list[FilePart])
    window: Window = field(default_factory=lambda: Window(0))
    flushing: bool = False
    """A flush is due as soon as the agent waits for something."""
    delayed: bool = False
    """A flush is due at the end of the commit window."""
    urgent: bool = False
    """Something else than deltas is in the buffer: it does not wait for that."""
    flushed_at: float = 0.0
    """On the loop's clock."""
    storing: "asyncio.Future[None] | None" = None
    """The append on its way. There is one at a time: if it is refused, nothing that was said after it is stored."""
    refused: FaultError | None = None
    """The journal refused an append."""
    ended: bool = False
    """What is left to store goes with the end of the run."""
    abandoned: bool = False
    """The run was ended without waiting for the agent any longer, or goes on elsewhere."""
    detached: bool = False
    """The run is left to the next start of the gateway, or to another node."""
    expired: Outcome | None = None
    """It took too long."""
    timer: asyncio.TimerHandle | None = None
    """Of the bound on its time, or of the grace that it has after a cancel."""

    @property
    def is_full(self) -> bool:
        return len(self.buffer) >= _BATCH or self.size >= _BYTES

    @property
    def is_silent(self) -> bool:
        """Whether the agent has said nothing yet that the log does not have."""
        return not self.buffer and not self.flushed_at

    @property
    def key(self) -> RunKey:
        return self.start.pk, self.start.run.run_id

    @property
    def stop_outcome(self) -> Outcome | None:
        """How a run ends that was stopped; None if nobody stopped it."""
        if self.reason is not None:
            return Outcome(RunStatus.CANCELLED, self.reason)
        if self.expired is None and self.refused is not None:
            fault = Fault(code=self.refused.fault.code, message="The gateway could not store what the agent said.")
            return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        return self.expired

    async def take(self, attempt: Attempt, events: AsyncIterator[Event]) -> None:
        """Store what the agent says until it ends. Raises agent_invalid."""
        repeated = 0
        async for event in events:
            if self.abandoned:
                return  # whatever it says now goes nowhere: close it
            entry = attempt.take_delta(event) if type(event) is PartDelta else None
            if entry is not None:  # most events of a long answer
                self.buffer.append(entry)
                self.size += len(entry[1])
            else:
                if isinstance(event, _WITH_FILES):
                    event = await self._keep_files(event)
                if not self._put(attempt.take(event)):
                    repeated += 1
                    if repeated % _BATCH == 0:
                        await asyncio.sleep(0)
                    continue
            if len(self.buffer) >= _BATCH or self.size >= _BYTES:
                await self._room()
            elif not self.flushing:
                self._schedule(may_wait=type(event) is PartDelta)
        self._put(attempt.end())

    async def take_rest(self) -> tuple[list[Entry], list[FilePart]] | None:
        """What goes into the log before the end: what was not stored yet, and the ends of what is open. None if some of
        it is lost: then what the log holds decides what is open."""
        while self.storing is not None:
            await asyncio.wait((self.storing,))
        if self.refused is not None:
            return None
        closing = self.buffer + (self.attempt.close() if self.attempt is not None else [])
        files, self.buffer, self.size, self.files = self.files, [], 0, []
        return closing, files

    def _schedule(self, *, may_wait: bool) -> None:
        """Have what is in the buffer stored: soon, or at the end of the window if nothing but deltas is in it and the
        last was stored in this one."""
        self.urgent = self.urgent or not may_wait
        if not self.urgent and (self.delayed or self.window.is_open(self.flushed_at)):
            if not self.delayed:
                self.delayed = True
                self.window.call_at_end(self._end_window)
            return
        # Runs as soon as the agent waits for something: what it said before goes out together. One turn of the loop
        # later, because then an agent that has ended by now is known to have: all goes with the end.
        self.flushing = True
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._flush_soon)

    def _end_window(self) -> None:
        self.delayed = False
        self._flush_soon()

    def _put(self, entries: Iterable[Entry]) -> bool:
        """What is to be stored; whether there was any."""
        is_any = False
        for entry in entries:
            if isinstance(entry[0], _WITH_FILES):
                self.files += files_of(entry[0])
            self.buffer.append(entry)
            self.size += len(entry[1])
            is_any = True
        return is_any

    async def _keep_files(self, event: PartAdded | ArtifactAdded | InterruptRaised) -> Event:
        """The event with its files in the store."""
        try:
            if isinstance(event, InterruptRaised):
                (message,) = await self.blobs.keep_all((event.message,))
                return event if message is event.message else event.replace(message=message)
            part = await self.blobs.keep(event.part)
            return event if part is event.part else event.replace(part=part)
        except FaultError as error:
            if error.fault.blame == "caller":
                raise FaultError(FaultCode.AGENT_INVALID, f"The agent gave a file: {error.fault.message}") from error
            raise

    async def _room(self) -> None:
        """Wait until what was said is stored: an agent is not ahead of the journal by more than a batch or two."""
        while self.is_full:
            if self.refused is not None:
                raise self.refused
            if self.storing is None:
                self._flush()
            elif not self.storing.done():
                await asyncio.wait((self.storing,))
            else:
                await asyncio.sleep(0)

    def _flush_soon(self) -> None:
        self.flushing = False
        if self.buffer and self.storing is None and self.refused is None and not self.ended:
            self._flush()

    def _flush(self) -> None:
        self.urgent, self.flushed_at = False, asyncio.get_running_loop().time()
        events, self.buffer, self.size = self.buffer, [], 0
        files, self.files = self.files, []
        self.storing = self.journal.write(lifecycle.append, start=self.start, events=events, files=files)
        self.storing.add_done_callback(partial(self._finish_flush, events, files))

    def give_up_storing(self) -> None:
        """The gateway stops: what could not be stored until now is left to the next start, like the run."""
        if isinstance(self.storing, asyncio.Task):
            self.storing.cancel()

    def _finish_flush(self, events: list[Entry], files: list[FilePart], done: "asyncio.Future[None]") -> None:
        if done.cancelled():
            self.storing, self.refused = None, Unstored()
            return
        if isinstance(done.exception(), Unstored) and not isinstance(done, asyncio.Task):
            again = self.journal.write_patiently(lifecycle.append, start=self.start, events=events, files=files)
            self.storing = asyncio.get_running_loop().create_task(again)
            self.storing.add_done_callback(partial(self._finish_flush, events, files))
            return
        self.storing = None
        error = done.exception()
        if error is None:
            if self.urgent or not self.delayed:
                self._flush_soon()
            return
        self.refused = error if isinstance(error, FaultError) else Unstored()
        if isinstance(error, TakenOver):  # the agent's server goes on for another node: it is not told to stop
            self.detached = self.abandoned = True
        if self.reason is None and self.task is not None:
            self.task.cancel(DETACH if self.detached else None)


async def close_events(events: AsyncIterator[Event], *, detach: bool) -> None:
    """Close what an agent gave; it need not be a generator. One that the gateway lets go of is told so where it stands:
    a plain close would be a cancel."""
    throw, aclose = getattr(events, "athrow", None), getattr(events, "aclose", None)
    if detach and throw is not None:
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await throw(asyncio.CancelledError(DETACH))
    if aclose is not None:
        await aclose()
