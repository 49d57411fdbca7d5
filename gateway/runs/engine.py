"""Run engine: starts runs as there are slots for them (`slots`), has a pump carry what each agent says into the log
(`pump`), and ends them: done, failed, cancelled, timed out, or left to the next start of the gateway.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

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

_AWAY: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT})
"""Faults of a server that may answer later."""
_FIRST_PAUSE: Final = 0.5
_LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries to reach such a server: the pause doubles each time. Chosen, not measured."""
_WITHDRAWING: Final = 3600.0
"""Seconds for which a run that has ended here is tried to be cancelled on its server. Chosen, not measured."""
_ALONE: Final = (5.0, 60.0)
"""Seconds that a run which may have ended its process has for itself when it starts the second time, and the third.
Chosen: long enough for a crash that comes at once, and short enough for a hundred runs."""


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
        attempts: int = 3,
        patience: float = 60,
    ) -> None:
        """`attempts` and `patience` = `limits.attempts` and `recovery.patience` of the settings, in seconds."""
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
        self._attempts = attempts
        self._patience = patience
        self.slots = Slots(find, self._start_next)
        self._pumps: dict[RunKey, Pump] = {}
        self._at_work: dict[int, Pump] = {}
        """By thread: at most one run of it is active."""
        self._ending: set[RunKey] = set()
        """Runs whose ends are on their way into the journal."""
        self._tasks = Tasks()
        self._suspects: dict[RunKey, tuple[Start, str | None]] = {}
        """Lost runs that may have ended their process, each with the name of its node, until their turn comes."""
        self._recoveries = Tasks()
        self._withdrawals = Tasks()
        """Cancels of runs on servers that may be away for long."""
        self._draining = self._stopping = False

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
        pump.channel.pin()
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
        is_known = (pk, run_id) in self._ending or (pk, run_id) in self._suspects
        return is_known or (pump is not None and not pump.detached)

    def _abandon(self, pump: Pump, outcome: Outcome) -> None:
        if pump.task is not None and not (pump.task.done() or pump.abandoned or self._stopping):
            pump.abandoned = pump.ended = True
            self._tasks.spawn(self._end(pump, outcome), f"abandon {pump.start.run.run_id}")

    async def _drive(self, pump: Pump, past: Past | None) -> Outcome:
        """Take the agent's events until it ends, and return how it did."""
        start = pump.start
        pump.attempt = self._make_attempt(start, past)
        try:
            registered = await (self._take_events(pump, None) if past is None else self._take_up(pump, past))
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
        ended = pump.attempt.run_end
        if ended is None:
            return Outcome()
        if (
            ended.status is RunStatus.SUCCESS
            and (wrong := await schema_error(registered.info, ended.output)) is not None
        ):
            return Outcome(RunStatus.ERROR, RunReason.FAULT, wrong)
        return Outcome(ended.status, ended.reason, ended.fault, ended.output, ended.usage)

    def _make_attempt(self, start: Start, past: Past | None) -> Attempt:
        return Attempt(start, self._event_limit, self._output_limit, past)

    async def _take_events(self, pump: Pump, past: Past | None) -> RegisteredAgent:
        """Run the agent, or attach to its server again, and store what it says. Raises
        agent_unreachable, gateway_restarted, and what the agent does."""
        start = pump.start
        registered = await self._reach(start.task.agent)
        if registered.agent is None:
            raise registered.refuse(start.run.run_id)
        if past is not None:
            attaches = past.reattached and isinstance(registered.agent, Reattachable)
            if past.reattached and not (attaches or registered.idempotent):
                raise FaultError(FaultCode.GATEWAY_RESTARTED, _restart_message())
            past = Past(past.records, reattached=attaches, stateful=registered.info.stateful)
        attempt = pump.attempt = self._make_attempt(start, past)
        if not registered.info.stateful:  # one with a state of its own may keep what it said before it is in the log
            pump.window = self._window
        if pump.timer is None:
            seconds = registered.timeout.total or self._run_timeout
            pump.timer = asyncio.get_running_loop().call_later(seconds, self._expire, pump, seconds)
        call = await self._invocations.make(start, registered.info)
        if past is not None and past.reattached:
            events = cast("Reattachable", registered.agent).reattach(call)
        else:
            events = registered.agent.run(call)
        try:
            await pump.take(attempt, events)
        finally:
            await close_events(events, detach=pump.detached)
        return registered

    async def _take_up(self, pump: Pump, past: Past) -> RegisteredAgent:
        """Continue a run that another process began, and store what its agent says.

        If the server of the agent does not answer, try again for `recovery.patience`: it may be starting, too. Raises
        the same as `_take_events`.
        """
        loop = asyncio.get_running_loop()
        pause, until = _FIRST_PAUSE, loop.time() + self._patience
        while True:
            try:
                return await self._take_events(pump, past)
            except FaultError as error:
                if error.fault.code not in _AWAY or not pump.is_silent:
                    raise
                if loop.time() + pause > until:
                    self._withdrawals.spawn(self._withdraw(pump.start), f"withdraw {pump.start.run.run_id}")
                    raise
                log.info("run %s waits for the server of its agent: %s", pump.start.run.run_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

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
        pump.channel.unpin()
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
        """Start no more runs, and wait until no run is running and all ends are stored."""
        self._draining = True
        self.slots.close()
        await self._recoveries.stop()
        while running := [*(pump.task for pump in self.pumps() if pump.task is not None), *self._tasks]:
            await asyncio.wait(running)

    async def stop(self, seconds: float = STOPPING) -> None:
        """Release every run, and leave it to the next start. Waits for the agents and the journal for at most
        `seconds`."""
        self._draining = self._stopping = True
        self.slots.close()
        await self._recoveries.stop(seconds / 10)
        await self._withdrawals.stop(seconds / 10)
        until = asyncio.get_running_loop().time() + seconds
        pumps = list(self._pumps.values())
        for pump in pumps:
            pump.detached = True
            if pump.task is not None:
                pump.task.cancel(DETACH)
        running = [pump.task for pump in pumps if pump.task is not None]
        if pumps:
            done = self._journal.write(lifecycle.release, [pump.start for pump in pumps])
            done.add_done_callback(_note_release)
        if running:
            await asyncio.wait(running, timeout=min(self._grace, seconds / 2))
            await asyncio.sleep(0)  # their ends are queued by callbacks
        await self._tasks.drain(min(self._grace, (until - asyncio.get_running_loop().time()) * 0.8))
        for pump in pumps:
            pump.give_up_storing()
        await self._tasks.stop(max(0.1, until - asyncio.get_running_loop().time()))

    async def recover(self, lost: Start, node: str | None = None) -> None:
        """Continue a run that was active when the gateway ended, or the `node` of it that had it; or end it with a
        fault that says why it cannot. A run that may have ended the process waits for `recover_suspects`. Raises
        conflict where the run has ended, or is another node's by now."""
        if self._is_suspect(lost):
            self._suspects.setdefault((lost.pk, lost.run.run_id), (lost, node))
            return
        await self._recover_now(lost, node)

    def _is_suspect(self, lost: Start) -> bool:
        """Whether the run is to be started and may have ended the process that ran it. Of a run on a server that is
        likely only the second time."""
        registered = self._find_configured(lost)
        if registered is None or lost.task.state is TaskState.CANCELLING or lost.crashes + 1 >= self._attempts:
            return False
        if _is_bound(lost) and _may_attach(registered):
            return lost.crashes > 0
        return registered.idempotent and _may_run(registered)

    def _find_configured(self, lost: Start) -> RegisteredAgent | None:
        try:
            return self._find(lost.task.agent)
        except FaultError:  # gone from the configuration since
            return None

    def recover_suspects(self) -> None:
        """Recover the runs that may have ended the process, after all others and one after the other: so a run that
        does it again takes no other with it."""
        if self._suspects and not self._recoveries:
            self._recoveries.spawn(self._recover_in_turn(), "recovery")

    async def _recover_in_turn(self) -> None:
        while self._suspects and not self._draining:
            key = min(self._suspects, key=lambda key: self._suspects[key][0].crashes)
            lost, node = self._suspects[key]
            try:
                await _keep_trying(partial(self._recover_now, lost, node))
            except FaultError as error:
                if error.fault.code is not FaultCode.CONFLICT:  # else it has ended, or another node has it by now
                    log.warning("run %s could not be recovered: %s", lost.run.run_id, error)
            finally:
                del self._suspects[key]
            pump = self._pumps.get(key)
            if pump is not None and pump.task is not None:
                await asyncio.wait((pump.task,), timeout=_ALONE[lost.crashes > 0])

    async def _recover_now(self, lost: Start, node: str | None) -> None:
        while True:
            try:
                await self._recover(lost, node)
            except Moved:  # whoever had it was slow, and not gone: what it said until now counts
                continue
            return

    async def _recover(self, lost: Start, node: str | None) -> None:
        records, seq = await self._invocations.of_run(lost)
        registered = self._find_configured(lost)
        attaches = _is_bound(lost) and registered is not None and _may_attach(registered)
        words = _restart_message(node)
        if lost.crashes + 1 >= self._attempts:
            words = (
                f"The process of the gateway ended {lost.crashes + 1} times while it ran this, so it is not started "
                "again. If the run did not cause it, send the request again; limits.attempts says how often."
            )
        elif (
            registered is not None
            and lost.task.state is not TaskState.CANCELLING
            and (attaches or (registered.idempotent and _may_run(registered)))
        ):
            await self._resume(lost, seq, Past(records, reattached=attaches, stateful=registered.info.stateful))
            return
        outcome = Outcome(RunStatus.ERROR, RunReason.FAULT, Fault(code=FaultCode.GATEWAY_RESTARTED, message=words))
        validator = EventValidator(lost.task.agent, self._event_limit)
        validator.replay(records)
        closing = validator.close()
        # What waits behind it is not offered here: the hub offers all that waits, in the order in which it was created.
        await self._journal.write(lifecycle.end, lost, outcome, closing, seq=seq)
        if attaches:
            self._withdrawals.spawn(self._withdraw(lost), f"withdraw {lost.run.run_id}")

    async def _withdraw(self, lost: Start) -> None:
        """Cancel a run on the server of its agent, which goes on there while the run has ended here. Tried again while
        the server does not answer."""
        again = replace(lost, run=lost.run.replace(attempt=lost.run.attempt + 1))
        loop = asyncio.get_running_loop()
        pause, until = _FIRST_PAUSE, loop.time() + _WITHDRAWING
        while True:
            try:
                registered = await self._reach(lost.task.agent)
                if isinstance(registered.agent, Reattachable):
                    await self._attach_and_leave(again, registered)
                    return
                error: FaultError | TimeoutError = registered.refuse(lost.run.run_id)
            except (FaultError, TimeoutError) as raised:
                error = raised
            is_away = not isinstance(error, FaultError) or error.fault.code in _AWAY
            if not is_away or loop.time() + pause > until:
                log.warning(
                    "run %s was cancelled, but cancelling it on its agent's server failed: %s", lost.run.run_id, error
                )
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _attach_and_leave(self, start: Start, registered: RegisteredAgent) -> None:
        events = cast("Reattachable", registered.agent).reattach(await self._invocations.make(start, registered.info))
        try:
            async with asyncio.timeout(self._grace):
                await anext(events, None)
        finally:
            await close_events(events, detach=False)

    async def _resume(self, lost: Start, seq: int, past: Past) -> None:
        start = await self._journal.write(lifecycle.restart, lost, seq)
        self.slots.take(start.task.agent)
        self.begin(start, past)


def _is_bound(lost: Start) -> bool:
    """Whether the server of the agent has a name for the run, or for its task."""
    return bool(lost.run.upstream.get("run") or lost.run.upstream.get("task"))


def _may_attach(registered: RegisteredAgent) -> bool:
    """Whether the agent can be asked for the rest of a run; of one whose server does not answer now, whether it may be
    able to later."""
    return isinstance(registered.agent, Reattachable) or (registered.agent is None and registered.again is not None)


def _may_run(registered: RegisteredAgent) -> bool:
    return registered.agent is not None or registered.again is not None


def _restart_message(node: str | None = None) -> str:
    of_node = "" if node is None else f"'s node {node}"
    return (
        f"The gateway{of_node} stopped while the agent was at work, and the agent can neither be asked for "
        "the rest nor be started again safely. Send the request again, or declare the agent idempotent."
    )


def _keep_trying(act: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Read or write until the database can: a run must not stay open, or wait, for ever."""
    return keep_trying(act, Unstored, Unreachable, longest=10.0, note=_warn)


def _note_release(done: "asyncio.Future[Any]") -> None:
    """A stop that could not be noted counts as a crash of its runs."""
    if not done.cancelled() and (error := done.exception()) is not None:
        log.warning("the release of running runs was not stored: %s", error)


def _warn(error: FaultError, pause: float) -> None:
    log.error("a step of a run could not be read or stored, trying again in %.1f s: %s", pause, error)
