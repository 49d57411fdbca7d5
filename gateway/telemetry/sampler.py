"""Sampler of the gauges: it reads the state of the gateway's parts at intervals, and before each scrape."""

import asyncio
import threading
from collections import Counter
from typing import Final

from babelgate.canonical.fault import FaultError
from babelgate.gateway.agents.failover import ServerPool
from babelgate.gateway.background import Failures
from babelgate.gateway.http.connection import ConnectionTable
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.disk import free_space
from babelgate.gateway.storage.queries import count_waiting_tasks
from babelgate.gateway.storage.spend import read_ratios
from babelgate.gateway.telemetry.metrics import Metrics

_TICK: Final = 0.25
"""Seconds between two measurements of the event loop's lag. Chosen."""
_TICKS: Final = 4
"""Number of ticks between two samples of the gauges. In another worker's scrape, the gauges may be this old. Chosen."""
_SLOW_TICKS: Final = 60
"""Number of ticks between two samples of gauges that need a query of the database or a check of a disk. Chosen."""
_FRESH: Final = 0.5
"""Maximum seconds that a scrape waits for a new sample. Chosen: a blocked event loop must not block the scrape."""
_BREAKERS: Final = {"ok": 0, "failing": 0, "probing": 1, "open": 2}


class Sampler:
    """Sampler of the gauges of one gateway process."""

    def __init__(self, metrics: Metrics, hub: GatewayHub, connections: ConnectionTable) -> None:
        self._metrics = metrics
        self._hub = hub
        self._connections = connections
        self._races = 0
        """Number of repeated transactions that were already added to the counter."""
        self._can_read = True
        """True if the last read of the database succeeded."""
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Sample the gauges and measure the lag of the event loop until cancelled."""
        failures, tick = Failures("the sampler of metrics"), 0
        while True:
            try:
                if tick % _SLOW_TICKS == 0:
                    await self._sample_slowly()
                if tick % _TICKS == 0:
                    self.sample()
            except Exception as error:
                failures.note(error)
            tick += 1
            due = self._loop.time() + _TICK
            await asyncio.sleep(_TICK)
            self._metrics.note_lag(max(0.0, self._loop.time() - due))

    def render(self) -> bytes:
        """Sample the gauges on the event loop, and return all metrics as text. Called on a thread of the metrics
        server."""
        done = threading.Event()

        def sample() -> None:
            try:
                self.sample()
            finally:
                done.set()

        try:
            self._loop.call_soon_threadsafe(sample)
        except RuntimeError:  # the loop is closed
            return self._metrics.render()
        done.wait(_FRESH)
        return self._metrics.render()

    def sample(self) -> None:
        """Set the gauges that need neither the database nor a disk."""
        metrics, hub, journal = self._metrics, self._hub, self._hub.journal
        idle = self._connections.idle_count
        metrics.connections.set_all({"active": len(self._connections) - idle, "idle": idle})
        metrics.journal_queue.set(journal.queue_length)
        metrics.webhooks_pending.set(hub.deliverer.pending)
        metrics.database_up.set(int(journal.failure is None and not journal.is_superseded and self._can_read))
        if journal.races > self._races:
            metrics.note_races(journal.races - self._races)
            self._races = journal.races
        runs = Counter((metrics.label_of(start.task.agent), "running") for start in hub.engine.active)
        for agent, count in hub.engine.slots.count_queued().items():
            runs[metrics.label_of(agent), "queued"] += count
        self._sample_agents(runs)
        metrics.runs_open.set_all(runs)

    def _sample_agents(self, runs: "Counter[tuple[str, str]]") -> None:
        is_up: dict[str, int] = {}
        breakers: dict[tuple[str, int], int] = {}
        for registered in self._hub.registry.all():
            label, agent = self._metrics.label_of(registered.info.name), registered.agent
            states = list(agent.health.values()) if isinstance(agent, ServerPool) else []
            can_serve = agent is not None and registered.broken is None and (not states or {*states} != {"open"})
            is_up[label] = min(is_up.get(label, 1), int(can_serve))
            runs[label, "running"] += 0
            runs[label, "queued"] += 0
            for number, state in enumerate(states, 1):
                breakers[label, number] = max(breakers.get((label, number), 0), _BREAKERS[state])
        self._metrics.agent_up.set_all(is_up)
        self._metrics.breakers.set_all(breakers)

    async def _sample_slowly(self) -> None:
        hub, metrics = self._hub, self._metrics
        folders = {"database": hub.journal.folders, "files": hub.blobs.folders}
        free = {name: await asyncio.to_thread(free_space, paths) for name, paths in folders.items()}
        metrics.disk_free.set_all({name: space for name, space in free.items() if space is not None})
        try:
            rows = await hub.journal.query(count_waiting_tasks)
            used = await self._read_budgets()
        except FaultError:
            self._can_read = False
            return
        self._can_read = True
        waiting = Counter[tuple[str, str]]()
        for agent, state, count in rows:
            waiting[metrics.label_of(agent), state.partition("_")[0]] += count
        metrics.questions_open.set_all(waiting)
        metrics.budgets.set_all(used)

    async def _read_budgets(self) -> dict[str, float]:
        """Return the used part of each budget, by its label. Raises unavailable if the database cannot be read, and
        shutting_down."""
        limits, used = self._hub.budgets.list_ratio_limits(), dict[str, float]()
        ratios = await self._hub.journal.query(read_ratios, limits.values()) if limits else []
        for name, ratio in zip(limits, ratios, strict=True):
            label = self._metrics.budget_label_of(name)
            used[label] = max(used.get(label, 0.0), ratio)
        return used
