"""Guard: the hub as adapters get it. It checks each call against a policy before it passes the call to the hub.

Methods of `babelgate.canonical.hub.Hub` take a principal; those of `babelgate.gateway.hub.GatewayHub` take an owner.
Only the guard passes calls from one to the other, so no adapter can skip the check. `babelgate.gateway.access.gate`
describes what rules for some agents mean for each kind of call.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.assistant import Assistant, AssistantChange, AssistantQuery
from babelgate.canonical.cron import Cron, CronQuery
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.grant import Grant, GrantLevel, grantees_of
from babelgate.canonical.hub import (
    Answers,
    Receipt,
    StateUpdate,
    Submission,
    ThreadChange,
    Webhook,
)
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart
from babelgate.canonical.principal import Principal
from babelgate.canonical.store import Item, ItemQuery, Namespace, NamespaceQuery
from babelgate.canonical.thread import Artifact, Run, Task, Thread
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.access.gate import Gate
from babelgate.gateway.access.guarded_overview import GuardedOverview
from babelgate.gateway.access.guarded_reads import GuardedReads
from babelgate.gateway.access.operations import OPERATION_OF, Operations, Part
from babelgate.gateway.access.policy import Policy
from babelgate.gateway.access.rules import merge_challenges
from babelgate.gateway.agents.registry import unknown_agent
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.run_caller import act_for


class GuardedStore:
    """Implementation of `babelgate.canonical.store.Store` that checks each call before it passes the call to the
    hub."""

    def __init__(self, hub: GatewayHub, gate: Gate) -> None:
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
    """Implementation of `babelgate.canonical.assistant.Assistants` that checks each call before it passes the call to
    the hub."""

    def __init__(self, hub: GatewayHub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def create(self, principal: Principal, assistant: Assistant) -> Assistant:
        self._gate.check_agent(principal, "create", assistant.agent)
        return await self._hub.assistants.create(principal.owner, assistant)

    async def get(self, principal: Principal, assistant_id: str) -> Assistant | None:
        assistant = await self._hub.assistants.get(principal.owner, assistant_id)
        return assistant if self._is_visible(principal, "get", assistant) else None

    async def change(
        self, principal: Principal, assistant_id: str, change: AssistantChange, default: Assistant | None = None
    ) -> Assistant:
        await self._check(principal, assistant_id, "change")
        for agent in (change.agent, None if default is None else default.agent):
            if agent is not None:
                self._gate.check_agent(principal, "change", agent)
        return await self._hub.assistants.change(principal.owner, assistant_id, change, default)

    async def use_version(self, principal: Principal, assistant_id: str, version: int) -> Assistant:
        await self._check(principal, assistant_id, "use_version")
        return await self._hub.assistants.use_version(principal.owner, assistant_id, version)

    async def delete(self, principal: Principal, assistant_id: str) -> bool:
        await self._check(principal, assistant_id, "delete")
        return await self._hub.assistants.delete(principal.owner, assistant_id)

    async def search(self, principal: Principal, query: AssistantQuery) -> Listed[Assistant]:
        return await self._hub.assistants.search(principal.owner, self._limit(principal, "search", query))

    async def count(self, principal: Principal, query: AssistantQuery) -> int:
        return await self._hub.assistants.count(principal.owner, self._limit(principal, "count", query))

    def _limit(self, principal: Principal, method: str, query: AssistantQuery) -> AssistantQuery:
        """Return the query restricted to assistants that the caller may read. Raises forbidden if the caller may read
        none."""
        agents = self._gate.agents(principal, method)
        if agents is None:
            return query
        return replace(query, agents=agents if query.agents is None else agents & query.agents)

    async def versions(self, principal: Principal, assistant_id: str) -> Sequence[int]:
        await self._check(principal, assistant_id, "versions")
        return await self._hub.assistants.versions(principal.owner, assistant_id)

    async def version(self, principal: Principal, assistant_id: str, version: int) -> Assistant | None:
        assistant = await self._hub.assistants.version(principal.owner, assistant_id, version)
        return assistant if self._is_visible(principal, "version", assistant) else None

    def _is_visible(self, principal: Principal, method: str, assistant: Assistant | None) -> bool:
        """Return False for an assistant whose agent the caller cannot discover. Without an assistant (None), the method
        itself is checked. Raises forbidden if the policy does not allow the call."""
        agent, assistant_id = ("", "") if assistant is None else (assistant.agent, assistant.assistant_id)
        return self._gate.is_visible(principal, method, agent, _missing_assistant(assistant_id))

    async def _check(self, principal: Principal, assistant_id: str, method: str) -> None:
        """Check a call of a method on an assistant. Raises forbidden, and not_found if the caller cannot discover its
        agent."""
        agent = ""
        if self._gate.has_rules_by_agent(principal, method):
            assistant = await self._hub.assistants.get(principal.owner, assistant_id)
            agent = "" if assistant is None else assistant.agent
        self._gate.check_object(principal, method, agent, _missing_assistant(assistant_id))


def _missing_assistant(assistant_id: str) -> str:
    return f"Assistant with ID {assistant_id} not found"


class GuardedCrons:
    """Implementation of `babelgate.canonical.cron.Crons` that checks each call before it passes the call to the hub."""

    def __init__(self, hub: GatewayHub, gate: Gate, hub_gate: Gate) -> None:
        self._hub = hub
        self._gate = gate
        self._hub_gate = hub_gate

    async def create(self, principal: Principal, cron: Cron, webhook: str | None = None) -> Cron:
        agent = self._gate.check_agent(principal, "create", cron.agent)
        if cron.thread_id is not None:
            await self._gate.check_thread(principal, cron.thread_id, "create")
        if webhook is not None:
            self._hub_gate.check(principal, "set_webhook", agent)
        return await self._hub.crons.create(principal.owner, cron.replace(principal=principal), webhook)

    async def get(self, principal: Principal, cron_id: str) -> Cron | None:
        cron = await self._hub.crons.get(principal.owner, cron_id)
        agent = "" if cron is None else cron.agent
        return cron if self._gate.is_visible(principal, "get", agent, _missing_cron(cron_id)) else None

    async def change(
        self, principal: Principal, cron_id: str, changes: Mapping[str, Any], webhook: str | None = None
    ) -> Cron:
        await self._check(self._gate, principal, cron_id, "change")
        if webhook is not None:
            await self._check(self._hub_gate, principal, cron_id, "set_webhook")
        return await self._hub.crons.change(principal.owner, cron_id, {**changes, "principal": principal}, webhook)

    async def delete(self, principal: Principal, cron_id: str) -> bool:
        await self._check(self._gate, principal, cron_id, "delete")
        return await self._hub.crons.delete(principal.owner, cron_id)

    async def search(self, principal: Principal, query: CronQuery) -> Listed[Cron]:
        return await self._hub.crons.search(principal.owner, self._limit(principal, "search", query))

    async def count(self, principal: Principal, query: CronQuery) -> int:
        return await self._hub.crons.count(principal.owner, self._limit(principal, "count", query))

    def _limit(self, principal: Principal, method: str, query: CronQuery) -> CronQuery:
        """Return the query restricted to crons that the caller may read. Raises forbidden if the caller may read
        none."""
        agents = self._gate.agents(principal, method)
        return query if agents is None else replace(query, agents=agents)

    async def _check(self, gate: Gate, principal: Principal, cron_id: str, method: str) -> None:
        """Check a call of a method on a cron. Raises forbidden, and not_found if the caller cannot discover its
        agent."""
        agent = ""
        if gate.has_rules_by_agent(principal, method):
            cron = await self._hub.crons.get(principal.owner, cron_id)
            agent = "" if cron is None else cron.agent
        gate.check_object(principal, method, agent, _missing_cron(cron_id))


def _missing_cron(cron_id: str) -> str:
    return f"Cron with ID {cron_id} not found"


class GuardedGrants:
    """Implementation of `babelgate.canonical.grant.Grants` that checks each call before it passes the call to the
    hub."""

    def __init__(self, hub: GatewayHub, gate: Gate) -> None:
        self._hub = hub
        self._gate = gate

    async def give(
        self, principal: Principal, thread_id: str, grantee: str, level: GrantLevel, expires: int | None = None
    ) -> Grant:
        await self._gate.check_agents(principal, principal.owner, thread_id, "give")
        return await self._hub.grants.give(principal.owner, thread_id, grantee, level, principal.subject, expires)

    async def delete(self, principal: Principal, thread_id: str, grantee: str) -> bool:
        await self._gate.check_agents(principal, principal.owner, thread_id, "delete")
        return await self._hub.grants.delete(principal.owner, thread_id, grantee)

    async def list_given(self, principal: Principal, thread_id: str | None = None) -> Sequence[Grant]:
        self._gate.check(principal, "list_given")
        if thread_id is not None:
            await self._hub.reads.thread(principal.owner, thread_id)
            await self._gate.check_agents(principal, principal.owner, thread_id, "list_given")
        grants = await self._hub.grants.list_given(principal.owner, thread_id)
        return [grant for grant in grants if await self._is_visible(principal, grant, "list_given")]

    async def list_received(self, principal: Principal) -> Sequence[Grant]:
        self._gate.check(principal, "list_received")
        grants = await self._hub.grants.list_received(principal.owner, grantees_of(principal))
        return [grant for grant in grants if await self._is_visible(principal, grant, "list_received")]

    async def _is_visible(self, principal: Principal, grant: Grant, method: str) -> bool:
        """Return False if the caller may not read the thread of a grant."""
        try:
            await self._gate.check_agents(principal, grant.owner, grant.thread_id, method)
        except FaultError as error:
            if error.fault.code not in (FaultCode.FORBIDDEN, FaultCode.NOT_FOUND):
                raise
            return False
        return True


class GuardedHub:
    """Implementation of `babelgate.canonical.hub.Hub` that checks each call before it passes the call to the hub. It is
    for the calls of one protocol."""

    def __init__(self, hub: GatewayHub, policy: Policy, protocol: str, operations: Operations = OPERATION_OF) -> None:
        def gate(part: Part) -> Gate:
            return Gate(part, hub, policy, protocol, operations)

        self._hub = hub
        self._gate = gate("hub")
        self._reads_gate = gate("reads")
        self.reads = GuardedReads(hub, self._reads_gate)
        self.store = GuardedStore(hub, gate("store"))
        self.assistants = GuardedAssistants(hub, gate("assistants"))
        self.crons = GuardedCrons(hub, gate("crons"), self._gate)
        self.grants = GuardedGrants(hub, gate("grants"))
        self.overview = GuardedOverview(hub, gate("overview"))

    @property
    def is_stopping(self) -> bool:
        """True once the gateway closes connections, because it shuts down."""
        return self._hub.is_stopping

    @property
    def stopping(self) -> Awaitable[object]:
        """Awaitable that completes when `is_stopping` becomes true."""
        return self._hub.stopping

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

    def can_discover(self, principal: Principal, name: str) -> bool:
        """Return True if there is an agent of exactly this name, and the caller can discover it."""
        return self._hub.registry.has_agent(name) and self._gate.is_allowed(principal, "agent", name)

    def introspectable_agent(self, principal: Principal, name: str) -> Introspectable | None:
        """Return an agent that can describe its graph, or None if it cannot. Raises not_found, also for an agent that
        the caller cannot discover."""
        info = self._hub.agent(name)
        if not self._gate.is_allowed(principal, "introspectable_agent", info.name):
            raise unknown_agent(name)
        act_for(principal)
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
        if thread_id is not None and if_exists == "return":
            owner = await self._reads_gate.owner_of(principal, "thread", thread_id, "thread")
            if owner != principal.owner:
                return await self.reads.thread(principal, thread_id)
        thread = await self._hub.create_thread(principal.owner, change, thread_id=thread_id, if_exists=if_exists)
        if thread_id is not None:  # it may have existed
            await self._gate.check_thread(principal, thread_id, "create_thread")
        return thread

    async def change_thread(self, principal: Principal, thread_id: str, change: ThreadChange) -> Thread:
        owner = await self._gate.check_thread(principal, thread_id, "change_thread")
        return await self._hub.change_thread(owner, thread_id, change)

    async def copy_thread(self, principal: Principal, thread_id: str) -> Thread:
        owner = await self._gate.check_thread(principal, thread_id, "copy_thread")
        return await self._hub.copy_thread(owner, thread_id)

    async def update_state(self, principal: Principal, update: StateUpdate) -> str:
        owner = await self._gate.check_thread(principal, update.thread_id, "update_state")
        if update.agent is not None:
            self._gate.check_agent(principal, "update_state", update.agent)
        act_for(principal)
        return await self._hub.update_state(owner, update)

    async def upload(
        self,
        principal: Principal,
        thread_id: str,
        file: FilePart,
        folder: str | None = None,
        *,
        key: str | None = None,
    ) -> Artifact:
        owner = await self._gate.check_thread(principal, thread_id, "upload")
        return await self._hub.upload(owner, thread_id, file, folder, key=key)

    async def delete_thread(self, principal: Principal, thread_id: str) -> None:
        owner = await self._gate.check_thread(principal, thread_id, "delete_thread")
        await self._hub.delete_thread(owner, thread_id)

    async def prune_thread(self, principal: Principal, thread_id: str) -> None:
        owner = await self._gate.check_thread(principal, thread_id, "prune_thread")
        await self._hub.prune_thread(owner, thread_id)

    async def change_run(self, principal: Principal, run_id: str, metadata: JsonObject) -> Run:
        owner = await self._gate.check_run(principal, run_id, "change_run")
        return await self._hub.change_run(owner, run_id, metadata)

    async def remove_run(self, principal: Principal, run_id: str) -> None:
        owner = await self._gate.check_run(principal, run_id, "remove_run")
        await self._hub.remove_run(owner, run_id)

    # Runs

    async def submit(self, principal: Principal, submission: Submission) -> Receipt:
        agent = self._gate.check_agent(principal, "submit", submission.agent)
        if submission.webhook is not None:
            self._gate.check(principal, "set_webhook", agent)
        owner = await self._owner_of_context(principal, submission)
        if self._reads_gate.has_rules_by_agent(principal, "thread"):
            await self._check_context(principal, owner, submission, agent)
        act_for(principal)
        named = msgspec.structs.replace(submission, key_id=principal.key_id, caller=principal)
        return await self._hub.submit(owner, named)

    async def _owner_of_context(self, principal: Principal, submission: Submission) -> str:
        """Return the owner of the thread that a submission continues. Raises forbidden if the submission registers a
        webhook on a thread of another owner."""
        task_id = submission.follow_up or submission.continues
        if submission.thread_id is not None:
            owner = await self._gate.owner_of(principal, "thread", submission.thread_id, "submit")
        elif task_id is not None:
            owner = await self._gate.owner_of(principal, "task", task_id, "submit")
        else:
            owner = principal.owner
        if owner != principal.owner and submission.webhook is not None:
            raise FaultError(FaultCode.FORBIDDEN, "Only the owner of a thread registers webhooks for its runs.")
        return owner

    def check_submit(self, principal: Principal, agent: str) -> None:
        """Implement `babelgate.canonical.hub.Hub.check_submit`. Raises forbidden if the policy does not allow both
        operations, and not_found for an agent that the caller cannot discover."""
        refusals: list[FaultError] = []
        for gate, method in ((self._gate, "check_submit"), (self._reads_gate, "run")):
            try:
                gate.check_agent(principal, method, agent)
            except FaultError as error:
                refusals.append(error)
        if refusals:
            raise merge_challenges(refusals)

    async def _check_context(self, principal: Principal, owner: str, submission: Submission, agent: str) -> None:
        """Check that the caller may read what other agents said in the threads that a run begins with, because the
        agent of the run gets it. Raises forbidden if the policy does not allow it, and not_found if the caller cannot
        discover one of these agents."""
        fork = submission.fork
        thread_ids = [submission.thread_id, None if fork is None else fork.thread_id]
        if submission.alias is not None:
            thread_ids.append(await self._hub.reads.thread_of(owner, submission.protocol, agent, submission.alias))
        tasks = [submission.follow_up, submission.continues]
        tasks.append(None if fork is None else fork.task_id)
        if fork is not None and fork.run_id is not None:
            tasks.append((await self._hub.reads.run(owner, fork.run_id)).task_id)
        for task_id in dict.fromkeys(task_id for task_id in tasks if task_id is not None):
            thread_ids.append((await self._hub.reads.task(owner, task_id)).thread_id)
        for thread_id in dict.fromkeys(thread_id for thread_id in thread_ids if thread_id is not None):
            await self._reads_gate.check_agents(principal, owner, thread_id, "thread", besides=(agent,))

    async def answer(self, principal: Principal, answers: Answers) -> Receipt:
        methods = ("answer",) if answers.webhook is None else ("answer", "set_webhook")
        owner = await self._gate.check_task(principal, answers.task_id, *methods)
        named = msgspec.structs.replace(
            answers, key_id=principal.key_id, caller=principal, may_raise=self._gate.can_operate(principal)
        )
        return await self._hub.answer(owner, named)

    async def check_answers(self, principal: Principal, answers: Answers) -> None:
        owner = await self._gate.check_task(principal, answers.task_id, "check_answers")
        await self._hub.check_answers(owner, answers)

    async def cancel(self, principal: Principal, task_id: str) -> Task:
        owner = await self._gate.check_task(principal, task_id, "cancel")
        return await self._hub.cancel(owner, task_id)

    async def cancel_run(self, principal: Principal, run_id: str, *, rollback: bool = False) -> Run:
        methods = ("cancel_run", "remove_run") if rollback else ("cancel_run",)
        owner = await self._gate.check_run(principal, run_id, *methods)
        return await self._hub.cancel_run(owner, run_id, rollback=rollback)

    # Webhooks and helpers

    async def set_webhook(self, principal: Principal, webhook: Webhook) -> None:
        owner = await self._gate.check_task(principal, webhook.task_id, "set_webhook")
        await self._hub.set_webhook(owner, webhook)

    async def delete_webhook(self, principal: Principal, task_id: str, webhook_id: str) -> bool:
        owner = await self._gate.check_task(principal, task_id, "delete_webhook")
        return await self._hub.delete_webhook(owner, task_id, webhook_id)

    async def find_schema_error(self, principal: Principal, schema: JsonObject, value: Json) -> str | None:
        self._gate.check(principal, "find_schema_error")
        return await self._hub.find_schema_error(schema, value)

    async def fetch(self, principal: Principal, url: str, received: Callable[[int], None]) -> bytes:
        self._gate.check(principal, "fetch")
        return await self._hub.fetch(url, received)
