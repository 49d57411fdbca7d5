"""Guarded overview: the reads of the console."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from babelgate.canonical.principal import Principal
from babelgate.gateway.access.gate import Gate
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.change_feed import Hint, HintStream
from babelgate.gateway.storage.overview import RunRecords, ThreadContent
from babelgate.gateway.storage.run_summaries import RunCount, RunList, RunQuery, RunSummary
from babelgate.gateway.storage.thread_summaries import ThreadList, ThreadQuery, ThreadSummary


class GuardedOverview:
    """Guarded `babelgate.gateway.storage.overview.Overview`, for the rows of the caller's owner.

    An operator's lists of the rows of all owners are not here: they need the operation `admin`.
    """

    def __init__(self, hub: GatewayHub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def runs(self, principal: Principal, query: RunQuery) -> RunList:
        """List the caller's runs. Raises forbidden if the policy does not allow the call, and invalid for a wrong
        cursor."""
        if query.agent is not None:
            self._gate.check(principal, "runs", query.agent)
        if (agents := self._gate.agents(principal, "runs")) is not None:
            query = replace(query, agents=agents)
        return await self._hub.overview.runs(principal.owner, query)

    async def run(self, principal: Principal, run_id: str) -> RunSummary:
        """Return a run. Raises forbidden if the policy does not allow the call, and not_found."""
        owner = await self._gate.owner_of(principal, "run", run_id, "run")
        summary = await self._hub.overview.run(owner, run_id)
        self._gate.check_object(principal, "run", summary.run.agent, f"Run {run_id} not found")
        return summary

    async def count_runs(self, principal: Principal, since: int) -> tuple[Mapping[str, RunCount], bool]:
        """Count the caller's runs that were created since a time, by agent, as `Overview.count_runs` does. Raises
        forbidden if the policy does not allow the call."""
        agents = self._gate.agents(principal, "count_runs")
        result = await self._hub.overview.count_runs(principal.owner, since)
        if agents is None:
            return result
        counts, is_partial = result
        return {agent: count for agent, count in counts.items() if agent in agents}, is_partial

    async def threads(self, principal: Principal, query: ThreadQuery) -> ThreadList:
        """List the caller's threads. Raises forbidden if the policy does not allow the call, and invalid for a wrong
        cursor."""
        if query.agent is not None:
            self._gate.check(principal, "threads", query.agent)
        if (agents := self._gate.agents(principal, "threads")) is not None:
            query = replace(query, agents=agents)
        return await self._hub.overview.threads(principal.owner, query)

    async def thread(self, principal: Principal, thread_id: str) -> ThreadSummary:
        """Return a thread. Raises forbidden if the policy does not allow the call, and not_found."""
        read = partial(self._hub.overview.thread, thread_id=thread_id)
        return await self._gate.read_thread(principal, thread_id, "thread", read)

    async def thread_content(self, principal: Principal, thread_id: str) -> ThreadContent:
        """Return the runs and files of a thread. Raises forbidden if the policy does not allow the call, and
        not_found."""
        read = partial(self._hub.overview.thread_content, thread_id=thread_id)
        return await self._gate.read_thread(principal, thread_id, "thread_content", read)

    async def records(self, principal: Principal, run_id: str, after: int, *, limit: int, folds: bool) -> RunRecords:
        """Return a page of the records of a run, as `Overview.records` does. Raises forbidden if the policy does not
        allow the call, and not_found."""
        owner = await self._gate.check_run(principal, run_id, "records")
        return await self._hub.overview.records(owner, run_id, after, limit=limit, folds=folds)

    def changes(self, principal: Principal, *, is_operator: bool = False) -> HintStream:
        """Return a stream of hints about changes of the caller's rows, and of agents. An operator also gets those of
        jobs. Raises forbidden if the policy does not allow the call."""
        self._gate.check(principal, "changes")
        is_wanted = None
        if self._gate.has_rules_by_agent(principal, "changes"):
            is_wanted = partial(self._is_readable, principal)
        return self._hub.changes.open(principal.owner, is_wanted, is_operator=is_operator)

    def _is_readable(self, principal: Principal, hint: Hint) -> bool:
        """Return False for a hint about an agent that the caller may not read, or about an unknown one."""
        return hint.kind == "job" or self._gate.is_allowed(principal, "changes", hint.agent or "")
