"""Metrics for Prometheus. Only this module imports prometheus-client.

The values of labels are from fixed sets: protocols, operations, statuses, fault codes, and the agents in the settings.
They are never ids, paths, models or owners.

With several worker processes, each writes its values to files in one folder, and each shows the sum of all
(`babelgate.gateway.telemetry.folder`). prometheus-client chooses this mode when it is imported, so this module is
imported after the folder exists."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final, cast

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    multiprocess,
)
from prometheus_client.exposition import generate_latest

from babelgate.gateway.observe import GatewayObserver

OTHER: Final = "other"
"""Shared label value of all agents, protocols and issuers beyond their limit."""
MAX_AGENTS: Final = 199
"""Maximum number of agents that are label values themselves. Chosen: a scrape stays below 3,000 lines for 30 active
agents, and prometheus-client needs 7 ms per 1,000 lines."""
_MAX_NAMES: Final = 32
"""Maximum number of protocols, of issuers, and of budgets, with their own label. Chosen: there are fewer than ten."""
_PREFIX: Final = "babelgate_"

_REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_FIRST_EVENT_BUCKETS: Final = tuple(0.01 * 2**power for power in range(14))
"""Upper bounds from 0.01 to 81.92 seconds: the buckets of OpenTelemetry's metric for the time to the first chunk."""
_RUN_BUCKETS: Final = (*(round(0.1 * 2**power, 1) for power in range(13)), 1800)
"""Upper bounds from 0.1 to 409.6 seconds, which are OpenTelemetry's buckets for the duration of an agent's run, and
1800."""
_LAG_BUCKETS: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
_STORAGE_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


class _Children(dict[Any, Any]):
    """Cache of a metric's children, by the values of their labels. Creating a child takes four times as long as using
    it."""

    def __init__(self, metric: Any) -> None:
        self._metric = metric

    def __missing__(self, values: Any) -> Any:
        labels: tuple[object, ...] = cast("Any", values) if isinstance(values, tuple) else (values,)
        child = self[values] = self._metric.labels(*map(str, labels))
        return child

    def create(self, values: Iterable[object]) -> None:
        """Create the children for these label values, so that they are shown with the value 0 before their first
        use."""
        for each in values:
            self[each]

    def set_all(self, counts: Mapping[Any, float]) -> None:
        """Set a gauge by label values. Children that are missing in `counts` are set to 0."""
        for values in {*self, *counts}:
            self[values].set(counts.get(values, 0))


class _Names(dict[str, str]):
    """Label values by name, such as an agent's. After `limit` names, all further ones get `OTHER`, to bound the
    cardinality."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def __missing__(self, name: str) -> str:
        if len(self) >= self._limit:
            return OTHER
        self[name] = name
        return name


class Metrics(GatewayObserver):
    """Metrics of this process. The parts of the gateway report to it as the observer."""

    is_active = True
    content_type: Final = "text/plain; version=0.0.4; charset=utf-8"
    """Content type of the text that `render` returns."""

    def __init__(self, version: str, agents: Iterable[str] = (), on_run: Callable[[], None] | None = None) -> None:
        """Create all metrics. `version` is that of the gateway.

        `agents` are the names in the settings, which are label values before any others. `on_run`, if given, is called
        when a run starts."""
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self._on_run = on_run
        self._agents = _Names(MAX_AGENTS)
        self._protocols, self._issuers = _Names(_MAX_NAMES), _Names(_MAX_NAMES)
        self._budget_names = _Names(_MAX_NAMES)
        for agent in agents:
            self._agents[agent]
        self._create_counters()
        self._create_histograms()
        self._create_gauges()
        self._gauge("build_info", "Version of the gateway. The value is 1.", ("version",), "livemax")[version].set(1)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Any:
        return self._family(Counter(_PREFIX + name, text, labels, registry=self._registry), labels)

    def _histogram(self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str] = ()) -> Any:
        metric = Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=self._registry)
        return self._family(metric, labels)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = (), mode: str = "livesum") -> Any:
        """Create a gauge. `mode` is prometheus-client's name for how the values of several workers are combined, such
        as `livesum`."""
        metric = Gauge(_PREFIX + name, text, labels, registry=self._registry, multiprocess_mode=cast("Any", mode))
        return self._family(metric, labels)

    @staticmethod
    def _family(metric: Any, labels: Sequence[str]) -> Any:
        return _Children(metric) if labels else metric

    def _create_counters(self) -> None:
        self._requests = self._counter(
            "requests_total", "Finished requests. Status 0: no response.", ("protocol", "operation", "status")
        )
        self._refused = self._counter(
            "refused_connections_total", "Connections that exceeded a limit of limits.connections.", ("reason",)
        )
        self._auth = self._counter(
            "auth_total", "Checks of callers' credentials. Method none: no credential was sent.", ("method", "result")
        )
        self._jwks_fetches = self._counter(
            "jwks_fetches_total", "Fetches of the keys of issuers.", ("issuer", "result")
        )
        self._cards = self._counter(
            "card_signatures_total", "Verifications of the cards of agents' servers.", ("agent", "result")
        )
        self._token_exchanges = self._counter(
            "token_exchanges_total", "Requests to identity providers for agents' tokens.", ("agent", "kind", "outcome")
        )
        self._runs = self._counter("runs_total", "Ended runs.", ("agent", "protocol", "outcome"))
        self._failures = self._counter(
            "upstream_failures_total", "Failed attempts on the servers of agents.", ("agent", "fault")
        )
        self._failovers = self._counter(
            "failovers_total", "Attempts on another server after one was unreachable.", ("agent",)
        )
        self._tokens = self._counter("tokens_total", "Tokens, as agents report them.", ("agent", "type"))
        self._limited = self._counter("limited_total", "Runs that a limit refused or paused.", ("limit",))
        self._cost = self._counter("cost_total", "Cost of ended runs, by usage and prices.", ("agent", "currency"))
        self._writes = self._counter("journal_writes_total", "Stored commands.")
        self._races = self._counter("journal_races_total", "Transactions repeated because another node came first.")
        self._posts = self._counter("webhook_posts_total", "Attempts to deliver to webhooks.", ("outcome",))
        self._limited.create(("rate", "budget", "chain"))
        self._refused.create(("address", "total"))
        self._auth.create(product(("key", "token"), ("accepted", "refused")))
        self._posts.create(("delivered", "failed", "gone"))

    def _create_histograms(self) -> None:
        self._request_seconds = self._histogram(
            "request_seconds", "Duration of requests, without streams.", _REQUEST_BUCKETS, ("protocol", "operation")
        )
        self._first_event_seconds = self._histogram(
            "first_event_seconds",
            "Time from the submission of a run to its first output.",
            _FIRST_EVENT_BUCKETS,
            ("protocol", "agent"),
        )
        self._run_seconds = self._histogram("run_seconds", "Duration of started runs.", _RUN_BUCKETS, ("agent",))
        self._wait_seconds = self._histogram(
            "run_wait_seconds", "Time from the submission of a run to its start.", _RUN_BUCKETS, ("agent",)
        )
        self._token_seconds = self._histogram(
            "token_exchange_seconds", "Duration of requests for agents' tokens.", _REQUEST_BUCKETS, ("agent",)
        )
        self._lag_seconds = self._histogram(
            "event_loop_lag_seconds", "Delay of a timer of 0.25 s on the event loop.", _LAG_BUCKETS
        )
        self._commit_seconds = self._histogram(
            "commit_seconds", "Duration of transactions that write.", _STORAGE_BUCKETS
        )
        self._read_seconds = self._histogram("read_seconds", "Duration of reads of the database.", _STORAGE_BUCKETS)

    def _create_gauges(self) -> None:
        self._streams = self._gauge("streams_open", "Open streams of callers.", ("protocol",))
        self.connections = self._gauge("connections", "Connections of callers: active or idle.", ("state",))
        self.runs_open = self._gauge(
            "runs_open", "Running runs, and threads queued for a slot of an agent.", ("agent", "state")
        )
        self.questions_open = self._gauge(
            "questions_open", "Tasks that wait for an answer: input or auth.", ("agent", "kind"), "livemax"
        )
        self.agent_up = self._gauge("agent_up", "1 if the agent can be called, else 0.", ("agent",), "livemin")
        self.breakers = self._gauge(
            "upstream_breaker",
            "Circuit breaker of a server, by its number in the settings: 0 closed, 1 half open, 2 open.",
            ("agent", "server"),
            "livemax",
        )
        self.budgets = self._gauge(
            "budget_used_ratio",
            "Used part of a budget per key, owner or agent, where it is highest. 1: used up.",
            ("budget",),
            "livemax",
        )
        self.journal_queue = self._gauge("journal_queue", "Commands that wait for the writer.")
        self.database_up = self._gauge("database_up", "1 if the last access succeeded, else 0.", mode="livemin")
        self.disk_free = self._gauge(
            "disk_free_bytes", "Free space of the disk with the database or the files.", ("folder",), "livemin"
        )
        self._reloaded_at = self._gauge(
            "config_reloaded_timestamp_seconds",
            "Time of the last reload of the configuration without mistakes, or of the start, in seconds since 1970.",
            mode="livemin",
        )
        self._reload_ok = self._gauge(
            "config_reload_ok", "1 if the configuration had no mistakes when it was last read, else 0.", mode="livemin"
        )
        self._certificate = self._gauge(
            "tls_certificate_expiry_timestamp_seconds",
            "End of the gateway's certificate, in seconds since 1970. +Inf without TLS.",
            mode="livemin",
        )
        self._certificate.set(float("inf"))
        self.webhooks_pending = self._gauge("webhooks_pending", "Webhooks that have not received everything.")

    def label_of(self, agent: str) -> str:
        """Return the label value for an agent: its name, or `OTHER` beyond the limit."""
        return self._agents[agent]

    def budget_label_of(self, budget: str) -> str:
        """Return the label value for a budget: its name, or `OTHER` beyond the limit."""
        return self._budget_names[budget]

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus. With several workers, the values are the sums of all
        workers."""
        return generate_latest(self._registry)

    # Reports

    def note_request(self, protocol: str, operation: str, status: int, seconds: float | None) -> None:
        self._requests[protocol, operation, status].inc()
        if seconds is not None:
            self._request_seconds[protocol, operation].observe(seconds)

    def note_stream_opened(self, protocol: str) -> None:
        self._streams[protocol].inc()

    def note_stream_closed(self, protocol: str) -> None:
        self._streams[protocol].dec()

    def note_connection_refused(self, reason: str) -> None:
        self._refused[reason].inc()

    def note_auth(self, method: str, result: str) -> None:
        self._auth[method, result].inc()

    def note_jwks_fetch(self, issuer: str, result: str) -> None:
        self._jwks_fetches[self._issuers[issuer], result].inc()

    def note_card_checked(self, agent: str, result: str) -> None:
        self._cards[self._agents[agent], result].inc()

    def note_token_fetched(self, agent: str, kind: str, outcome: str, seconds: float) -> None:
        self._token_exchanges[self._agents[agent], kind, outcome].inc()
        self._token_seconds[self._agents[agent]].observe(seconds)

    def note_run_started(self, agent: str, waited: float | None) -> None:
        if waited is not None:
            self._wait_seconds[self._agents[agent]].observe(waited)
        if self._on_run is not None:
            self._on_run()

    def note_first_event(self, agent: str, protocol: str, seconds: float) -> None:
        self._first_event_seconds[self._protocols[protocol], self._agents[agent]].observe(seconds)

    def note_run_ended(self, agent: str, protocol: str, outcome: str, seconds: float | None) -> None:
        label = self._agents[agent]
        self._runs[label, self._protocols[protocol], outcome].inc()
        if seconds is not None:
            self._run_seconds[label].observe(seconds)

    def note_tokens(self, agent: str, kind: str, count: float) -> None:
        self._tokens[self._agents[agent], kind].inc(count)

    def note_limited(self, limit: str) -> None:
        self._limited[limit].inc()

    def note_cost(self, agent: str, currency: str, cost: float) -> None:
        self._cost[self._agents[agent], currency].inc(cost)

    def note_upstream_failed(self, agent: str, fault: str) -> None:
        self._failures[self._agents[agent], fault].inc()

    def note_failover(self, agent: str) -> None:
        self._failovers[self._agents[agent]].inc()

    def note_commit(self, commands: int, seconds: float) -> None:
        self._writes.inc(commands)
        self._commit_seconds.observe(seconds)

    def note_read(self, seconds: float) -> None:
        self._read_seconds.observe(seconds)

    def note_webhook_post(self, outcome: str) -> None:
        self._posts[outcome].inc()

    def note_reload(self, mistakes: int) -> None:
        self._reload_ok.set(int(not mistakes))
        if not mistakes:
            self._reloaded_at.set_to_current_time()

    def note_certificate(self, expires_at: float) -> None:
        self._certificate.set(expires_at)

    def note_lag(self, seconds: float) -> None:
        """Report by how many seconds a timer of the event loop was late."""
        self._lag_seconds.observe(seconds)

    def note_races(self, count: int) -> None:
        """Report how many transactions were repeated because another gateway had committed first."""
        self._races.inc(count)


class SharedMetrics(Metrics):
    """Metrics of a worker process. `render` returns the sums of all workers, from the files in their shared folder."""

    def render(self) -> bytes:
        registry = CollectorRegistry()
        registry.register(cast("Any", _OwnMetrics()))
        return generate_latest(registry)


class _OwnMetrics:
    """Collector of all workers' metrics whose names begin with `babelgate_`. Agents in Python may write other metrics
    to the same files."""

    def __init__(self) -> None:
        self._all = multiprocess.MultiProcessCollector(None)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics of all workers."""
        for metric in cast("Iterable[Metric]", self._all.collect()):
            if metric.name.startswith(_PREFIX):
                yield metric


def bury(pid: int) -> None:
    """Remove the gauges of a worker process that has ended. Its counters stay, so that the sums never decrease."""
    cast("Any", multiprocess).mark_process_dead(pid)
