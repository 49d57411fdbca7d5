"""Expiry (TTL) of threads: ephemeral ones soon after their work is done, others after their time to live.

One timer, set to what is due first; what it finds still at work, or still read, is looked at again when that may have
changed. After a restart it begins with all the threads that expire.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from babelgate.canonical.event import TaskChanged, ThreadChanged
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.state import TERMINAL, WAITING, TaskState
from babelgate.canonical.thread import Thread, ThreadView
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage import listing
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import expiring_threads, has_due_webhook
from babelgate.gateway.storage.transaction import Published, Transaction

log = logging.getLogger("babelgate.expiry")

_AGAIN: Final = 60_000_000
"""Microseconds until the next look at a thread that could not be erased."""


class Expiry:
    """Threads are known here by their keys: an id that was given out again is another thread's."""

    def __init__(
        self,
        journal: Journal,
        limits: Limits,
        erase: Callable[[Thread, int, int], Awaitable[bool]],
        prune: Callable[[str, str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """`erase` takes a thread, its key, and the seq of its newest record, and says whether it still was that one, so
        that the thread is gone. `prune` takes an owner and the id of a thread."""
        self._journal = journal
        self._ephemeral_ttl = round(limits.ephemeral_ttl * 1e6)
        self._input_ttl = round(limits.input_ttl * 1e6)
        self._erase = erase
        self._prune = prune
        self._clock = clock
        self._changed: dict[int, int | None] = {}
        """By thread that expires, when something happened on it last, on the steady clock. None = in an earlier life of
        the gateway."""
        self._due: list[tuple[int, int]] = []
        """A heap: when to look, on the steady clock, and at which thread."""
        self._looks: dict[int, int] = {}
        """By thread, the entry of the heap that counts: the earliest. What comes later is found out by that look."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._failures = Failures("the expiry of threads")

    async def start(self) -> None:
        """Look at what is not known here. Of several nodes the one that leads does it now and then: what was made by
        one that is gone expires, too."""
        for pk in await self._journal.query(expiring_threads):
            self._changed.setdefault(pk, None)
            if not (self._journal.is_shared and pk in self._looks):
                self._look(pk, 0)

    async def stop(self, seconds: float = STOPPING) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.stop(seconds)

    def handle_commit(self, published: Published) -> None:
        pk = published.pk
        for record in published.records:
            event = record.event
            if type(event) is ThreadChanged and (event.ephemeral or event.ttl is not None):
                self._changed[pk] = None
                self._look(pk, round(event.ttl * 1e6) if event.ttl is not None else self._ephemeral_ttl)
            elif type(event) is TaskChanged and pk in self._changed:
                if event.state in TERMINAL:
                    self._look(pk, self._ephemeral_ttl)
                elif event.state in WAITING:
                    self._look(pk, self._input_ttl)
        if pk in self._changed:
            self._changed[pk] = self._clock.steady()

    def _look(self, pk: int, wait: int) -> None:
        """After so many microseconds."""
        at = self._clock.steady() + wait
        if self._looks.get(pk, at + 1) <= at:
            return
        self._looks[pk] = at
        heapq.heappush(self._due, (at, pk))
        if self._due[0][0] == at:
            self._set()

    def _set(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            wait = max(0, self._due[0][0] - self._clock.steady()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait, self._ring)

    def _ring(self) -> None:
        now = self._clock.steady()
        due: set[int] = set()
        while self._due and self._due[0][0] <= now:
            at, pk = heapq.heappop(self._due)
            if self._looks.get(pk) == at:
                del self._looks[pk]
                due.add(pk)
        self._set()
        if due:
            self._tasks.spawn(self._end_all(due), "expiry")

    async def _end_all(self, due: set[int]) -> None:
        for pk in due:
            try:
                await self._end(pk)
            except FaultError as error:
                if error.fault.code is not FaultCode.NOT_FOUND:
                    log.warning("a thread whose time is over could not be erased: %s", error)
                    self._look(pk, _AGAIN)
            except Exception as error:
                self._failures.note(error)
                self._look(pk, _AGAIN)

    async def _end(self, pk: int) -> None:
        """Erase the thread if its time has come; a question that nobody answered in time ends its task first."""
        found = await self._journal.query(listing.thread_by_key, pk)
        if found is None or pk not in self._changed:
            self._changed.pop(pk, None)
            return
        view, seq = found
        thread = view.thread
        left = self._remaining_time(pk, view)
        if left is None:  # at work: the end of the task comes here again, if it is at work here
            if self._journal.is_shared:
                self._look(pk, _AGAIN)
            return
        if left > 0:
            self._look(pk, left)
        elif view.status == "interrupted" and thread.ephemeral:
            await self._journal.write(_expire, thread.owner, thread.thread_id, pk)
        elif thread.ephemeral and await self._is_used(pk):
            self._look(pk, self._ephemeral_ttl)
        elif thread.keeps_latest and thread.ttl is not None:
            await self._prune(thread.owner, thread.thread_id)
            self._look(pk, round(thread.ttl * 1e6))
        else:
            await self._erase_now(thread, pk, seq)

    async def _is_used(self, pk: int) -> bool:
        """A delivery that waits for a retry reads nothing, but needs the log."""
        return self._journal.channels.get(pk).readers > 0 or await self._journal.query(has_due_webhook, pk)

    async def _erase_now(self, thread: Thread, pk: int, seq: int) -> None:
        changed = self._changed.pop(pk, None)  # two looks may meet
        erased = False
        try:
            erased = await self._erase(thread, pk, seq)
        finally:
            if not erased:
                self._changed.setdefault(pk, changed)
        if not erased:  # something has happened on it meanwhile
            self._look(pk, 0)

    def _remaining_time(self, pk: int, view: ThreadView) -> int | None:
        """Microseconds until the thread is to end; None while somebody is at work on it."""
        now, changed = self._clock.steady(), self._changed[pk]
        if changed is None or self._journal.is_shared:
            # Another node may have changed it since; of what the two clocks say, the later counts.
            stored = now - max(0, self._clock.now() - view.updated_at)
            changed = self._changed[pk] = stored if changed is None else max(changed, stored)
        if view.status == "busy":
            return None
        lasts = self._input_ttl if view.status == "interrupted" else self._ephemeral_ttl
        if view.thread.ttl is not None and not view.thread.ephemeral:
            lasts = round(view.thread.ttl * 1e6)
        return changed + lasts - now


def _expire(tx: Transaction, owner: str, thread_id: str, pk: int) -> None:
    """Fail the tasks of a thread that wait for answers."""
    state = tx.need_thread(owner, thread_id)
    if state.pk != pk:
        return
    fault = Fault(code=FaultCode.EXPIRED, message="Nobody answered in time.")
    for task in [task for task in state.tasks.values() if task.is_waiting]:
        lifecycle.give_up(tx, state, task.task_id, TaskState.FAILED, fault)
