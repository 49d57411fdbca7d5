"""Threads that end by themselves: ephemeral ones soon after their work is done, others after their time to live.

One timer, set to what is due first; what it finds still at work, or still read, is looked at again when that may have
changed. After a restart it begins with all the threads that expire.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from sqlalchemy import Connection, select, text

from canonical.event import TaskChanged, ThreadChanged
from canonical.fault import Fault, FaultCode, FaultError
from canonical.state import TERMINAL, WAITING, TaskState
from canonical.thread import ThreadView
from gateway import listing, turn
from gateway.engine import Tasks
from gateway.journal import Journal
from gateway.ledger import Ledger, Published
from gateway.sql import table_of
from gateway.table import PASSING, ThreadRow

__all__ = ("Expiry", "passing")

log = logging.getLogger("babelgate.expiry")


class Lifetimes(Protocol):
    """Seconds."""

    @property
    def ephemeral_ttl(self) -> float: ...
    @property
    def input_ttl(self) -> float: ...


class Expiry:
    def __init__(
        self,
        journal: Journal,
        lifetimes: Lifetimes,
        erase: Callable[[str, str], Awaitable[None]],
        clock: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._ephemeral_ttl = lifetimes.ephemeral_ttl
        self._input_ttl = lifetimes.input_ttl
        self._erase = erase
        self._clock = clock
        self._passing: dict[tuple[str, str], int] = {}
        """Threads that expire, by owner and id, with their keys."""
        self._due: list[tuple[int, str, str]] = []
        """A heap: when to look, in microseconds, and at which thread."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()

    async def start(self) -> None:
        for owner, thread_id, pk in await self._journal.query(passing):
            self._passing[owner, thread_id] = pk
            self._look(owner, thread_id, self._clock())

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop()

    def committed(self, entry: Published) -> None:
        event, key = entry.record.event, (entry.owner, entry.thread_id)
        if isinstance(event, ThreadChanged):
            if event.ephemeral or event.ttl is not None:
                self._passing[key] = entry.pk
                self._look(*key, entry.record.at + round((event.ttl or self._ephemeral_ttl) * 1e6))
        elif isinstance(event, TaskChanged) and key in self._passing:
            if event.state in TERMINAL:
                self._look(*key, entry.record.at + round(self._ephemeral_ttl * 1e6))
            elif event.state in WAITING:
                self._look(*key, entry.record.at + round(self._input_ttl * 1e6))

    def _look(self, owner: str, thread_id: str, at: int) -> None:
        heapq.heappush(self._due, (at, owner, thread_id))
        if self._due[0][0] == at:
            self._set()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            wait = max(0, self._due[0][0] - self._clock()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        now = self._clock()
        due: set[tuple[str, str]] = set()
        while self._due and self._due[0][0] <= now:
            due.add(heapq.heappop(self._due)[1:])
        self._set()
        if due:
            self._tasks.spawn(self._end_all(due), "expiry")

    async def _end_all(self, due: set[tuple[str, str]]) -> None:
        for owner, thread_id in due:
            try:
                await self._end(owner, thread_id)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    log.warning("thread %s could not be erased: %s", thread_id, error)
                    self._look(owner, thread_id, self._clock() + 60_000_000)

    async def _end(self, owner: str, thread_id: str) -> None:
        """Erase the thread if its time has come; a question that nobody answered in time ends its task first."""
        pk = self._passing.get((owner, thread_id))
        view = await self._journal.query(partial(listing.thread_view, owner=owner, thread_id=thread_id))
        if pk is None or view is None:
            self._passing.pop((owner, thread_id), None)
            return
        left = self._left(view)
        if left is None:  # at work: the end of the task comes here again
            return
        if left > 0:
            self._look(owner, thread_id, self._clock() + left)
        elif view.status == "interrupted" and view.thread.ephemeral:
            await self._journal.write(partial(_expire, owner=owner, thread_id=thread_id))
        elif view.thread.ephemeral and self._journal.channels.get(pk).readers > 0:
            self._look(owner, thread_id, self._clock() + round(self._ephemeral_ttl * 1e6))
        else:
            if self._passing.pop((owner, thread_id), None) is not None:  # two looks may meet
                await self._erase(owner, thread_id)

    def _left(self, view: ThreadView) -> int | None:
        """Microseconds until the thread is to end; None while somebody is at work on it."""
        if view.status == "busy":
            return None
        seconds = self._input_ttl if view.status == "interrupted" else self._ephemeral_ttl
        if view.thread.ttl is not None and not view.thread.ephemeral:
            seconds = view.thread.ttl
        return view.updated_at + round(seconds * 1e6) - self._clock()


def passing(connection: Connection) -> list[tuple[str, str, int]]:
    """(owner, id, key) of every thread that expires."""
    thread = table_of(ThreadRow)
    rows = connection.execute(select(thread.c.owner, thread.c.thread_id, thread.c.pk).where(text(PASSING)))
    return [(owner, thread_id, pk) for owner, thread_id, pk in rows]


def _expire(ledger: Ledger, owner: str, thread_id: str) -> None:
    """Fail the tasks of a thread that wait for answers."""
    state = ledger.need_thread(owner, thread_id)
    fault = Fault(code=FaultCode.EXPIRED, message="Nobody answered in time.")
    for task in [task for task in state.tasks.values() if task.waiting]:
        turn.give_up(ledger, state, task.task_id, TaskState.FAILED, fault)
