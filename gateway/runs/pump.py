"""Backpressure between an agent and the log: the pump of a run reads the agent's events and stores them in batches.

The pump stops reading while the journal is behind.

Only the pump uses the agent's iterator, so cancelling the pump's task cancels the agent. The engine decides when a run
starts and how it ends.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from babelgate.canonical.agent import DETACH, Agent
from babelgate.canonical.event import ArtifactAdded, Event, InterruptRaised, LossNoted, PartAdded, PartDelta, files_of
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.message import FilePart
from babelgate.canonical.state import RunReason, RunStatus
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.attempt import AttemptFilter, Entry
from babelgate.gateway.runs.budgets import RunAccount
from babelgate.gateway.runs.lifecycle import RunOutcome, StartedRun, TakenOver
from babelgate.gateway.runs.rules import RunRules
from babelgate.gateway.runs.window import Window
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.live import Channel
from babelgate.gateway.storage.unavailable import Unstored

RunKey = tuple[int, str]
"""Key of a thread and id of a run.

The gateway assigns keys and never reuses one. A run id alone is ambiguous, because callers choose ids. Another owner's
run can have the same id, and so can a run on a thread that was created after this one's was erased.
"""

_MAX_BATCH = 128
"""Maximum number of events that a pump reads before it yields to the event loop, if the agent never waits.

Measured against a maximum of 64: 0.94 times the CPU time over A2A, 0.79 times over chat completions
(docs/performance.md).
"""
_MAX_BATCH_SIZE = 4 * 2**20
"""Maximum size of the events in a pump's buffer as JSON, in bytes. They are stored in one commit, for which all other
writes wait. Chosen."""

_WITH_FILES = (PartAdded, ArtifactAdded, InterruptRaised)
"""Types of events that may contain files."""


@dataclass(slots=True, eq=False)
class Pump:
    """Reader of one active run's agent, which buffers its events and stores them. It holds the state of one asyncio
    task."""

    journal: Journal
    blobs: Blobs
    start: StartedRun
    channel: Channel
    rules: RunRules = field(default_factory=RunRules)
    agent: Agent | None = None
    """Agent that executes the run; None until the registry has returned it."""
    task: "asyncio.Task[RunOutcome] | None" = None
    attempt: AttemptFilter | None = None
    account: RunAccount | None = None
    """Budgets that count the run; None if no budget does, or if they were not checked yet."""
    reason: RunReason | None = None
    """Reason for which the run is being cancelled; None if it is not."""
    buffer: list[Entry] = field(default_factory=list[Entry])
    size: int = 0
    """Size of the events in the buffer as JSON, in bytes."""
    files: list[FilePart] = field(default_factory=list[FilePart])
    window: Window = field(default_factory=lambda: Window(0))
    flushing: bool = False
    """True if the buffer will be stored as soon as the agent waits for something."""
    delayed: bool = False
    """True if the buffer will be stored at the end of the commit window."""
    urgent: bool = False
    """True if the buffer contains events other than deltas, which do not wait for the end of the window."""
    flushed_at: float = 0.0
    """Time at which events were last passed to the journal, on the loop's clock; 0 before the first."""
    storing: "asyncio.Future[None] | None" = None
    """Pending append of events to the journal; None if there is none. There is one at a time: if it is refused, no
    later event is stored."""
    has_output: bool = False
    """True if the agent has sent an event. `LossNoted` does not count, because the adapter creates it before it calls
    the agent."""
    refused: FaultError | None = None
    """Fault with which the journal refused to append events; None if it did not."""
    ended: bool = False
    """True once the run's end is being stored: the events that are still in the buffer are then stored with it."""
    abandoned: bool = False
    """True if the run has ended although its agent still runs, or continues on another node. Later events are
    dropped."""
    detached: bool = False
    """True if the agent is stopped here without an end of the run, which the next start of the gateway or another node
    continues."""
    expired: RunOutcome | None = None
    """Outcome of a run that exceeded its time limit or whose agent was removed by a reload; None for any other run."""
    timer: asyncio.TimerHandle | None = None
    """Timer of the run's time limit, or of the grace period after a cancel."""

    @property
    def is_full(self) -> bool:
        return len(self.buffer) >= _MAX_BATCH or self.size >= _MAX_BATCH_SIZE

    @property
    def is_silent(self) -> bool:
        """True if the agent has produced no event that is new in the log."""
        return not self.buffer and not self.flushed_at

    @property
    def key(self) -> RunKey:
        return self.start.pk, self.start.run.run_id

    @property
    def stop_outcome(self) -> RunOutcome | None:
        """Outcome of a run that was cancelled, exceeded its time limit, lost its agent by a reload, or whose events
        were refused. None for any other run."""
        if self.reason is not None:
            return RunOutcome(RunStatus.CANCELLED, self.reason)
        if self.expired is None and self.refused is not None:
            fault = Fault(code=self.refused.fault.code, message="The gateway could not store the events of the agent.")
            return RunOutcome(RunStatus.ERROR, RunReason.FAULT, fault)
        return self.expired

    async def take(self, attempt: AttemptFilter, events: AsyncIterator[Event]) -> None:
        """Read the agent's events and store them, until the agent ends. Raises agent_invalid for an event that the
        validator refuses."""
        repeated = 0
        async for event in events:
            if self.abandoned:
                return  # later events are dropped: the caller closes the agent
            entry = attempt.take_delta(event) if type(event) is PartDelta else None
            if entry is not None:  # most events of a long answer
                self.buffer.append(entry)
                self.size += len(entry[1])
            else:
                self.has_output = self.has_output or not isinstance(event, LossNoted)
                if isinstance(event, _WITH_FILES):
                    event = await self._store_files(event)
                if not self._put(attempt.take(event)):
                    repeated += 1
                    if repeated % _MAX_BATCH == 0:
                        await asyncio.sleep(0)
                    continue
            if len(self.buffer) >= _MAX_BATCH or self.size >= _MAX_BATCH_SIZE:
                await self._wait_for_room()
            elif not self.flushing:
                self._schedule(may_wait=type(event) is PartDelta)
        self._put(attempt.end())

    async def take_rest(self) -> tuple[list[Entry], list[FilePart]] | None:
        """Return the events to store with the end of the run, and their files.

        These are the events in the buffer, and the ends of open messages, parts, tools and steps. Return None if an
        append was refused: then only the log shows what is open.
        """
        while self.storing is not None:
            await asyncio.wait((self.storing,))
        if self.refused is not None:
            return None
        closing = self.buffer + (self.attempt.close() if self.attempt is not None else [])
        files, self.buffer, self.size, self.files = self.files, [], 0, []
        return closing, files

    def _schedule(self, *, may_wait: bool) -> None:
        """Schedule the storing of the buffer.

        Normally it is stored as soon as the agent waits for something. With `may_wait`, which is set for deltas, it is
        stored at the end of the commit window if the last events were stored in this window.
        """
        self.urgent = self.urgent or not may_wait
        if not self.urgent and (self.delayed or self.window.is_open(self.flushed_at)):
            if not self.delayed:
                self.delayed = True
                self.window.call_at_end(self._end_window)
            return
        # Runs as soon as the agent waits for something, so that its events up to then are stored together. It waits one
        # more turn of the loop: if the agent has ended by then, the events are stored together with the end.
        self.flushing = True
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._flush_soon)

    def _end_window(self) -> None:
        self.delayed = False
        self._flush_soon()

    def _put(self, entries: Iterable[Entry]) -> bool:
        """Add entries to the buffer. Return True if there was at least one."""
        is_any = False
        for entry in entries:
            if isinstance(entry[0], _WITH_FILES):
                self.files += files_of(entry[0])
            self.buffer.append(entry)
            self.size += len(entry[1])
            is_any = True
        return is_any

    async def _store_files(self, event: PartAdded | ArtifactAdded | InterruptRaised) -> Event:
        """Store the files of an event, and return the event with references to them.

        Raises agent_invalid if a file is not acceptable.
        """
        try:
            if isinstance(event, InterruptRaised):
                (message,) = await self.blobs.keep_all((event.message,))
                return event if message is event.message else event.replace(message=message)
            part = await self.blobs.keep(event.part)
            return event if part is event.part else event.replace(part=part)
        except FaultError as error:
            if error.fault.blame == "caller":
                raise FaultError(
                    FaultCode.AGENT_INVALID, f"The agent sent an invalid file: {error.fault.message}"
                ) from error
            raise

    async def _wait_for_room(self) -> None:
        """Wait until the buffer has room, so that the agent is at most two batches ahead of the journal."""
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
        self.storing = self.journal.write(
            lifecycle.append, start=self.start, events=events, files=files, account=self.account
        )
        self.storing.add_done_callback(partial(self._finish_flush, events, files))

    def give_up_storing(self) -> None:
        """Stop retrying a failed append, because the gateway stops. Its events are lost, and the next start recovers
        the run."""
        if isinstance(self.storing, asyncio.Task):
            self.storing.cancel()

    def _finish_flush(self, events: list[Entry], files: list[FilePart], append: "asyncio.Future[None]") -> None:
        """Handle the result of an append: retry it if the database is unavailable, or stop the agent if the journal
        refused it."""
        if append.cancelled():
            self.storing, self.refused = None, Unstored()
            return
        if isinstance(append.exception(), Unstored) and not isinstance(append, asyncio.Task):
            retry = self.journal.write_patiently(
                lifecycle.append, start=self.start, events=events, files=files, account=self.account
            )
            self.storing = asyncio.get_running_loop().create_task(retry)
            self.storing.add_done_callback(partial(self._finish_flush, events, files))
            return
        self.storing = None
        error = append.exception()
        if error is None:
            if self.urgent or not self.delayed:
                self._flush_soon()
            return
        self.refused = error if isinstance(error, FaultError) else Unstored()
        if isinstance(error, TakenOver):  # the agent's server works for another node: do not cancel it there
            self.detached = self.abandoned = True
        if self.reason is None and self.task is not None:
            self.task.cancel(DETACH if self.detached else None)


async def close_events(events: AsyncIterator[Event], *, detach: bool) -> None:
    """Close the iterator over an agent's events, which need not be a generator.

    With `detach`, raise `CancelledError(DETACH)` inside the generator first: a plain close would cancel the run.
    """
    throw, aclose = getattr(events, "athrow", None), getattr(events, "aclose", None)
    if detach and throw is not None:
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await throw(asyncio.CancelledError(DETACH))
    if aclose is not None:
        await aclose()
