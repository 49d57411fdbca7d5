"""An event loop that waits for nobody: where all sides of a conversation are in it, and none has anything to do but to
wait for a time, that time is there at once.

So a judge that gives an agent 8 seconds for what it never says needs no 8 seconds; and on a machine so busy that all of
them are slow, nobody's time is over, because it stands still for as long as anybody computes.
"""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

_QUIET: Final = 0.05
"""Seconds without a word from any socket after which nothing is under way between them any more. The kernel hands what
is sent on loopback to its receiver while it is sent."""


class _Selector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.elsewhere = 0
        """Calls at work in threads, which wait in the world's time."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= _QUIET or self.elsewhere:
            return super().select(timeout)
        found = super().select(_QUIET)
        if not found:
            self.ahead += timeout - _QUIET
        return found


class HastyLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._hasty = _Selector()
        super().__init__(self._hasty)

    def time(self) -> float:
        return super().time() + self._hasty.ahead

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        self._hasty.elsewhere += 1
        made = super().run_in_executor(executor, func, *args)
        made.add_done_callback(self._came_back)
        return made

    def _came_back(self, _: object) -> None:
        self._hasty.elsewhere -= 1
