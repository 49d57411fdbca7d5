"""Kill switches of agents: which agents an operator has disabled, and what happens to their runs.

A disabled agent starts no runs. New runs are refused with the reason, and queued ones wait. Running ones end as usual
(`drain`), or are cancelled (`cancel`). Each node cancels the runs that it executes.
"""

import logging
from collections.abc import Awaitable, Callable

from babelgate.canonical.fault import DISABLED, FaultCode, FaultError
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.storage.administered import AdministeredState
from babelgate.gateway.storage.administration import Administration, DisabledAgent

log = logging.getLogger("babelgate.engine")


class Switches:
    """Kill switches of all agents: refuses, holds or cancels the runs of disabled agents."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cancel: Callable[[str, str], Awaitable[object]] | None = None
        self._disabled: dict[str, DisabledAgent] = {}
        self._tasks = Tasks()

    def start(self, administration: AdministeredState, cancel: Callable[[str, str], Awaitable[object]]) -> None:
        """Apply the kill switches that are stored in the database, now and after each change. `cancel` cancels a task,
        given its owner and its id."""
        self._cancel = cancel
        administration.add_listener(self.apply)

    def check(self, agent: str) -> None:
        """Raise unavailable, with the operator's reason, if the agent is disabled."""
        disabled = self._disabled.get(agent)
        if disabled is not None:
            raise FaultError(
                FaultCode.UNAVAILABLE,
                f"Agent {agent} is disabled and starts no runs: {disabled.reason}",
                reason=DISABLED,
            )

    def find(self, agent: str) -> DisabledAgent | None:
        """Return how and why an agent is disabled, or None if it is not."""
        return self._disabled.get(agent)

    def apply(self, administration: Administration) -> None:
        """Hold the queues of disabled agents, release those of all others, and cancel the runs of agents that are
        disabled with `cancel`."""
        before, self._disabled = self._disabled, {each.name: each for each in administration.disabled}
        for name in self._disabled.keys() - before.keys():
            self._engine.slots.hold(name)
        for name in before.keys() - self._disabled.keys():
            self._engine.slots.unhold(name)
        for name, disabled in self._disabled.items():
            if before.get(name) != disabled:
                log.warning("agent disabled agent=%s running=%s", name, disabled.running)
        self.cancel_runs()

    def cancel_runs(self) -> None:
        """Cancel the runs of this node whose agents are disabled with `cancel`."""
        for start in self._engine.active:
            disabled = self._disabled.get(start.task.agent)
            if disabled is not None and disabled.running == "cancel":
                self._tasks.spawn(self._cancel_task(start.owner, start.task.task_id), "cancel of a disabled agent")

    async def _cancel_task(self, owner: str, task_id: str) -> None:
        assert self._cancel is not None
        try:
            await self._cancel(owner, task_id)
        except FaultError as error:
            if error.fault.code is not FaultCode.TASK_ENDED:
                log.warning("run of a disabled agent not cancelled task=%s error=%s", task_id, error)

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)
