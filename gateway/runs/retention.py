"""Retention: erases threads that were idle for too long, and returns the freed space to the file system.

The work is divided into steps, so that it does not delay other writes: each is a transaction of at most a few
milliseconds. The pause before the next step is several times as long as the step.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Concatenate, Final, ParamSpec, TypeVar

from babelgate.canonical.fault import FaultError
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.settings.model import Retention as Policy
from babelgate.gateway.storage import deletion
from babelgate.gateway.storage.audit import prune_records
from babelgate.gateway.storage.idle import Idle, idle_threads
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.webhook_rows import forget_webhooks

log = logging.getLogger("babelgate.retention")

P = ParamSpec("P")
T = TypeVar("T")

_PERIOD: Final = 600.0
"""Seconds from one sweep to the next. Chosen."""
_PAUSE_FACTOR: Final = 4
"""Pause after a transaction of the sweep, as a multiple of its duration. Chosen: the sweep uses a fifth of the writer's
time."""


class RetentionSweep:
    """Background task that periodically erases idle threads, ended webhooks, old audit records and the tombstones of
    erased threads, as the retention policy says."""

    def __init__(
        self,
        journal: Journal,
        policy: Callable[[], Policy],
        erase: Callable[[Idle], Awaitable[bool]],
        clock: Clock,
        leads: Callable[[], bool] = lambda: True,
        woken: asyncio.Event | None = None,
    ) -> None:
        """Create the sweep.

        `policy` returns the current policy. `erase` erases an idle thread; it returns False and erases nothing if the
        thread was used meanwhile. `leads` returns True on the node of a cluster that does the sweep. `woken` is set
        when a long thread was erased, because the rest of its log is erased by this task.
        """
        self._journal = journal
        self._policy = policy
        self._erase = erase
        self._clock = clock
        self._leads = leads
        self._wall, self._steady = clock.now(), clock.steady()
        self._tasks = Tasks()
        self._failures = Failures("retention")
        self._woken = woken or asyncio.Event()

    def start(self) -> None:
        self._tasks.spawn(self._run_forever(), "retention")

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

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
            except FaultError as error:  # such as a full disk: the next sweep tries again
                log.warning("data past its retention not erased: the next sweep retries error=%s", error)
            except Exception as error:
                self._failures.note(error)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._woken.wait()
                    self._woken.clear()

    async def sweep(self) -> int:
        """Erase what the policy does not keep: idle threads, ended webhooks, old records of the audit log, and old
        tombstones. Return the number of erased threads."""
        await self._step(self._make_room)
        await self.erase_remnants()
        erased = await self._erase_idle()
        if erased:
            log.info("idle threads erased count=%d", erased)
        if (lifetime := self._policy().webhooks) is not None:
            while await self._step(forget_webhooks, self._cutoff(lifetime)):
                pass
        while await self._step(prune_records, self._cutoff(self._policy().audit)):
            pass
        while await self._step(deletion.forget_tombstones, self._cutoff(self._policy().tombstones)):
            pass
        await self.erase_remnants()
        return erased

    async def erase_remnants(self) -> None:
        """Erase the rest of the logs of erased threads, which were too long to be erased in one transaction."""
        while await self._step(deletion.erase_remnant):
            pass

    def _make_room(self, tx: Transaction) -> None:
        self._journal.database.make_room(tx.connection)

    async def give_back(self) -> None:
        """Return free space to the file system: most of the free pages of the database file, and empty partitions."""
        while await self._step(self._give_back):
            pass

    def _give_back(self, tx: Transaction) -> bool:
        return self._journal.database.give_back(tx.connection)

    async def _erase_idle(self) -> int:
        policy = self._policy()
        if policy.threads is None:
            return 0
        finished = self._cutoff(policy.threads)
        unfinished = 0 if policy.unfinished is None else self._cutoff(policy.unfinished)
        erased = 0
        after: int | None = 0
        while after is not None:
            found, after = await self._journal.query(idle_threads, after, finished, unfinished)
            for idle in found:
                started = self._clock.steady()
                erased += await self._erase(idle)
                await self._pause(started)
        return erased

    async def _step(self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs) -> T:
        started = self._clock.steady()
        result = await self._journal.write(command, *args, **named)
        await self._pause(started)
        return result

    async def _pause(self, started: int) -> None:
        await asyncio.sleep(min(1.0, _PAUSE_FACTOR * (self._clock.steady() - started) / 1e6))

    def _cutoff(self, lifetime: float) -> int:
        """Return the time before which an item must have been used last to be erased, in microseconds since 1970.
        `lifetime` is in seconds.

        If the system clock is set forward while the gateway runs, nothing expires early.
        """
        now = min(self._clock.now(), self._wall + self._clock.steady() - self._steady)
        return now - round(lifetime * 1e6)
