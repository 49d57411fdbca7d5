"""Event loop that skips waiting time, for tests whose client and server run in one loop.

If all tasks wait only for timers, the clock of the loop jumps to the next timer. So a timeout of 8 seconds takes almost
no time. On a busy machine no timeout expires early, because the clock of the loop jumps only when no task can run.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

_QUIET: Final = 0.05
"""Seconds without a socket event after which all sockets are idle. The kernel delivers data on loopback during the send
call."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.skipped = 0.0
        self.in_threads = 0
        """Number of calls that run in threads, whose waits the loop cannot skip."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= _QUIET or self.in_threads:
            return super().select(timeout)
        found = super().select(_QUIET)
        if not found:
            self.skipped += timeout - _QUIET
        return found


class HastyLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._skipping = _Selector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return super().time() + self._skipping.skipped

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        self._skipping.in_threads += 1
        call = super().run_in_executor(executor, func, *args)
        call.add_done_callback(self._on_done)
        return call

    def _on_done(self, _: object) -> None:
        self._skipping.in_threads -= 1
