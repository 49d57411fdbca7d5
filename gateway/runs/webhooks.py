"""Webhook delivery (push notifications), at least once and in order.

A webhook is a cursor on its task's log, stored in the database. Records after the cursor are encoded in the webhook's
dialect and posted. The cursor advances after the receiver's 2xx response.

After a failed try, the time of the next try is stored in the database, too. A restarted gateway, or another node that
takes over the webhook, waits until that time and continues with that try. While a delivery waits, it holds a timer, but
no subscription and no records.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Concatenate, Final, ParamSpec
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakValueDictionary

from babelgate.adapters.kit.adapter import WebhookWriter
from babelgate.adapters.kit.server.encoding import LargeJson, as_bytes
from babelgate.canonical.event import Record, RunCreated, TaskChanged
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Scope, Webhook
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Task
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.clock import Clock
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.outbound import CheckUrl, Fetcher
from babelgate.gateway.runs.retry_schedule import RetrySchedule, parse_retry_after, shorten_reason
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import Due, due_webhook, webhook_node
from babelgate.gateway.storage.reads import JournalReads
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.unavailable import Unstored, keep_trying
from babelgate.gateway.storage.webhook_rows import (
    advance_cursor,
    delete_webhook,
    end_webhook,
    insert_webhook,
    note_failure,
)

log = logging.getLogger("babelgate.webhook")

P = ParamSpec("P")
Key = tuple[str, str, str]
"""Key of a delivery: owner, task id and webhook id."""

_MAX_POSTS: Final = 16
"""Maximum number of concurrent posts for one owner. Chosen: each uses a connection, and time of the event loop."""
_DATABASE_RETRY_DELAY: Final = 5.0
"""Pause before a failed read of the database is repeated, and longest pause before a failed write is repeated, in
seconds."""
_ERROR_DELAYS: Final = (5.0, 300.0)
"""First and longest pause of a delivery after an unforeseen error, in seconds. Chosen: each error costs a read of the
task's log."""
_GIVEN_UP: Final = (
    "webhook given up webhook=%s task=%s tries=%d reason=%r. Once its receiver answers 2xx, register it again, or run "
    "babelgate webhooks --retry %s: it continues where it stopped"
)
_NO_DIALECT: Final = (
    "webhook given up webhook=%s task=%s dialect=%s: no adapter has this dialect. Once one does, run "
    "babelgate webhooks --retry %s: it continues where it stopped"
)
_GONE: Final = 410
_OVER: Final = inf
"""Infinite pause, which means that this gateway delivers nothing more to the webhook."""


WriterFactory = Callable[[Webhook, Task, str], WebhookWriter]


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """Settings of one generation that apply to webhook deliveries."""

    fetcher: Fetcher
    schedule: RetrySchedule
    signer: Signer | None = None
    """Signer of the bodies; None if they are not signed."""


@dataclass(slots=True, eq=False)
class _Delivery:
    """Delivery to one webhook by this gateway: its asyncio task is running, or its timer is set."""

    key: Key
    webhook: Webhook
    working: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None
    next_try: int | None = None
    """Time of the next try in microseconds since 1970, as the database stores it; None if no try has failed."""
    until: float = 0.0
    """Time of the next try on the loop's clock, in seconds."""
    sent: tuple[int, int, int] = (0, 0, 0)
    """Newest body that the receiver has accepted: key of the thread, seq of the record, and how many bodies of the
    record are accepted."""
    errors: int = 0
    """Number of unforeseen errors since a body was last accepted."""
    is_offline: bool = False
    """True if the last read of the database failed, so that the failure is logged once."""
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    """Trace headers of the task's newest run, to which the span of a post belongs."""
    is_outdated: bool = False
    """True if the webhook's row may have changed since the asyncio task read it: the task then starts again."""

    def cancel(self) -> None:
        if self.working is not None:
            self.working.cancel()
        if self.timer is not None:
            self.timer.cancel()


@dataclass(frozen=True, slots=True)
class _Failure:
    """Failed try: the receiver did not answer, or did not accept the body."""

    reason: str
    retry_after: float | None = None
    """Pause that the receiver requested with `Retry-After`, in seconds; None if it did not."""
    is_gone: bool = False
    """True if the receiver has ended the webhook (status 410)."""


class Deliverer:
    """Sender of task events to all webhooks of this gateway."""

    def __init__(
        self,
        journal: Journal,
        reads: JournalReads,
        rules: Callable[[], DeliveryRules],
        writers: Mapping[str, WriterFactory],
        protocols: Mapping[str, str],
        clock: Clock,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the deliverer.

        `rules` returns the rules of the current generation. `writers` maps a webhook dialect, such as `a2a-1.0`, to the
        factory of its encoder. `protocols` maps a dialect to its protocol, in which callers may know the thread by an
        alias.
        """
        self._journal = journal
        self._reads = reads
        self._rules = rules
        self._writers = writers
        self._protocols = protocols
        self._clock = clock
        self._observer = observer
        self._error_delays = _ERROR_DELAYS
        self._tasks = Tasks()
        self._deliveries: dict[Key, _Delivery] = {}
        self._stopped = False
        self._posting: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """Limits of concurrent posts, by owner. An entry lives while one of the owner's posts is running."""

    @property
    def pending(self) -> int:
        """Number of webhooks to which this gateway still delivers."""
        return len(self._deliveries)

    # Start and stop of deliveries

    def start_delivery(self, owner: str, webhook: Webhook) -> None:
        """Deliver to a new or changed webhook, from its cursor until its task ends.

        If this gateway already delivers to the webhook, it reads the changed row.
        """
        delivery = self._find(owner, webhook)
        if delivery is None:
            delivery = self._add(owner, webhook)
        if delivery.working is None:
            self._begin(delivery)
        else:
            delivery.is_outdated = True

    def resume(self, due: Due) -> None:
        """Deliver to a webhook from its stored state, at the stored time of its next try.

        Does nothing if this gateway already delivers to it.
        """
        delivery = self._find(due.owner, due.webhook)
        if delivery is not None and (delivery.working is not None or delivery.next_try == due.next_try):
            return
        delivery = self._add(due.owner, due.webhook)
        if due.next_try is None:
            self._begin(delivery)
        else:
            self._arm(delivery, self._pause_until(delivery, due.next_try))

    def _find(self, owner: str, webhook: Webhook) -> _Delivery | None:
        """Return the delivery to a webhook, or None if there is none, or one to an earlier version of the webhook."""
        delivery = self._deliveries.get((owner, webhook.task_id, webhook.webhook_id))
        return delivery if delivery is not None and delivery.webhook == webhook else None

    def _add(self, owner: str, webhook: Webhook) -> _Delivery:
        key = (owner, webhook.task_id, webhook.webhook_id)
        self.forget(*key)
        delivery = self._deliveries[key] = _Delivery(key, webhook)
        return delivery

    def forget(self, owner: str, task_id: str, webhook_id: str) -> None:
        """Stop delivering to a webhook, without a change of its database row."""
        delivery = self._deliveries.pop((owner, task_id, webhook_id), None)
        if delivery is not None:
            delivery.cancel()

    async def stop(self, seconds: float = STOPPING) -> None:
        self._stopped = True
        for delivery in list(self._deliveries.values()):
            delivery.cancel()
        self._deliveries.clear()
        await self._tasks.stop(seconds)

    def _pause_until(self, delivery: _Delivery, next_try: int) -> float:
        """Return the seconds until `next_try`, the stored time of the next try in microseconds since 1970.

        A new time is compared with the system clock once, and the loop's clock measures the rest. If the system clock
        was set back meanwhile, the pause is at most the longest of the schedule.
        """
        loop = asyncio.get_running_loop()
        if delivery.next_try != next_try:
            delivery.next_try = next_try
            delivery.until = loop.time() + min(
                max(0.0, (next_try - self._clock.now()) / 1e6), self._rules().schedule.longest
            )
        return max(0.0, delivery.until - loop.time())

    def _arm(self, delivery: _Delivery, pause: float) -> None:
        if delivery.timer is not None:
            delivery.timer.cancel()
        if self._stopped:
            return
        delivery.timer = asyncio.get_running_loop().call_later(pause, self._ring, delivery)

    def _ring(self, delivery: _Delivery) -> None:
        delivery.until = 0.0
        self._begin(delivery)

    def _begin(self, delivery: _Delivery) -> None:
        if delivery.timer is not None:
            delivery.timer.cancel()
            delivery.timer = None
        delivery.is_outdated = False
        if self._stopped:
            return
        _, task_id, _ = delivery.key
        delivery.working = self._tasks.spawn(self._work(delivery), f"webhook of {task_id}")

    # One delivery, until it ends or fails

    async def _work(self, delivery: _Delivery) -> None:
        try:
            pause = await self._deliver(delivery)
        except FaultError as error:
            # The thread was erased, or the next start continues.
            if error.fault.code in (FaultCode.NOT_FOUND, FaultCode.SHUTTING_DOWN):
                pause = _OVER
            elif error.fault.code is FaultCode.UNAVAILABLE:
                if not delivery.is_offline:
                    log.warning("webhook waits for the database webhook=%s task=%s", delivery.key[2], delivery.key[1])
                delivery.is_offline = True
                pause = _DATABASE_RETRY_DELAY
            else:
                pause = self._pause_after_error(delivery, error)
        except Exception as error:  # an unforeseen error ends no delivery
            pause = self._pause_after_error(delivery, error)
        if self._deliveries.get(delivery.key) is not delivery:
            return
        delivery.working = None
        if delivery.is_outdated:
            self._begin(delivery)
        elif pause == _OVER:
            del self._deliveries[delivery.key]
        else:
            self._arm(delivery, pause)

    def _pause_after_error(self, delivery: _Delivery, error: Exception) -> float:
        first, longest = self._error_delays
        pause = min(first * 2**delivery.errors, longest)
        delivery.errors = min(delivery.errors + 1, 32)
        if delivery.errors == 1:
            _, task_id, webhook_id = delivery.key
            text = "webhook delivery failed webhook=%s task=%s retry_in=%gs, and again at most every %g s"
            log.error(text, webhook_id, task_id, pause, longest, exc_info=error)
        return pause

    async def _deliver(self, delivery: _Delivery) -> float:
        """Deliver the task's records after the webhook's cursor. Return the seconds until the next try, or `_OVER` if
        this gateway delivers nothing more."""
        owner, task_id, webhook_id = delivery.key
        due = await self._journal.query(due_webhook, owner, task_id, webhook_id)
        if due is None or not self._is_of_this_node(due.node):
            return _OVER
        delivery.webhook, delivery.is_offline = due.webhook, False
        if due.next_try is None:
            delivery.next_try = None
        elif (pause := self._pause_until(delivery, due.next_try)) > 0:
            return pause
        task = await self._journal.row(Task, owner, task_id)
        make = self._writers.get(due.webhook.dialect)
        if task is None:
            return _OVER
        if make is None:
            reason = f"no adapter has the dialect {due.webhook.dialect}"
            if await self._store(due, end_webhook, due, due.failures, reason, self._clock.now()):
                log.warning(_NO_DIALECT, webhook_id, task_id, due.webhook.dialect, webhook_id)
            return _OVER
        protocol, name = self._protocols.get(due.webhook.dialect), task.thread_id
        if protocol is not None:
            name = (await self._reads.aliases(owner, protocol, [name])).get(name, name)
        return await self._read_log(delivery, due, task, make(due.webhook, task, name))

    async def _read_log(self, delivery: _Delivery, due: Due, task: Task, writer: WebhookWriter) -> float:
        """Follow the log and deliver its records. Return the seconds until the next try, or `_OVER` if nothing more is
        to be delivered.

        The writer reads the task, or its thread, from the first record, so that its snapshots are complete. Records
        that were delivered before are not posted again.
        """
        where = (Scope(task.thread_id), 0) if writer.scope == "thread" else (Scope.task(task), task.first_seq - 1)
        async with aclosing(self._reads.follow(due.owner, *where, inline=True)) as batches:
            async for records in batches:
                for record in records:
                    if isinstance(record.event, RunCreated):
                        delivery.trace = record.event.trace
                    pause = await self._deliver_record(delivery, due, writer, record)
                    if pause is not None:
                        return pause
        return _OVER

    async def _deliver_record(
        self, delivery: _Delivery, due: Due, writer: WebhookWriter, record: Record
    ) -> float | None:
        """Post the bodies of one record, and advance the webhook's cursor.

        Return None to continue with the next record, the seconds until the next try, or `_OVER` if nothing more is to
        be delivered.
        """
        bodies = list(writer.write(record))
        if record.seq <= due.delivered_seq:
            bodies = []
        is_single = bool(bodies) and writer.once
        if is_single:
            bodies = bodies[:1]
        pk, seq, count = delivery.sent
        accepted = count if (pk, seq) == (due.pk, record.seq) else 0
        for number, body in enumerate(bodies[accepted:], accepted):
            if not await self._is_mine(due):
                return _OVER
            headers = writer.headers()
            failure = await self._post_traced(delivery, due, headers, body, f"{record.seq}.{number}")
            outcome = "delivered" if failure is None else "gone" if failure.is_gone else "failed"
            self._observer.note_webhook_post(outcome)
            if failure is not None:
                return await self._note_failure(delivery, due, failure)
            delivery.sent = due.pk, record.seq, number + 1
            delivery.errors = due.failures = 0
        event = record.event
        of_task = record.task_id == due.webhook.task_id
        done = is_single or (of_task and isinstance(event, TaskChanged) and event.state in TERMINAL)
        if done or bodies:
            reached = max(record.seq, due.delivered_seq)
            if not await self._store(due, advance_cursor, due, reached, done=done, forget=is_single):
                return _OVER
            due.delivered_seq, delivery.next_try = reached, None
        return _OVER if done else None

    async def _post_traced(
        self, delivery: _Delivery, due: Due, headers: Mapping[str, str], body: bytes | LargeJson, place: str
    ) -> _Failure | None:
        """Post a body once, with a span in the trace of the newest run. Return the failure, or None after a success.

        `place` identifies the body within the webhook, such as `12.0`: seq of the record, number of the body.
        """
        if self._observer.traces is None:
            return await self._post(due, headers, body, place)
        span = self._observer.traces.start_post(delivery.trace, due.webhook.url)
        failure: _Failure | None = None
        try:
            failure = await self._post(due, {**headers, **span.headers}, body, place)
            return failure
        finally:
            span.end(None, None if failure is None else "webhook_failed")

    async def _post(self, due: Due, headers: Mapping[str, str], body: bytes | LargeJson, place: str) -> _Failure | None:
        """Post a body once. Return the failure, or None after a success.

        `place` identifies the body within the webhook, such as `12.0`: seq of the record, number of the body.
        """
        turn = self._posting.setdefault(due.owner, asyncio.Semaphore(_MAX_POSTS))
        rules = self._rules()
        if rules.signer is not None:
            body = await as_bytes(body)
        try:
            async with turn:
                signed = _sign(rules.signer, due, body, place)
                response = await rules.fetcher.post(due.webhook.url, {**headers, **signed}, body)
        except FaultError as error:
            return _Failure(error.fault.message)
        except OSError as error:
            return _Failure(f"{type(error).__name__}: {error}")
        if 200 <= response.status < 300:
            return None
        retry_after = parse_retry_after(response.retry_after, self._clock.now())
        return _Failure(f"status {response.status}", retry_after, is_gone=response.status == _GONE)

    # Rows of the database

    async def _is_mine(self, due: Due) -> bool:
        """Return True if this node still has to deliver to the webhook. Return False if another node has taken it over,
        or if it was deleted or replaced there."""
        if not self._journal.is_shared:
            return True
        hook = due.webhook
        return self._is_of_this_node(await self._journal.query(webhook_node, due.owner, hook.task_id, hook.webhook_id))

    def _is_of_this_node(self, node: str | None) -> bool:
        return not self._journal.is_shared or node == self._journal.node

    async def _note_failure(self, delivery: _Delivery, due: Due, failure: _Failure) -> float:
        """Store a failed try, and whether the webhook is given up. Return the seconds until the next try, or `_OVER` if
        there is none."""
        due.failures += 1
        reason, now = shorten_reason(failure.reason), self._clock.now()
        names = (due.webhook.webhook_id, due.webhook.task_id)
        pause = None if failure.is_gone else self._rules().schedule.pause_after(due.failures, failure.retry_after)
        if pause is not None:
            next_try = now + round(pause * 1e6)
            delivery.next_try = next_try
            delivery.until = asyncio.get_running_loop().time() + pause
            if not await self._store(due, note_failure, due, due.failures, next_try, reason):
                return _OVER
            log.info("webhook try failed webhook=%s task=%s reason=%r retry_in=%gs", *names, reason, pause)
            return max(0.0, delivery.until - asyncio.get_running_loop().time())
        given_up_at = None if failure.is_gone else now
        if await self._store(due, end_webhook, due, due.failures, reason, given_up_at):
            if failure.is_gone:
                log.info("webhook ended by its receiver webhook=%s task=%s reason=%r", *names, reason)
            else:
                log.warning(_GIVEN_UP, *names, due.failures, reason, names[0])
        return _OVER

    async def _store(
        self, due: Due, command: Callable[Concatenate[Transaction, P], bool], /, *args: P.args, **named: P.kwargs
    ) -> bool:
        """Write to the webhook's row by a command, and retry while the database is unavailable or its disk is full.

        Without the write, the body would be posted again. Return True if this gateway still delivers to the webhook.
        """
        is_logged = False

        def note(error: FaultError, _: float) -> None:
            nonlocal is_logged
            if not is_logged:
                names = (due.webhook.webhook_id, due.webhook.task_id)
                log.warning("webhook waits for the database to store its cursor webhook=%s task=%s: %s", *names, error)
            is_logged = True

        def write() -> "asyncio.Future[bool]":
            return self._journal.write(command, *args, **named)

        return await keep_trying(write, Unstored, longest=_DATABASE_RETRY_DELAY, note=note)


def _sign(signer: Signer | None, due: Due, body: bytes | LargeJson, place: str) -> Mapping[str, str]:
    if signer is None or not isinstance(body, bytes):
        return {}
    webhook = due.webhook
    # The id is the same for each try, also after a restart, so that a receiver can detect duplicates.
    message_id = uuid5(NAMESPACE_OID, f"{due.pk}/{webhook.task_id}/{webhook.webhook_id}/{place}")
    return signer.headers(str(message_id), body)


class WebhookRegistry:
    """Commands of callers that register and delete the webhooks of a task."""

    def __init__(
        self,
        journal: Journal,
        reads: JournalReads,
        check_url: CheckUrl,
        deliverer: Deliverer,
        limits: Callable[[], Limits],
    ) -> None:
        """Create the commands. `limits` returns the current limits."""
        self._journal = journal
        self._reads = reads
        self._check_url = check_url
        self._deliverer = deliverer
        self._limits = limits

    async def set(self, owner: str, webhook: Webhook) -> None:
        """Register or replace a webhook, and deliver to it (`babelgate.canonical.hub.Hub.set_webhook`). The delivery
        starts even if the caller disconnects."""
        task = await self._reads.task(owner, webhook.task_id)
        await self._check_url(webhook.url)
        commit = self._journal.write(register, owner, task, webhook, self._limits())
        commit.add_done_callback(partial(self._follow, owner, webhook))
        await asyncio.shield(commit)

    def _follow(self, owner: str, webhook: Webhook, commit: "asyncio.Future[None]") -> None:
        if commit.exception() is None:
            self._deliverer.start_delivery(owner, webhook)

    async def delete(self, owner: str, task_id: str, webhook_id: str) -> bool:
        """Delete a webhook of a task, and stop delivering to it. Return False if there was none
        (`babelgate.canonical.hub.Hub.delete_webhook`)."""
        await self._reads.task(owner, task_id)
        commit = self._journal.write(delete_webhook, owner, task_id, webhook_id)
        commit.add_done_callback(partial(self._forget, owner, task_id, webhook_id))
        return await asyncio.shield(commit)

    def _forget(self, owner: str, task_id: str, webhook_id: str, commit: "asyncio.Future[bool]") -> None:
        if commit.exception() is None:
            self._deliverer.forget(owner, task_id, webhook_id)


def register(tx: Transaction, owner: str, task: Task, hook: Webhook, limits: Limits) -> None:
    """Store a webhook for all later records of a task. Raises not_found for an unknown task, and invalid if the task
    has too many webhooks."""
    state = tx.need_thread(owner, task.thread_id)
    insert_webhook(tx, state, task.task_id, hook, state.seq, limits.webhooks)
