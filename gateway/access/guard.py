"""Guard: the hub as adapters get it. It checks each call against a policy before it passes the call to the hub.

Methods of `babelgate.canonical.hub.Hub` take a principal; those of `babelgate.gateway.hub.GatewayHub` take an owner.
Only the guard passes calls from one to the other, so no adapter can skip the check.

The policy gets the name of the agent where the arguments or the result of a call contain it. If the policy depends on
agents, the guard also reads the agent of a task or run that a call changes. Calls that concern a whole thread, a log, a
file or a list without a filter on agents have an empty agent.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Hashable, Mapping, Sequence, Set
from typing import Any, Literal

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.assistant import Assistant, AssistantChange, AssistantQuery
from babelgate.canonical.cron import Cron, CronQuery
from babelgate.canonical.event import Record, RunCreated
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import (
    Answers,
    Receipt,
    RunFilter,
    RunPage,
    S,
    Scope,
    StateUpdate,
    Submission,
    TaskFilter,
    TaskPage,
    ThreadChange,
    ThreadFilter,
    ThreadOrder,
    Turn,
    Webhook,
)
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart
from babelgate.canonical.principal import Principal
from babelgate.canonical.store import Item, ItemQuery, Namespace, NamespaceQuery
from babelgate.canonical.thread import Artifact, Interrupt, Run, Task, Thread, ThreadView
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.access.operations import OPERATION_OF, Operations, Part
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.agents.registry import unknown_agent
from babelgate.gateway.hub import GatewayHub


class _Gate:
    """Check of the calls to one part of the port."""

    def __init__(self, part: Part, hub: GatewayHub, policy: Policy, protocol: str, operations: Operations) -> None:
        self._part = part
        self._hub = hub
        self._policy = policy
        self._protocol = protocol
        self._operations = operations.get(part, {})

    def check(self, principal: Principal, method: str, agent: str | None = None) -> None:
        """Check a call to a method. Raises forbidden."""
        operation = self._operations.get(method)
        if operation is None:
            raise FaultError(
                FaultCode.FORBIDDEN, f"The gateway permits no call of {self._part}.{method}: it has no operation."
            )
        self._policy.check(principal, operation, agent or "", self._protocol)

    def is_allowed(self, principal: Principal, method: str, agent: str) -> bool:
        """Return whether the policy allows a call to a method. Raises forbidden if the method has no operation."""
        if method not in self._operations:
            self.check(principal, method)
        try:
            self.check(principal, method, agent)
        except FaultError as error:
            if error.fault.code is not FaultCode.FORBIDDEN:
                raise
            return False
        return True

    async def check_task(self, principal: Principal, task_id: str, *methods: str) -> None:
        """Check a call of these methods on a task. Raises forbidden. If the policy depends on agents, also raises
        not_found."""
        agent = ""
        if self._policy.has_rules_by_agent:
            agent = (await self._hub.reads.task(principal.owner, task_id)).agent
        for method in methods:
            self.check(principal, method, agent)

    async def check_run(self, principal: Principal, run_id: str, *methods: str) -> None:
        """Check a call of these methods on a run. Raises forbidden. If the policy depends on agents, also raises
        not_found."""
        agent = ""
        if self._policy.has_rules_by_agent:
            agent = (await self._hub.reads.run(principal.owner, run_id)).agent
        for method in methods:
            self.check(principal, method, agent)

    async def check_cron(self, principal: Principal, cron_id: str, method: str) -> None:
        """Check a call of a method on a cron. Raises forbidden."""
        agent = ""
        if self._policy.has_rules_by_agent:
            cron = await self._hub.crons.get(principal.owner, cron_id)
            agent = "" if cron is None else cron.agent
        self.check(principal, method, agent)

    async def check_assistant(self, principal: Principal, assistant_id: str, method: str) -> None:
        """Check a call of a method on an assistant. Raises forbidden."""
        agent = ""
        if self._policy.has_rules_by_agent:
            assistant = await self._hub.assistants.get(principal.owner, assistant_id)
            agent = "" if assistant is None else assistant.agent
        self.check(principal, method, agent)


class GuardedReads:
    """Guarded `babelgate.canonical.hub.Reads`."""

    def __init__(self, hub: GatewayHub, gate: _Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def task(self, principal: Principal, task_id: str) -> Task:
        task = await self._hub.reads.task(principal.owner, task_id)
        self._gate.check(principal, "task", task.agent)
        return task

    async def run(self, principal: Principal, run_id: str) -> Run:
        run = await self._hub.reads.run(principal.owner, run_id)
        self._gate.check(principal, "run", run.agent)
        return run

    async def run_input(self, principal: Principal, run: Run) -> RunCreated:
        self._gate.check(principal, "run_input", run.agent)
        return await self._hub.reads.run_input(principal.owner, run)

    async def runs(self, principal: Principal, where: RunFilter, *, limit: int, offset: int = 0) -> Listed[Run]:
        self._gate.check(principal, "runs", where.agent)
        return await self._hub.reads.runs(principal.owner, where, limit=limit, offset=offset)

    async def last_begun(self, principal: Principal, thread_id: str, *, ended_before: int | None = None) -> Run | None:
        run = await self._hub.reads.last_begun(principal.owner, thread_id, ended_before=ended_before)
        self._gate.check(principal, "last_begun", None if run is None else run.agent)
        return run

    async def run_page(
        self, principal: Principal, thread_id: str, agent: str, *, limit: int, offset: int = 0
    ) -> RunPage | None:
        self._gate.check(principal, "run_page", agent)
        return await self._hub.reads.run_page(principal.owner, thread_id, agent, limit=limit, offset=offset)

    async def turns(
        self,
        principal: Principal,
        thread_id: str,
        *,
        limit: int,
        beyond: int | None = None,
        descending: bool = True,
    ) -> Sequence[Turn]:
        self._gate.check(principal, "turns")
        return await self._hub.reads.turns(
            principal.owner, thread_id, limit=limit, beyond=beyond, descending=descending
        )

    def turn_log(
        self, principal: Principal, thread_id: str, turns: Sequence[Turn], *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        self._gate.check(principal, "turn_log")
        return self._hub.reads.turn_log(principal.owner, thread_id, turns, inline=inline)

    async def removed_messages(self, principal: Principal, thread_id: str) -> Set[str]:
        self._gate.check(principal, "removed_messages")
        return await self._hub.reads.removed_messages(principal.owner, thread_id)

    async def thread(self, principal: Principal, thread_id: str) -> Thread:
        self._gate.check(principal, "thread")
        return await self._hub.reads.thread(principal.owner, thread_id)

    async def thread_view(self, principal: Principal, thread_id: str) -> ThreadView:
        self._gate.check(principal, "thread_view")
        return await self._hub.reads.thread_view(principal.owner, thread_id)

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
        self._gate.check(principal, "threads", where.agent)
        return await self._hub.reads.threads(
            principal.owner, where, limit=limit, offset=offset, order=order, descending=descending
        )

    async def count_threads(self, principal: Principal, where: ThreadFilter) -> int:
        self._gate.check(principal, "count_threads", where.agent)
        return await self._hub.reads.count_threads(principal.owner, where)

    async def thread_of(self, principal: Principal, protocol: str, agent: str, alias: str) -> str | None:
        self._gate.check(principal, "thread_of", agent)
        return await self._hub.reads.thread_of(principal.owner, protocol, agent, alias)

    async def aliases(self, principal: Principal, protocol: str, thread_ids: Sequence[str]) -> Mapping[str, str]:
        self._gate.check(principal, "aliases")
        return await self._hub.reads.aliases(principal.owner, protocol, thread_ids)

    async def open_interrupts(self, principal: Principal, task_id: str) -> Sequence[Interrupt]:
        self._gate.check(principal, "open_interrupts")
        return await self._hub.reads.open_interrupts(principal.owner, task_id)

    async def known_interrupts(self, principal: Principal, thread_id: str, interrupt_ids: Collection[str]) -> Set[str]:
        self._gate.check(principal, "known_interrupts")
        return await self._hub.reads.known_interrupts(principal.owner, thread_id, interrupt_ids)

    async def tasks(
        self, principal: Principal, where: TaskFilter, *, limit: int, cursor: str | None = None
    ) -> TaskPage:
        self._gate.check(principal, "tasks", where.agent)
        return await self._hub.reads.tasks(principal.owner, where, limit=limit, cursor=cursor)

    async def tasks_active_at(self, principal: Principal, moment: int, *, slack: int, limit: int) -> Sequence[Task]:
        self._gate.check(principal, "tasks_active_at")
        return await self._hub.reads.tasks_active_at(principal.owner, moment, slack=slack, limit=limit)

    async def chain(self, principal: Principal, task_id: str) -> Sequence[Task]:
        tasks = await self._hub.reads.chain(principal.owner, task_id)
        for agent in {task.agent for task in tasks}:
            self._gate.check(principal, "chain", agent)
        return tasks

    async def records(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> Sequence[Record]:
        self._gate.check(principal, "records")
        return await self._hub.reads.records(principal.owner, scope, after, inline=inline)

    def log(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        self._gate.check(principal, "log")
        return self._hub.reads.log(principal.owner, scope, after, inline=inline)

    async def logs(
        self, principal: Principal, task_ids: Sequence[str], *, inline: bool = False
    ) -> Mapping[str, Sequence[Record]]:
        self._gate.check(principal, "logs")
        return await self._hub.reads.logs(principal.owner, task_ids, inline=inline)

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
        self._gate.check(principal, "snapshot")
        return await self._hub.reads.snapshot(principal.owner, thread_id, name, empty, until=until, inline=inline)

    def follow(
        self, principal: Principal, scope: Scope, after: int = 0, *, inline: bool = False
    ) -> AsyncGenerator[Sequence[Record]]:
        self._gate.check(principal, "follow")
        return self._hub.reads.follow(principal.owner, scope, after, inline=inline)

    async def await_thread(self, principal: Principal, thread_id: str) -> bool:
        self._gate.check(principal, "await_thread")
        return await self._hub.reads.await_thread(principal.owner, thread_id)

    async def file(self, principal: Principal, blob: str) -> FilePart:
        self._gate.check(principal, "file")
        return await self._hub.reads.file(principal.owner, blob)

    async def file_pieces(self, principal: Principal, blob: str) -> tuple[FilePart, AsyncGenerator[bytes]]:
        self._gate.check(principal, "file_pieces")
        return await self._hub.reads.file_pieces(principal.owner, blob)

    async def webhooks(self, principal: Principal, task_id: str) -> Sequence[Webhook]:
        await self._gate.check_task(principal, task_id, "webhooks")
        return await self._hub.reads.webhooks(principal.owner, task_id)


class GuardedStore:
    """Guarded `babelgate.canonical.store.Store`."""

    def __init__(self, hub: GatewayHub, gate: _Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def put(
        self, principal: Principal, namespace: Namespace, key: str, value: JsonObject, ttl: int | None = None
    ) -> None:
        self._gate.check(principal, "put")
        await self._hub.store.put(principal.owner, namespace, key, value, ttl)

    async def get(self, principal: Principal, namespace: Namespace, key: str, *, refresh: bool = True) -> Item | None:
        self._gate.check(principal, "get")
        return await self._hub.store.get(principal.owner, namespace, key, refresh=refresh)

    async def delete(self, principal: Principal, namespace: Namespace, key: str) -> bool:
        self._gate.check(principal, "delete")
        return await self._hub.store.delete(principal.owner, namespace, key)

    async def search(self, principal: Principal, query: ItemQuery) -> Listed[Item]:
        self._gate.check(principal, "search")
        return await self._hub.store.search(principal.owner, query)

    async def namespaces(self, principal: Principal, query: NamespaceQuery) -> Sequence[Namespace]:
        self._gate.check(principal, "namespaces")
        return await self._hub.store.namespaces(principal.owner, query)


class GuardedAssistants:
    """Guarded `babelgate.canonical.assistant.Assistants`."""

    def __init__(self, hub: GatewayHub, gate: _Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def create(self, principal: Principal, assistant: Assistant) -> Assistant:
        self._gate.check(principal, "create", assistant.agent)
        return await self._hub.assistants.create(principal.owner, assistant)

    async def get(self, principal: Principal, assistant_id: str) -> Assistant | None:
        assistant = await self._hub.assistants.get(principal.owner, assistant_id)
        self._gate.check(principal, "get", None if assistant is None else assistant.agent)
        return assistant

    async def change(
        self, principal: Principal, assistant_id: str, change: AssistantChange, default: Assistant | None = None
    ) -> Assistant:
        await self._gate.check_assistant(principal, assistant_id, "change")
        if change.agent is not None:
            self._gate.check(principal, "change", change.agent)
        return await self._hub.assistants.change(principal.owner, assistant_id, change, default)

    async def use_version(self, principal: Principal, assistant_id: str, version: int) -> Assistant:
        await self._gate.check_assistant(principal, assistant_id, "use_version")
        return await self._hub.assistants.use_version(principal.owner, assistant_id, version)

    async def delete(self, principal: Principal, assistant_id: str) -> bool:
        await self._gate.check_assistant(principal, assistant_id, "delete")
        return await self._hub.assistants.delete(principal.owner, assistant_id)

    async def search(self, principal: Principal, query: AssistantQuery) -> Listed[Assistant]:
        self._gate.check(principal, "search")
        return await self._hub.assistants.search(principal.owner, query)

    async def count(self, principal: Principal, query: AssistantQuery) -> int:
        self._gate.check(principal, "count")
        return await self._hub.assistants.count(principal.owner, query)

    async def versions(self, principal: Principal, assistant_id: str) -> Sequence[int]:
        await self._gate.check_assistant(principal, assistant_id, "versions")
        return await self._hub.assistants.versions(principal.owner, assistant_id)

    async def version(self, principal: Principal, assistant_id: str, version: int) -> Assistant | None:
        assistant = await self._hub.assistants.version(principal.owner, assistant_id, version)
        self._gate.check(principal, "version", None if assistant is None else assistant.agent)
        return assistant


class GuardedCrons:
    """Guarded `babelgate.canonical.cron.Crons`."""

    def __init__(self, hub: GatewayHub, gate: _Gate, hub_gate: _Gate) -> None:
        self._hub = hub
        self._gate = gate
        self._hub_gate = hub_gate

    async def create(self, principal: Principal, cron: Cron, webhook: str | None = None) -> Cron:
        self._gate.check(principal, "create", cron.agent)
        if webhook is not None:
            self._hub_gate.check(principal, "set_webhook", cron.agent)
        return await self._hub.crons.create(principal.owner, cron, webhook)

    async def get(self, principal: Principal, cron_id: str) -> Cron | None:
        cron = await self._hub.crons.get(principal.owner, cron_id)
        self._gate.check(principal, "get", None if cron is None else cron.agent)
        return cron

    async def change(
        self, principal: Principal, cron_id: str, changes: Mapping[str, Any], webhook: str | None = None
    ) -> Cron:
        await self._gate.check_cron(principal, cron_id, "change")
        if webhook is not None:
            await self._hub_gate.check_cron(principal, cron_id, "set_webhook")
        return await self._hub.crons.change(principal.owner, cron_id, changes, webhook)

    async def delete(self, principal: Principal, cron_id: str) -> bool:
        await self._gate.check_cron(principal, cron_id, "delete")
        return await self._hub.crons.delete(principal.owner, cron_id)

    async def search(self, principal: Principal, query: CronQuery) -> Listed[Cron]:
        self._gate.check(principal, "search")
        return await self._hub.crons.search(principal.owner, query)

    async def count(self, principal: Principal, query: CronQuery) -> int:
        self._gate.check(principal, "count")
        return await self._hub.crons.count(principal.owner, query)


class GuardedHub:
    """Guarded `babelgate.canonical.hub.Hub`, for the calls of one protocol."""

    def __init__(self, hub: GatewayHub, policy: Policy, protocol: str, operations: Operations = OPERATION_OF) -> None:
        def gate(part: Part) -> _Gate:
            return _Gate(part, hub, policy, protocol, operations)

        self._hub = hub
        self._gate = gate("hub")
        self.reads = GuardedReads(hub, gate("reads"))
        self.store = GuardedStore(hub, gate("store"))
        self.assistants = GuardedAssistants(hub, gate("assistants"))
        self.crons = GuardedCrons(hub, gate("crons"), self._gate)

    @property
    def is_stopping(self) -> bool:
        """True once connections are being closed."""
        return self._hub.is_stopping

    # Agents

    def agents(self, principal: Principal) -> Sequence[AgentInfo]:
        """Return the agents that the caller can discover."""
        return [info for info in self._hub.agents() if self._gate.is_allowed(principal, "agents", info.name)]

    def agent(self, principal: Principal, name: str) -> AgentInfo:
        """Return one agent. Raises not_found, also for an agent that the caller cannot discover."""
        info = self._hub.agent(name)
        if not self._gate.is_allowed(principal, "agent", info.name):
            raise unknown_agent(name)
        return info

    def introspectable_agent(self, principal: Principal, name: str) -> Introspectable | None:
        """Return an agent that can describe its graph, or None if it cannot. Raises not_found, also for an agent that
        the caller cannot discover."""
        info = self._hub.agent(name)
        if not self._gate.is_allowed(principal, "introspectable_agent", info.name):
            raise unknown_agent(name)
        return self._hub.introspectable_agent(name)

    # Threads

    async def create_thread(
        self,
        principal: Principal,
        change: ThreadChange,
        *,
        thread_id: str | None = None,
        if_exists: Literal["raise", "return"] = "raise",
    ) -> Thread:
        self._gate.check(principal, "create_thread")
        return await self._hub.create_thread(principal.owner, change, thread_id=thread_id, if_exists=if_exists)

    async def change_thread(self, principal: Principal, thread_id: str, change: ThreadChange) -> Thread:
        self._gate.check(principal, "change_thread")
        return await self._hub.change_thread(principal.owner, thread_id, change)

    async def copy_thread(self, principal: Principal, thread_id: str) -> Thread:
        self._gate.check(principal, "copy_thread")
        return await self._hub.copy_thread(principal.owner, thread_id)

    async def update_state(self, principal: Principal, update: StateUpdate) -> str:
        self._gate.check(principal, "update_state", update.agent)
        return await self._hub.update_state(principal.owner, update)

    async def upload(
        self,
        principal: Principal,
        thread_id: str,
        file: FilePart,
        folder: str | None = None,
        *,
        key: str | None = None,
    ) -> Artifact:
        self._gate.check(principal, "upload")
        return await self._hub.upload(principal.owner, thread_id, file, folder, key=key)

    async def delete_thread(self, principal: Principal, thread_id: str) -> None:
        self._gate.check(principal, "delete_thread")
        await self._hub.delete_thread(principal.owner, thread_id)

    async def prune_thread(self, principal: Principal, thread_id: str) -> None:
        self._gate.check(principal, "prune_thread")
        await self._hub.prune_thread(principal.owner, thread_id)

    async def change_run(self, principal: Principal, run_id: str, metadata: JsonObject) -> Run:
        await self._gate.check_run(principal, run_id, "change_run")
        return await self._hub.change_run(principal.owner, run_id, metadata)

    async def remove_run(self, principal: Principal, run_id: str) -> None:
        await self._gate.check_run(principal, run_id, "remove_run")
        await self._hub.remove_run(principal.owner, run_id)

    # Runs

    async def submit(self, principal: Principal, submission: Submission) -> Receipt:
        agent = self._hub.agent(submission.agent).name
        self._gate.check(principal, "submit", agent)
        if submission.webhook is not None:
            self._gate.check(principal, "set_webhook", agent)
        return await self._hub.submit(principal.owner, submission)

    async def answer(self, principal: Principal, answers: Answers) -> Receipt:
        methods = ("answer",) if answers.webhook is None else ("answer", "set_webhook")
        await self._gate.check_task(principal, answers.task_id, *methods)
        return await self._hub.answer(principal.owner, answers)

    async def cancel(self, principal: Principal, task_id: str) -> Task:
        await self._gate.check_task(principal, task_id, "cancel")
        return await self._hub.cancel(principal.owner, task_id)

    async def cancel_run(self, principal: Principal, run_id: str, *, rollback: bool = False) -> Run:
        methods = ("cancel_run", "remove_run") if rollback else ("cancel_run",)
        await self._gate.check_run(principal, run_id, *methods)
        return await self._hub.cancel_run(principal.owner, run_id, rollback=rollback)

    # Webhooks and helpers

    async def set_webhook(self, principal: Principal, webhook: Webhook) -> None:
        await self._gate.check_task(principal, webhook.task_id, "set_webhook")
        await self._hub.set_webhook(principal.owner, webhook)

    async def delete_webhook(self, principal: Principal, task_id: str, webhook_id: str) -> bool:
        await self._gate.check_task(principal, task_id, "delete_webhook")
        return await self._hub.delete_webhook(principal.owner, task_id, webhook_id)

    async def find_schema_error(self, principal: Principal, schema: JsonObject, value: Json) -> str | None:
        self._gate.check(principal, "find_schema_error")
        return await self._hub.find_schema_error(schema, value)

    async def fetch(self, principal: Principal, url: str, received: Callable[[int], None]) -> bytes:
        self._gate.check(principal, "fetch")
        return await self._hub.fetch(url, received)
