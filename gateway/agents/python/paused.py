"""Paused generators: a limited cache of calls that wait for an answer.

A call that is evicted is replayed from its records when the answer arrives.
"""

import asyncio
import logging
from collections import OrderedDict
from typing import Generic, Protocol, TypeVar

log = logging.getLogger("babelgate.agent")


class Closable(Protocol):
    async def close(self) -> None: ...


Call = TypeVar("Call", bound=Closable)


class PausedGenerators(Generic[Call]):
    """Cache of paused calls, by owner and task.

    The oldest is evicted if there are more than `places`, and each after `ttl` seconds.
    """

    def __init__(self, places: int, ttl: float) -> None:
        self._places = places
        self._ttl = ttl
        self._calls: OrderedDict[tuple[str, str], tuple[float, Call]] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._calls)

    def park(self, owner: str, task_id: str, call: Call) -> None:
        self.forget(owner, task_id)
        until = asyncio.get_running_loop().time() + self._ttl
        self._calls[owner, task_id] = (until, call)
        while len(self._calls) > self._places:
            self._evict()
        self._set_timer()

    def take(self, owner: str, task_id: str) -> Call | None:
        """Remove the paused call of a task from the cache and return it. Return None if the cache has none. The code
        that takes the call must close it (`Call.close`)."""
        parked = self._calls.pop((owner, task_id), None)
        return None if parked is None else parked[1]

    def forget(self, owner: str, task_id: str) -> None:
        """Close the call of a task that has ended or continues elsewhere, if there is one."""
        parked = self._calls.pop((owner, task_id), None)
        if parked is not None:
            self._close(parked[1])

    async def close(self) -> None:
        """Close all calls, and wait until they are closed."""
        while self._calls:
            self._evict()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._closing:
            await asyncio.wait(self._closing)

    def _evict(self) -> None:
        _, (_, call) = self._calls.popitem(last=False)
        self._close(call)

    def _close(self, call: Call) -> None:
        closing = asyncio.get_running_loop().create_task(call.close())
        self._closing.add(closing)
        closing.add_done_callback(self._finish_close)

    def _finish_close(self, closing: "asyncio.Task[None]") -> None:
        self._closing.discard(closing)
        if not closing.cancelled() and (error := closing.exception()) is not None:
            log.error("paused agent not closed", exc_info=error)

    def _set_timer(self) -> None:
        """Set the timer for the oldest call, unless it is set. All calls have the same lifetime, so the oldest expires
        first."""
        if self._timer is None and self._calls:
            until, _ = next(iter(self._calls.values()))
            self._timer = asyncio.get_running_loop().call_at(until, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._calls and next(iter(self._calls.values()))[0] <= now:
            self._evict()
        self._set_timer()
