"""The hub: entry point of all servers, which call it through `babelgate.gateway.access.guard.GuardedHub`.

It starts and stops the parts that do the work, and passes each call to one of them. `babelgate.gateway.composition`
wires the parts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal
from uuid import uuid4

from babelgate.canonical.agent import AgentInfo, Introspectable
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Answers, Receipt, StateUpdate, Submission, ThreadChange, Webhook
from babelgate.canonical.message import FilePart
from babelgate.canonical.thread import Artifact, Run, Task, Thread
from babelgate.canonical.value import Json, JsonObject
from babelgate.gateway.agents.call_data import Attached
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.agents.stored_data import StoredData
from babelgate.gateway.generation import HubGeneration
from babelgate.gateway.observe import GatewayObserver
from babelgate.gateway.runs.budgets import Budgets
from babelgate.gateway.runs.chains import Chains
from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.runs.consents import Consents
from babelgate.gateway.runs.crons import CronScheduler, CronSubmit
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.expiry import Expiry
from babelgate.gateway.runs.fault_counts import FaultCounts
from babelgate.gateway.runs.held_runs import HeldRuns
from babelgate.gateway.runs.output_schema import find_schema_error
from babelgate.gateway.runs.rates import RateLimiter
from babelgate.gateway.runs.readiness import Readiness
from babelgate.gateway.runs.recovery import RunRecovery
from babelgate.gateway.runs.retention import RetentionSweep
from babelgate.gateway.runs.submissions import Submissions
from babelgate.gateway.runs.sweeper import Sweeper
from babelgate.gateway.runs.switches import Switches
from babelgate.gateway.runs.threads import ThreadCommands
from babelgate.gateway.runs.webhooks import Deliverer, WebhookRegistry
from babelgate.gateway.storage import assistants, items, queries
from babelgate.gateway.storage.administered import AdministeredState
from babelgate.gateway.storage.auditor import Auditor
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.change_feed import ChangeFeed
from babelgate.gateway.storage.grants import GrantStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.overview import Overview
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.transaction import Transaction, read_meta, write_meta
from babelgate.gateway.storage.unavailable import RETRY_AFTER

_STOP_TIMEOUT: Final = 20.0
"""Maximum duration of a stop by default, in seconds. Chosen, not measured."""


class Drain:
    """Switch that is set once, when the gateway begins to shut down. Afterwards it refuses new runs."""

    def __init__(self) -> None:
        self.is_set = False

    def check(self) -> None:
        """Check that the gateway still accepts runs. Raises shutting_down if it does not."""
        if self.is_set:
            raise FaultError(
                FaultCode.SHUTTING_DOWN,
                "The gateway is shutting down and starts no more runs. Send the request again.",
                retry_after=RETRY_AFTER,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Connected parts of a hub, as `babelgate.gateway.composition.create_hub` creates them."""

    generation: Callable[[], HubGeneration]
    """Function that returns the current generation."""
    journal: Journal
    reads: JournalReads
    overview: Overview
    blobs: Blobs
    drain: Drain
    engine: Engine
    faults: FaultCounts
    submissions: Submissions
    administration: AdministeredState
    switches: Switches
    rates: RateLimiter
    budgets: Budgets
    chains: Chains
    held_runs: HeldRuns
    consents: Consents
    auditor: Auditor
    threads: ThreadCommands
    webhooks: WebhookRegistry
    deliverer: Deliverer
    recovery: RunRecovery
    cluster: Cluster | None
    """Membership of this node in a cluster; None if no other gateway shares the database."""
    crons: CronScheduler
    cron_submits: Mapping[str, CronSubmit]
    expiry: Expiry
    retention: RetentionSweep
    sweeper: Sweeper
    readiness: Readiness
    store: items.ItemStore
    grants: GrantStore
    assistants: assistants.AssistantStore
    is_standby: bool
    """True if the start waits for the database while another gateway uses it."""
    observer: GatewayObserver


class GatewayHub:
    """Entry point of all servers to threads, runs and agents. It passes each call to one of its parts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._started_at: float | None = None
        self.instance = ""
        """UUID of the gateway's database, which identifies the gateway; empty before the start."""
        self._stopping = asyncio.Event()
        self.before_recovery: Callable[[], Awaitable[None]] | None = None
        """Function that adds the agents of the administration API, called at the start before runs are continued."""
        self.before_drain: Callable[[], Awaitable[None]] | None = None
        """Function that ends the programs that the gateway has started, called when it begins to shut down."""

    # Parts that servers use themselves

    @property
    def registry(self) -> Registry:
        """Agents of the current generation."""
        return self._parts.generation().registry

    @property
    def journal(self) -> Journal:
        """Journal that writes and reads the logs of threads."""
        return self._parts.journal

    @property
    def reads(self) -> JournalReads:
        """Queries of threads, tasks, runs and logs, by owner."""
        return self._parts.reads

    @property
    def overview(self) -> Overview:
        """Queries across the threads of all owners, for the console."""
        return self._parts.overview

    @property
    def changes(self) -> ChangeFeed:
        """Source of hints about changed threads, runs and agents. After a hint, the console reads the named object
        again."""
        return self._parts.journal.changes

    @property
    def engine(self) -> Engine:
        """Engine that executes runs."""
        return self._parts.engine

    @property
    def faults(self) -> FaultCounts:
        """Counts of failed runs since the start, by fault code and agent."""
        return self._parts.faults

    @property
    def store(self) -> items.ItemStore:
        """Store of items, by owner."""
        return self._parts.store

    @property
    def grants(self) -> GrantStore:
        """Store of grants, by which owners share threads."""
        return self._parts.grants

    @property
    def assistants(self) -> assistants.AssistantStore:
        """Store of assistants, by owner."""
        return self._parts.assistants

    @property
    def crons(self) -> CronScheduler:
        """Scheduler and store of crons, by owner."""
        return self._parts.crons

    @property
    def retention(self) -> RetentionSweep:
        """Background task that erases idle threads."""
        return self._parts.retention

    @property
    def cluster(self) -> Cluster | None:
        """Membership of this node in a cluster; None if no other gateway shares the database."""
        return self._parts.cluster

    @property
    def deliverer(self) -> Deliverer:
        """Sender of events to webhooks."""
        return self._parts.deliverer

    @property
    def blobs(self) -> Blobs:
        """Store of files."""
        return self._parts.blobs

    @property
    def administration(self) -> AdministeredState:
        """API keys, agents and kill switches that the administration API has stored in the database."""
        return self._parts.administration

    @property
    def switches(self) -> Switches:
        """Kill switches of agents, which refuse runs of disabled agents."""
        return self._parts.switches

    @property
    def consents(self) -> Consents:
        """Service that asks users for authorizations and stores the resulting tokens."""
        return self._parts.consents

    @property
    def budgets(self) -> Budgets:
        """Budgets that limit the cost of runs."""
        return self._parts.budgets

    @property
    def held_runs(self) -> HeldRuns:
        """Background task that continues runs which a budget has paused."""
        return self._parts.held_runs

    @property
    def auditor(self) -> Auditor:
        """Receiver of refusals and other events for the audit log."""
        return self._parts.auditor

    @property
    def observer(self) -> GatewayObserver:
        """Receiver of reports for metrics and traces."""
        return self._parts.observer

    # Startup and shutdown

    async def start(self) -> None:
        """Open the journal, and continue the runs of the previous process.

        Pending runs keep their order, and paused tasks stay paused. Running runs are reattached, started again, or
        ended with a fault that states the reason.
        """
        parts = self._parts
        self._started_at = asyncio.get_running_loop().time()
        parts.blobs.secure()
        await parts.journal.open(wait=parts.is_standby)
        self.attach(self.registry)
        try:
            self.instance = parts.chains.instance = await parts.journal.write(_load_instance)
            await parts.assistants.start()
            await parts.grants.start()
            parts.switches.start(parts.administration, parts.submissions.cancel)
            parts.administration.add_listener(lambda _: self.changes.note_agent(None))
            await parts.administration.start()
            if self.before_recovery is not None:
                await self.before_recovery()
            if parts.cluster is None:
                await self._recover()
                await parts.expiry.start()
            else:
                await parts.cluster.start()
            parts.switches.cancel_runs()  # those that were continued
        except BaseException:
            if parts.cluster is not None:
                await parts.cluster.leave()
            await parts.journal.close()
            raise
        submits = {protocol: partial(submit, self) for protocol, submit in parts.cron_submits.items()}
        parts.crons.start(submits)
        parts.consents.start(parts.submissions.resume)
        parts.retention.start()
        parts.sweeper.start()
        parts.held_runs.start()

    def attach(self, registry: Registry) -> None:
        """Give the agents that store their state in the gateway's database access to it, before their first run."""
        for agent in registry.all_agents():
            if isinstance(agent, Attached):
                agent.attach(StoredData(self._parts.journal, self._parts.store))

    def show_config(self, digest: str) -> None:
        """Publish the digest of this node's configuration to the other nodes of the cluster, which report
        differences."""
        if self.cluster is not None:
            self.cluster.nodes.config = digest

    def handle_reload(self) -> None:
        """Update the parts of the hub that have values of a generation in memory, after a new generation has become
        current."""
        self._parts.blobs.limit = self._parts.generation().limits.artifact
        self.engine.slots.refresh()
        self.held_runs.wake()
        self.changes.note_agent(None)

    async def _recover(self) -> None:
        parts = self._parts
        for pk, task_id in await parts.journal.query(queries.open_tasks):
            parts.reads.mark_open(pk, "task", task_id)
        live_runs = await parts.journal.query(queries.live_runs)
        for live in live_runs:
            parts.reads.mark_open(live.pk, "run", live.run.run_id)
        await parts.recovery.take_up(live_runs)
        parts.recovery.deliver(await parts.journal.query(queries.due_webhooks))

    @property
    def is_stopping(self) -> bool:
        """True once the hub closes the connections of readers, because it stops."""
        return self._stopping.is_set()

    @property
    def stopping(self) -> Awaitable[object]:
        """Awaitable that is done when `is_stopping` becomes true."""
        return self._stopping.wait()

    async def drain(self) -> None:
        """Refuse new runs, start none of the pending ones, and wait until the running ones have ended."""
        parts = self._parts
        parts.drain.is_set = True
        await self._end_programs()
        if parts.cluster is not None:
            parts.cluster.close()
        parts.engine.slots.close()
        await parts.crons.stop()
        await parts.engine.drain()

    async def _end_programs(self) -> None:
        end, self.before_drain = self.before_drain, None
        if end is not None:
            await end()

    def close_readers(self) -> None:
        """End every subscription to a log. Responses that wait for more records are cut off."""
        self._stopping.set()
        self.journal.channels.close_all()
        self.changes.close()
        self.reads.close()

    async def stop(self, seconds: float = _STOP_TIMEOUT) -> None:
        """Close subscriptions, detach from the runs, and commit pending writes, in at most `seconds`.

        Each step has a share of the remaining time, so that no agent and no database that hangs uses all of it.
        """
        parts = self._parts
        parts.drain.is_set = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds

        def share(part: float) -> float:
            return max(0.1, part * (deadline - loop.time()))

        self.close_readers()
        await self._end_programs()
        if parts.cluster is not None:
            parts.cluster.close()
        background = (
            parts.auditor,
            parts.administration,
            parts.grants,
            parts.switches,
            parts.consents,
            parts.held_runs,
            parts.rates,
            parts.crons,
            parts.expiry,
            parts.retention,
            parts.sweeper,
            parts.readiness,
            parts.deliverer,
        )
        for part in background:
            await part.stop(share(0.1))
        await parts.engine.stop(share(0.5))
        if parts.cluster is not None:
            await parts.cluster.leave(share(0.4))
        await parts.journal.close(share(1.0))

    @property
    def uptime(self) -> float:
        """Seconds since `start` was called; 0 before."""
        return 0.0 if self._started_at is None else asyncio.get_running_loop().time() - self._started_at

    async def ready(self) -> str | None:
        """Return why no new run can be stored, or None if the database and the file store accept writes."""
        if self._parts.drain.is_set:
            return "the gateway is shutting down"
        return await self._parts.readiness.check()

    async def sweep_files(self) -> int:
        """Remove the files that no event refers to, and return their number."""
        return await self._parts.sweeper.sweep_files()

    # Agents

    def agents(self) -> Sequence[AgentInfo]:
        """Return the descriptions of all agents."""
        return [registered.info for registered in self.registry.all()]

    def agent(self, name: str) -> AgentInfo:
        """Return the description of an agent by its name or UUID. Raises not_found."""
        return self.registry.get(name).info

    def introspectable_agent(self, name: str) -> Introspectable | None:
        """Return the client of an agent that can describe its graph, or None if the agent cannot. Raises not_found."""
        agent = self.registry.get(name).agent
        return agent if isinstance(agent, Introspectable) else None

    # Threads

    async def create_thread(
        self,
        owner: str,
        change: ThreadChange,
        *,
        thread_id: str | None = None,
        if_exists: Literal["raise", "return"] = "raise",
    ) -> Thread:
        return await self._parts.threads.create(owner, change, thread_id, if_exists)

    async def change_thread(self, owner: str, thread_id: str, change: ThreadChange) -> Thread:
        return await self._parts.threads.change(owner, thread_id, change)

    async def copy_thread(self, owner: str, thread_id: str) -> Thread:
        return await self._parts.threads.copy(owner, thread_id)

    async def update_state(self, owner: str, update: StateUpdate) -> str:
        return await self._parts.threads.update_state(owner, update)

    async def upload(
        self, owner: str, thread_id: str, file: FilePart, folder: str | None = None, *, key: str | None = None
    ) -> Artifact:
        return await self._parts.threads.upload(owner, thread_id, file, folder, key)

    async def delete_thread(self, owner: str, thread_id: str) -> None:
        await self._parts.threads.delete(owner, thread_id)

    async def prune_thread(self, owner: str, thread_id: str) -> None:
        await self._parts.threads.prune(owner, thread_id)

    async def change_run(self, owner: str, run_id: str, metadata: JsonObject) -> Run:
        return await self._parts.threads.change_run(owner, run_id, metadata)

    async def remove_run(self, owner: str, run_id: str) -> None:
        await self._parts.threads.remove_run(owner, run_id)

    # Runs

    async def submit(self, owner: str, submission: Submission) -> Receipt:
        return await self._parts.submissions.submit(owner, submission)

    async def answer(self, owner: str, answers: Answers) -> Receipt:
        return await self._parts.submissions.answer(owner, answers)

    async def check_answers(self, owner: str, answers: Answers) -> None:
        await self._parts.submissions.check_answers(owner, answers)

    async def cancel(self, owner: str, task_id: str) -> Task:
        return await self._parts.submissions.cancel(owner, task_id)

    async def cancel_run(self, owner: str, run_id: str, *, rollback: bool = False) -> Run:
        return await self._parts.submissions.cancel_run(owner, run_id, rollback=rollback)

    # Webhooks and helpers

    async def set_webhook(self, owner: str, webhook: Webhook) -> None:
        await self._parts.webhooks.set(owner, webhook)

    async def delete_webhook(self, owner: str, task_id: str, webhook_id: str) -> bool:
        return await self._parts.webhooks.delete(owner, task_id, webhook_id)

    async def find_schema_error(self, schema: JsonObject, value: Json) -> str | None:
        return await find_schema_error(schema, value)

    async def fetch(self, url: str, received: Callable[[int], None]) -> bytes:
        return await self._parts.generation().delivery.fetcher.get(url, received)


def _load_instance(tx: Transaction) -> str:
    """Return the UUID of the gateway's database. At the first start, create and store it."""
    instance = read_meta(tx.connection, "instance")
    if instance is None:
        instance = str(uuid4())
        write_meta(tx.connection, "instance", instance)
    return instance
