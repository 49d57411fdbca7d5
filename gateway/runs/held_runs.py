"""Runs that the gateway has paused because a budget is used up: they continue when the budget is no longer used up.

This happens when the budget is raised by a reload or by the administration API, or when its next period begins. A run
also continues when a caller approves it (`babelgate.gateway.runs.submission`).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Answers
from babelgate.canonical.json import as_object
from babelgate.canonical.thread import Interrupt
from babelgate.gateway.background import STOPPING, Failures, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.runs.budget_question import QUESTION_PREFIX, is_budget_question
from babelgate.gateway.runs.budgets import ACTIVE_SCOPES, Budgets
from babelgate.gateway.storage.budget_commands import prune
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.spend import list_questions, read_spend

log = logging.getLogger("babelgate.budgets")

_INTERVAL: Final = 60.0
"""Seconds between two checks for budgets whose next period has begun. Chosen."""
_PRUNE_INTERVAL: Final = 3600.0
"""Seconds between two removals of old rows from the table `spend`. Chosen."""
_KEPT: Final = 400 * 86_400_000_000
"""Time for which the amounts of past periods are kept, in microseconds. Chosen: a year, and a month to compare."""
_KEPT_OF_RUNS: Final = 7 * 86_400_000_000
"""Time for which amounts of single runs and chains of calls are kept, in microseconds. Chosen: no run is longer."""
_GONE: Final = (FaultCode.NOT_AWAITING, FaultCode.TASK_ENDED, FaultCode.NOT_FOUND)
"""Faults of an answer to a question that was answered, or whose task was cancelled or erased, meanwhile."""


class HeldRuns:
    """Background task that continues paused runs when their budgets are no longer used up."""

    def __init__(
        self,
        journal: Journal,
        budgets: Budgets,
        resume: Callable[[str, Answers], Awaitable[object]],
        clock: Clock,
        leads: Callable[[], bool],
    ) -> None:
        """Create the task. `resume` answers the question of a paused run, without a check of a caller. `leads` returns
        True on the node of a cluster that checks for new periods."""
        self._journal = journal
        self._budgets = budgets
        self._resume = resume
        self._clock = clock
        self._leads = leads
        self._changed = asyncio.Event()
        self._tasks = Tasks()
        self._failures = Failures("the check of paused runs")

    def start(self) -> None:
        """Start the background task."""
        self._tasks.spawn(self._check_forever(), "paused runs")

    async def stop(self, seconds: float = STOPPING) -> None:
        """Cancel the background task."""
        await self._tasks.stop(seconds)

    def wake(self) -> None:
        """Check all paused runs now, because a budget may have been raised."""
        self._changed.set()

    async def _check_forever(self) -> None:
        pruned_at = -_PRUNE_INTERVAL
        while True:
            is_due = False
            with suppress(TimeoutError):
                async with asyncio.timeout(_INTERVAL):
                    await self._changed.wait()
                    is_due = True
            self._changed.clear()
            try:
                if is_due or (self._leads() and self._has_pauses()):
                    await self.check()
                now = asyncio.get_running_loop().time()
                if self._budgets.current and self._leads() and now - pruned_at > _PRUNE_INTERVAL:
                    pruned_at = now
                    at = self._clock.now()
                    await self._journal.write(prune, at - _KEPT, ACTIVE_SCOPES, at - _KEPT_OF_RUNS)
            except FaultError as error:
                if error.fault.code is FaultCode.SHUTTING_DOWN:
                    return
                log.warning("paused runs not checked error=%s", error)
            except Exception as error:
                self._failures.note(error)

    def _has_pauses(self) -> bool:
        return any(each.on_limit == "pause" for each in self._budgets.current.values())

    async def check(self) -> int:
        """Continue the paused runs whose budgets are no longer used up, and return their number."""
        resumed = 0
        for owner, question in await self._journal.query(list_questions, QUESTION_PREFIX):
            if is_budget_question(question) and await self._has_room(question):
                answers = Answers(task_id=question.task_id, values={question.interrupt_id: True}, may_raise=True)
                try:
                    await self._resume(owner, answers)
                except FaultError as error:
                    if error.fault.code not in _GONE:
                        raise
                else:
                    resumed += 1
                    log.info("paused run resumed task=%s question=%s", question.task_id, question.interrupt_id)
        return resumed

    async def _has_room(self, question: Interrupt) -> bool:
        """Return True if the budget of a question is no longer used up, was removed, or does not pause runs any
        more."""
        scope = as_object(question.value).get("scope")
        share = self._budgets.find_share(scope) if isinstance(scope, str) else None
        if share is None or share.settings.on_limit == "refuse":
            return True
        rows = await self._journal.query(read_spend, [share.key])
        return share.find_excess(rows.get(share.key)) is None
