"""Run engine: scheduling of runs, concurrency limits, and one pump with backpressure for each active run.

A pump owns the agent's iterator: it takes its events, passes them through a recorder into the journal, and ends the
run. Nothing else touches the iterator, so cancelling the pump is the cancel.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar, cast

from canonical.agent import DETACH, Reattachable
from canonical.event import ArtifactAdded, Event, InterruptRaised, PartAdded
from canonical.fault import Fault, FaultCode, FaultError
from canonical.message import FilePart
from canonical.state import RunReason, RunStatus, TaskState
from gateway.background import Tasks
from gateway.fronted import Fronted
from gateway.runs import lifecycle
from gateway.runs.attempt import Attempt, Entry, Past
from gateway.runs.event_check import Recorder, files_of
from gateway.runs.invocation import Invocations
from gateway.runs.lifecycle import Later, Outcome, Start
from gateway.runs.output_schema import misfit
from gateway.storage.blobs import Blobs
from gateway.storage.journal import Journal, Unstored
from gateway.storage.live import Channel
from gateway.storage.subscription import Reader
from gateway.storage.transaction import Ledger

T = TypeVar("T")
_RunKey = tuple[int, str]
"""A thread's key and a run's id. The key is the gateway's own and never given out twice: callers choose ids, so another
owner's run may have the same one, and so may a run on a thread that was made after this one's was erased."""
log = logging.getLogger("babelgate.engine")

_BATCH = 64
"""Events that a pump takes from an agent that never waits, before it lets others have the loop."""
_BYTES = 4 * 2**20
"""The same, of them as JSON. They are stored together, and everything else that is to be stored waits meanwhile."""


@dataclass(slots=True)
class _Slots:
    """How many runs of one agent may be active, and which threads wait for one to end."""

    limit: int | None
    used: int = 0
    waiting: "deque[tuple[str, str]]" = field(default_factory=deque[tuple[str, str]])
    queued: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])


@dataclass(slots=True, eq=False)
class _Pump:
    start: Start
    channel: Channel
    task: "asyncio.Task[Outcome] | None" = None
    attempt: Attempt | None = None
    reason: RunReason | None = None
    """Why it is being stopped."""
    buffer: list[tuple[Event, bytes]] = field(default_factory=list[tuple[Event, bytes]])
    size: int = 0
    """Bytes of what is in the buffer."""
    files: list[FilePart] = field(default_factory=list[FilePart])
    flushing: bool = False
    """A flush is due as soon as the agent waits for something."""
    storing: "asyncio.Future[None] | None" = None
    """The append on its way. There is one at a time: if it is refused, nothing that was said after it is stored."""
    refused: FaultError | None = None
    """The journal refused an append."""
    ended: bool = False
    """What is left to store goes with the end of the run."""
    abandoned: bool = False
    """The run was ended without waiting for the agent any longer."""
    detached: bool = False
    """The gateway stops, and the run is left to the next start."""
    expired: Outcome | None = None
    """It took too long."""
    timer: asyncio.TimerHandle | None = None
    """Of the bound on its time, or of the grace that it has after a cancel."""

    @property
    def full(self) -> bool:
        return len(self.buffer) >= _BATCH or self.size >= _BYTES

    @property
    def key(self) -> _RunKey:
        return self.start.pk, self.start.run.run_id


class Engine:
    def __init__(
        self,
        journal: Journal,
        blobs: Blobs,
        reader: Reader,
        find: Callable[[str], Fronted],
        reach: Callable[[str], Awaitable[Fronted]],
        *,
        run_timeout: float = 3600,
        cancel_grace: float = 5,
        event_limit: int = 8 * 2**20,
        output_limit: int = 64 * 2**20,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._invocations = Invocations(journal, blobs, reader)
        self._find = find
        self._reach = reach
        self._run_timeout = run_timeout
        self._grace = cancel_grace
        self._event_limit = event_limit
        self._output_limit = output_limit
        self._slots: dict[str, _Slots] = {}
        self._pumps: dict[_RunKey, _Pump] = {}
        self._tasks = Tasks()
        self._timers: set[asyncio.TimerHandle] = set()
        self._stopping = False

    # Slots

    def reserve(self, agent: str) -> bool:
        """Take a slot of the agent, if one is free and nobody waits for it."""
        slots = self._slots_of(agent)
        if self._stopping or slots.waiting or (slots.limit is not None and slots.used >= slots.limit):
            return False
        slots.used += 1
        return True

    def release(self, agent: str) -> None:
        slots = self._slots_of(agent)
        slots.used -= 1
        self._serve(agent, slots)

    def _serve(self, agent: str, slots: _Slots) -> None:
        """Give free slots to the threads that have waited longest."""
        while slots.waiting and not self._stopping and (slots.limit is None or slots.used < slots.limit):
            owner, thread_id = slots.waiting.popleft()
            slots.queued.discard((owner, thread_id))
            slots.used += 1
            self._tasks.spawn(self._claim(owner, thread_id, agent), f"start {thread_id}")

    def _slots_of(self, agent: str) -> _Slots:
        slots = self._slots.get(agent)
        if slots is None:
            try:
                limit = self._find(agent).concurrency
            except FaultError:  # gone from the configuration: its runs fail as they start
                limit = None
            slots = self._slots[agent] = _Slots(limit)
        return slots

    def offer(self, owner: str, thread_id: str, agent: str) -> None:
        """The thread has a run of this agent that could start: it does when there is a slot."""
        slots = self._slots_of(agent)
        if (owner, thread_id) not in slots.queued:
            slots.queued.add((owner, thread_id))
            slots.waiting.append((owner, thread_id))
        self._serve(agent, slots)

    def _offer_next(self, owner: str, thread_id: str, later: Later | None) -> None:
        """The same, for what the journal says comes next."""
        if later is None:
            return
        if later.wait <= 0:
            self.offer(owner, thread_id, later.agent)
            return

        def due() -> None:
            self._timers.discard(timer)
            self.offer(owner, thread_id, later.agent)

        timer = asyncio.get_running_loop().call_later(later.wait / 1e6, due)
        self._timers.add(timer)

    async def _claim(self, owner: str, thread_id: str, agent: str) -> None:
        """With a slot in hand: start the thread's next run."""
        try:
            claimed = await self._write_until_stored(lambda ledger: lifecycle.start(ledger, owner, thread_id, agent))
        except FaultError as error:
            log.warning("the next run of thread %s was not started: %s", thread_id, error)
            claimed = None
        except BaseException:
            self.release(agent)
            raise
        if isinstance(claimed, Start):
            self.begin(claimed)
            return
        self.release(agent)
        self._offer_next(owner, thread_id, claimed)

    # Pumps

    @property
    def active(self) -> Sequence[Start]:
        """The runs whose agents are at work and were not given up."""
        return [pump.start for pump in self._pumps.values() if not pump.abandoned]

    async def idle(self) -> None:
        """Until nothing is on its way into the journal but what agents say."""
        while self._tasks:
            await self._tasks.drain(60)

    def begin(self, start: Start, past: Past | None = None) -> None:
        """Run the agent; the slot is taken already. `past`, if it is to say again what it has said."""
        pump = _Pump(start, self._journal.channels.get(start.pk))
        pump.channel.pinned += 1
        self._pumps[pump.key] = pump
        task = asyncio.get_running_loop().create_task(self._drive(pump, past), name=f"run {start.run.run_id}")
        pump.task = task
        task.add_done_callback(lambda _: self._finish(pump))

    def stop_run(self, pk: int, run_id: str, reason: RunReason = RunReason.CALLER) -> None:
        """Cancel a running run of the thread with this key. If its agent does not end within the grace, the run is
        ended without it: the slot stays taken until the agent really ends, and what it still says is dropped."""
        pump = self._pumps.get((pk, run_id))
        if pump is None or pump.task is None or pump.reason is not None:
            return
        pump.reason = reason
        pump.task.cancel()
        if pump.timer is not None:
            pump.timer.cancel()
        outcome = Outcome(RunStatus.CANCELLED, reason)
        pump.timer = asyncio.get_running_loop().call_later(self._grace, self._abandon, pump, outcome)

    def forget_run(self, pk: int, run_id: str) -> None:
        """The run was erased with its thread: stop the agent, there is nothing left to write to."""
        pump = self._pumps.get((pk, run_id))
        if pump is not None and pump.task is not None:
            pump.abandoned = True
            pump.reason = RunReason.CALLER
            pump.task.cancel()

    def _abandon(self, pump: _Pump, outcome: Outcome) -> None:
        if pump.task is not None and not (pump.task.done() or pump.abandoned or self._stopping):
            pump.abandoned = pump.ended = True
            self._tasks.spawn(self._end(pump, outcome), f"abandon {pump.start.run.run_id}")

    async def _drive(self, pump: _Pump, past: Past | None) -> Outcome:
        """Take the agent's events until it ends, and say how it did."""
        start = pump.start
        attempt = pump.attempt = Attempt(start, self._event_limit, self._output_limit, past)
        try:
            fronted = await self._reach(start.task.agent)
            if fronted.agent is None:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {fronted.info.name}: {fronted.broken}")
            seconds = fronted.timeout.total or self._run_timeout
            pump.timer = asyncio.get_running_loop().call_later(seconds, self._expire, pump, seconds)
            call = await self._invocations.make(start, fronted.info)
            reattached = past is not None and past.reattached
            events = cast("Reattachable", fronted.agent).reattach(call) if reattached else fronted.agent.run(call)
            try:
                await self._take(pump, attempt, events)
            finally:
                await _close(events, detach=pump.detached)
        except FaultError as error:
            return pump.expired or Outcome(RunStatus.ERROR, RunReason.FAULT, error.fault)
        except asyncio.CancelledError:
            return self._cancel_outcome(pump)
        except (Exception, SystemExit) as error:
            if pump.expired is not None:
                return pump.expired
            log.exception("agent %s failed in run %s", start.task.agent, start.run.run_id)
            words = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
            return Outcome(RunStatus.ERROR, RunReason.FAULT, Fault(code=FaultCode.AGENT_FAILED, message=words))
        ended = attempt.run_end
        if ended is None:
            return Outcome()
        if ended.status is RunStatus.SUCCESS and (wrong := await misfit(fronted.info, ended.output)) is not None:
            return Outcome(RunStatus.ERROR, RunReason.FAULT, wrong)
        return Outcome(ended.status, ended.reason, ended.fault, ended.output, ended.usage)

    def _expire(self, pump: _Pump, seconds: float) -> None:
        """The run took too long: cancel it, and end it without its agent if that takes longer than the grace."""
        if pump.reason is not None or pump.task is None:
            return
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message=f"The agent did not end within {seconds:g} seconds")
        pump.expired = Outcome(RunStatus.TIMEOUT, RunReason.FAULT, fault)
        pump.task.cancel()
        pump.timer = asyncio.get_running_loop().call_later(self._grace, self._abandon, pump, pump.expired)

    def _cancel_outcome(self, pump: _Pump) -> Outcome:
        """What a cancellation that came out of the agent means. Raises it again if the run is to be let go of."""
        stopped = _stop_outcome(pump)
        if stopped is not None:
            return stopped
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise asyncio.CancelledError
        fault = Fault(code=FaultCode.AGENT_FAILED, message="The agent awaited something that was cancelled")
        return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)

    async def _take(self, pump: _Pump, attempt: Attempt, events: AsyncIterator[Event]) -> None:
        repeated = 0
        async for event in events:
            if pump.abandoned:
                return  # whatever it says now goes nowhere: close it
            if isinstance(event, PartAdded | ArtifactAdded | InterruptRaised):
                event = await self._keep_files(event)
            if not _put(pump, attempt.take(event)):
                repeated += 1
                if repeated % _BATCH == 0:
                    await asyncio.sleep(0)
            elif pump.full:
                await self._room(pump)
            elif not pump.flushing:
                # Runs as soon as the agent waits for something: what it said before goes out together. One turn of the
                # loop later, because then an agent that has ended by now is known to have: all goes with the end.
                pump.flushing = True
                loop = asyncio.get_running_loop()
                loop.call_soon(loop.call_soon, self._flush_soon, pump)
        _put(pump, attempt.end())

    async def _keep_files(self, event: PartAdded | ArtifactAdded | InterruptRaised) -> Event:
        """The event with its files in the store."""
        try:
            if isinstance(event, InterruptRaised):
                (message,) = await self._blobs.keep_all((event.message,))
                return event if message is event.message else event.model_copy(update={"message": message})
            part = await self._blobs.keep(event.part)
            return event if part is event.part else event.model_copy(update={"part": part})
        except FaultError as error:
            if error.fault.blame == "caller":
                raise FaultError(FaultCode.AGENT_INVALID, f"The agent gave a file: {error.fault.message}") from error
            raise

    async def _room(self, pump: _Pump) -> None:
        """Wait until what was said is stored: an agent is not ahead of the journal by more than a batch or two."""
        while pump.full:
            if pump.refused is not None:
                raise pump.refused
            if pump.storing is None:
                self._flush(pump)
            elif not pump.storing.done():
                await asyncio.wait((pump.storing,))
            else:
                await asyncio.sleep(0)

    def _flush_soon(self, pump: _Pump) -> None:
        pump.flushing = False
        if pump.buffer and pump.storing is None and pump.refused is None and not pump.ended:
            self._flush(pump)

    def _flush(self, pump: _Pump) -> None:
        events, pump.buffer, pump.size = pump.buffer, [], 0
        files, pump.files = pump.files, []
        pump.storing = self._journal.write(partial(lifecycle.append, start=pump.start, events=events, files=files))
        pump.storing.add_done_callback(partial(self._finish_flush, pump))

    def _finish_flush(self, pump: _Pump, done: "asyncio.Future[None]") -> None:
        pump.storing = None
        error = done.exception()
        if error is None:
            self._flush_soon(pump)
            return
        pump.refused = error if isinstance(error, FaultError) else Unstored()
        if pump.reason is None and pump.task is not None:
            pump.task.cancel()

    def _finish(self, pump: _Pump) -> None:
        """The agent has ended."""
        task, agent = pump.task, pump.start.task.agent
        assert task is not None
        pump.ended = True
        pump.channel.pinned -= 1
        if pump.timer is not None:
            pump.timer.cancel()
        del self._pumps[pump.key]
        stopped = _stop_outcome(pump)
        outcome = stopped if task.cancelled() else task.result()
        if pump.detached and stopped is None and outcome is not None and outcome.status is not RunStatus.SUCCESS:
            outcome = None
        if pump.abandoned or outcome is None:  # ended before, or left to the next start
            self.release(agent)
            return
        self._tasks.spawn(self._end(pump, outcome, releases=agent), f"end {pump.start.run.run_id}")

    async def _end(self, pump: _Pump, outcome: Outcome, releases: str | None = None) -> None:
        start = pump.start
        later: Later | None = None
        try:
            closing, files = await self._collect_rest(pump)
            write = partial(lifecycle.end, start=start, outcome=outcome, closing=closing, files=files)
            later = await self._write_until_stored(write)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT:  # that is the fence: an erasure or another end came first
                log.exception("the end of run %s was not stored", start.run.run_id)
        finally:
            if releases is not None:
                self.release(releases)
        self._offer_next(start.owner, start.thread_id, later)

    async def _collect_rest(self, pump: _Pump) -> tuple[list[tuple[Event, bytes]], list[FilePart]]:
        """What goes into the log before the end: what was not stored yet, and the ends of what is open."""
        if pump.storing is not None:
            await asyncio.wait((pump.storing,))
        if pump.refused is not None:  # some of it is lost: what the log holds decides what is open
            recorder = Recorder(pump.start.task.agent, self._event_limit)
            recorder.replay(await self._invocations.of_run(pump.start))
            return recorder.close(), []
        closing = pump.buffer + (pump.attempt.close() if pump.attempt is not None else [])
        files, pump.buffer, pump.size, pump.files = pump.files, [], 0, []
        return closing, files

    async def _write_until_stored(self, write: Callable[[Ledger], T]) -> T:
        """Write again and again while the disk refuses it: a run must not stay open, or wait, for ever."""
        pause = 0.1
        while True:
            try:
                return await self._journal.write(write)
            except Unstored as error:
                log.error("a step of a run could not be stored, trying again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 10)

    # Stopping and coming back

    async def stop(self) -> None:
        """Let go of every run: those that can be re-attached to are left to the next start, and so are the others."""
        self._stopping = True
        for timer in self._timers:
            timer.cancel()
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.detached = True
            if pump.task is not None:
                pump.task.cancel(DETACH)
        running = [pump.task for pump in pumps if pump.task is not None]
        if running:
            await asyncio.wait(running, timeout=self._grace)
            await asyncio.sleep(0)  # their ends are queued by callbacks
        await self._tasks.drain(self._grace)
        await self._tasks.stop()

    async def recover(self, lost: Start) -> None:
        """Continue a run that was active when the gateway ended, or end it with a fault that says why it cannot."""
        records = await self._invocations.of_run(lost)
        fronted: Fronted | None
        try:
            fronted = self._find(lost.task.agent)
        except FaultError:
            fronted = None
        cancelling = lost.task.state is TaskState.CANCELLING
        if fronted is not None and fronted.agent is not None:
            bound = lost.run.upstream
            attaches = bool(bound.get("run") or bound.get("task")) and isinstance(fronted.agent, Reattachable)
            if cancelling and attaches:
                self._tasks.spawn(self._withdraw(lost, fronted), f"withdraw {lost.run.run_id}")
            elif attaches:
                await self._resume(lost, Past(records, reattached=True, stateful=fronted.info.stateful))
                return
            elif fronted.idempotent and not cancelling:
                await self._resume(lost, Past(records, reattached=False, stateful=fronted.info.stateful))
                return
        fault = Fault(
            code=FaultCode.GATEWAY_RESTARTED,
            message="The gateway stopped while the agent was at work, and the agent can neither be asked for the rest "
            "nor be started again safely. Send the request again, or declare the agent idempotent.",
        )
        outcome = Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        recorder = Recorder(lost.task.agent, self._event_limit)
        recorder.replay(records)
        closing = recorder.close()
        # What waits behind it is not offered here: the hub offers all that waits, in the order in which it was created.
        await self._journal.write(lambda ledger: lifecycle.end(ledger, lost, outcome, closing))

    async def _withdraw(self, lost: Start, fronted: Fronted) -> None:
        """The upstream of a run that was being cancelled may not have heard of it: attach to it again, and leave."""
        again = replace(lost, run=replace(lost.run, attempt=lost.run.attempt + 1))
        events = cast("Reattachable", fronted.agent).reattach(await self._invocations.make(again, fronted.info))
        try:
            async with asyncio.timeout(self._grace):
                await anext(events, None)
        except (FaultError, TimeoutError) as error:
            log.warning("run %s was cancelled, and its upstream could not be told: %s", lost.run.run_id, error)
        finally:
            await _close(events, detach=False)

    async def _resume(self, lost: Start, past: Past) -> None:
        start = await self._journal.write(partial(lifecycle.restart, lost=lost))
        self._slots_of(start.task.agent).used += 1
        self.begin(start, past)


def _put(pump: _Pump, entries: Iterable[Entry]) -> bool:
    """What is to be stored; whether there was any."""
    before = len(pump.buffer)
    for entry in entries:
        pump.files += files_of(entry[0])
        pump.buffer.append(entry)
        pump.size += len(entry[1])
    return len(pump.buffer) > before


async def _close(events: AsyncIterator[Event], *, detach: bool) -> None:
    """Close what an agent gave; it need not be a generator. One that the gateway lets go of is told so where it stands:
    a plain close would be a cancel."""
    throw, aclose = getattr(events, "athrow", None), getattr(events, "aclose", None)
    if detach and throw is not None:
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await throw(asyncio.CancelledError(DETACH))
    if aclose is not None:
        await aclose()


def _stop_outcome(pump: _Pump) -> Outcome | None:
    """How a run ends that was stopped; None if nobody stopped it."""
    if pump.reason is not None:
        return Outcome(RunStatus.CANCELLED, pump.reason)
    if pump.expired is None and pump.refused is not None:
        fault = Fault(code=pump.refused.fault.code, message="The gateway could not store what the agent said.")
        return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
    return pump.expired
