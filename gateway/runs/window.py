"""Commit window: stores the tokens that all runs produce within some milliseconds in one commit.

A token that is stored alone costs a commit, a wake-up of the loop and of each reader, and a frame on each connection.
That is ten times the cost of reading and encoding it. One timer serves all runs, so that their tokens are in the same
group commit of the journal.
"""

import asyncio
from collections.abc import Callable
from math import floor


class Window:
    """Commit window that all runs share: the time for which tokens wait before they are stored."""

    def __init__(self, seconds: float) -> None:
        """Create a window. A token waits for at most `seconds`; with 0 it does not wait."""
        self.seconds = seconds
        self._due: list[Callable[[], None]] = []

    def is_open(self, flushed_at: float) -> bool:
        """Return True if the last flush is so recent that the next one can wait for the end of the window.

        `flushed_at` is the time of the last flush, on the loop's clock.
        """
        return asyncio.get_running_loop().time() - flushed_at < self.seconds

    def call_at_end(self, flush: Callable[[], None]) -> None:
        """Call `flush` when the current window ends."""
        if not self._due:
            loop = asyncio.get_running_loop()
            # All runs share the same ends of windows.
            loop.call_at((floor(loop.time() / self.seconds) + 1) * self.seconds, self._close)
        self._due.append(flush)

    def _close(self) -> None:
        due, self._due = self._due, []
        for flush in due:
            flush()
