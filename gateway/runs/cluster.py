"""Cluster: this gateway as one node of several on a database. What the others commit is heard of, and done here as if
it had been asked for here: agents are stopped whose tasks were cancelled elsewhere, and let go of where another node
has the run. What nodes leave that are gone is taken over.

All of it rests on the rows: `run.node` says who sees to a run, `run.attempt` refuses whoever did before. Notices of
commits and what is in memory only say when to look, and a look at everything now and then finds what they missed.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from babelgate.canonical.event import TaskChanged
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.state import WAITING, RunStatus, TaskState
from babelgate.canonical.thread import Run
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.pump import Pump
from babelgate.gateway.runs.recovery import Recovery, start_of
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.nodes import Adopted, Look, Nodes
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.queries import LiveRun
from babelgate.gateway.storage.transaction import Published

log = logging.getLogger("babelgate.node")

_LOOK: Final = 5
"""Beats from one look at everything to the next."""
_AT_ONCE: Final = 16
"""Runs that are taken over at a time."""
_PAUSED: Final = 10_000
"""Threads with questions that are remembered."""
_PAUSED_AT_ONCE: Final = 50
"""Threads with questions at which each look at everything looks, in turn. It finds those whose notice was lost. Chosen:
one query each, every ten seconds."""


class Cluster:
    def __init__(
        self,
        journal: Journal,
        name: str,
        engine: Engine,
        recovery: Recovery,
        clock: Clock,
        *,
        lead: Callable[[int], None],
        forget_paused: Callable[[str, str], None],
    ) -> None:
        """`lead` is called with each beat of the node that does for all what is to be done once, with their number
        since it does. `forget_paused`, with the owner and id of a task, when no agent here goes on with it."""
        self._journal = journal
        self._engine = engine
        self._recovery = recovery
        self._clock = clock
        self._lead = lead
        self._forget_paused = forget_paused
        self.nodes = Nodes(journal.database, journal.node, name, self._hear)
        self.leads = False
        self._beats = self._led = 0
        self._changed: set[int] = set()
        """Keys of threads that others have written to, and on which an agent is at work here."""
        self._looking = False
        self._recovering: set[tuple[int, str]] = set()
        self._unattended: set[tuple[int, str, int]] = set()
        """Attempts of runs that are this node's and that nobody saw to at the last look."""
        self._paused: OrderedDict[int, set[tuple[str, str]]] = OrderedDict()
        """By thread, owners and ids of tasks that have asked something here."""
        self._stirred: set[int] = set()
        """Keys of threads that others have written to, and on which a task has asked something here."""
        self._looking_at_paused = False
        self._tasks = Tasks()

    async def start(self) -> None:
        adopted = await self.nodes.join()
        self.nodes.start()
        await self._take_over(adopted)

    def close(self) -> None:
        """Take nothing over any more."""
        self.nodes.adopts = False

    async def leave(self, seconds: float = STOPPING) -> None:
        """Leave what has not ended to the other nodes, in at most `seconds`."""
        await self._tasks.stop(seconds / 2)
        await self.nodes.leave(seconds / 2)

    # Beats

    def _hear(self, look: Look | None) -> None:
        # What it began now would be taken over as soon as it is stored, because its node is not there.
        self._engine.slots.pause(on=look is None)
        if look is None:
            self.leads = False
            return
        self._led = self._led + 1 if look.leads else 0
        self.leads = look.leads
        self._beats += 1
        if look.gone or look.adopted:
            gone = ", ".join(look.gone) or "nobody"
            log.warning("node %s takes over %d runs; gone: %s", self.nodes.name, len(look.adopted.runs), gone)
        if look.was_gone:
            log.warning("node %s was taken for gone: it leaves to others what they have taken over", self.nodes.name)
        if look.adopted:
            self._tasks.spawn(self._take_over(look.adopted), "takeover")
        if look.was_gone or self._beats % _LOOK == 0:
            self._tasks.spawn(self._look_at_all(), "look")
        if look.leads:
            self._lead(self._led - 1)

    async def _take_over(self, adopted: Adopted) -> None:
        """What of it fails is tried again by the next look at everything."""
        if not adopted:
            return
        try:
            adopted_runs = {(owner, run_id) for owner, run_id, _ in adopted.runs}
            live = await self._journal.query(queries.live_runs, self.nodes.node_id)
            await self._recover_all([found for found in live if (found.owner, found.run.run_id) in adopted_runs])
            # Also what waits behind them: a run that was ended here has made what follows it this node's.
            for found in await self._journal.query(queries.live_runs, self.nodes.node_id):
                if found.run.status is RunStatus.PENDING:
                    await self._recovery.offer(found)
            due = await self._journal.query(queries.due_webhooks, self.nodes.node_id)
            mine = set(adopted.webhooks)
            self._recovery.deliver(
                [each for each in due if (each.owner, each.webhook.task_id, each.webhook.webhook_id) in mine],
                adopted=True,
            )
        except FaultError as error:
            log.warning("what node %s has taken over could not be taken up: %s", self.nodes.name, error)

    async def _recover_all(self, live: Sequence[LiveRun]) -> None:
        running = [found for found in live if found.run.status is RunStatus.RUNNING]
        for start in range(0, len(running), _AT_ONCE):
            await asyncio.gather(*map(self._recover, running[start : start + _AT_ONCE]))
        self._engine.recover_suspects()

    async def _recover(self, found: LiveRun) -> None:
        key = found.pk, found.run.run_id
        if key in self._recovering or self._engine.is_attending(*key):
            return
        self._recovering.add(key)
        try:
            node = self.nodes.node_before(found.owner, found.run.run_id, found.run.attempt)
            await self._engine.recover(start_of(found), node)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT:  # else it has ended, or another node has it by now
                log.warning("run %s could not be taken over: %s", found.run.run_id, error)
        finally:
            self._recovering.discard(key)

    # What others commit

    def handle_remotes(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            pump = self._engine.pump_on(remote.pk)
            if pump is not None and remote.erased:
                self._engine.forget_run(*pump.key)
            elif pump is not None:
                self._changed.add(remote.pk)
            if remote.pk in self._paused:
                self._stirred.add(remote.pk)
        if self._changed and not self._looking:
            self._looking = True
            self._tasks.spawn(self._look_at_changed(), "look")
        self._look_soon_at_paused()

    def handle_commit(self, published: Published) -> None:
        for record in published.records:
            if type(record.event) is TaskChanged and record.event.state in WAITING and record.task_id is not None:
                self._paused.setdefault(published.pk, set()).add((published.owner, record.task_id))
                if len(self._paused) > _PAUSED:
                    self._paused.popitem(last=False)

    async def _look_at_changed(self) -> None:
        try:
            while self._changed:
                pks, self._changed = self._changed, set()
                pumps = [pump for pk in pks if (pump := self._engine.pump_on(pk)) is not None]
                await self._look(pumps, await self._journal.query(queries.live_runs, self.nodes.node_id, list(pks)))
        except FaultError as error:
            log.debug("the next look at everything does it: %s", error)
        finally:
            self._looking = False

    async def _look_at_paused(self) -> None:
        """A generator that waits for its answer here, while another node went on with the task, is of no use."""
        try:
            while self._stirred:
                await self._look_at_asked(self._stirred.pop())
        except FaultError as error:
            log.debug("generators that wait here are looked at again with everything: %s", error)
        finally:
            self._looking_at_paused = False

    async def _look_at_asked(self, pk: int) -> None:
        # What asks meanwhile is newer than what is found here: it is left to the next look.
        asked, self._paused[pk] = self._paused.get(pk, set[tuple[str, str]]()), set()
        try:
            for owner, task_id in tuple(asked):
                task = await self._journal.query(queries.task, owner, task_id)
                if task is None or not task.is_waiting:
                    asked.discard((owner, task_id))
                    self._forget_paused(owner, task_id)
        except FaultError:
            self._stirred.add(pk)
            raise
        finally:
            left = self._paused.pop(pk, set[tuple[str, str]]()) | asked
            if left:
                self._paused[pk] = left

    def _look_soon_at_paused(self) -> None:
        if self._stirred and not self._looking_at_paused:
            self._looking_at_paused = True
            self._tasks.spawn(self._look_at_paused(), "look")

    async def _look_at_all(self) -> None:
        self._stirred.update(islice(self._paused, _PAUSED_AT_ONCE))
        self._look_soon_at_paused()
        pumps = self._engine.pumps()  # before the rows: who is at work by now has a row that says so
        try:
            mine = await self._journal.query(queries.live_runs, self.nodes.node_id)
            await self._look(pumps, mine)
            await self._attend(mine)
            for owner, thread_id, agent in await self._journal.query(
                queries.waiting_threads, self.nodes.node_id, self._clock.now()
            ):
                self._engine.slots.offer(owner, thread_id, agent)
            self._recovery.deliver(await self._journal.query(queries.due_webhooks, self.nodes.node_id))
        except FaultError as error:
            log.debug("the next look at everything does it: %s", error)

    async def _attend(self, mine: Sequence[LiveRun]) -> None:
        """Take up runs that are this node's and that nobody sees to: it took them over and was not told so, or failed
        to go on. A run that begins is in the database before it is known here, so it has to be found twice."""
        before, self._unattended = self._unattended, set()
        left: list[LiveRun] = []
        for found in mine:
            if found.run.status is not RunStatus.RUNNING or self._engine.is_attending(found.pk, found.run.run_id):
                continue
            attempt = found.pk, found.run.run_id, found.run.attempt
            if attempt in before:
                left.append(found)
            else:
                self._unattended.add(attempt)
        await self._recover_all(left)

    async def _look(self, pumps: Sequence[Pump], mine: Sequence[LiveRun]) -> None:
        """Compare agents that are at work with the runs that are this node's."""
        running = {(found.pk, found.run.run_id): found for found in mine if found.run.status is RunStatus.RUNNING}
        for pump in pumps:
            found = running.get(pump.key)
            if found is None:
                run = await self._journal.query(queries.run, pump.start.owner, pump.start.run.run_id)
                self._drop(pump, run)
            elif found.run.attempt != pump.start.run.attempt:
                self._engine.abandon(pump)
            elif found.task.state is TaskState.CANCELLING:
                self._engine.stop_run(*pump.key)

    def _drop(self, pump: Pump, run: Run | None) -> None:
        if run is None or run.thread_id != pump.start.thread_id:
            self._engine.forget_run(*pump.key)
        else:
            self._engine.abandon(pump)
