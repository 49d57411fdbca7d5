"""Run engine: starts runs as there are slots for them (`slots`), has a pump carry what each agent says into the log
(`pump`), and ends them: done, failed, cancelled, timed out, or left to the next start of the gateway.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from babelgate.canonical.agent import DETACH, Reattachable
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.state import RunReason, RunStatus, TaskState
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.attempt import Attempt, Entry, Past
from babelgate.gateway.runs.event_check import EventValidator
from babelgate.gateway.runs.invocation import Invocations
from babelgate.gateway.runs.lifecycle import Later, Moved, Outcome, Start
from babelgate.gateway.runs.output_schema import schema_error
from babelgate.gateway.runs.pump import Pump, RunKey, close_events
from babelgate.gateway.runs.slots import Slots
from babelgate.gateway.runs.window import Window
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.subscription import LogReader
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.unavailable import Unreachable, Unstored, keep_trying

T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger("babelgate.engine")


class Engine:
    def __init__(
        self,
        journal: Journal,
        blobs: Blobs,
        reader: LogReader,
        find: Callable[[str], RegisteredAgent],
        reach: Callable[[str], Awaitable[RegisteredAgent]],
        *,
        run_timeout: float = 3600,
        cancel_grace: float = 5,
        event_limit: int = 8 * 2**20,
        output_limit: int = 64 * 2**20,
        window: float = 0,
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
        self._window = Window(window)
        self.slots = Slots(find, self._start_next)
        self._pumps: dict[RunKey, Pump] = {}
        self._at_work: dict[int, Pump] = {}
        """By thread: at most one run of it is active."""
        self._ending: set[RunKey] = set()
        """Runs whose ends are on their way into the journal."""
        self._tasks = Tasks()
        self._stopping = False

    def _start_next(self, owner: str, thread_id: str, agent: str) -> None:
        self._tasks.spawn(self._claim(owner, thread_id, agent), f"start {thread_id}")

    async def _claim(self, owner: str, thread_id: str, agent: str) -> None:
        """With a slot in hand: start the thread's next run."""
        try:
            claimed = await self._write_until_stored(lifecycle.start, owner, thread_id, agent)
        except FaultError as error:
            log.warning("the next run of thread %s was not started: %s", thread_id, error)
            claimed = None
        except BaseException:
            self.slots.release(agent)
            raise
        if isinstance(claimed, Start):
            self.begin(claimed)
            return
        self.slots.release(agent)
        self.slots.offer_next(owner, thread_id, claimed)

    # Pumps

    @property
    def active(self) -> Sequence[Start]:
        """The runs whose agents are at work and were not given up."""
        return [pump.start for pump in self.pumps()]

    async def idle(self) -> None:
        """Until nothing is on its way into the journal but what agents say."""
        while self._tasks:
            await self._tasks.drain(60)

    def begin(self, start: Start, past: Past | None = None) -> None:
        """Run the agent; the slot is taken already. `past`, if it is to say again what it has said."""
        if self._stopping:  # the commit of its start came late: nobody would release it any more
            log.warning("run %s is left to the next start of the gateway", start.run.run_id)
            return
        pump = Pump(self._journal, self._blobs, start, self._journal.channels.get(start.pk))
        pump.channel.pinned += 1
        self._pumps[pump.key] = self._at_work[start.pk] = pump
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

    def abandon(self, pump: Pump) -> None:
        """Another node has the run by now, or its end: the agent is left alone, and what it still says goes nowhere."""
        if pump.task is not None and not (pump.abandoned or pump.task.done()):
            log.warning("run %s goes on without this node", pump.start.run.run_id)
            pump.abandoned = pump.detached = True
            pump.task.cancel(DETACH)

    def pumps(self) -> Sequence[Pump]:
        """Of the agents that are at work and were not given up."""
        return [pump for pump in self._pumps.values() if not pump.abandoned]

    def pump_on(self, pk: int) -> Pump | None:
        """The same of the thread with this key."""
        pump = self._at_work.get(pk)
        return None if pump is None or pump.abandoned else pump

    def is_attending(self, pk: int, run_id: str) -> bool:
        """Whether this node sees to a run that has begun."""
        pump = self._pumps.get((pk, run_id))
        return (pump is not None and not pump.detached) or (pk, run_id) in self._ending

    def _abandon(self, pump: Pump, outcome: Outcome) -> None:
        if pump.task is not None and not (pump.task.done() or pump.abandoned or self._stopping):
            pump.abandoned = pump.ended = True
            self._tasks.spawn(self._end(pump, outcome), f"abandon {pump.start.run.run_id}")

    async def _drive(self, pump: Pump, past: Past | None) -> Outcome:
        """Take the agent's events until it ends, and say how it did."""
        start = pump.start
        attempt = pump.attempt = Attempt(start, self._event_limit, self._output_limit, past)
        try:
            registered = await self._reach(start.task.agent)
            if registered.agent is None:
                raise FaultError(FaultCode.AGENT_UNREACHABLE, f"Agent {registered.info.name}: {registered.broken}")
            if (
                not registered.info.stateful
            ):  # one with a state of its own may keep what it said before it is in the log
                pump.window = self._window
            seconds = registered.timeout.total or self._run_timeout
            pump.timer = asyncio.get_running_loop().call_later(seconds, self._expire, pump, seconds)
            call = await self._invocations.make(start, registered.info)
            reattached = past is not None and past.reattached
            events = cast("Reattachable", registered.agent).reattach(call) if reattached else registered.agent.run(call)
            try:
                await pump.take(attempt, events)
            finally:
                await close_events(events, detach=pump.detached)
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
        if (
            ended.status is RunStatus.SUCCESS
            and (wrong := await schema_error(registered.info, ended.output)) is not None
        ):
            return Outcome(RunStatus.ERROR, RunReason.FAULT, wrong)
        return Outcome(ended.status, ended.reason, ended.fault, ended.output, ended.usage)

    def _expire(self, pump: Pump, seconds: float) -> None:
        """The run took too long: cancel it, and end it without its agent if that takes longer than the grace."""
        if pump.reason is not None or pump.task is None:
            return
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message=f"The agent did not end within {seconds:g} seconds")
        pump.expired = Outcome(RunStatus.TIMEOUT, RunReason.FAULT, fault)
        pump.task.cancel()
        pump.timer = asyncio.get_running_loop().call_later(self._grace, self._abandon, pump, pump.expired)

    def _cancel_outcome(self, pump: Pump) -> Outcome:
        """What a cancellation that came out of the agent means. Raises it again if the run is to be let go of."""
        stopped = pump.stop_outcome
        if stopped is not None:
            return stopped
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise asyncio.CancelledError
        fault = Fault(code=FaultCode.AGENT_FAILED, message="The agent awaited a task or future that was cancelled")
        return Outcome(RunStatus.ERROR, RunReason.FAULT, fault)

    def _finish(self, pump: Pump) -> None:
        """The agent has ended."""
        task, agent = pump.task, pump.start.task.agent
        assert task is not None
        pump.ended = True
        pump.channel.pinned -= 1
        if pump.timer is not None:
            pump.timer.cancel()
        if self._pumps.get(pump.key) is pump:  # else it came back, after another node had it meanwhile
            del self._pumps[pump.key]
        if self._at_work.get(pump.start.pk) is pump:
            del self._at_work[pump.start.pk]
        stopped = pump.stop_outcome
        outcome = stopped if task.cancelled() else task.result()
        if pump.detached and stopped is None and outcome is not None and outcome.status is not RunStatus.SUCCESS:
            outcome = None
        if pump.abandoned or outcome is None:  # ended before, or left to the next start
            self.slots.release(agent)
            return
        self._tasks.spawn(self._end(pump, outcome, releases=agent), f"end {pump.start.run.run_id}")

    async def _end(self, pump: Pump, outcome: Outcome, releases: str | None = None) -> None:
        start = pump.start
        later: Later | None = None
        self._ending.add(pump.key)
        try:
            rest = await pump.take_rest()
            if rest is None and outcome.status is RunStatus.SUCCESS:  # the agent ended before its words were refused
                outcome = pump.stop_outcome or outcome
            closing, files = rest or (await _keep_trying(partial(self._close_log, start)), [])
            later = await self._write_until_stored(lifecycle.end, start, outcome, closing, files)
        except FaultError as error:
            if error.fault.code is FaultCode.SHUTTING_DOWN:  # as if the agent had not ended: the next start has the run
                log.warning("run %s ended while the gateway stopped: whoever takes it up ends it", start.run.run_id)
            elif error.fault.code is not FaultCode.CONFLICT:  # the fence: an erasure or another end came first
                log.exception("the end of run %s was not stored", start.run.run_id)
        finally:
            self._ending.discard(pump.key)
            if releases is not None:
                self.slots.release(releases)
        self.slots.offer_next(start.owner, start.thread_id, later)

    async def _close_log(self, start: Start) -> list[Entry]:
        """The ends of what is open in the log."""
        validator = EventValidator(start.task.agent, self._event_limit)
        records, _ = await self._invocations.of_run(start)
        validator.replay(records)
        return validator.close()

    async def _write_until_stored(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        def write() -> Awaitable[T]:
            return self._journal.write(command, *args, **named)

        return await _keep_trying(write)

    # Stopping and coming back

    async def drain(self) -> None:
        """Wait until no run is running and all ends are stored. Nothing is started meanwhile if the slots are
        closed."""
        while running := [*(pump.task for pump in self.pumps() if pump.task is not None), *self._tasks]:
            await asyncio.wait(running)

    async def stop(self, seconds: float = STOPPING) -> None:
        """Release every run, and leave it to the next start. Waits for the agents and the journal for at most
        `seconds`."""
        self._stopping = True
        self.slots.close()
        until = asyncio.get_running_loop().time() + seconds
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.detached = True
            if pump.task is not None:
                pump.task.cancel(DETACH)
        running = [pump.task for pump in pumps if pump.task is not None]
        if running:
            await asyncio.wait(running, timeout=min(self._grace, seconds / 2))
            await asyncio.sleep(0)  # their ends are queued by callbacks
        await self._tasks.drain(min(self._grace, (until - asyncio.get_running_loop().time()) * 0.8))
        for pump in pumps:
            pump.give_up_storing()
        await self._tasks.stop(max(0.1, until - asyncio.get_running_loop().time()))

    async def recover(self, lost: Start, node: str | None = None) -> None:
        """Continue a run that was active when the gateway ended, or the `node` of it that had it; or end it with a
        fault that says why it cannot. Raises conflict where the run has ended, or is another node's by now."""
        while True:
            try:
                await self._recover(lost, node)
            except Moved:  # whoever had it was slow, and not gone: what it said until now counts
                continue
            return

    async def _recover(self, lost: Start, node: str | None) -> None:
        records, seq = await self._invocations.of_run(lost)
        registered: RegisteredAgent | None
        attaches = False
        try:
            registered = self._find(lost.task.agent)
        except FaultError:
            registered = None
        cancelling = lost.task.state is TaskState.CANCELLING
        if registered is not None and registered.agent is not None:
            bound = lost.run.upstream
            attaches = bool(bound.get("run") or bound.get("task")) and isinstance(registered.agent, Reattachable)
            if attaches and not cancelling:
                await self._resume(lost, seq, Past(records, reattached=True, stateful=registered.info.stateful))
                return
            elif registered.idempotent and not cancelling:
                await self._resume(lost, seq, Past(records, reattached=False, stateful=registered.info.stateful))
                return
        of_node = "" if node is None else f"'s node {node}"
        fault = Fault(
            code=FaultCode.GATEWAY_RESTARTED,
            message=f"The gateway{of_node} stopped while the agent was at work, and the agent can neither be asked for "
            "the rest nor be started again safely. Send the request again, or declare the agent idempotent.",
        )
        outcome = Outcome(RunStatus.ERROR, RunReason.FAULT, fault)
        validator = EventValidator(lost.task.agent, self._event_limit)
        validator.replay(records)
        closing = validator.close()
        # What waits behind it is not offered here: the hub offers all that waits, in the order in which it was created.
        await self._journal.write(lifecycle.end, lost, outcome, closing, seq=seq)
        if registered is not None and attaches:
            self._tasks.spawn(self._withdraw(lost, registered), f"withdraw {lost.run.run_id}")

    async def _withdraw(self, lost: Start, registered: RegisteredAgent) -> None:
        """The upstream of a run that was being cancelled may not have heard of it: attach to it again, and leave."""
        again = replace(lost, run=lost.run.replace(attempt=lost.run.attempt + 1))
        events = cast("Reattachable", registered.agent).reattach(await self._invocations.make(again, registered.info))
        try:
            async with asyncio.timeout(self._grace):
                await anext(events, None)
        except (FaultError, TimeoutError) as error:
            log.warning(
                "run %s was cancelled, but cancelling it on its agent's server failed: %s", lost.run.run_id, error
            )
        finally:
            await close_events(events, detach=False)

    async def _resume(self, lost: Start, seq: int, past: Past) -> None:
        start = await self._journal.write(lifecycle.restart, lost, seq)
        self.slots.take(start.task.agent)
        self.begin(start, past)


def _keep_trying(act: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Read or write until the database can: a run must not stay open, or wait, for ever."""
    return keep_trying(act, Unstored, Unreachable, longest=10.0, note=_warn)


def _warn(error: FaultError, pause: float) -> None:
    log.error("a step of a run could not be read or stored, trying again in %.1f s: %s", pause, error)
