"""Cron scheduling: submits the runs of crons at their times, each exactly once.

The row of a cron has the time of its next run. The id of the run is derived from the cron and that time. So a run that
was submitted before the gateway was killed is not submitted again. If several times have passed while no gateway was
running, one run makes up for all of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import NAMESPACE_OID, uuid5

from babelgate.canonical.cron import CHANGEABLE, Cron, CronQuery
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.listed import Listed
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.outbound import CheckUrl
from babelgate.gateway.runs.schedule import find_next
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.audit import deletion
from babelgate.gateway.storage.cron_rows import (
    count_crons,
    create_cron,
    delete_cron,
    due_crons,
    read_cron,
    read_crons,
    read_next_due,
    search_crons,
    write_cron,
)
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.listing import create_listing
from babelgate.gateway.storage.queries import run, thread_key
from babelgate.gateway.storage.size import check_size
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.crons")

CronSubmit = Callable[[Any, str, Cron, str], Awaitable[object]]
"""Function of a protocol that submits a run of a cron. Arguments: hub, owner, cron, run id."""
Submit = Callable[[str, Cron, str], Awaitable[object]]
"""Function that submits a run of a cron. Arguments: owner, cron, run id."""

_MAX_WAIT: Final = 60.0
"""Longest time between two checks for due crons, in seconds. Chosen: the system clock may be set meanwhile."""


class CronScheduler:
    """Scheduler of crons, and commands that store them."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        limits: Callable[[], Limits],
        check_url: CheckUrl,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """Create the scheduler.

        `limits` returns the current limits. `leads` returns True on the node of a cluster that checks for due crons. If
        two nodes lead for a moment, a cron still runs only once.
        """
        self._journal = journal
        self._clock = clock
        self._limits = limits
        self._submit: Mapping[str, Submit] = {}
        self._check_url = check_url
        self._leads = leads
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._failures = Failures("the schedule of crons")

    def start(self, submit: Mapping[str, Submit]) -> None:
        """Start to submit the runs of due crons. `submit` maps a protocol to the function that submits its runs."""
        self._submit = submit
        self._tasks.spawn(self._fire_forever(), "crons")

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    def wake(self) -> None:
        """Check for due crons now."""
        self._changed.set()

    # Scheduling

    async def _fire_forever(self) -> None:
        while True:
            self._changed.clear()
            wait = _MAX_WAIT
            try:
                wait = await self._fire_due() if self._leads() else _MAX_WAIT
            except FaultError as error:
                if error.fault.code is FaultCode.SHUTTING_DOWN:
                    return
                log.warning("due crons not read error=%s", error)
            except Exception as error:
                self._failures.note(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _fire_due(self) -> float:
        """Submit the runs of all due crons, and return the seconds until the next check.

        Raises the faults of the journal if it cannot be read or written.
        """
        while due := await self._journal.query(due_crons, self._clock.now()):
            for owner, cron in due:
                await self._fire(owner, cron)
        next_due = await self._journal.query(read_next_due)
        return _MAX_WAIT if next_due is None else min(_MAX_WAIT, max(0, next_due - self._clock.now()) / 1e6)

    async def _fire(self, owner: str, cron: Cron) -> None:
        run_id = str(uuid5(NAMESPACE_OID, f"{cron.cron_id}/{cron.next_run}"))
        submit = self._submit.get(cron.protocol)
        ends = False
        try:
            if submit is None:
                raise FaultError(FaultCode.INVALID, f"protocol {cron.protocol} is not served by this gateway")
            await submit(owner, cron, run_id)
        except FaultError as error:
            code = error.fault.code
            if code in (FaultCode.SHUTTING_DOWN, FaultCode.UNAVAILABLE, FaultCode.INTERNAL):
                raise  # nothing was stored: the cron stays due
            ends = code is FaultCode.NOT_FOUND and await self._is_thread_gone(owner, cron)
            if await self._journal.query(run, owner, run_id) is None:
                log.warning("run of a cron not started cron=%s error=%s", cron.cron_id, error)
        except Exception:
            log.exception("run of a cron not started cron=%s", cron.cron_id)
        await self._journal.write(self._advance, owner, cron, ends=ends)

    async def _is_thread_gone(self, owner: str, cron: Cron) -> bool:
        return cron.thread_id is not None and await self._journal.query(thread_key, owner, cron.thread_id) is None

    def _advance(self, tx: Transaction, owner: str, fired: Cron, *, ends: bool) -> None:
        stored = read_cron(tx.connection, owner, fired.cron_id, change=True)
        if stored is None or stored.next_run != fired.next_run:  # changed meanwhile
            return
        if ends:
            delete_cron(tx, owner, fired.cron_id)
        else:
            write_cron(tx, owner, self._schedule(stored))

    def _schedule(self, cron: Cron) -> Cron:
        """Return the cron with the time of its next run, which is None if it is disabled or has ended. Raises invalid
        for a wrong schedule or time zone."""
        next_run = find_next(cron.schedule, cron.timezone, self._clock.now())
        has_ended = next_run is None or (cron.end_time is not None and next_run >= cron.end_time)
        return cron.replace(next_run=None if has_ended or not cron.enabled else next_run)

    # Requests of owners

    async def create(self, owner: str, cron: Cron, webhook: str | None = None) -> Cron:
        now = self._clock.now()
        scheduled = self._schedule(cron.replace(created_at=now, updated_at=now))
        await self._check(scheduled, webhook)
        await self._journal.write(create_cron, owner, scheduled)
        self.wake()
        return scheduled

    async def get(self, owner: str, cron_id: str) -> Cron | None:
        return await self._journal.query(read_cron, owner, cron_id)

    async def change(self, owner: str, cron_id: str, changes: Mapping[str, Any], webhook: str | None = None) -> Cron:
        """Change fields of a cron, and return the changed cron. `changes` maps names of fields to new values. A new
        `webhook` URL is checked, too. Raises not_found, and invalid if the changed cron is not valid."""
        assert changes.keys() <= CHANGEABLE
        stored = await self.get(owner, cron_id)
        if stored is None:
            raise _not_found(cron_id)
        await self._check(self._apply(stored, changes), webhook)
        changed = await self._journal.write(self._change, owner, cron_id, changes)
        self.wake()
        return changed

    def _change(self, tx: Transaction, owner: str, cron_id: str, changes: Mapping[str, Any]) -> Cron:
        stored = read_cron(tx.connection, owner, cron_id, change=True)
        if stored is None:
            raise _not_found(cron_id)
        changed = self._apply(stored, changes)
        write_cron(tx, owner, changed)
        return changed

    def _apply(self, stored: Cron, changes: Mapping[str, Any]) -> Cron:
        merged = {
            name: {**getattr(stored, name), **changes[name]} for name in ("request", "metadata") if name in changes
        }
        changed = stored.replace(**{**changes, **merged}, updated_at=self._clock.now())
        timed = changes.keys() & {"schedule", "timezone", "end_time", "enabled"}
        return self._schedule(changed) if timed else changed

    async def _check(self, cron: Cron, webhook: str | None) -> None:
        check_size(self._limits().metadata, cron.metadata)
        check_size(self._limits().input, cron.request)
        if webhook is not None:
            await self._check_url(webhook)

    async def delete(self, owner: str, cron_id: str) -> bool:
        return await self._journal.write_audited(deletion("cron", cron_id, owner), delete_cron, owner, cron_id)

    async def search(self, owner: str, query: CronQuery) -> Listed[Cron]:
        places = await self._journal.query(search_crons, owner, query)
        return create_listing(self._journal, places, partial(read_crons, owner=owner))

    async def count(self, owner: str, query: CronQuery) -> int:
        return await self._journal.query(count_crons, owner, query)


def _not_found(cron_id: str) -> FaultError:
    return FaultError(FaultCode.NOT_FOUND, f"Cron with ID {cron_id} not found")
