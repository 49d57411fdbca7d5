"""Cluster: this gateway as one of several nodes on a database.

The node applies what other nodes commit to its own agents. It stops agents whose tasks were cancelled elsewhere, and
detaches from agents whose runs another node has taken over. It takes over the runs and webhooks of dead nodes.

The rows of the database decide. `run.node` names the node that executes a run, and `run.attempt` rejects writes of an
earlier node. Commit notices and the state in memory only tell when to check the rows. A full check every few heartbeats
finds what they missed.
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
from babelgate.gateway.runs.recovery import RunRecovery, start_of
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.nodes import Adopted, Heartbeat, Nodes
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.queries import LiveRun
from babelgate.gateway.storage.transaction import Published

log = logging.getLogger("babelgate.node")

_CHECK_INTERVAL: Final = 5
"""Heartbeats between two full checks of this node's runs against the database. Chosen: ten seconds."""
_MAX_RECOVERIES: Final = 16
"""Maximum number of runs of other nodes that this node takes over concurrently. Chosen."""
_MAX_PAUSED: Final = 10_000
"""Maximum number of threads whose open questions this node remembers; the oldest are dropped. Chosen."""
_PAUSED_PER_CHECK: Final = 50
"""Maximum number of threads with open questions that each full check includes, in case another node's notice was lost.

Chosen: one query each, every ten seconds.
"""


class Cluster:
    """Membership of this gateway in the cluster: heartbeats, takeovers, and checks of its runs against the database."""

    def __init__(
        self,
        journal: Journal,
        name: str,
        engine: Engine,
        recovery: RunRecovery,
        clock: Clock,
        *,
        lead: Callable[[int], None],
        forget_paused: Callable[[str, str], None],
    ) -> None:
        """Create the node.

        `lead` is called at each heartbeat while this node is the leader, with the number of heartbeats since it became
        the leader. `forget_paused` is called with the owner and the id of a task that no agent of this node continues.
        """
        self._journal = journal
        self._engine = engine
        self._recovery = recovery
        self._clock = clock
        self._lead = lead
        self._forget_paused = forget_paused
        self.nodes = Nodes(journal.database, journal.node, name, self._handle_beat)
        self.leads = False
        self._beats = self._beats_as_leader = 0
        self._changed: set[int] = set()
        """Keys of threads on which an agent runs here and to which other nodes have written."""
        self._is_checking = False
        self._recovering: set[tuple[int, str]] = set()
        self._unattended: set[tuple[int, str, int]] = set()
        """Attempts that the database assigns to this node but that it did not execute at the last full check: key of
        the thread, run id, number of the attempt."""
        self._paused: OrderedDict[int, set[tuple[str, str]]] = OrderedDict()
        """Owner and id of the tasks that have asked a question on this node, by thread key."""
        self._changed_paused: set[int] = set()
        """Keys of threads on which a task has asked a question here and to which other nodes have written."""
        self._is_checking_paused = False
        self._tasks = Tasks()

    async def start(self) -> None:
        adopted = await self.nodes.join()
        self.nodes.start()
        await self._take_over(adopted)

    def close(self) -> None:
        """Stop taking over runs of other nodes."""
        self.nodes.adopts = False

    async def leave(self, seconds: float = STOPPING) -> None:
        """Leave the cluster within `seconds`. The other nodes take over the runs and webhooks that have not ended."""
        await self._tasks.stop(seconds / 2)
        await self.nodes.leave(seconds / 2)

    # Heartbeats

    def _handle_beat(self, heartbeat: Heartbeat | None) -> None:
        # Without a heartbeat other nodes take this one for dead, and would take over every run that starts now.
        self._engine.slots.pause(on=heartbeat is None)
        if heartbeat is None:
            self.leads = False
            return
        self._beats_as_leader = self._beats_as_leader + 1 if heartbeat.leads else 0
        self.leads = heartbeat.leads
        self._beats += 1
        if heartbeat.gone_nodes or heartbeat.adopted:
            dead_nodes = ",".join(heartbeat.gone_nodes) or "-"
            log.warning(
                "runs taken over node=%s runs=%d dead_nodes=%s",
                self.nodes.name,
                len(heartbeat.adopted.runs),
                dead_nodes,
            )
        if heartbeat.was_considered_dead:
            log.warning(
                "node was considered dead: other nodes keep the runs that they took over node=%s", self.nodes.name
            )
        if heartbeat.adopted:
            self._tasks.spawn(self._take_over(heartbeat.adopted), "takeover")
        if heartbeat.was_considered_dead or self._beats % _CHECK_INTERVAL == 0:
            self._tasks.spawn(self._check_all(), "look")
        if heartbeat.leads:
            self._lead(self._beats_as_leader - 1)

    async def _take_over(self, adopted: Adopted) -> None:
        """Continue the runs and webhooks that this node has adopted. The next full check retries those that fail."""
        if not adopted:
            return
        try:
            adopted_runs = {(owner, run_id) for owner, run_id, _ in adopted.runs}
            live = await self._journal.query(queries.live_runs, self.nodes.node_id)
            await self._recover_all(
                [run_row for run_row in live if (run_row.owner, run_row.run.run_id) in adopted_runs]
            )
            # Also the runs that wait behind them: if a run is ended here, its successor belongs to this node.
            for run_row in await self._journal.query(queries.live_runs, self.nodes.node_id):
                if run_row.run.status is RunStatus.PENDING:
                    await self._recovery.offer(run_row)
            due = await self._journal.query(queries.due_webhooks, self.nodes.node_id)
            adopted_webhooks = set(adopted.webhooks)
            self._recovery.deliver(
                [
                    delivery
                    for delivery in due
                    if (delivery.owner, delivery.webhook.task_id, delivery.webhook.webhook_id) in adopted_webhooks
                ],
                adopted=True,
            )
        except FaultError as error:
            log.warning("runs that were taken over are not continued yet node=%s error=%s", self.nodes.name, error)

    async def _recover_all(self, live: Sequence[LiveRun]) -> None:
        running = [run_row for run_row in live if run_row.run.status is RunStatus.RUNNING]
        for start in range(0, len(running), _MAX_RECOVERIES):
            await asyncio.gather(*map(self._recover, running[start : start + _MAX_RECOVERIES]))
        self._engine.recover_suspects()

    async def _recover(self, run_row: LiveRun) -> None:
        key = run_row.pk, run_row.run.run_id
        if key in self._recovering or self._engine.is_attending(*key):
            return
        self._recovering.add(key)
        try:
            node = self.nodes.node_before(run_row.owner, run_row.run.run_id, run_row.run.attempt)
            await self._engine.recover(start_of(run_row), node)
        except FaultError as error:
            if error.fault.code is not FaultCode.CONFLICT:  # conflict: it has ended, or another node has it
                log.warning("run not taken over run=%s error=%s", run_row.run.run_id, error)
        finally:
            self._recovering.discard(key)

    # Commits of other nodes

    def handle_remotes(self, remotes: Sequence[Remote]) -> None:
        for remote in remotes:
            pump = self._engine.pump_on(remote.pk)
            if pump is not None and remote.erased:
                self._engine.forget_run(*pump.key)
            elif pump is not None:
                self._changed.add(remote.pk)
            if remote.pk in self._paused:
                self._changed_paused.add(remote.pk)
        if self._changed and not self._is_checking:
            self._is_checking = True
            self._tasks.spawn(self._check_changed(), "look")
        self._check_paused_soon()

    def handle_commit(self, published: Published) -> None:
        for record in published.records:
            if type(record.event) is TaskChanged and record.event.state in WAITING and record.task_id is not None:
                self._paused.setdefault(published.pk, set()).add((published.owner, record.task_id))
                if len(self._paused) > _MAX_PAUSED:
                    self._paused.popitem(last=False)

    async def _check_changed(self) -> None:
        try:
            while self._changed:
                pks, self._changed = self._changed, set()
                pumps = [pump for pk in pks if (pump := self._engine.pump_on(pk)) is not None]
                await self._check_pumps(
                    pumps, await self._journal.query(queries.live_runs, self.nodes.node_id, list(pks))
                )
        except FaultError as error:
            log.debug("check of runs failed: the next full check repeats it error=%s", error)
        finally:
            self._is_checking = False

    async def _check_paused(self) -> None:
        """Discard the paused calls that agents in this process keep for tasks that another node has continued or
        ended."""
        try:
            while self._changed_paused:
                await self._check_paused_thread(self._changed_paused.pop())
        except FaultError as error:
            log.debug("check of paused agents failed: the next full check repeats it error=%s", error)
        finally:
            self._is_checking_paused = False

    async def _check_paused_thread(self, pk: int) -> None:
        # A question that is asked meanwhile is newer than these queries: the next check handles it.
        waiting, self._paused[pk] = self._paused.get(pk, set[tuple[str, str]]()), set()
        try:
            for owner, task_id in tuple(waiting):
                task = await self._journal.query(queries.task, owner, task_id)
                if task is None or not task.is_waiting:
                    waiting.discard((owner, task_id))
                    self._forget_paused(owner, task_id)
        except FaultError:
            self._changed_paused.add(pk)
            raise
        finally:
            still_waiting = self._paused.pop(pk, set[tuple[str, str]]()) | waiting
            if still_waiting:
                self._paused[pk] = still_waiting

    def _check_paused_soon(self) -> None:
        if self._changed_paused and not self._is_checking_paused:
            self._is_checking_paused = True
            self._tasks.spawn(self._check_paused(), "look")

    async def _check_all(self) -> None:
        self._changed_paused.update(islice(self._paused, _PAUSED_PER_CHECK))
        self._check_paused_soon()
        pumps = self._engine.pumps()  # before the query, so that each of these runs has a row
        try:
            own_runs = await self._journal.query(queries.live_runs, self.nodes.node_id)
            await self._check_pumps(pumps, own_runs)
            await self._recover_unattended(own_runs)
            for owner, thread_id, agent in await self._journal.query(
                queries.waiting_threads, self.nodes.node_id, self._clock.now()
            ):
                self._engine.slots.offer(owner, thread_id, agent)
            self._recovery.deliver(await self._journal.query(queries.due_webhooks, self.nodes.node_id))
        except FaultError as error:
            log.debug("check of runs failed: the next full check repeats it error=%s", error)

    async def _recover_unattended(self, own_runs: Sequence[LiveRun]) -> None:
        """Recover this node's runs that nothing here executes.

        This happens if the notice of a takeover was lost, or if the recovery failed. A run that starts is in the
        database before the engine knows it, so only a run that two checks in a row find is recovered.
        """
        before, self._unattended = self._unattended, set()
        unattended: list[LiveRun] = []
        for run_row in own_runs:
            if run_row.run.status is not RunStatus.RUNNING or self._engine.is_attending(run_row.pk, run_row.run.run_id):
                continue
            attempt = run_row.pk, run_row.run.run_id, run_row.run.attempt
            if attempt in before:
                unattended.append(run_row)
            else:
                self._unattended.add(attempt)
        await self._recover_all(unattended)

    async def _check_pumps(self, pumps: Sequence[Pump], own_runs: Sequence[LiveRun]) -> None:
        """Compare the agents that run here with this node's runs in the database.

        Detach an agent whose run another node has taken over or ended, and stop one whose run was erased or is being
        cancelled.
        """
        running = {
            (run_row.pk, run_row.run.run_id): run_row for run_row in own_runs if run_row.run.status is RunStatus.RUNNING
        }
        for pump in pumps:
            run_row = running.get(pump.key)
            if run_row is None:
                run = await self._journal.query(queries.run, pump.start.owner, pump.start.run.run_id)
                self._drop(pump, run)
            elif run_row.run.attempt != pump.start.run.attempt:
                self._engine.abandon(pump)
            elif run_row.task.state is TaskState.CANCELLING:
                self._engine.stop_run(*pump.key)

    def _drop(self, pump: Pump, run: Run | None) -> None:
        if run is None or run.thread_id != pump.start.thread_id:
            self._engine.forget_run(*pump.key)
        else:
            self._engine.abandon(pump)
