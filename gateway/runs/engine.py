"""Run engine: starts runs when they get a slot (`slots`), and stores the events of their agents by pumps (`pump`).

A run ends as completed, failed, cancelled or timed out. If the gateway stops first, its next start continues the run.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from babelgate.adapters.kit.client.authorization import AuthorizationNeeded
from babelgate.adapters.kit.client.exchanges import RECORDER
from babelgate.canonical.agent import DETACH, Agent, Reattachable
from babelgate.canonical.event import InterruptRaised
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.principal import has_credential
from babelgate.canonical.state import ERRED, RunReason, RunStatus, TaskState
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.ids import new_id
from babelgate.gateway.observe import NO_OBSERVER, REQUEST, RUN, RunContext
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.run_caller import RUN_CALLER
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.attempt import AttemptFilter, Entry, Past
from babelgate.gateway.runs.attempt_trace import trace_attempt
from babelgate.gateway.runs.budgets import BudgetReached, Budgets, RunAccount, trace_id_of
from babelgate.gateway.runs.consents import Consents, check_agreed
from babelgate.gateway.runs.event_check import EventValidator
from babelgate.gateway.runs.invocation import Invocations, Origin, hide_gateway_questions
from babelgate.gateway.runs.lifecycle import Later, Moved, RunOutcome, StartedRun
from babelgate.gateway.runs.output_schema import schema_error
from babelgate.gateway.runs.pump import Pump, RunKey, close_events
from babelgate.gateway.runs.rates import RunCaller
from babelgate.gateway.runs.rules import RunRules
from babelgate.gateway.runs.run_callers import RunCallers
from babelgate.gateway.runs.run_exchanges import RunExchanges
from babelgate.gateway.runs.run_reports import RunReports
from babelgate.gateway.runs.slots import Slots
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.spend import read_spend
from babelgate.gateway.storage.subscription import LogReader
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.unavailable import Unreachable, Unstored, keep_trying

T = TypeVar("T")
P = ParamSpec("P")
log = logging.getLogger("babelgate.engine")

_RETRYABLE: Final = frozenset({FaultCode.AGENT_UNREACHABLE, FaultCode.AGENT_TIMEOUT, FaultCode.LIMITED})
"""Codes of the faults after which the gateway calls the agent's server again, because it may answer later."""
_MIN_RETRY_DELAY: Final = 0.5
"""First pause before the gateway calls an unreachable agent's server again, in seconds. It doubles each time. Chosen,
not measured."""
_MAX_RETRY_DELAY: Final = 10.0
"""Longest pause before the gateway calls an unreachable agent's server again, in seconds. Chosen, not measured."""
_WITHDRAW_TIMEOUT: Final = 3600.0
"""Seconds during which the cancel of an ended run is retried on its agent's server. Chosen, not measured."""
_SUSPECT_DELAYS: Final = (5.0, 60.0)
"""Seconds for which a run that may have crashed the gateway is observed before the next such run starts: after its
first crash, and after its second.

Chosen: long enough to notice an immediate crash, and short enough for a hundred runs.
"""


class Engine:
    """Run engine of one gateway process: starts, stops and recovers runs, and stores their ends."""

    def __init__(
        self,
        journal: Journal,
        blobs: Blobs,
        reader: LogReader,
        find: Callable[[str], RegisteredAgent],
        reach: Callable[[str], Awaitable[RegisteredAgent]],
        rules: Callable[[], RunRules],
        reports: RunReports | None = None,
        budgets: Budgets | None = None,
        consents: Consents | None = None,
    ) -> None:
        """Create the engine.

        `find` returns an agent by its name, and `reach` reconnects to it first if it is broken. `rules` returns the
        rules of the current generation. `reports` receives what happens to runs, unless it is None. `budgets` are
        checked before an agent begins, and charged with its usage; without them nothing is counted. `consents` asks
        users for authorizations; None if the hub does not.
        """
        self._journal = journal
        self._blobs = blobs
        self._invocations = Invocations(journal, blobs, reader)
        self._find = find
        self._reach = reach
        self._rules = rules
        self._reports = reports or RunReports(NO_OBSERVER)
        self._budgets = budgets
        self._consents = consents
        self.callers = RunCallers() if consents is None else RunCallers(store=consents.store)
        """Callers' tokens, for runs whose agents are called with the caller's identity."""
        self.slots = Slots(find, self._start_next, find_owner_limit=lambda: rules().owner_concurrency)
        self.exchanges = RunExchanges()
        """Recorded HTTP exchanges of runs with the servers of their agents."""
        self._pumps: dict[RunKey, Pump] = {}
        self._by_thread: dict[int, Pump] = {}
        """Pumps by thread key: at most one run of a thread is active."""
        self._ending: set[RunKey] = set()
        """Runs whose ends are being written to the journal."""
        self._tasks = Tasks()
        self._suspects: dict[RunKey, tuple[StartedRun, str | None]] = {}
        """Lost runs that may have crashed their process, each with the name of its node, until they are recovered."""
        self._recoveries = Tasks()
        self._withdrawals = Tasks()
        """Pending cancels of ended runs on their agents' servers, which may be unreachable for a long time."""
        self._draining = self._stopping = False

    def _start_next(self, owner: str, thread_id: str, agent: str) -> None:
        self._tasks.spawn(self._claim(owner, thread_id, agent), f"start {thread_id}")

    async def _claim(self, owner: str, thread_id: str, agent: str) -> None:
        """Start a thread's next run if `agent` executes it, in a slot that was already taken. Otherwise release the
        slot, and queue the thread for the agent that executes its next run."""
        REQUEST.set(None)  # that of the run which has released the slot
        try:
            claimed = await self._write_until_stored(lifecycle.start, owner, thread_id, agent)
        except FaultError as error:
            log.warning("next run of a thread not started thread=%s error=%s", thread_id, error)
            claimed = None
        except BaseException:
            self.slots.release(agent, owner)
            raise
        if isinstance(claimed, StartedRun):
            self.begin(claimed)
            return
        self.slots.release(agent, owner)
        self.slots.offer_next(owner, thread_id, claimed)

    # Pumps

    @property
    def active(self) -> Sequence[StartedRun]:
        """Active runs of this node. A run that has ended or continues elsewhere is left out, even if its agent still
        runs here."""
        return [pump.start for pump in self.pumps()]

    async def idle(self) -> None:
        """Wait until all pending run starts and ends are committed."""
        while self._tasks:
            await self._tasks.drain(60)

    def begin(self, start: StartedRun, past: Past | None = None) -> None:
        """Run the agent of a started run, in a slot that was already taken.

        `past` holds the earlier events of a recovered run, whose agent will repeat them; None for a new run.
        """
        if self._stopping:  # its start was committed late: `stop` would no longer release it
            log.warning(
                "run not begun during shutdown: the next start of the gateway recovers it run=%s", start.run.run_id
            )
            return
        self._reports.begin(start)
        pump = Pump(self._journal, self._blobs, start, self._journal.channels.get(start.pk), self._rules())
        pump.channel.pinned += 1
        self._pumps[pump.key] = self._by_thread[start.pk] = pump
        task = asyncio.get_running_loop().create_task(self._drive(pump, past), name=f"run {start.run.run_id}")
        pump.task = task
        task.add_done_callback(lambda _: self._finish(pump))

    def stop_run(self, pk: int, run_id: str, reason: RunReason = RunReason.CALLER) -> None:
        """Cancel a running run of the thread with the key `pk`.

        If its agent does not end within the grace period, the run ends without it. The slot stays taken until the agent
        has ended, and later events of the agent are dropped.
        """
        pump = self._pumps.get((pk, run_id))
        if pump is None or pump.task is None or pump.reason is not None:
            return
        pump.reason = reason
        pump.task.cancel()
        if pump.timer is not None:
            pump.timer.cancel()
        outcome = RunOutcome(RunStatus.CANCELLED, reason)
        pump.timer = asyncio.get_running_loop().call_later(pump.rules.cancel_grace, self._abandon, pump, outcome)

    def forget_run(self, pk: int, run_id: str) -> None:
        """Stop the agent of a run that was erased with its thread, without storing an end."""
        self._reports.forget(pk, run_id)
        pump = self._pumps.get((pk, run_id))
        if pump is not None and pump.task is not None:
            pump.abandoned = True
            pump.reason = RunReason.CALLER
            pump.task.cancel()

    def abandon(self, pump: Pump) -> None:
        """Detach from a run that another node has taken over or ended. The agent's later events are dropped."""
        if pump.task is not None and not (pump.abandoned or pump.task.done()):
            log.warning("run detached: another node took it over or ended it run=%s", pump.start.run.run_id)
            pump.abandoned = pump.detached = True
            self._reports.forget(*pump.key)
            pump.task.cancel(DETACH)

    def pumps(self) -> Sequence[Pump]:
        """Return the pumps of the active runs.

        Abandoned pumps are left out: the run has ended, was erased or was taken over by another node, but its agent is
        still running here.
        """
        return [pump for pump in self._pumps.values() if not pump.abandoned]

    def pump_on(self, pk: int) -> Pump | None:
        """Return the pump of the active run on the thread with the key `pk`. Return None if there is no active run, or
        if its pump was abandoned."""
        pump = self._by_thread.get(pk)
        return None if pump is None or pump.abandoned else pump

    def find_run(self, task: "asyncio.Task[Any]") -> RunContext | None:
        """Return the context of the run whose agent runs in an asyncio task, or None if the task runs no agent. It is
        called by the thread that watches the event loop."""
        pump = next((pump for pump in list(self._pumps.values()) if pump.task is task), None)
        return None if pump is None else _context_of(pump.start)

    def is_attending(self, pk: int, run_id: str) -> bool:
        """Return True if this node executes the run, is storing its end, or will recover it."""
        pump = self._pumps.get((pk, run_id))
        is_known = (pk, run_id) in self._ending or (pk, run_id) in self._suspects
        return is_known or (pump is not None and not pump.detached)

    def _abandon(self, pump: Pump, outcome: RunOutcome) -> None:
        if pump.task is not None and not (pump.task.done() or pump.abandoned or self._stopping):
            pump.abandoned = pump.ended = True
            self._tasks.spawn(self._end(pump, outcome), f"abandon {pump.start.run.run_id}")

    async def _drive(self, pump: Pump, past: Past | None) -> RunOutcome:
        """Execute a run as `_run_agent` does, with its caller's token and the recorder of its exchanges in context
        variables. Return the outcome of the run."""
        start, wire, has_failed = pump.start, pump.rules.wire, False
        RUN_CALLER.set(self.callers.find(start))
        RECORDER.set(self.exchanges.open(start, wire))
        try:
            outcome = await self._run_agent(pump, past)
            has_failed = outcome.status in ERRED
        finally:
            self.exchanges.close(start, wire, has_failed=has_failed)
        return outcome

    async def _run_agent(self, pump: Pump, past: Past | None) -> RunOutcome:
        """Store the agent's events until it ends, and return the outcome of the run. `past` holds the earlier events of
        a recovered run; None for a new run."""
        start = pump.start
        RUN.set(_context_of(start))
        pump.attempt = _make_attempt(pump, past)
        try:
            registered = await (self._take_events(pump, None) if past is None else self._take_up(pump, past))
        except BudgetReached as reached:
            pump.account = reached.account
            return RunOutcome(question=reached.question)
        except FaultError as error:
            return pump.expired or RunOutcome(RunStatus.ERROR, RunReason.FAULT, error.fault)
        except AuthorizationNeeded as needed:
            return await self._ask_user(pump, needed.scopes)
        except asyncio.CancelledError:
            return self._cancel_outcome(pump)
        except (Exception, SystemExit) as error:
            if pump.expired is not None:
                return pump.expired
            log.exception("agent failed agent=%s run=%s", start.task.agent, start.run.run_id)
            message = f"{type(error).__name__}: {error}".encode("utf-8", "replace").decode()
            return RunOutcome(RunStatus.ERROR, RunReason.FAULT, Fault(code=FaultCode.AGENT_FAILED, message=message))
        ended = pump.attempt.run_end
        if ended is None:
            return RunOutcome()
        if (
            ended.status is RunStatus.SUCCESS
            and (fault := await schema_error(registered.info, ended.output)) is not None
        ):
            return RunOutcome(RunStatus.ERROR, RunReason.FAULT, fault)
        return RunOutcome(ended.status, ended.reason, ended.fault, ended.output, ended.usage)

    async def _ask_user(self, pump: Pump, scopes: Sequence[str]) -> RunOutcome:
        """Make the question by which the gateway asks the user for an authorization, and return the outcome that pauses
        the run with it. The outcome is a failure if the user cannot be asked.

        `scopes` are those that the agent's server requires.
        """
        start = pump.start
        try:
            settings = self._find(start.task.agent).settings
            if self._consents is None or settings is None or not has_credential(start.run.subject):
                words = f"Agent {start.task.agent} needs an authorization by its user, and this run has no known user."
                raise FaultError(FaultCode.FORBIDDEN, words)
            if pump.has_output and not isinstance(pump.agent, Reattachable):
                words = "The authorization of the run has expired, and the rest cannot be read from the agent."
                raise FaultError(FaultCode.FORBIDDEN, words)
            question = await self._consents.ask(start, settings, scopes)
        except FaultError as error:
            return RunOutcome(RunStatus.ERROR, RunReason.FAULT, error.fault)
        return RunOutcome(question=_with_message_id(question))

    async def _take_events(self, pump: Pump, past: Past | None) -> RegisteredAgent:
        """Run the agent, or reattach to its server, and store its events. `past` holds the earlier events of a
        recovered run; None for a new run.

        Raises agent_unreachable, gateway_restarted if the run cannot be continued, and the exceptions of the agent.
        """
        start = pump.start
        origin = await self._find_origin(start)
        if self._budgets is not None and pump.account is None:
            pump.account = await self._admit(self._budgets, start, origin, is_new=past is None)
        registered = await self._reach(start.task.agent)
        if registered.agent is None:
            raise registered.refuse(start.run.run_id)
        pump.agent = registered.agent
        if past is not None and past.reattached and isinstance(registered.agent, Reattachable):
            origin = None  # the agent's server has this run, with its input
        if origin is not None and origin.has_output:
            records, _ = await self._invocations.of_run(origin.start)
            past = Past(hide_gateway_questions(records), reattached=True, stateful=registered.info.stateful)
        if past is not None:
            attaches = past.reattached and isinstance(registered.agent, Reattachable)
            if past.reattached and not (attaches or registered.idempotent):
                raise FaultError(FaultCode.GATEWAY_RESTARTED, _restart_message())
            past = Past(past.records, reattached=attaches, stateful=registered.info.stateful)
        attempt = pump.attempt = _make_attempt(pump, past)
        if not registered.info.stateful:  # a stateful agent may save state before its events are in the log
            pump.window = pump.rules.window
        if pump.timer is None:
            seconds = registered.timeout.total or pump.rules.timeout
            pump.timer = asyncio.get_running_loop().call_later(seconds, self._expire, pump, seconds)
        call = await self._invocations.make(start if origin is None else origin.start, registered.info)
        if origin is not None and not origin.has_output:  # otherwise the server knows the earlier run
            call = dataclasses.replace(call, run_id=start.run.run_id, attempt=start.run.attempt)
        with trace_attempt(self._reports.traces, attempt, call, registered.info):
            if past is not None and past.reattached:
                events = cast("Reattachable", registered.agent).reattach(call)
            else:
                events = registered.agent.run(call)
            try:
                await pump.take(attempt, events)
            finally:
                await close_events(events, detach=pump.detached)
        return registered

    async def _find_origin(self, start: StartedRun) -> Origin | None:
        """Return the run that `start` continues after an authorization by the user, or None if it continues no other
        run. Raises not_found, and forbidden or expired if the user has not agreed."""
        settings = self._find(start.task.agent).settings
        if settings is None or settings.consent is None or start.run.cause != "answer":
            return None
        origin = await self._invocations.find_origin(start)
        if origin is not None:
            check_agreed(origin, start.task.agent)
        return origin

    async def _admit(
        self, budgets: Budgets, start: StartedRun, origin: Origin | None, *, is_new: bool
    ) -> RunAccount | None:
        """Return the budgets that count a run, or None if none does.

        A run that is not recovered (`is_new`) must be within its budgets, unless an operator has approved it or it
        continues another run (`origin`). Raises limited, BudgetReached.
        """
        if not budgets.can_count(start.task.agent):
            return None
        first = start if origin is None else origin.start
        created = first.created or await self._invocations.read_input(first)
        is_resumed = bool(created.resumes) or origin is not None
        created = await self._invocations.find_input(first, created)
        caller = RunCaller(created.subject, start.owner)
        account = budgets.open_account(caller, start.task.agent, trace_id_of(created.trace))
        # A run that did not wait was checked in the transaction that has started it, except for budgets that pause.
        has_waited = start.created is None
        if account is not None and is_new and not is_resumed and (has_waited or account.can_pause):
            thread_id = start.thread_id
            rows = await self._journal.query(read_spend, account.keys(thread_id))
            question = account.decide(rows, thread_id, start.run.run_id)
            if question is not None:
                raise BudgetReached(_with_message_id(question), account)
        if account is not None:
            account.is_resumed, account.may_be_charged = is_resumed, not is_new
        return account

    async def _take_up(self, pump: Pump, past: Past) -> RegisteredAgent:
        """Continue a run that another process has started, and store its agent's events.

        If the server of the agent does not answer, retry for `recovery.patience`: it may be starting, too. Raises
        the same faults as `_take_events`.
        """
        loop = asyncio.get_running_loop()
        pause, until = _MIN_RETRY_DELAY, loop.time() + pump.rules.patience
        while True:
            try:
                return await self._take_events(pump, past)
            except FaultError as error:
                if error.fault.code not in _RETRYABLE or not pump.is_silent:
                    raise
                if loop.time() + pause > until:
                    self._withdrawals.spawn(self._withdraw(pump.start), f"withdraw {pump.start.run.run_id}")
                    raise
                log.info("run waits for the server of its agent run=%s reason=%s", pump.start.run.run_id, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_RETRY_DELAY)

    def _expire(self, pump: Pump, seconds: float) -> None:
        """Cancel a run that has exceeded its time limit of `seconds`."""
        fault = Fault(code=FaultCode.AGENT_TIMEOUT, message=f"The agent did not end within {seconds:g} seconds")
        self._cut_off(pump, RunOutcome(RunStatus.TIMEOUT, RunReason.FAULT, fault))

    def _cut_off(self, pump: Pump, outcome: RunOutcome) -> None:
        """Cancel the agent of a run that is to end with `outcome`, unless the run is already being cancelled.

        If the agent does not end within the grace period, the run ends without it.
        """
        if pump.reason is not None or pump.expired is not None or pump.task is None:
            return
        pump.expired = outcome
        if pump.timer is not None:
            pump.timer.cancel()
        pump.task.cancel()
        pump.timer = asyncio.get_running_loop().call_later(pump.rules.cancel_grace, self._abandon, pump, pump.expired)

    async def end_runs_of(self, agents: Sequence[Agent], drain: float) -> None:
        """End the runs of agents that a reload removed `drain` seconds ago, before these agents are closed."""
        closing = {id(agent) for agent in agents}
        pumps = [pump for pump in self.pumps() if id(pump.agent) in closing and pump.task is not None]
        text = f"The agent was removed from the configuration, and the run did not end within {drain:g} seconds"
        fault = Fault(code=FaultCode.AGENT_UNREACHABLE, message=text)
        for pump in pumps:
            self._cut_off(pump, RunOutcome(RunStatus.ERROR, RunReason.FAULT, fault))
        if running := [pump.task for pump in pumps if pump.task is not None]:
            await asyncio.wait(running, timeout=self._rules().cancel_grace)

    def _cancel_outcome(self, pump: Pump) -> RunOutcome:
        """Return the outcome of a run whose agent raised `CancelledError`.

        Raises CancelledError again if the run was detached, so that no end is stored.
        """
        stopped = pump.stop_outcome
        if stopped is not None:
            return stopped
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise asyncio.CancelledError
        fault = Fault(code=FaultCode.AGENT_FAILED, message="The agent awaited a task or future that was cancelled")
        return RunOutcome(RunStatus.ERROR, RunReason.FAULT, fault)

    def _finish(self, pump: Pump) -> None:
        """Store the end of a run whose agent has ended, and release its slot."""
        task, agent = pump.task, pump.start.task.agent
        assert task is not None
        pump.ended = True
        self.callers.forget(*pump.key)
        pump.channel.pinned -= 1
        if pump.timer is not None:
            pump.timer.cancel()
        if self._pumps.get(pump.key) is pump:  # else the run came back from another node, and has a new pump
            del self._pumps[pump.key]
        if self._by_thread.get(pump.start.pk) is pump:
            del self._by_thread[pump.start.pk]
        stopped = pump.stop_outcome
        outcome = stopped if task.cancelled() else task.result()
        if pump.detached and stopped is None and outcome is not None and outcome.status is not RunStatus.SUCCESS:
            outcome = None
        if pump.abandoned or outcome is None:  # already ended, or left to the next start
            self.slots.release(agent, pump.start.owner)
            return
        self._tasks.spawn(self._end(pump, outcome, releases=agent), f"end {pump.start.run.run_id}")

    async def _end(self, pump: Pump, outcome: RunOutcome, releases: str | None = None) -> None:
        """Store the remaining events and the end of a run, and queue its thread's next run.

        `releases` is the agent whose slot is released afterwards; None if the slot stays taken, because the agent is
        still running.
        """
        start = pump.start
        later: Later | None = None
        self._ending.add(pump.key)
        try:
            rest = await pump.take_rest()
            if rest is None and outcome.status is RunStatus.SUCCESS:  # the agent ended before its events were refused
                outcome = pump.stop_outcome or outcome
            closing, files = rest or (await _keep_trying(partial(self._close_log, start)), [])
            later = await self._write_until_stored(lifecycle.end, start, outcome, closing, files, account=pump.account)
            if pump.account is not None and outcome.question is None:
                pump.account.note_cost(outcome.usage or {})
            if outcome.fault is not None:
                self._reports.note_fault(start.task.agent, outcome.fault)
        except FaultError as error:
            if error.fault.code is FaultCode.SHUTTING_DOWN:  # the run stays open: the next start ends it
                log.warning(
                    "end of run not stored during shutdown: the next start or node stores it run=%s", start.run.run_id
                )
            elif error.fault.code is not FaultCode.CONFLICT:  # conflict: an erasure or another end came first
                log.exception("end of run not stored run=%s", start.run.run_id)
        finally:
            self._ending.discard(pump.key)
            if releases is not None:
                self.slots.release(releases, start.owner)
        self.slots.offer_next(start.owner, start.thread_id, later)

    async def _close_log(self, start: StartedRun) -> list[Entry]:
        """Return the events that end all messages, parts, tools and steps that a run has open in the log."""
        validator = EventValidator(start.task.agent, self._rules().event_limit)
        records, _ = await self._invocations.of_run(start)
        validator.replay(records)
        return validator.close()

    async def _write_until_stored(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        def write() -> Awaitable[T]:
            return self._journal.write(command, *args, **named)

        return await _keep_trying(write)

    # Stop and recovery

    async def drain(self) -> None:
        """Start no more runs, and wait until all runs have ended and their ends are stored."""
        self._draining = True
        self.slots.close()
        await self._recoveries.stop()
        while running := [*(pump.task for pump in self.pumps() if pump.task is not None), *self._tasks]:
            await asyncio.wait(running)

    async def stop(self, seconds: float = STOPPING) -> None:
        """Detach from every run, so that the next start of the gateway recovers it. Wait at most `seconds` for the
        agents and the journal."""
        self._draining = self._stopping = True
        self.slots.close()
        await self._recoveries.stop(seconds / 10)
        await self._withdrawals.stop(seconds / 10)
        until, grace = asyncio.get_running_loop().time() + seconds, self._rules().cancel_grace
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
            await asyncio.wait(running, timeout=min(grace, seconds / 2))
            await asyncio.sleep(0)  # callbacks queue their ends
        await self._tasks.drain(min(grace, (until - asyncio.get_running_loop().time()) * 0.8))
        for pump in pumps:
            pump.give_up_storing()
        await self._tasks.stop(max(0.1, until - asyncio.get_running_loop().time()))

    async def recover(self, lost: StartedRun, node: str | None = None) -> None:
        """Continue a run that was running when the gateway process, or the `node` that executed it, ended.

        A run that cannot be continued is ended with a fault that states the reason. A run that may have crashed its
        process waits for `recover_suspects`. Raises conflict if the run has ended, or another node has taken it over.
        """
        if self._is_suspect(lost):
            self._suspects.setdefault((lost.pk, lost.run.run_id), (lost, node))
            return
        await self._recover_now(lost, node)

    def _is_suspect(self, lost: StartedRun) -> bool:
        """Return True if the run is to be started again and may have crashed the process that ran it.

        A run that is reattached to a server becomes a suspect only after its second crash.
        """
        registered = self._find_configured(lost)
        if registered is None or lost.task.state is TaskState.CANCELLING or lost.crashes + 1 >= self._rules().attempts:
            return False
        if _is_bound(lost) and _may_attach(registered):
            return lost.crashes > 0
        return registered.idempotent and _may_run(registered)

    def _find_configured(self, lost: StartedRun) -> RegisteredAgent | None:
        try:
            return self._find(lost.task.agent)
        except FaultError:  # removed from the configuration since
            return None

    def recover_suspects(self) -> None:
        """Recover the runs that may have crashed the process, one at a time and after all other runs.

        So a run that crashes the process again does not affect other runs.
        """
        if self._suspects and not self._recoveries:
            self._recoveries.spawn(self._recover_in_turn(), "recovery")

    async def _recover_in_turn(self) -> None:
        while self._suspects and not self._draining:
            key = min(self._suspects, key=lambda key: self._suspects[key][0].crashes)
            lost, node = self._suspects[key]
            try:
                await _keep_trying(partial(self._recover_now, lost, node))
            except FaultError as error:
                if error.fault.code is not FaultCode.CONFLICT:  # conflict: it has ended, or another node has it
                    log.warning("run not recovered run=%s error=%s", lost.run.run_id, error)
            finally:
                del self._suspects[key]
            pump = self._pumps.get(key)
            if pump is not None and pump.task is not None:
                await asyncio.wait((pump.task,), timeout=_SUSPECT_DELAYS[lost.crashes > 0])

    async def _recover_now(self, lost: StartedRun, node: str | None) -> None:
        while True:
            try:
                await self._recover(lost, node)
            except Moved:  # the earlier node was slow and not dead: its events up to now count
                continue
            return

    async def _recover(self, lost: StartedRun, node: str | None) -> None:
        records, seq = await self._invocations.of_run(lost)
        registered = self._find_configured(lost)
        attaches = _is_bound(lost) and registered is not None and _may_attach(registered)
        message = _restart_message(node)
        if lost.crashes + 1 >= self._rules().attempts:
            message = (
                f"The process of the gateway ended {lost.crashes + 1} times while it ran this, so it is not started "
                "again. If the run did not cause this, send the request again. limits.attempts is the maximum."
            )
        elif (
            registered is not None
            and lost.task.state is not TaskState.CANCELLING
            and (attaches or (registered.idempotent and _may_run(registered)))
        ):
            await self._resume(lost, seq, Past(records, reattached=attaches, stateful=registered.info.stateful))
            return
        outcome = RunOutcome(RunStatus.ERROR, RunReason.FAULT, Fault(code=FaultCode.GATEWAY_RESTARTED, message=message))
        validator = EventValidator(lost.task.agent, self._rules().event_limit)
        validator.replay(records)
        closing = validator.close()
        self._reports.track(lost)
        # The runs that wait behind it are not offered here: the hub offers all of them, in order of creation.
        await self._journal.write(lifecycle.end, lost, outcome, closing, seq=seq)
        if attaches:
            self._withdrawals.spawn(self._withdraw(lost), f"withdraw {lost.run.run_id}")

    async def _withdraw(self, lost: StartedRun) -> None:
        """Cancel a run on its agent's server, where it continues although it has ended in the log.

        Retries for an hour while the server does not answer.
        """
        RUN_CALLER.set(self.callers.find(lost))
        again = replace(lost, run=lost.run.replace(attempt=lost.run.attempt + 1))
        loop = asyncio.get_running_loop()
        pause, until = _MIN_RETRY_DELAY, loop.time() + _WITHDRAW_TIMEOUT
        while True:
            try:
                registered = await self._reach(lost.task.agent)
                if isinstance(registered.agent, Reattachable):
                    await self._attach_and_leave(again, registered)
                    return
                error: FaultError | TimeoutError = registered.refuse(lost.run.run_id)
            except (FaultError, TimeoutError) as raised:
                error = raised
            is_away = not isinstance(error, FaultError) or error.fault.code in _RETRYABLE
            if not is_away or loop.time() + pause > until:
                log.warning("cancelled run not cancelled on its agent's server run=%s error=%s", lost.run.run_id, error)
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAX_RETRY_DELAY)

    async def _attach_and_leave(self, start: StartedRun, registered: RegisteredAgent) -> None:
        """Read a run's events from the agent's server again, and stop reading, which cancels the run on the server."""
        events = cast("Reattachable", registered.agent).reattach(await self._invocations.make(start, registered.info))
        try:
            async with asyncio.timeout(self._rules().cancel_grace):
                await anext(events, None)
        finally:
            await close_events(events, detach=False)

    async def _resume(self, lost: StartedRun, seq: int, past: Past) -> None:
        start = await self._journal.write(lifecycle.restart, lost, seq)
        self.slots.take(start.task.agent, start.owner)
        self.begin(start, past)


def _make_attempt(pump: Pump, past: Past | None) -> AttemptFilter:
    return AttemptFilter(pump.start, pump.rules.event_limit, pump.rules.output_limit, past)


def _with_message_id(question: InterruptRaised) -> InterruptRaised:
    """Return a question of the gateway with a new id for its message."""
    assert question.message is not None
    return question.replace(message=question.message.replace(message_id=new_id()))


def _context_of(start: StartedRun) -> RunContext:
    """Return the ids of a run that its log lines name."""
    task = start.task
    return RunContext(start.owner, task.protocol, task.agent, start.thread_id, task.task_id, start.run.run_id)


def _is_bound(lost: StartedRun) -> bool:
    """Return True if the agent's server has an id for the run or for its task."""
    return bool(lost.run.upstream.get("run") or lost.run.upstream.get("task"))


def _may_attach(registered: RegisteredAgent) -> bool:
    """Return True if the rest of a run can be read from the agent's server.

    This includes a server that does not answer at the moment, because the gateway retries to connect to it.
    """
    return isinstance(registered.agent, Reattachable) or (registered.agent is None and registered.detect is not None)


def _may_run(registered: RegisteredAgent) -> bool:
    """Return True if the agent can run, now or when its server answers again."""
    return registered.agent is not None or registered.detect is not None


def _restart_message(node: str | None = None) -> str:
    of_node = "" if node is None else f"'s node {node}"
    return (
        f"The gateway{of_node} stopped during the run. The rest of the run cannot be read from the agent, and the "
        "agent may not be started again. Send the request again, or set idempotent: true on the agent."
    )


def _keep_trying(act: Callable[[], Awaitable[T]]) -> Awaitable[T]:
    """Repeat a read or write of the database until it succeeds, so that no run stays open while the database is
    unavailable."""
    return keep_trying(act, Unstored, Unreachable, longest=10.0, note=_warn)


def _note_release(write: "asyncio.Future[Any]") -> None:
    """Log a warning if the release of running runs could not be stored: the next start counts this stop as a crash of
    these runs."""
    if not write.cancelled() and (error := write.exception()) is not None:
        log.warning("release of active runs not stored error=%s", error)


def _warn(error: FaultError, pause: float) -> None:
    log.error("step of a run not read or stored retry_in=%.1fs error=%s", pause, error)
