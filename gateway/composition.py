"""Composition of the hub: creates all of its parts and wires them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from babelgate.gateway.agents.python.agent import InProcess
from babelgate.gateway.agents.registry import Registry
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import Drain, GatewayHub, Parts
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.runs.cluster import Cluster
from babelgate.gateway.runs.commits import CommitHandler
from babelgate.gateway.runs.crons import CronScheduler, CronSubmit
from babelgate.gateway.runs.engine import Engine
from babelgate.gateway.runs.expiry import Expiry
from babelgate.gateway.runs.readiness import Readiness
from babelgate.gateway.runs.recovery import RunRecovery
from babelgate.gateway.runs.retention import RetentionSweep
from babelgate.gateway.runs.retry_schedule import RetrySchedule
from babelgate.gateway.runs.run_reports import RunReports
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.runs.state_updates import StateUpdates
from babelgate.gateway.runs.submissions import Submissions
from babelgate.gateway.runs.sweeper import Sweeper
from babelgate.gateway.runs.threads import ThreadCommands
from babelgate.gateway.runs.uploads import Uploads
from babelgate.gateway.runs.webhooks import Deliverer, WebhookRegistry, WriterFactory
from babelgate.gateway.settings.model import Limits, Webhooks
from babelgate.gateway.settings.model import Retention as RetentionPolicy
from babelgate.gateway.storage import assistants, items
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.grants import GrantStore
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.reads import JournalReads

_EXPIRY_HEARTBEATS: Final = 30
"""Number of a leader's heartbeats between two checks for threads that expire."""
_SHARED_WINDOW: Final = 0.005
"""Seconds for which a node of a cluster collects tokens, unless the settings say otherwise.

Its readers may be at other nodes, which receive what it stores one notice later.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOptions:
    """Settings of a hub, apart from its agents, its database and its store of files."""

    limits: Limits = field(default_factory=Limits)
    retention: RetentionPolicy = field(default_factory=RetentionPolicy)
    patience: float = 60.0
    """Seconds after which a run is lost whose server does not come back (`recovery.patience`)."""
    writers: Mapping[str, WriterFactory] = field(default_factory=dict[str, WriterFactory])
    """Writers of webhooks, by dialect."""
    webhook_protocols: Mapping[str, str] = field(default_factory=dict[str, str])
    """Protocols by the dialect of their webhooks."""
    webhook_secret: str | None = None
    webhook_retries: Sequence[float] = field(default_factory=lambda: Webhooks().retries)
    """Delays between the deliveries of a webhook, in seconds."""
    crons: Mapping[str, CronSubmit] = field(default_factory=dict[str, CronSubmit])
    """Functions that submit a cron's run, by protocol."""
    power: bool = False
    """True if a commit must survive the loss of power."""
    pooler: str | None = None
    """URL by which PostgreSQL is read through a connection pool."""
    standby: bool = False
    """True if the start waits for the database while another gateway uses it."""
    cluster: str | None = None
    """Name of this node of a cluster that shares the database."""
    clock: Clock = field(default_factory=Clock)
    observer: GatewayObserver = NO_OBSERVER
    """Receiver of reports about the hub, for metrics."""


def create_hub(registry: Registry, database: str, blobs: Blobs, fetcher: Fetcher, options: HubOptions) -> GatewayHub:
    """Return a hub that is not started yet. `database` is the URL of the database that keeps the log."""
    limits, clock = options.limits, options.clock
    commits, drain, long_thread_erased = CommitHandler(), Drain(), asyncio.Event()
    journal = _create_journal(database, commits, options)
    registry.report_to(options.observer)
    reports = RunReports(options.observer)
    reads = JournalReads(journal, blobs, limits.inline, limits.thread)
    engine = _create_engine(journal, blobs, reads, registry, reports, options)
    threads = _create_threads(journal, reads, engine, blobs, registry, limits, long_thread_erased)
    deliverer = _create_deliverer(journal, reads, fetcher, options)
    recovery = RunRecovery(journal, engine, deliverer, registry.get)
    expiry = Expiry(journal, limits, threads.erase_expired, threads.prune, clock)
    cluster: Cluster | None = None

    def is_leader() -> bool:
        # It does no harm if two nodes lead for a moment.
        return cluster is None or cluster.leads

    crons = CronScheduler(journal, clock, limits, fetcher.check, is_leader)
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
    store = items.ItemStore(journal, clock, limits.input)
    parts = Parts(
        registry=registry,
        journal=journal,
        reads=reads,
        blobs=blobs,
        fetcher=fetcher,
        drain=drain,
        engine=engine,
        submissions=Submissions(
            journal,
            reads,
            blobs,
            registry.get,
            registry.get_reachable,
            engine,
            threads,
            deliverer,
            fetcher,
            limits,
            drain.check,
        ),
        threads=threads,
        webhooks=WebhookRegistry(journal, reads, fetcher, deliverer, limits),
        deliverer=deliverer,
        recovery=recovery,
        cluster=cluster,
        crons=crons,
        cron_submits=options.crons,
        expiry=expiry,
        retention=RetentionSweep(journal, options.retention, threads.erase_idle, clock, is_leader, long_thread_erased),
        sweeper=Sweeper(journal, blobs, store, clock, is_leader),
        readiness=Readiness(journal, blobs, clock),
        store=store,
        grants=GrantStore(journal, clock),
        assistants=assistants.AssistantStore(journal, clock, limits),
        is_standby=options.standby,
        observer=options.observer,
    )
    return GatewayHub(parts)


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
    )


class _Leader:
    """Work of the node that leads a cluster."""

    def __init__(self, crons: CronScheduler, expiry: Expiry) -> None:
        self._crons = crons
        self._expiry = expiry

    def handle_heartbeat(self, count: int) -> None:
        """Check for due crons, and now and then for threads that expire. `count` is the number of the heartbeat."""
        self._crons.wake()
        if count % _EXPIRY_HEARTBEATS == 0:
            self._expiry.restart()


def _create_threads(
    journal: Journal,
    reads: JournalReads,
    engine: Engine,
    blobs: Blobs,
    registry: Registry,
    limits: Limits,
    long_thread_erased: asyncio.Event,
) -> ThreadCommands:
    uploads = Uploads(journal, reads, blobs)
    state_updates = StateUpdates(journal, reads, blobs, registry.get_reachable)
    in_process = [registered.agent for registered in registry.all() if isinstance(registered.agent, InProcess)]
    return ThreadCommands(journal, reads, engine, uploads, state_updates, in_process, limits, long_thread_erased)


def _create_engine(
    journal: Journal, blobs: Blobs, reads: JournalReads, registry: Registry, reports: RunReports, options: HubOptions
) -> Engine:
    limits = options.limits
    has_own_window = options.cluster is None or "window" in limits.model_fields_set
    return Engine(
        journal,
        blobs,
        reads,
        registry.get,
        registry.get_reachable,
        run_timeout=limits.run,
        cancel_grace=limits.cancel_grace,
        event_limit=limits.event,
        output_limit=limits.output,
        attempts=limits.attempts,
        patience=options.patience,
        window=limits.window if has_own_window else _SHARED_WINDOW,
        reports=reports,
    )


def _create_deliverer(journal: Journal, reads: JournalReads, fetcher: Fetcher, options: HubOptions) -> Deliverer:
    return Deliverer(
        journal,
        reads,
        fetcher,
        options.writers,
        options.webhook_protocols,
        RetrySchedule(options.webhook_retries),
        options.clock,
        None if options.webhook_secret is None else Signer(options.webhook_secret),
        observer=options.observer,
    )
