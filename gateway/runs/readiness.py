"""Readiness of the gateway: whether a new run could be stored now."""

import asyncio
from shutil import disk_usage
from time import monotonic
from typing import Final

from babelgate.canonical.fault import FaultError
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.storage.blobs import Blobs
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import write_meta

MIN_FREE: Final = 16 * 2**20
"""Minimum free space of a disk, in bytes, below which the gateway is not ready. Chosen: less than one large run
needs."""
_TIMEOUT: Final = 2.0
"""Seconds within which `check` answers, even if the database hangs. Chosen: load balancers have timeouts, too."""
_PROBE_VALIDITY: Final = 5.0
"""Seconds after a successful test write in which no other one is made, because anyone may call the health check.
Chosen."""


class Readiness:
    """Health check of the disks, the file store and the database."""

    def __init__(self, journal: Journal, blobs: Blobs, clock: Clock) -> None:
        self._journal = journal
        self._blobs = blobs
        self._clock = clock
        self._probed = -_PROBE_VALIDITY
        """Time of the last successful test write, on the monotonic clock."""
        self._probe_task: asyncio.Task[str | None] | None = None
        self._tasks = Tasks()

    async def check(self) -> str | None:
        """Return why nothing can be stored, as one line for the response. Return None if the database and the file
        store accept writes.

        An almost full disk counts as full, so that callers are refused before a run cannot be stored.
        """
        for folder in {*self._journal.folders, *self._blobs.folders}:
            if folder.is_dir() and (free := disk_usage(folder).free) < MIN_FREE:
                return f"the disk of {folder} has {free} bytes left"
        if self._journal.failure is None and monotonic() < self._probed + _PROBE_VALIDITY:
            return None
        if self._probe_task is None or self._probe_task.done():
            self._probe_task = self._tasks.spawn(self._probe(), "probe")
        await asyncio.wait((self._probe_task,), timeout=_TIMEOUT)
        if not self._probe_task.done():
            return f"the database or the file store does not answer within {_TIMEOUT:g} seconds"
        return None if self._probe_task.cancelled() else self._probe_task.result()

    async def _probe(self) -> str | None:
        """Test the file store and write to the database. Return why nothing can be stored, or None after a success."""
        if (failure := await self._blobs.find_failure()) is not None:
            return failure
        try:
            await self._journal.write(lambda tx: write_meta(tx.connection, "probe", str(self._clock.now())))
        except FaultError as error:
            return self._journal.failure or error.fault.message
        self._probed = monotonic()
        return None

    async def stop(self, seconds: float = STOPPING) -> None:
        """Cancel a running test write."""
        await self._tasks.stop(seconds)
