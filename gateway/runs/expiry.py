"""Expiry of threads: ephemeral threads soon after their tasks have ended, others after their time to live (TTL).

One timer is set to the threads that are due first. Those that are still busy or still read then are checked again
later. After a restart, all threads that can expire are checked. Every stateless run ends with an erasure, so the times
are rounded up, and the threads that are due at one time share a query and a transaction.
"""

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from babelgate.canonical.event import TaskChanged, ThreadChanged
from babelgate.canonical.fault import Fault, FaultCode, FaultError
from babelgate.canonical.state import TERMINAL, WAITING, TaskState
from babelgate.canonical.thread import Thread, ThreadView
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs import lifecycle
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import PassingThread, passing_threads
from babelgate.gateway.storage.queries import expiring_threads
from babelgate.gateway.storage.transaction import Published, Transaction

log = logging.getLogger("babelgate.expiry")

_RETRY_DELAY: Final = 60_000_000
"""Microseconds until the next check of a thread that could not be erased. Chosen: a minute."""
_INTERVAL: Final = 1_000_000
"""Maximum microseconds between the times to which checks are rounded up. Chosen: a second."""
_ROUNDS: Final = 60
"""Minimum number of these times within `limits.ephemeral_ttl`. Chosen: the default is a minute."""
_TOGETHER: Final = 32
"""Maximum number of threads that are read and erased together. Chosen: other commands wait for the transaction."""


class Expiry:
    """Timer that erases expired threads.

    It identifies threads by their keys, because the id of an erased thread can be used again.
    """

    def __init__(
        self,
        journal: Journal,
        limits: Callable[[], Limits],
        erase: Callable[[Thread, int, int], Awaitable[bool]],
        prune: Callable[[str, str], Awaitable[None]],
        clock: Clock,
    ) -> None:
        """Create the timer.

        `limits` returns the current limits; a check that is already scheduled keeps its time when they change. `erase`
        takes a thread, its key, and the seq of its newest record. It returns False and erases nothing if the thread has
        a newer record by then. `prune` takes an owner and the id of a thread, and deletes all revisions except the
        newest.
        """
        self._journal = journal
        self._limits = limits
        self._erase = erase
        self._prune = prune
        self._clock = clock
        self._changed: dict[int, int | None] = {}
        """Time of the last commit on each thread that can expire, by key of the thread.

        The times are in microseconds of the steady clock. None means that this process has not observed a commit yet.
        """
        self._due: list[tuple[int, int]] = []
        """Heap of scheduled checks: time in microseconds of the steady clock, and key of the thread."""
        self._checks: dict[int, int] = {}
        """Time of the next check of each thread, by key of the thread. Other entries of the thread in the heap are
        ignored."""
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = Tasks()
        self._failures = Failures("the expiry of threads")

    def _ephemeral_ttl(self) -> int:
        return round(self._limits().ephemeral_ttl * 1e6)

    def _input_ttl(self) -> int:
        return round(self._limits().input_ttl * 1e6)

    async def start(self) -> None:
        """Check all threads that can expire and are not scheduled yet.

        In a cluster, the leader calls this repeatedly, so that threads created by dead nodes expire, too.
        """
        for pk in await self._journal.query(expiring_threads):
            self._changed.setdefault(pk, None)
            if not (self._journal.is_shared and pk in self._checks):
                self._schedule_check(pk, 0)

    def restart(self) -> None:
        """Check again, in the background, which threads can expire."""
        self._tasks.spawn(self.start(), "expiry")

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
                self._schedule_check(pk, round(event.ttl * 1e6) if event.ttl is not None else self._ephemeral_ttl())
            elif type(event) is TaskChanged and pk in self._changed:
                if event.state in TERMINAL:
                    self._schedule_check(pk, self._ephemeral_ttl())
                elif event.state in WAITING:
                    self._schedule_check(pk, self._input_ttl())
        if pk in self._changed:
            self._changed[pk] = self._clock.steady()

    def _schedule_check(self, pk: int, wait: int) -> None:
        """Schedule a check of a thread after at least `wait` microseconds."""
        at = self._clock.steady() + wait
        if wait > 0:
            interval = max(1, min(_INTERVAL, self._ephemeral_ttl() // _ROUNDS))
            at = -(-at // interval) * interval
        if self._checks.get(pk, at + 1) <= at:
            return
        self._checks[pk] = at
        is_first = not self._due or at < self._due[0][0]
        heapq.heappush(self._due, (at, pk))
        if is_first:
            self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            wait = max(0, self._due[0][0] - self._clock.steady()) / 1e6
            self._timer = asyncio.get_running_loop().call_later(wait, self._run_due)

    def _run_due(self) -> None:
        now = self._clock.steady()
        due: list[int] = []
        while self._due and self._due[0][0] <= now:
            at, pk = heapq.heappop(self._due)
            if self._checks.get(pk) == at:
                del self._checks[pk]
                due.append(pk)
        self._set_timer()
        if due:
            self._tasks.spawn(self._end_all(due), "expiry")

    async def _end_all(self, due: Sequence[int]) -> None:
        for start in range(0, len(due), _TOGETHER):
            some = due[start : start + _TOGETHER]
            try:
                found = await self._journal.query(passing_threads, some)
            except Exception as error:
                self._retry(dict.fromkeys(some, error))
            else:
                ends = (self._end(pk, found.get(pk)) for pk in some)
                results = zip(some, await asyncio.gather(*ends, return_exceptions=True), strict=True)
                self._retry({pk: error for pk, error in results if isinstance(error, Exception)})

    def _retry(self, failed: Mapping[int, Exception]) -> None:
        """Check threads again later, except those that no longer exist, and log one of their errors."""
        failed = {pk: error for pk, error in failed.items() if not _is_missing(error)}
        for pk in failed:
            self._schedule_check(pk, _RETRY_DELAY)
        for error in failed.values():
            if isinstance(error, FaultError):
                log.warning(
                    "expired threads not erased: retry in %d s count=%d error=%s",
                    _RETRY_DELAY // 1e6,
                    len(failed),
                    error,
                )
                return
            self._failures.note(error)

    async def _end(self, pk: int, found: PassingThread | None) -> None:
        """Erase a thread if it has expired, or prune it if its newest state is to be kept. A thread that waits for an
        answer is not erased yet: its open question expires first, and fails its task."""
        if found is None or pk not in self._changed:
            self._changed.pop(pk, None)
            return
        view, thread = found.view, found.view.thread
        remaining = self._remaining_time(pk, view)
        if remaining is None:  # busy: the end of the task schedules a check, unless another node runs it
            if self._journal.is_shared:
                self._schedule_check(pk, _RETRY_DELAY)
            return
        if remaining > 0:
            self._schedule_check(pk, remaining)
        elif view.status == "interrupted" and thread.ephemeral:
            await self._journal.write(_expire, thread.owner, thread.thread_id, pk)
        elif thread.ephemeral and (found.has_due_webhook or self._journal.channels.get(pk).readers > 0):
            self._schedule_check(pk, self._ephemeral_ttl())
        elif thread.keeps_latest and thread.ttl is not None:
            await self._prune(thread.owner, thread.thread_id)
            self._schedule_check(pk, round(thread.ttl * 1e6))
        else:
            await self._erase_now(thread, pk, found.seq)

    async def _erase_now(self, thread: Thread, pk: int, seq: int) -> None:
        changed = self._changed.pop(pk, None)  # two checks may overlap
        erased = False
        try:
            erased = await self._erase(thread, pk, seq)
        finally:
            if not erased:
                self._changed.setdefault(pk, changed)
        if not erased:  # the thread has a newer record
            self._schedule_check(pk, 0)

    def _remaining_time(self, pk: int, view: ThreadView) -> int | None:
        """Return the microseconds until the thread expires, or None while it is busy."""
        now, changed = self._clock.steady(), self._changed[pk]
        if changed is None or self._journal.is_shared:
            # Another node may have changed it since. The later time of the two clocks counts.
            stored = now - max(0, self._clock.now() - view.updated_at)
            changed = self._changed[pk] = stored if changed is None else max(changed, stored)
        if view.status == "busy":
            return None
        lifetime = self._input_ttl() if view.status == "interrupted" else self._ephemeral_ttl()
        if view.thread.ttl is not None and not view.thread.ephemeral:
            lifetime = round(view.thread.ttl * 1e6)
        return changed + lifetime - now


def _is_missing(error: Exception) -> bool:
    return isinstance(error, FaultError) and error.fault.code is FaultCode.NOT_FOUND


def _expire(tx: Transaction, owner: str, thread_id: str, pk: int) -> None:
    """Fail the tasks of a thread that wait for an answer, because the questions were not answered in time."""
    state = tx.need_thread(owner, thread_id)
    if state.pk != pk:
        return
    fault = Fault(code=FaultCode.EXPIRED, message="No answer arrived in time.")
    for task in [task for task in state.tasks.values() if task.is_waiting]:
        lifecycle.give_up(tx, state, task.task_id, TaskState.FAILED, fault)
