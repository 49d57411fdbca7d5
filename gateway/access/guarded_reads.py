"""Guarded reads of threads, tasks, runs, logs and files."""

from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

from babelgate.canonical.event import Record, RunCreated
from babelgate.canonical.grant import grantees_of
from babelgate.canonical.hub import (
    RunFilter,
    RunPage,
    S,
    Scope,
    TaskFilter,
    TaskPage,
    ThreadFilter,
    ThreadOrder,
    Turn,
    Webhook,
)
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart
from babelgate.canonical.principal import Principal
from babelgate.canonical.thread import Interrupt, Run, Task, Thread, ThreadView
from babelgate.gateway.access.gate import Gate
from babelgate.gateway.hub import GatewayHub


class GuardedReads:
    """Implementation of `babelgate.canonical.hub.Reads` that checks each call before it passes the call to the hub."""

    def __init__(self, hub: GatewayHub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def task(self, principal: Principal, task_id: str) -> Task:
        owner = await self._gate.owner_of(principal, "task", task_id, "task")
        task = await self._hub.reads.task(owner, task_id)
        self._gate.check_object(principal, "task", task.agent, f"Task {task_id} not found")
        return task

    async def run(self, principal: Principal, run_id: str) -> Run:
        owner = await self._gate.owner_of(principal, "run", run_id, "run")
        run = await self._hub.reads.run(owner, run_id)
        self._gate.check_object(principal, "run", run.agent, f"Run {run_id} not found")
        return run

    async def run_input(self, principal: Principal, run: Run) -> RunCreated:
        self._gate.check_object(principal, "run_input", run.agent, f"Run {run.run_id} not found")
        owner = await self._gate.owner_of(principal, "run", run.run_id, "run_input")
        return await self._hub.reads.run_input(owner, run)

    async def runs(self, principal: Principal, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        if where.agent is not None:
            self._gate.check(principal, "runs", where.agent)
        elif (agents := self._gate.agents(principal, "runs")) is not None:
            where = replace(where, agents=agents)
        owner = await self._owner_of_filter(principal, where, "runs")
        return await self._hub.reads.runs(owner, where, limit=limit, offset=offset)

    async def last_begun(self, principal: Principal, thread_id: str, *, ended_before: int | None = None) -> Run | None:
        read = partial(self._hub.reads.last_begun, thread_id=thread_id, ended_before=ended_before)
        return await self._gate.read_thread(principal, thread_id, "last_begun", read)

    async def run_page(
        self, principal: Principal, thread_id: str, agent: str, *, limit: int, offset: int = 0
    ) -> RunPage | None:
        self._gate.check(principal, "run_page", agent)
        read = partial(self._hub.reads.run_page, thread_id=thread_id, agent=agent, limit=limit, offset=offset)
        return await self._gate.read_thread(principal, thread_id, "run_page", read)

    async def turns(
        self,
        principal: Principal,
        thread_id: str,
        *,
        limit: int,
        beyond: int | None = None,
        descending: bool = True,
    ) -> Sequence[Turn]:
        reads = self._hub.reads
        read = partial(reads.turns, thread_id=thread_id, limit=limit, beyond=beyond, descending=descending)
        return await self._gate.read_thread(principal, thread_id, "turns", read)

    def turn_log(
        self, principal: Principal, thread_id: str, turns: Sequence[Turn], *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        read = partial(self._hub.reads.turn_log, thread_id=thread_id, turns=turns, inline=inline)
        return self._gate.read_log(principal, Scope(thread_id), "turn_log", read)

    async def removed_messages(self, principal: Principal, thread_id: str) -> Set[str]:
        read = partial(self._hub.reads.removed_messages, thread_id=thread_id)
        return await self._gate.read_thread(principal, thread_id, "removed_messages", read)

    async def thread(self, principal: Principal, thread_id: str) -> Thread:
        read = partial(self._hub.reads.thread, thread_id=thread_id)
        return await self._gate.read_thread(principal, thread_id, "thread", read)

    async def thread_view(self, principal: Principal, thread_id: str) -> ThreadView:
        read = partial(self._hub.reads.thread_view, thread_id=thread_id)
        return await self._gate.read_thread(principal, thread_id, "thread_view", read)

    async def threads(
        self,
        principal: Principal,
        where: ThreadFilter,
        *,
        limit: int,
        offset: int = 0,
        order: ThreadOrder = "created_at",
        descending: bool = True,
    ) -> Listed[ThreadView]:
        where = self._limit_threads(principal, "threads", where)
        shared = await self._find_shared_threads(principal, where)
        return await self._hub.reads.threads(
            principal.owner, where, limit=limit, offset=offset, order=order, descending=descending, shared=shared
        )

    async def count_threads(self, principal: Principal, where: ThreadFilter) -> int:
        where = self._limit_threads(principal, "count_threads", where)
        shared = await self._find_shared_threads(principal, where)
        return await self._hub.reads.count_threads(principal.owner, where, shared)

    async def _find_shared_threads(self, principal: Principal, where: ThreadFilter) -> Set[int]:
        """Return the database keys of the threads that the filter names in `ids` and that other owners share with the
        caller."""
        if not where.ids or not self._gate.can_be_shared(principal):
            return frozenset()
        return await self._hub.grants.find_threads(principal.owner, grantees_of(principal), where.ids)

    def _limit_threads(self, principal: Principal, method: str, where: ThreadFilter) -> ThreadFilter:
        """Return the filter restricted to threads that the caller may read: `agents` has the agents that rules allow to
        the caller. Raises forbidden if the caller may read none, or not those of the agent in the filter."""
        if where.agent is not None:
            self._gate.check(principal, method, where.agent)
        agents = self._gate.agents(principal, method)
        return where if agents is None else replace(where, agents=agents)

    async def thread_of(self, principal: Principal, protocol: str, agent: str, alias: str) -> str | None:
        # An alias is a name that its owner chose. If a grant covered aliases, it could capture the grantee's own names.
        self._gate.check(principal, "thread_of", agent)
        return await self._hub.reads.thread_of(principal.owner, protocol, agent, alias)

    async def aliases(self, principal: Principal, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        self._gate.check(principal, "aliases")
        return await self._hub.reads.aliases(principal.owner, protocol, thread_ids)

    async def open_interrupts(self, principal: Principal, task_id: str) -> Sequence[Interrupt]:
        owner = await self._gate.check_task(principal, task_id, "open_interrupts")
        return await self._hub.reads.open_interrupts(owner, task_id)

    async def known_interrupts(self, principal: Principal, thread_id: str, interrupt_ids: Collection[str]) -> Set[str]:
        read = partial(self._hub.reads.known_interrupts, thread_id=thread_id, interrupt_ids=interrupt_ids)
        return await self._gate.read_thread(principal, thread_id, "known_interrupts", read)

    async def tasks(
        self, principal: Principal, where: TaskFilter, *, limit: int, cursor: str | None = None
    ) -> TaskPage:
        if where.agent is not None:
            self._gate.check(principal, "tasks", where.agent)
        elif (agents := self._gate.agents(principal, "tasks")) is not None:
            where = replace(where, agents=agents)
        owner = await self._owner_of_filter(principal, where, "tasks")
        return await self._hub.reads.tasks(owner, where, limit=limit, cursor=cursor)

    async def tasks_active_at(self, principal: Principal, moment: int, *, slack: int, limit: int) -> Sequence[Task]:
        agents = self._gate.agents(principal, "tasks_active_at")
        return await self._hub.reads.tasks_active_at(principal.owner, moment, slack=slack, limit=limit, agents=agents)

    async def chain(self, principal: Principal, task_id: str) -> Sequence[Task]:
        owner = await self._gate.owner_of(principal, "task", task_id, "chain")
        tasks = await self._hub.reads.chain(owner, task_id)
        for agent in {task.agent for task in tasks}:
            self._gate.check_object(principal, "chain", agent, f"Task {task_id} not found")
        return tasks

    async def records(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> Sequence[Record]:
        if not self._gate.has_rules_by_agent(principal, "records") and not self._gate.can_be_shared(principal):
            self._gate.check(principal, "records")
            return await self._hub.reads.records(principal.owner, scope, after, inline=inline)
        read = partial(self._hub.reads.log, scope=scope, after=after, inline=inline)
        batches = self._gate.read_log(principal, scope, "records", read)
        return [record async for batch in batches for record in batch]

    def log(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        read = partial(self._hub.reads.log, scope=scope, after=after, inline=inline)
        return self._gate.read_log(principal, scope, "log", read)

    async def logs(
        self, principal: Principal, task_ids: Sequence[str], *, inline: bool = False
    ) -> Mapping[str, Sequence[Record]]:
        self._gate.check(principal, "logs")
        if self._gate.can_be_shared(principal):
            return await self._read_shared_logs(principal, task_ids, inline=inline)
        if self._gate.has_rules_by_agent(principal, "logs"):
            tasks = [await self._hub.reads.task(principal.owner, task_id) for task_id in task_ids]
            task_ids = [task.task_id for task in tasks if self._gate.is_allowed(principal, "logs", task.agent)]
        return await self._hub.reads.logs(principal.owner, task_ids, inline=inline)

    async def _read_shared_logs(
        self, principal: Principal, task_ids: Sequence[str], *, inline: bool
    ) -> Mapping[str, Sequence[Record]]:
        """Return the logs of tasks that may belong to several owners. `inline` fills in stored files."""
        logs: dict[str, Sequence[Record]] = {}
        for task_id in task_ids:
            owner = await self._gate.owner_of(principal, "task", task_id, "logs")
            task = await self._hub.reads.task(owner, task_id)
            if self._gate.is_allowed(principal, "logs", task.agent):
                logs |= await self._hub.reads.logs(owner, [task_id], inline=inline)
        return logs

    async def snapshot(
        self,
        principal: Principal,
        thread_id: str,
        name: Hashable,
        empty: Callable[[], S],
        *,
        until: int | None = None,
        inline: bool = False,
    ) -> S:
        async def read(owner: str) -> S:
            return await self._hub.reads.snapshot(owner, thread_id, name, empty, until=until, inline=inline)

        return await self._gate.read_thread(principal, thread_id, "snapshot", read)

    def follow(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        read = partial(self._hub.reads.follow, scope=scope, after=after, inline=inline)
        return self._gate.read_log(principal, scope, "follow", read)

    async def await_thread(self, principal: Principal, thread_id: str) -> bool:
        self._gate.check(principal, "await_thread")
        owner = await self._gate.owner_of(principal, "thread", thread_id, "await_thread")
        return await self._hub.reads.await_thread(owner, thread_id)

    async def file(self, principal: Principal, blob: str) -> FilePart:
        agents = self._gate.agents(principal, "file")
        if (shared := await self._find_shared_file(principal, blob, agents)) is not None:
            return await self._hub.reads.load_file(shared)
        return await self._hub.reads.file(principal.owner, blob, agents)

    async def file_pieces(self, principal: Principal, blob: str) -> tuple[FilePart, AsyncGenerator[bytes]]:
        agents = self._gate.agents(principal, "file_pieces")
        if (shared := await self._find_shared_file(principal, blob, agents)) is not None:
            return await self._hub.reads.load_file_pieces(shared)
        return await self._hub.reads.file_pieces(principal.owner, blob, agents)

    async def _find_shared_file(
        self, principal: Principal, blob: str, agents: frozenset[str] | None
    ) -> FilePart | None:
        """Return the description of a file that a thread shared with the caller names, and no thread of the caller's
        owner. Return None if there is no such file. With `agents`, only threads count on which no other agents ran."""
        if not self._gate.can_be_shared(principal) or await self._hub.reads.has_file(principal.owner, blob, agents):
            return None
        return await self._hub.grants.find_file(grantees_of(principal), blob, agents)

    async def _owner_of_filter(self, principal: Principal, where: RunFilter | TaskFilter, method: str) -> str:
        """Return the owner of the runs or tasks that a filter selects: the caller's, or another owner if the filter
        names a thread that this owner shares with the caller."""
        if where.thread_id is None:
            return principal.owner
        return await self._gate.owner_of(principal, "thread", where.thread_id, method)

    async def webhooks(self, principal: Principal, task_id: str) -> Sequence[Webhook]:
        owner = await self._gate.check_task(principal, task_id, "webhooks")
        return await self._hub.reads.webhooks(owner, task_id)
