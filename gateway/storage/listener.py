"""Listener (LISTEN/NOTIFY): the connection on which a gateway receives notices of commits of the other gateways."""

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

_RETRY_DELAY: Final = 1.0
"""Seconds between the loss of the connection and the attempt to reconnect, and between such attempts. Chosen."""

Listen = Callable[[], AsyncGenerator[str | None]]
"""Function that connects, and yields the notices it receives. It also yields None after connecting and periodically.

It raises OperationalError when the connection is lost."""


class Listener:
    def __init__(
        self, node: str, listen: Listen, hear: Callable[[tuple[Remote, ...]], None], look: Callable[[], Awaitable[None]]
    ) -> None:
        """Create a listener for the gateway with the id `node`.

        `hear` receives the notices of other gateways. `look` checks the database for commits whose notices were missed.
        It is called after each connect, and periodically."""
        self._node = node
        self._listen = listen
        self._hear = hear
        self._look = look
        self._task: asyncio.Task[None] | None = None
        self.listens = asyncio.Event()

    async def start(self) -> None:
        """Start the listening task, and return once it is connected. Raises OperationalError if the first connection
        fails."""
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
        """Receive notices, and reconnect after a loss. Raises OperationalError if the first connection fails."""
        has_listened = False
        failures = Failures("the listener")
        while True:
            try:
                async with aclosing(self._listen()) as notices:
                    async for notice in notices:
                        if notice is not None:
                            self._handle(notice)
                            continue
                        await self._look()  # before `listens` is set: nothing is missed from then on
                        if has_listened and not self.listens.is_set():
                            log.warning("listener connection restored")
                        has_listened = True
                        self.listens.set()
            except OperationalError as error:
                if not has_listened:
                    raise
                if self.listens.is_set():
                    log.error(
                        "listener connection lost: commits of other gateways arrive late error=%s", reason_of(error)
                    )
                self.listens.clear()
            except Exception as error:
                if not has_listened:
                    raise
                failures.note(error)
                self.listens.clear()
            await asyncio.sleep(_RETRY_DELAY)

    def _handle(self, payload: str) -> None:
        notice = decode_notice(payload)
        if notice is None or notice.node == self._node:
            return
        try:
            self._hear(notice.threads)
        except Exception:  # the failure of one handler must not stop later notices
            log.exception("notice of another gateway not handled")
