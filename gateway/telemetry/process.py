"""Telemetry of one gateway process: it creates the watchdog, metrics and traces, and starts and stops them."""

import asyncio
import gc
import logging
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.background import Tasks
from babelgate.gateway.http.app import node_name
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.observe import RUN, GatewayObserver, RunContext
from babelgate.gateway.settings.model import Settings
from babelgate.gateway.telemetry.folder import clear_variable
from babelgate.gateway.telemetry.listener import PATH, MetricsListener
from babelgate.gateway.telemetry.stacks import render_stacks
from babelgate.gateway.telemetry.watchdog import Watchdog

if TYPE_CHECKING:
    from babelgate.gateway.telemetry.exporter import TraceExporter
    from babelgate.gateway.telemetry.metrics import Metrics

log = logging.getLogger("babelgate")

_STOP_TIMEOUT = 1.0
"""Maximum seconds for the sampler to end at shutdown. Chosen."""


class Telemetry:
    """Telemetry of one process. Its observer accepts reports from the start; `running` starts the threads and tasks."""

    def __init__(self, settings: Settings, listener: socket.socket | None) -> None:
        """Create the parts that the settings enable. `listener` is the bound socket for `/metrics`; None if metrics are
        off."""
        self._watchdog = Watchdog()
        self._listener = listener
        self._metrics: Metrics | None = None
        if listener is not None:
            self._metrics = _make_metrics(settings, self._watchdog)
        self._exporter = _make_exporter(settings)
        self.observer.traces = None if self._exporter is None else self._exporter.traces

    @property
    def observer(self) -> GatewayObserver:
        """Observer to which the parts of the gateway report: the metrics, or without them the watchdog."""
        return self._watchdog if self._metrics is None else self._metrics

    def close(self) -> None:
        """Send the last spans. Called after the hub has stopped."""
        if self._exporter is not None:
            self._exporter.stop()

    @asynccontextmanager
    async def running(self, hub: GatewayHub, connections: ConnectionTable) -> AsyncGenerator[None]:
        """Return a context manager that runs the watchdog, the sampler and the metrics server while the started hub
        serves."""
        self._watchdog.start(partial(_find_run, hub), lambda: bool(hub.engine.active))
        tasks, server = Tasks(), None
        try:
            if self._metrics is not None and self._listener is not None:
                module: Any = import_module("babelgate.gateway.telemetry.sampler")
                sampler = module.Sampler(self._metrics, hub, connections)
                tasks.spawn(sampler.run(), "sampler of metrics")
                stacks = partial(render_stacks, asyncio.get_running_loop())
                server = MetricsListener(self._listener, sampler.render, self._metrics.content_type, stacks)
                server.start()
                host, port = self._listener.getsockname()[:2]
                log.info("metrics served url=http://%s:%d%s", f"[{host}]" if ":" in host else host, port, PATH)
            yield
        finally:
            self._watchdog.stop()
            if server is not None:
                await asyncio.to_thread(server.stop)
            await tasks.stop(_STOP_TIMEOUT)


def _make_metrics(settings: Settings, watchdog: Watchdog) -> "Metrics":
    is_shared = settings.workers > 1
    if not is_shared:  # else the process that starts the workers has created their folder
        clear_variable()
    module: Any = import_module("babelgate.gateway.telemetry.metrics")
    kind: type[Metrics] = module.SharedMetrics if is_shared else module.Metrics
    return kind(version("babelgate"), settings.agents, on_run=watchdog.arm)


def _make_exporter(settings: Settings) -> "TraceExporter | None":
    if settings.telemetry.traces is None:
        return None
    module: Any = import_module("babelgate.gateway.telemetry.exporter")  # what the extra `otel` installs
    exporter: TraceExporter = module.TraceExporter(node_name(settings), has_content=settings.telemetry.content)
    return exporter


def _find_run(hub: GatewayHub, task: "asyncio.Task[Any]") -> RunContext | None:
    """Return the run whose agent executes in an asyncio task.

    Return None if the task belongs to no run, or the run's agent is on another server."""
    run = hub.engine.find_run(task)
    if run is None:  # a task that the agent has started, such as that of a node of a graph
        context = _context_of(task)
        run = None if context is None else context.get(RUN)
    if run is None:
        return None
    agent = hub.registry.get_for_run(run.agent).agent
    return None if agent is None or isinstance(agent, ServerPool) else run


def _context_of(task: "asyncio.Task[Any]") -> Context | None:
    """Return the contextvars context of an asyncio task, or None if it cannot be found."""
    get_context: Callable[[], Context] | None = getattr(task, "get_context", None)
    if get_context is not None:
        return get_context()
    # Python 3.11 has no method for it. The collector visits the context of the task first, then those of its callbacks
    # (Modules/_asynciomodule.c, TaskObj_traverse).
    return next((each for each in gc.get_referents(task) if isinstance(each, Context)), None)
