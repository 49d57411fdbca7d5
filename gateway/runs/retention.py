"""Retention: threads that nothing has happened on for long are erased, as their owners would do it, and what was erased
is given back to the file system. All of it in steps that hold nobody up: each is a transaction of a few milliseconds at
most, and the next one begins some times as long after it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, exists, func, select, text

from babelgate.canonical.fault import FaultError
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs import deletion
from babelgate.gateway.settings.model import Retention as Policy
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import OPEN, EventRow, TaskRow, ThreadRow, WebhookRow
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.retention")

P = ParamSpec("P")
T = TypeVar("T")

_PERIOD: Final = 600.0
"""Seconds from one look at everything to the next."""
_LOOK: Final = 500
"""Threads that one query looks at."""
_HOOKS: Final = 200
"""Webhooks that go in one transaction."""
_REST: Final = 4
"""Between two transactions, some times what the last one took."""

_THREAD, _TASK, _EVENT, _HOOK = table_of(ThreadRow), table_of(TaskRow), table_of(EventRow), table_of(WebhookRow)


@dataclass(frozen=True, slots=True)
class Idle:
    """A thread on which nothing has happened for long enough."""

    pk: int
    owner: str
    thread_id: str
    seq: int
    """Of its newest record."""
    unfinished: bool


class Retention:
    def __init__(
        self,
        journal: Journal,
        policy: Policy,
        erase: Callable[[Idle], Awaitable[bool]],
        clock: Clock,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """`erase` says whether the thread is gone: not if something has happened on it meanwhile. Of several nodes the
        one that `leads` looks for what is over."""
        self._journal = journal
        self._policy = policy
        self._erase = erase
        self._clock = clock
        self._leads = leads
        self._wall, self._steady = clock.now(), clock.steady()
        self._tasks = Tasks()
        self._failures = Failures("retention")
        self._woken = asyncio.Event()

    def start(self) -> None:
        self._tasks.spawn(self._run_forever(), "retention")

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    def wake(self) -> None:
        """A long thread was erased: its log is to go, too."""
        self._woken.set()

    async def _run_forever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            try:
                if loop.time() >= due:
                    due = loop.time() + _PERIOD
                    if self._leads():
                        await self.sweep()
                else:
                    await self.erase_remnants()
                await self.give_back()
            except FaultError as error:  # a full disk, say: tried again
                log.warning("what is over could not be erased: %s", error)
            except Exception as error:
                self._failures.note(error)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._woken.wait()
                    self._woken.clear()

    async def sweep(self) -> int:
        """Erase what the policy does not keep. Returns how many threads."""
        await self._step(self._make_room)
        await self.erase_remnants()
        erased = await self._erase_idle()
        if erased:
            log.info("%d threads were erased: nothing had happened on them for as long as retention says", erased)
        if self._policy.webhooks is not None:
            while await self._step(_forget_webhooks, self._cutoff(self._policy.webhooks)):
                pass
        await self.erase_remnants()
        return erased

    async def erase_remnants(self) -> None:
        """The logs of long threads that were erased."""
        while await self._step(deletion.erase_remnant):
            pass

    def _make_room(self, tx: Transaction) -> None:
        self._journal.database.make_room(tx.connection)

    async def give_back(self) -> None:
        """Shrink the database by what is free: pages of its file, but for a few; partitions."""
        while await self._step(self._give_back):
            pass

    def _give_back(self, tx: Transaction) -> bool:
        return self._journal.database.give_back(tx.connection)

    async def _erase_idle(self) -> int:
        policy = self._policy
        if policy.threads is None:
            return 0
        finished = self._cutoff(policy.threads)
        unfinished = 0 if policy.unfinished is None else self._cutoff(policy.unfinished)
        erased = 0
        after: int | None = 0
        while after is not None:
            found, after = await self._journal.query(idle_threads, after, finished, unfinished)
            for idle in found:
                begun = self._clock.steady()
                erased += await self._erase(idle)
                await self._rest(begun)
        return erased

    async def _step(self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs) -> T:
        begun = self._clock.steady()
        done = await self._journal.write(command, *args, **named)
        await self._rest(begun)
        return done

    async def _rest(self, begun: int) -> None:
        await asyncio.sleep(min(1.0, _REST * (self._clock.steady() - begun) / 1e6))

    def _cutoff(self, lasts: float) -> int:
        """What was last used before it is over. A clock that is set forward while the gateway runs makes nothing
        old."""
        now = min(self._clock.now(), self._wall + self._clock.steady() - self._steady)
        return now - round(lasts * 1e6)


def idle_threads(connection: Connection, after: int, finished: int, unfinished: int) -> tuple[list[Idle], int | None]:
    """Of some threads after a key those whose newest record is older than `finished`, or, where a task has not ended,
    than `unfinished`; and the key to go on after, if there are more."""
    newest = select(func.max(_EVENT.c.seq)).where(_EVENT.c.thread_pk == _THREAD.c.pk).scalar_subquery()
    is_open = exists().where(_TASK.c.thread_pk == _THREAD.c.pk, text(f"task.{OPEN}"))
    some = (
        select(_THREAD.c.pk, _THREAD.c.owner, _THREAD.c.thread_id, newest.label("seq"), is_open.label("is_open"))
        .where(_THREAD.c.pk > after)
        .order_by(_THREAD.c.pk)
        .limit(_LOOK)
        .subquery()
    )
    rows = connection.execute(
        select(some, _EVENT.c.at).join(_EVENT, (_EVENT.c.thread_pk == some.c.pk) & (_EVENT.c.seq == some.c.seq))
    ).all()
    found = [
        Idle(row.pk, row.owner, row.thread_id, row.seq, bool(row.is_open))
        for row in rows
        if row.at < (unfinished if row.is_open else finished)
    ]
    return found, max(row.pk for row in rows) if rows else None


def _forget_webhooks(tx: Transaction, cutoff: int) -> bool:
    """Forget webhooks that are over, of tasks that ended before; one that was given up, as long after that. Returns
    whether there may be more."""
    key = (_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    of_task = (_TASK.c.owner == _HOOK.c.owner) & (_TASK.c.task_id == _HOOK.c.task_id)
    is_old = (_TASK.c.changed_at < cutoff) & (func.coalesce(_HOOK.c.given_up_at, 0) < cutoff)
    over = select(*key).join(_TASK, of_task).where(_HOOK.c.done.is_(True), is_old).limit(_HOOKS)
    rows = tx.connection.execute(over).all()
    for owner, task_id, webhook_id in rows:
        mine = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
        tx.connection.execute(_HOOK.delete().where(*mine))
    return len(rows) == _HOOKS
