"""Webhook delivery (push notifications), at least once and in order: a webhook is a cursor on its task's log, kept in
the database. What comes after the cursor is encoded in the registrant's dialect and posted, and the cursor moves after
the receiver's 2xx, across restarts.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakValueDictionary

from sqlalchemy import update

from babelgate.adapters._adapter import WebhookWriter
from babelgate.adapters._server.encoding import LargeJson, as_bytes
from babelgate.canonical.event import Record, TaskChanged
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Scope, Webhook
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Task
from babelgate.gateway.background import STOPPING, Tasks
from babelgate.gateway.outbound import Fetcher
from babelgate.gateway.runs.signature import Signer
from babelgate.gateway.runs.submission import insert_webhook
from babelgate.gateway.settings.model import Limits
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.queries import Due, webhook_node
from babelgate.gateway.storage.reads import Reads
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import WebhookRow
from babelgate.gateway.storage.transaction import Transaction

log = logging.getLogger("babelgate.webhook")

_PAUSES = (1, 2, 5, 15, 60, 300)
"""Seconds between the tries of one delivery; after the last one the webhook is given up."""
_WITHOUT_DATABASE = 5.0
"""Seconds between looks for a database that is away."""
_AT_ONCE = 16
"""Posts of one owner that are under way at a time: each takes a connection, and time of the loop."""


WriterFactory = Callable[[Webhook, Task, str], WebhookWriter]


class Deliverer:
    def __init__(
        self,
        journal: Journal,
        reads: Reads,
        fetcher: Fetcher,
        writers: Mapping[str, WriterFactory],
        protocols: Mapping[str, str],
        signer: Signer | None = None,
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        """`writers` and `protocols` are by dialect: who encodes in it, and in which protocol's words the thread is
        named, if that has names of its own for threads."""
        self._journal = journal
        self._reads = reads
        self._fetcher = fetcher
        self._writers = writers
        self._protocols = protocols
        self._signer = signer
        self._pauses = pauses
        self._tasks = Tasks()
        self._running: dict[tuple[str, str, str], tuple[Webhook, asyncio.Task[Any]]] = {}
        """By owner, task and webhook."""
        self._posting: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By owner, while somebody posts for them."""

    async def follow(self, due: Due, task: Task) -> None:
        """Begin to deliver what is due to one webhook, until its task ends. One that is followed already goes on where
        it is, also where another node does it."""
        if self.is_following(due) or not await self._is_mine(due):
            return
        protocol, name = self._protocols.get(due.webhook.dialect), task.thread_id
        if protocol is not None:
            name = (await self._reads.aliases(due.owner, protocol, [name])).get(name, name)
        key = (due.owner, task.task_id, due.webhook.webhook_id)
        if self.is_following(due):
            return
        self.forget(*key)
        make = self._writers.get(due.webhook.dialect)
        if make is None:
            log.warning("webhook %s of task %s has the unknown dialect %s", *key[1:], due.webhook.dialect)
            return
        new_writer = partial(make, due.webhook, task, name)
        following = self._tasks.spawn(self._deliver(due, task, new_writer), f"webhook of {task.task_id}")
        self._running[key] = due.webhook, following

    def is_following(self, due: Due) -> bool:
        known = self._running.get((due.owner, due.webhook.task_id, due.webhook.webhook_id))
        return known is not None and known[0] == due.webhook

    async def _is_mine(self, due: Due) -> bool:
        """Another node may have taken it over, or have been told to forget it or to post elsewhere."""
        if not self._journal.is_shared:
            return True
        hook = due.webhook
        node = await self._journal.query(webhook_node, due.owner, hook.task_id, hook.webhook_id)
        return node == self._journal.node

    def forget(self, owner: str, task_id: str, webhook_id: str) -> None:
        running = self._running.pop((owner, task_id, webhook_id), None)
        if running is not None:
            running[1].cancel()

    async def stop(self, seconds: float = STOPPING) -> None:
        await self._tasks.stop(seconds)

    async def _deliver(self, due: Due, task: Task, new_writer: Callable[[], WebhookWriter]) -> None:
        key = (due.owner, task.task_id, due.webhook.webhook_id)
        try:
            while True:
                try:
                    return await self._read_and_tell(due, task, new_writer())
                except FaultError as error:
                    if error.fault.code in (
                        FaultCode.NOT_FOUND,
                        FaultCode.SHUTTING_DOWN,
                    ):  # erased; told at the next start
                        return
                    if error.fault.code is not FaultCode.UNAVAILABLE:
                        raise
                    log.warning("webhook %s of task %s waits for the database", due.webhook.webhook_id, task.task_id)
                await asyncio.sleep(_WITHOUT_DATABASE)
        finally:
            running = self._running.get(key)
            if running is not None and running[1] is asyncio.current_task():
                del self._running[key]

    async def _read_and_tell(self, due: Due, task: Task, writer: WebhookWriter) -> None:
        """The writer sees the task, or its thread, from the first record, so that its snapshots are whole; what was
        delivered is not posted again."""
        where = (Scope(task.thread_id), 0) if writer.scope == "thread" else (Scope.task(task), task.first_seq - 1)
        async with aclosing(self._reads.follow(due.owner, *where, inline=True)) as batches:
            async for records in batches:
                for record in records:
                    if not await self._tell(due, writer, record):
                        return

    async def _tell(self, due: Due, writer: WebhookWriter, record: Record) -> bool:
        """Whether there is more to tell."""
        bodies = list(writer.write(record))
        new = record.seq > due.delivered_seq
        for number, body in enumerate(bodies if new else ()):
            if not await self._is_mine(due):
                return False
            if not await self._post(due, writer.headers(), body, f"{record.seq}.{number}"):
                await self._move(due, record.seq, done=True)
                return False
            if writer.once:
                await self._move(due, record.seq, done=True, forget=True)
                return False
        event = record.event
        of_task = record.task_id == due.webhook.task_id
        done = of_task and isinstance(event, TaskChanged) and event.state in TERMINAL
        if done or (bodies and new):
            await self._move(due, max(record.seq, due.delivered_seq), done=done)
        return not done

    async def _post(self, due: Due, headers: Mapping[str, str], body: bytes | LargeJson, place: str) -> bool:
        """Whether the receiver took it, in the end. `place` = which of the webhook's bodies it is."""
        webhook, said = due.webhook, ""
        turn = self._posting.setdefault(due.owner, asyncio.Semaphore(_AT_ONCE))
        if self._signer is not None:
            body = await as_bytes(body)
        for pause in (*self._pauses, None):
            try:
                async with turn:
                    signed = self._sign(due, body, place)
                    status = await self._fetcher.post(webhook.url, {**headers, **signed}, body)
                if 200 <= status < 300:
                    return True
                said = f"status {status}"
            except FaultError as error:
                said = error.fault.message
            except OSError as error:
                said = f"{type(error).__name__}: {error}"
            if pause is None:
                break
            log.info("webhook %s of task %s: %s; again in %s s", webhook.webhook_id, webhook.task_id, said, pause)
            await asyncio.sleep(pause)
        log.warning("webhook %s of task %s is given up: %s", webhook.webhook_id, webhook.task_id, said)
        return False

    def _sign(self, due: Due, body: bytes | LargeJson, place: str) -> Mapping[str, str]:
        if self._signer is None or not isinstance(body, bytes):
            return {}
        webhook = due.webhook
        # The same for each try, also after a restart: a receiver knows by it what it has been told.
        message_id = uuid5(NAMESPACE_OID, f"{due.pk}/{webhook.task_id}/{webhook.webhook_id}/{place}")
        return self._signer.headers(str(message_id), body)

    async def _move(self, due: Due, seq: int, *, done: bool, forget: bool = False) -> None:
        await self._journal.write_patiently(_advance_cursor, due, seq, done=done, forget=forget)
        due.delivered_seq = seq


def register(tx: Transaction, owner: str, task: Task, hook: Webhook, limits: Limits) -> tuple[int, int]:
    """The key of the thread, and the seq that the webhook begins after. Raises not_found, invalid."""
    state = tx.need_thread(owner, task.thread_id)
    insert_webhook(tx, state, task.task_id, hook, state.seq, limits)
    return state.pk, state.seq


def unregister(tx: Transaction, owner: str, task_id: str, webhook_id: str) -> bool:
    """Whether there was one."""
    table = table_of(WebhookRow)
    deleted = tx.connection.execute(
        table.delete().where(table.c.owner == owner, table.c.task_id == task_id, table.c.webhook_id == webhook_id)
    )
    return deleted.rowcount > 0


def _advance_cursor(tx: Transaction, due: Due, seq: int, *, done: bool, forget: bool) -> None:
    state = tx.thread(due.owner, due.thread_id)
    if state is None or state.pk != due.pk:  # erased, and the row may be one of another thread's by now
        return
    table = table_of(WebhookRow)
    this = (
        (table.c.owner == due.owner)
        & (table.c.task_id == due.webhook.task_id)
        & (table.c.webhook_id == due.webhook.webhook_id)
    )
    if tx.node is not None:
        this &= table.c.node == tx.node
    told = table.delete() if forget else update(table).values(delivered_seq=seq, done=done)
    tx.connection.execute(told.where(this))
