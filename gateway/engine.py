"""The engine: whose turn it is, and one pump for each active run.

A pump owns the agent's iterator: it takes its events, passes them through a recorder into the journal, and ends the run.
Nothing else touches the iterator, so cancelling the pump is the cancel.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

from canonical.agent import DETACH, Agent, AgentInfo, Invocation, Reattachable
from canonical.event import ArtifactAdded, Event, InterruptAnswered, PartAdded, Record, RunCreated
from canonical.fault import Fault, FaultCode, FaultError
from canonical.fold import Fold
from canonical.message import FilePart, Message
from canonical.replay import said_by_agent, unseen
from canonical.state import RunReason, RunStatus, TaskState
from canonical.thread import Interrupt
from gateway import command
from gateway.blob import Blobs
from gateway.command import Outcome, Start
from gateway.journal import Journal
from gateway.recorder import Recorder, files_of

__all__ = ("Engine", "Fronted", "Tasks")

log = logging.getLogger("babelgate.engine")

_BATCH = 64
"""Events that a pump takes from an agent that never waits, before it lets others have the loop."""


class Fronted(Protocol):
    """What the engine needs to know of a configured agent (`gateway.registry`)."""

    @property
    def info(self) -> AgentInfo: ...
    @property
    def agent(self) -> Agent | None: ...
    @property
    def broken(self) -> str | None: ...
    @property
    def concurrency(self) -> int | None: ...
    @property
    def total_timeout(self) -> float | None: ...
    @property
    def idempotent(self) -> bool: ...


class Tasks:
    """Background tasks that are kept alive until they end, and whose failures are logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("%s failed", task.get_name(), exc_info=task.exception())

    async def drain(self, seconds: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)

    async def stop(self) -> None:
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


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
    task: "asyncio.Task[Outcome] | None" = None
    recorder: Recorder | None = None
    reason: RunReason | None = None
    """Why it is being stopped."""
    buffer: list[tuple[Event, bytes]] = field(default_factory=list[tuple[Event, bytes]])
    files: list[FilePart] = field(default_factory=list[FilePart])
    refused: FaultError | None = None
    """The journal refused an append."""
    flushing: bool = False
    abandoned: bool = False
    """The run was ended without waiting for the agent any longer."""
    detached: bool = False


class Engine:
    def __init__(
        self,
        journal: Journal,
        blobs: Blobs,
        find: Callable[[str], Fronted],
        *,
        run_timeout: float = 3600,
        cancel_grace: float = 5,
        event_limit: int = 8 * 2**20,
    ) -> None:
        self._journal = journal
        self._blobs = blobs
        self._find = find
        self._run_timeout = run_timeout
        self._grace = cancel_grace
        self._event_limit = event_limit
        self._slots: dict[str, _Slots] = {}
        self._pumps: dict[str, _Pump] = {}
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

    def offer_at(self, owner: str, thread_id: str, agent: str, seconds: float) -> None:
        """The same, later."""

        def due() -> None:
            self._timers.discard(timer)
            self.offer(owner, thread_id, agent)

        timer = asyncio.get_running_loop().call_later(max(0.0, seconds), due)
        self._timers.add(timer)

    async def _claim(self, owner: str, thread_id: str, agent: str) -> None:
        """With a slot in hand: start the thread's next run."""
        try:
            claimed = await self._journal.write(lambda ledger: command.start(ledger, owner, thread_id, agent))
        except BaseException:
            self.release(agent)
            raise
        if isinstance(claimed, Start):
            self.begin(claimed)
            return
        self.release(agent)
        if claimed is not None:
            self.offer(owner, thread_id, claimed)

    # Pumps

    def begin(self, start: Start, past: Sequence[Record] | None = None) -> None:
        """Run the agent; the slot is taken already. With `past`, the run's records, the upstream is re-attached to."""
        pump = _Pump(start)
        self._pumps[start.run.run_id] = pump
        self._journal.channels.get(start.pk).pinned += 1
        task = asyncio.get_running_loop().create_task(self._drive(pump, past), name=f"run {start.run.run_id}")
        pump.task = task
        task.add_done_callback(lambda _: self._finish(pump))

    def stop_run(self, run_id: str, reason: RunReason = RunReason.CALLER) -> None:
        """Cancel a running run. If its agent does not end within the grace, the run is ended without it: the slot stays
        taken until the agent really ends, and what it still says is dropped."""
        pump = self._pumps.get(run_id)
        if pump is None or pump.task is None or pump.reason is not None:
            return
        pump.reason = reason
        pump.task.cancel()
        timer = asyncio.get_running_loop().call_later(self._grace, lambda: self._abandon(pump))
        pump.task.add_done_callback(lambda _: timer.cancel())

    def forget_run(self, run_id: str) -> None:
        """The run was erased: stop the agent, there is nothing left to write to."""
        pump = self._pumps.get(run_id)
        if pump is not None and pump.task is not None:
            pump.abandoned = True
            pump.reason = RunReason.CALLER
            pump.task.cancel()

    def _abandon(self, pump: _Pump) -> None:
        if pump.task is not None and not pump.task.done() and not self._stopping:
            pump.abandoned = True
            outcome = Outcome(RunStatus.CANCELLED, pump.reason or RunReason.CALLER)
            self._tasks.spawn(self._end(pump, outcome), f"abandon {pump.start.run.run_id}")

    async def _drive(self, pump: _Pump, past: Sequence[Record] | None) -> Outcome:
        """Take the agent's events until it ends, and say how it did."""
        start = pump.start
        pump.recorder = Recorder(start.task.agent, self._event_limit)
        try:
            fronted = self._find(start.task.agent)
            if fronted.agent is None:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {fronted.info.name}: {fronted.broken}")
            async with asyncio.timeout(fronted.total_timeout or self._run_timeout):
                call = await self._invocation(start, fronted)
                events = self._events(fronted.agent, call, pump.recorder, past)
                async with aclosing(cast(Any, events)):
                    await self._take(pump, events)
        except FaultError as error:
            return Outcome(RunStatus.ERROR, RunReason.FAULT, error.fault)
        except TimeoutError as error:
            return self._timed_out(start, error)
        except asyncio.CancelledError:
            if pump.refused is not None:
                return Outcome(RunStatus.ERROR, RunReason.FAULT, pump.refused.fault)
            return Outcome(RunStatus.CANCELLED, pump.reason or RunReason.CALLER)
        except Exception as error:
            log.exception("agent %s failed in run %s", start.task.agent, start.run.run_id)
            fault = Fault(code=FaultCode.AGENT_FAILED, message=f"{type(error).__name__}: {error}")
            return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        ended = pump.recorder.ended
        if ended is None:
            return Outcome()
        return Outcome(ended.status, ended.reason, ended.fault, ended.output, ended.usage)

    def _timed_out(self, start: Start, error: TimeoutError) -> Outcome:
        if str(error):  # the agent's own
            fault = Fault(code=FaultCode.AGENT_FAILED, message=f"TimeoutError: {error}")
            return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        seconds = self._find(start.task.agent).total_timeout or self._run_timeout
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message=f"The agent did not end within {seconds:g} seconds")
        return Outcome(RunStatus.TIMEOUT, RunReason.FAULT, fault)

    def _events(
        self, agent: Agent, call: Invocation, recorder: Recorder, past: Sequence[Record] | None
    ) -> AsyncIterator[Event]:
        if past is None:
            return agent.run(call)
        recorder.replay(past)
        return unseen(cast(Reattachable, agent).reattach(call), said_by_agent(past, call.run_id))

    async def _take(self, pump: _Pump, events: AsyncIterator[Event]) -> None:
        recorder = pump.recorder
        assert recorder is not None
        async for event in events:
            if isinstance(event, PartAdded | ArtifactAdded) and isinstance(event.part, FilePart):
                event = event.model_copy(update={"part": await self._blobs.keep(event.part)})
            recorded = recorder.record(event)
            if recorded is None:
                continue
            pump.files += files_of(recorded[0])
            pump.buffer.append(recorded)
            if len(pump.buffer) >= _BATCH:
                await self._flush(pump)
            elif not pump.flushing:
                # Runs as soon as the agent waits for something: what it said before goes out together.
                pump.flushing = True
                asyncio.get_running_loop().call_soon(self._flush_soon, pump)

    def _flush_soon(self, pump: _Pump) -> None:
        pump.flushing = False
        if pump.buffer and not pump.abandoned:
            self._flush(pump)

    def _flush(self, pump: _Pump) -> Awaitable[None]:
        events, pump.buffer = pump.buffer, []
        files, pump.files = pump.files, []
        done = self._journal.write(partial(command.append, start=pump.start, events=events, files=files))
        done.add_done_callback(partial(self._flushed, pump))
        return done

    def _flushed(self, pump: _Pump, done: "asyncio.Future[None]") -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, FaultError) and pump.refused is None and pump.reason is None:
            pump.refused = error
            if pump.task is not None:
                pump.task.cancel()

    def _finish(self, pump: _Pump) -> None:
        """The agent has ended."""
        self._journal.channels.get(pump.start.pk).pinned -= 1
        del self._pumps[pump.start.run.run_id]
        agent = pump.start.task.agent
        assert pump.task is not None
        if pump.abandoned or (pump.detached and _was_cancelled(pump.task)):
            self._flush_soon(pump)
            self.release(agent)
            return
        if pump.task.cancelled():  # before it ran at all
            outcome = Outcome(RunStatus.CANCELLED, pump.reason or RunReason.CALLER)
        else:
            outcome = pump.task.result()
        self._tasks.spawn(self._end(pump, outcome, releases=agent), f"end {pump.start.run.run_id}")

    async def _end(self, pump: _Pump, outcome: Outcome, releases: str | None = None) -> None:
        start = pump.start
        closing = [*pump.buffer, *(pump.recorder.close() if pump.recorder is not None else [])]
        files = pump.files
        pump.buffer, pump.files = [], []

        try:
            following = await self._written(
                partial(command.end, start=start, outcome=outcome, closing=closing, files=files)
            )
        except FaultError:  # fenced: another attempt or an erasure came first
            following = None
        finally:
            if releases is not None:
                self.release(releases)
        if following is not None:
            self.offer(start.owner, start.thread_id, following)

    async def _written(self, write: Callable[[Any], str | None]) -> str | None:
        """Write the end of a run, again and again while the disk refuses it: a run must not stay open for ever."""
        pause = 0.1
        while True:
            try:
                return await self._journal.write(write)
            except FaultError as error:
                if error.fault.code is not FaultCode.INTERNAL or self._journal.failed is None:
                    raise
                log.error("the end of a run could not be stored, trying again in %.1f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 10)

    # What the agent is given

    async def _invocation(self, start: Start, fronted: Fronted) -> Invocation:
        task, run = start.task, start.run
        created = start.created or await self._created(start)
        past = partial(self._task_records, start)
        call = Invocation(
            owner=start.owner,
            agent=task.agent,
            thread_id=start.thread_id,
            task_id=task.task_id,
            run_id=run.run_id,
            attempt=run.attempt,
            cause=created.cause,
            messages=tuple([await self._loaded(message) for message in created.messages]),
            data=created.data,
            config=created.config,
            metadata=task.metadata,
            past=past,
        )
        if created.cause == "answer":
            fold = Fold(start.thread_id, start.owner, await past())
            raised = [asked for asked in fold.interrupts.values() if asked.action in ("answer", "decline")]
            last = raised[-1].run_id if raised else None
            call = replace(call, answers=_answers([asked for asked in raised if asked.run_id == last]))
        if run.first_seq > 3 or task.first_seq > 2:  # not the first run of a new thread
            call = replace(call, upstream=await self._upstream(start))
            if not fronted.info.remembers:
                call = replace(call, history=await self._history(start))
        return call

    async def _created(self, start: Start) -> RunCreated:
        seq = start.run.first_seq
        for record in await self._journal.page(start.pk, seq - 1, 1):
            if isinstance(record.event, RunCreated):
                return record.event
        raise FaultError(FaultCode.INTERNAL, f"Run {start.run.run_id} has no input in the log")

    async def _loaded(self, message: Message) -> Message:
        if not any(isinstance(part, FilePart) and part.blob for part in message.parts):
            return message
        parts = [await self._blobs.load(part) if isinstance(part, FilePart) else part for part in message.parts]
        return message.model_copy(update={"parts": tuple(parts)})

    async def _task_records(self, start: Start) -> Sequence[Record]:
        records = await self._span(start.pk, start.task.first_seq - 1)
        return [record for record in records if record.task_id == start.task.task_id]

    async def _span(self, pk: int, after: int, until: int | None = None) -> list[Record]:
        records: list[Record] = []
        while page := await self._journal.page(pk, after, 2048, until):
            records += page
            after = page[-1].seq
        return records

    async def _history(self, start: Start) -> tuple[Message, ...]:
        """What was said on the thread before this run."""
        fold = Fold(start.thread_id, start.owner, await self._span(start.pk, 0, start.run.first_seq - 1))
        return tuple(message for message in fold.messages() if message.phase == "answer")

    async def _upstream(self, start: Start) -> dict[str, str]:
        """The upstream's ids: of the thread from the agent's last run on it, of the task from the task's last run."""
        runs = await self._journal.query(partial(command.bound_runs, pk=start.pk, agent=start.task.agent))
        ids: dict[str, str] = {}
        for run in runs:
            thread_wide = run.task_id != start.task.task_id
            ids |= {k: v for k, v in run.upstream.items() if not (thread_wide and k in ("task", "run"))}
        return ids

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
        """Continue a run that was active when the gateway ended, or end it with a fault that says why it cannot go on."""
        records = [r for r in await self._span(lost.pk, lost.run.first_seq - 1) if r.run_id == lost.run.run_id]
        recorder = Recorder(lost.task.agent, self._event_limit)
        recorder.replay(records)
        fronted: Fronted | None
        try:
            fronted = self._find(lost.task.agent)
        except FaultError:
            fronted = None
        cancelling = lost.task.state is TaskState.CANCELLING
        if fronted is not None and fronted.agent is not None and not cancelling:
            if lost.run.upstream.get("run") and isinstance(fronted.agent, Reattachable):
                self._resume(await self._journal.write(partial(command.restart, lost=lost)), records)
                return
            if fronted.idempotent:
                closing = recorder.close()
                self._resume(await self._journal.write(partial(command.restart, lost=lost, closing=closing)), None)
                return
        fault = Fault(
            code=FaultCode.GATEWAY_RESTARTED,
            message="The gateway stopped while the agent was at work, and the agent can neither be asked for the rest nor be "
            "started again safely. Send the request again, or declare the agent idempotent.",
        )
        outcome = Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        closing = recorder.close()
        following = await self._journal.write(lambda ledger: command.end(ledger, lost, outcome, closing))
        if following is not None:
            self.offer(lost.owner, lost.thread_id, following)

    def _resume(self, start: Start, past: Sequence[Record] | None) -> None:
        self._slots_of(start.task.agent).used += 1
        self.begin(start, past)


def _was_cancelled(task: "asyncio.Task[Outcome]") -> bool:
    return task.cancelled() or task.result().status is RunStatus.CANCELLED


def _answers(asked: Sequence[Interrupt]) -> tuple[InterruptAnswered, ...]:
    return tuple(
        InterruptAnswered(
            interrupt_id=question.interrupt_id,
            action="decline" if question.action == "decline" else "answer",
            value=question.answer,
        )
        for question in asked
    )
