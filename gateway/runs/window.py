"""Commit window: tokens of all runs are stored together, some milliseconds at a time.

A token that is stored by itself costs a commit, a wake-up of the loop and of each reader, and a frame on each
connection: ten times what it costs to take and to encode it. One timer serves all runs, so that their tokens are in the
same group of the journal.
"""

import asyncio
from collections.abc import Callable
from math import floor


class Window:
    def __init__(self, seconds: float) -> None:
        """At most so long is a token kept; 0 = none is kept."""
        self.seconds = seconds
        self._due: list[Callable[[], None]] = []

    def is_open(self, flushed_at: float) -> bool:
        """Whether something was stored so lately that the next may wait. `flushed_at`: on the loop's clock."""
        return asyncio.get_running_loop().time() - flushed_at < self.seconds

    def call_at_end(self, flush: Callable[[], None]) -> None:
        if not self._due:
            loop = asyncio.get_running_loop()
            # The ends of windows are the same for all.
            loop.call_at((floor(loop.time() / self.seconds) + 1) * self.seconds, self._close)
        self._due.append(flush)

    def _close(self) -> None:
        due, self._due = self._due, []
        for flush in due:
            flush()
