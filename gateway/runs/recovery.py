"""Recovery: continues the runs and webhooks of a gateway process that has ended."""

import logging
from collections.abc import Callable, Sequence

from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.state import RunStatus
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.lifecycle import StartedRun
from babelgate.gateway.runs.webhooks import Deliverer
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import Due, LiveRun

log = logging.getLogger("babelgate.recovery")


class RunRecovery:
    """Recovery of runs and webhooks of other processes: at startup those of the earlier process, later those of dead
    nodes."""

    def __init__(
        self, journal: Journal, engine: Engine, deliverer: Deliverer, find: Callable[[str], RegisteredAgent]
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._deliverer = deliverer
        self._find = find

    async def take_up(self, live: Sequence[LiveRun]) -> None:
        """Continue the runs in `live`, which an earlier process left pending or running.

        Pending runs keep their order in the queue. Running runs are reattached, started again, or ended with a fault
        that states the reason. Raises the faults of the journal.
        """
        for run_row in live:
            if run_row.run.status is RunStatus.RUNNING:
                await self._engine.recover(start_of(run_row))
        for run_row in live:
            if run_row.run.status is RunStatus.PENDING:
                await self.offer(run_row)
        self._engine.recover_suspects()

    async def offer(self, run_row: LiveRun) -> None:
        """Queue a pending run, or fail it if its agent is no longer configured."""
        try:
            self._find(run_row.agent)
        except FaultError:
            fault = Fault(code=FaultCode.AGENT_UNREACHABLE, message=f"Agent {run_row.agent} is no longer configured")
            await self._journal.write(
                lifecycle.fail_pending, run_row.owner, run_row.thread_id, run_row.run.run_id, fault
            )
            return
        self._engine.slots.offer(run_row.owner, run_row.thread_id, run_row.agent)

    def deliver(self, webhooks: Sequence[Due], *, adopted: bool = False) -> None:
        """Continue to deliver events to webhooks.

        `adopted` is true if another node delivered to them before, so that this node's state of them in memory is
        outdated.
        """
        for due in webhooks:
            if adopted:
                self._deliverer.forget(due.owner, due.webhook.task_id, due.webhook.webhook_id)
            self._deliverer.resume(due)


def start_of(run_row: LiveRun) -> StartedRun:
    """Return a `StartedRun` for a run that is running according to its database row."""
    return StartedRun(run_row.owner, run_row.thread_id, run_row.task, run_row.run, run_row.pk, crashes=run_row.crashes)
