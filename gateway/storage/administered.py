"""In-memory copy of the API keys and agents that operators manage.

It follows the database: changes by this gateway, and changes by other gateways on the same database."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from babelgate.canonical.fault import FaultError
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.storage.administration import Administration, read_administration, read_revision
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.notices import ADMINISTRATION, Remote

log = logging.getLogger("babelgate.admin")

_CHECK_INTERVAL: Final = 10.0
"""Seconds between two reads of the administration's revision, in case a notice of another gateway was lost. Chosen: the
interval in which the database's listener yields without a notice."""

ApplyAdministration = Callable[[Administration], None]
"""Function that applies a new administration to a part of the gateway, such as the verifier of API keys."""


class AdministeredState:
    """In-memory copy of the administration (API keys, agents and disabled agents) on this gateway.

    Its listeners are called whenever this gateway or another one has changed the database."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._listeners: list[ApplyAdministration] = []
        self._tasks = Tasks()
        self._changed = asyncio.Event()
        self._lock = asyncio.Lock()
        self._failures = Failures("the administration")
        self.current = Administration()
        if journal.is_shared:
            journal.add_listener(self._handle_remotes)

    def add_listener(self, listener: ApplyAdministration) -> None:
        """Add a function, and call it now with the current administration, and later with each new one."""
        self._listeners.append(listener)
        self._apply(listener)

    async def start(self) -> None:
        """Read the administration, and on a shared database start a task that follows the changes of other gateways.

        Raises shutting_down, and unavailable if the database cannot be reached."""
        await self.refresh()
        if self._journal.is_shared:
            self._tasks.spawn(self._follow(), "administration")

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    async def refresh(self) -> None:
        """Compare the revision in the database with the copy. If it differs, read the administration and call the
        listeners.

        Raises shutting_down, and unavailable if the database cannot be reached."""
        async with self._lock:
            if await self._journal.query(read_revision) == self.current.revision:
                return
            self.current = await self._journal.query(read_administration)
            for listener in self._listeners:
                self._apply(listener)

    def _apply(self, listener: ApplyAdministration) -> None:
        try:
            listener(self.current)
        except Exception as error:  # the failure of one must not keep the others from applying it
            self._failures.note(error)

    def _handle_remotes(self, remotes: Sequence[Remote]) -> None:
        if any(remote.pk == ADMINISTRATION for remote in remotes):
            self._changed.set()

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_INTERVAL):
                    await self._changed.wait()
            self._changed.clear()
            try:
                await self.refresh()
            except FaultError as error:  # the next check reads it
                log.warning("administration not read error=%s", error)
            except Exception as error:
                self._failures.note(error)
