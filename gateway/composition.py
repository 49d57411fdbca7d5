"""Composition of the hub: creates all of its parts and connects them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from babelgate.canonical.fault import FaultError
from babelgate.gateway.agents.tokens.redemption import redeem
from babelgate.gateway.clock import Clock
from babelgate.gateway.generation import HubGeneration
from babelgate.gateway.hub import Drain, GatewayHub, Parts
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver, GatewayTraces
from babelgate.gateway.registered_agent import RegisteredAgent
from babelgate.gateway.runs.budgets import Budgets
from babelgate.gateway.runs.chains import Chains
from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.runs.commits import CommitHandler
from babelgate.gateway.runs.consents import Consents
from babelgate.gateway.runs.crons import CronScheduler, CronSubmit
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.expiry import Expiry
from babelgate.gateway.runs.fault_counts import FaultCounts
from babelgate.gateway.runs.held_runs import HeldRuns
from babelgate.gateway.runs.rates import MemoryRates, RateLimiter
from babelgate.gateway.runs.readiness import Readiness
from babelgate.gateway.runs.recovery import RunRecovery
from babelgate.gateway.runs.retention import RetentionSweep
from babelgate.gateway.runs.rules import RunRules
from babelgate.gateway.runs.run_reports import RunReports
from babelgate.gateway.runs.state_updates import StateUpdates
from babelgate.gateway.runs.submissions import Submissions
from babelgate.gateway.runs.sweeper import Sweeper
from babelgate.gateway.runs.switches import Switches
from babelgate.gateway.runs.threads import PausedCalls, ThreadCommands
from babelgate.gateway.runs.uploads import Uploads
from babelgate.gateway.runs.webhooks import Deliverer, DeliveryRules, WebhookRegistry, WriterFactory
from babelgate.gateway.settings.limits import BudgetSettings, PriceSettings
from babelgate.gateway.settings.model import AgentSettings, Limits
from babelgate.gateway.settings.model import Retention as RetentionPolicy
from babelgate.gateway.storage import assistants, items
from babelgate.gateway.storage.administered import AdministeredState
from babelgate.gateway.storage.agent_tokens import AgentTokenStore
from babelgate.gateway.storage.auditor import NO_AUDITOR, CountingAuditor
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.grants import GrantStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.overview import Overview
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.shared_rates import SharedRates

_EXPIRY_HEARTBEATS: Final = 30
"""Number of a leader's heartbeats between two checks for expired threads. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Options of a hub that need a restart to change."""

    writers: Mapping[str, WriterFactory] = field(default_factory=dict[str, WriterFactory])
    """Factories of the encoders of webhook bodies, by dialect, such as `a2a-1.0`."""
    webhook_protocols: Mapping[str, str] = field(default_factory=dict[str, str])
    """Name of the protocol to which each webhook dialect belongs."""
    crons: Mapping[str, CronSubmit] = field(default_factory=dict[str, CronSubmit])
    """Functions that submit the run of a cron, by the protocol of the cron."""
    power: bool = False
    """True if a commit must survive a power failure (`durability: power`)."""
    pooler: str | None = None
    """URL of a connection pool through which PostgreSQL is read; None to read directly."""
    standby: bool = False
    """True if the start waits for the database while another gateway uses it."""
    cluster: str | None = None
    """Name of this node in the cluster that shares the database; None for a single gateway."""
    audits: bool = False
    """True if deletions and refusals are recorded in the audit log."""
    clock: Clock = field(default_factory=Clock)
    observer: GatewayObserver = NO_OBSERVER
    """Receiver of reports about the hub, for metrics."""


class Current:
    """Access of the hub's parts to the settings and agents of the current generation."""

    def __init__(self, generation: Callable[[], HubGeneration]) -> None:
        self.generation = generation

    def limits(self) -> Limits:
        return self.generation().limits

    def retention(self) -> RetentionPolicy:
        return self.generation().retention

    def rules(self) -> RunRules:
        return self.generation().rules

    def delivery(self) -> DeliveryRules:
        return self.generation().delivery

    def budgets(self) -> Mapping[str, BudgetSettings]:
        return self.generation().budgets

    def find_price(self, agent: str) -> PriceSettings | None:
        """Return the prices of an agent's usage, or None if its settings have none."""
        try:
            settings = self.generation().registry.get_for_run(agent).settings
        except FaultError:  # removed from the configuration
            return None
        return None if settings is None else settings.price

    def in_process(self) -> Sequence[PausedCalls]:
        return self.generation().in_process

    def find(self, name: str) -> RegisteredAgent:
        """Return an agent that callers can use, by its name or UUID. Raises not_found."""
        return self.generation().registry.get(name)

    async def reach(self, name: str) -> RegisteredAgent:
        """Return an agent that callers can use, by its name or UUID. If it is not available, detect it on its server
        first. Raises not_found."""
        return await self.generation().registry.get_reachable(name)

    def find_for_run(self, name: str) -> RegisteredAgent:
        """Return the agent of a committed run, even if a reload has removed it. Raises not_found."""
        return self.generation().registry.get_for_run(name)

    async def reach_for_run(self, name: str) -> RegisteredAgent:
        """Return the agent of a committed run, even if a reload has removed it. If it is not available, detect it on
        its server first. Raises not_found."""
        return await self.generation().registry.get_reachable_for_run(name)

    async def check_url(self, url: str) -> object:
        """Check that the gateway may call a URL that a caller has named. Raises invalid if it may not."""
        return await self.generation().delivery.fetcher.check(url)


def create_hub(generation: Callable[[], HubGeneration], database: str, blobs: Blobs, options: HubOptions) -> GatewayHub:
    """Return a hub with all its parts, which is not started yet. `generation` returns the current generation,
    `database` is the URL of the log's database, and `blobs` the store of files."""
    clock, current, faults = options.clock, Current(generation), FaultCounts(options.clock)
    commits, drain, long_thread_erased = CommitHandler(), Drain(), asyncio.Event()
    journal = _create_journal(database, commits, options)
    generation().registry.report_to(options.observer)
    reports = RunReports(options.observer, faults)
    reads, consents = JournalReads(journal, blobs, current.limits), _create_consents(journal, current, options)
    budgets = Budgets(current.budgets, current.find_price, clock, options.observer)
    engine = _create_engine(journal, blobs, reads, current, reports, budgets, consents)
    threads = _create_threads(journal, reads, engine, blobs, current, long_thread_erased)
    deliverer = _create_deliverer(journal, reads, current, options)
    recovery = RunRecovery(journal, engine, deliverer, current.find_for_run)
    expiry = Expiry(journal, current.limits, threads.erase_expired, threads.prune, clock)
    cluster: Cluster | None = None

    def is_leader() -> bool:
        # It does no harm if two nodes lead for a moment.
        return cluster is None or cluster.leads

    crons = CronScheduler(journal, clock, current.limits, current.check_url, is_leader)
    if options.cluster is not None:
        cluster = Cluster(
            journal,
            options.cluster,
            engine,
            recovery,
            clock,
            lead=_Leader(crons, expiry).handle_heartbeat,
            forget_paused=threads.forget_paused,
        )
    commits.connect(reads, expiry, threads, reports, cluster)
    store, switches = items.ItemStore(journal, clock, lambda: current.limits().input), Switches(engine)
    rates, chains = _create_rates(journal, current, options), Chains(lambda: current.limits().chain, options.observer)
    limiters = _RunLimiters(rates, budgets, chains, drain, switches, options.observer.traces)
    submissions = _create_submissions(journal, reads, blobs, current, engine, threads, deliverer, limiters)
    parts = Parts(
        generation=generation,
        journal=journal,
        reads=reads,
        overview=Overview(journal, reads),
        blobs=blobs,
        drain=drain,
        engine=engine,
        faults=faults,
        submissions=submissions,
        administration=AdministeredState(journal),
        switches=switches,
        consents=consents,
        rates=rates,
        budgets=budgets,
        chains=chains,
        held_runs=HeldRuns(journal, budgets, submissions.resume, clock, is_leader),
        auditor=CountingAuditor(journal) if options.audits else NO_AUDITOR,
        threads=threads,
        webhooks=WebhookRegistry(journal, reads, current.check_url, deliverer, current.limits),
        deliverer=deliverer,
        recovery=recovery,
        cluster=cluster,
        crons=crons,
        cron_submits=options.crons,
        expiry=expiry,
        retention=RetentionSweep(journal, current.retention, threads.erase_idle, clock, is_leader, long_thread_erased),
        sweeper=Sweeper(journal, blobs, store, clock, is_leader),
        readiness=Readiness(journal, blobs, clock),
        store=store,
        grants=GrantStore(journal, clock),
        assistants=assistants.AssistantStore(journal, clock, current.limits),
        is_standby=options.standby,
        observer=options.observer,
    )
    return GatewayHub(parts)


@dataclass(frozen=True, slots=True)
class _RunLimiters:
    """Parts of the hub that may refuse a run, and the source of spans."""

    rates: RateLimiter
    budgets: Budgets
    chains: Chains
    drain: Drain
    switches: Switches
    traces: GatewayTraces | None


def _create_submissions(
    journal: Journal,
    reads: JournalReads,
    blobs: Blobs,
    current: Current,
    engine: Engine,
    threads: ThreadCommands,
    deliverer: Deliverer,
    limiters: _RunLimiters,
) -> Submissions:
    return Submissions(
        journal,
        reads,
        blobs,
        current.find,
        current.reach,
        engine,
        threads,
        deliverer,
        current.check_url,
        current.limits,
        limiters.drain.check,
        limiters.switches.check,
        limiters.rates,
        limiters.budgets,
        limiters.chains,
        limiters.traces,
    )


def _create_engine(
    journal: Journal,
    blobs: Blobs,
    reads: JournalReads,
    current: Current,
    reports: RunReports,
    budgets: Budgets,
    consents: Consents,
) -> Engine:
    return Engine(
        journal,
        blobs,
        reads,
        current.find_for_run,
        current.reach_for_run,
        rules=current.rules,
        reports=reports,
        budgets=budgets,
        consents=consents,
    )


def _create_rates(journal: Journal, current: Current, options: HubOptions) -> RateLimiter:
    clock = options.clock
    memory = MemoryRates(lambda: clock.steady() / 1e6)
    store = memory if options.cluster is None else SharedRates(journal.database)
    return RateLimiter(lambda: current.limits().rate, store, clock, options.observer)


def _create_journal(database: str, commits: CommitHandler, options: HubOptions) -> Journal:
    return Journal(
        database,
        power=options.power,
        pooler=options.pooler,
        clock=options.clock,
        on_commit=commits.handle_commits,
        shared=options.cluster is not None,
        on_remote=commits.handle_remotes,
        observer=options.observer,
        audits=options.audits,
    )


def _create_consents(journal: Journal, current: Current, options: HubOptions) -> Consents:
    def key() -> str | None:
        return current.generation().secrets_key

    def find(agent: str) -> AgentSettings | None:
        return current.find_for_run(agent).settings

    return Consents(
        AgentTokenStore(journal, key),
        find,
        partial(redeem, options.observer),
        public_url=lambda: current.generation().public_url,
        key=key,
        issuer_url=lambda name: current.generation().issuer_urls.get(name),
        clock=options.clock,
    )


class _Leader:
    """Periodic work of the node that leads the cluster: crons, and the expiry of threads."""

    def __init__(self, crons: CronScheduler, expiry: Expiry) -> None:
        self._crons = crons
        self._expiry = expiry

    def handle_heartbeat(self, count: int) -> None:
        """Check for due crons, and every 30 heartbeats for expired threads. `count` is the number of heartbeats since
        the node became the leader."""
        self._crons.wake()
        if count % _EXPIRY_HEARTBEATS == 0:
            self._expiry.restart()


def _create_threads(
    journal: Journal,
    reads: JournalReads,
    engine: Engine,
    blobs: Blobs,
    current: Current,
    long_thread_erased: asyncio.Event,
) -> ThreadCommands:
    uploads = Uploads(journal, reads, blobs)
    state_updates = StateUpdates(journal, reads, blobs, current.reach)
    return ThreadCommands(
        journal, reads, engine, uploads, state_updates, current.in_process, current.limits, long_thread_erased
    )


def _create_deliverer(journal: Journal, reads: JournalReads, current: Current, options: HubOptions) -> Deliverer:
    return Deliverer(
        journal,
        reads,
        current.delivery,
        options.writers,
        options.webhook_protocols,
        options.clock,
        observer=options.observer,
    )
