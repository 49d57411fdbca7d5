"""Periodic removal of files that no event refers to, and of expired items of the store."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from babelgate.canonical.fault import FaultError
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage import items, queries
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal

_INTERVAL: Final = 3600
"""Seconds between sweeps, and minimum age of an unused file that is removed. Chosen."""


class Sweeper:
    """Background task that alternately removes unused files and expired items of the store."""

    def __init__(
        self, journal: Journal, blobs: Blobs, store: items.ItemStore, clock: Clock, leads: Callable[[], bool]
    ) -> None:
        """Create the task. `leads` returns True on the node of a cluster that sweeps. On the other nodes the task does
        nothing."""
        self._journal = journal
        self._blobs = blobs
        self._store = store
        self._clock = clock
        self._leads = leads
        self._swept = clock.now()
        self._tasks = Tasks()
        self._failures = Failures("the sweep of files and items")

    def start(self) -> None:
        """Start the background task."""
        self._tasks.spawn(self._sweep_forever(), "sweep")

    async def stop(self, seconds: float = STOPPING) -> None:
        """Cancel the background task."""
        await self._tasks.stop(seconds)

    async def _sweep_forever(self) -> None:
        while True:
            if self._leads():
                await self._run(self.sweep_files)
            await asyncio.sleep(_INTERVAL)
            if self._leads():
                await self._run(self._store.sweep)

    async def _run(self, sweep: Callable[[], Awaitable[object]]) -> None:
        try:
            await sweep()
        except FaultError:
            pass  # logged where it was raised
        except Exception as error:
            self._failures.note(error)

    async def sweep_files(self) -> int:
        """Remove the files that no event refers to, and return their number. Young files stay, because their event may
        not be committed yet."""
        # Files are dated by the system's clock. If it was set forward since the last sweep, they are not older for it.
        now = self._clock.now()
        older = min(self._swept, now - _INTERVAL * 1_000_000)
        self._swept = now
        used = await self._journal.query(queries.blobs_in_use)
        return await asyncio.to_thread(self._blobs.sweep, used, older / 1e6)
