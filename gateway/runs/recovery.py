"""Recovery: runs and webhooks of a gateway that is gone are taken up where it left them."""

import logging
from collections.abc import Callable, Sequence

from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.state import RunStatus
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.lifecycle import Start
from babelgate.gateway.runs.webhooks import Deliverer
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import Due, LiveRun

log = logging.getLogger("babelgate.recovery")


class Recovery:
    def __init__(
        self, journal: Journal, engine: Engine, deliverer: Deliverer, find: Callable[[str], RegisteredAgent]
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._deliverer = deliverer
        self._find = find

    async def take_up(self, live: Sequence[LiveRun]) -> None:
        """Queued runs stay queued in order, active runs are re-attached to, started again, or ended with a fault that
        says why. Raises what the journal does."""
        for found in live:
            if found.run.status is RunStatus.RUNNING:
                await self._engine.recover(start_of(found))
        for found in live:
            if found.run.status is RunStatus.PENDING:
                await self.offer(found)
        self._engine.recover_suspects()

    async def offer(self, found: LiveRun) -> None:
        """A run that waits is started when its turn comes."""
        try:
            self._find(found.agent)
        except FaultError:
            fault = Fault(code=FaultCode.AGENT_UNREACHABLE, message=f"Agent {found.agent} is no longer configured")
            await self._journal.write(lifecycle.fail_pending, found.owner, found.thread_id, found.run.run_id, fault)
            return
        self._engine.slots.offer(found.owner, found.thread_id, found.agent)

    def deliver(self, webhooks: Sequence[Due], *, adopted: bool = False) -> None:
        """Continue to deliver to webhooks. `adopted` = another node did so before: what this one knew of them is
        outdated."""
        for due in webhooks:
            if adopted:
                self._deliverer.forget(due.owner, due.webhook.task_id, due.webhook.webhook_id)
            self._deliverer.resume(due)


def start_of(found: LiveRun) -> Start:
    return Start(found.owner, found.thread_id, found.task, found.run, found.pk, crashes=found.crashes)
