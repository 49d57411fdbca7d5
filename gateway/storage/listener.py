"""Listener (LISTEN/NOTIFY): the one connection by which a gateway hears what others that share its database commit."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from sqlalchemy.exc import OperationalError

from babelgate.gateway.background import Failures
from babelgate.gateway.storage.notices import Remote, decode_notice
from babelgate.gateway.storage.unavailable import reason_of

log = logging.getLogger("babelgate.journal")

_AGAIN: Final = 1.0
"""Seconds after which a lost connection is tried again."""

Listen = Callable[[], AsyncGenerator[str | None]]
"""What is said, by a connection of its own; None at the beginning, and now and then. Raises OperationalError, when it
is lost."""


class Listener:
    def __init__(
        self, node: str, listen: Listen, hear: Callable[[tuple[Remote, ...]], None], look: Callable[[], Awaitable[None]]
    ) -> None:
        """`look` finds out what was committed while nobody listened, and is called now and then to be sure."""
        self._node = node
        self._listen = listen
        self._hear = hear
        self._look = look
        self._task: asyncio.Task[None] | None = None
        self.listens = asyncio.Event()

    async def start(self) -> None:
        """Raises OperationalError."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="listener")
        listens = asyncio.ensure_future(self.listens.wait())
        await asyncio.wait([self._task, listens], return_when=asyncio.FIRST_COMPLETED)
        if not self.listens.is_set():
            listens.cancel()
            await self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        """Raises OperationalError, where it is lost before it began."""
        begun = False
        failures = Failures("the listener")
        while True:
            try:
                async with aclosing(self._listen()) as said:
                    async for each in said:
                        if each is not None:
                            self._take(each)
                            continue
                        if begun and not self.listens.is_set():
                            log.warning("listener connection restored")
                        begun = True
                        self.listens.set()
                        await self._look()
            except OperationalError as error:
                if not begun:
                    raise
                if self.listens.is_set():
                    log.error(
                        "listener connection lost: commits of other gateways arrive late error=%s", reason_of(error)
                    )
                self.listens.clear()
            except Exception as error:
                if not begun:
                    raise
                failures.note(error)
                self.listens.clear()
            await asyncio.sleep(_AGAIN)

    def _take(self, said: str) -> None:
        notice = decode_notice(said)
        if notice is None or notice.node == self._node:
            return
        try:
            self._hear(notice.threads)
        except Exception:  # whoever is to hear of what comes after it is told all the same
            log.exception("notice of another gateway not handled")
