"""Statements on the rows of webhooks: registration, progress of the delivery, failed attempts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, case, func, or_, select, update

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import Webhook
from babelgate.gateway.storage.queries import Due
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import TaskRow, WebhookRow
from babelgate.gateway.storage.transaction import ThreadState, Transaction

_HOOK, _TASK = table_of(WebhookRow), table_of(TaskRow)
_DELETED_AT_ONCE: Final = 200
"""Maximum number of webhooks that one transaction deletes. Chosen."""
_IS_DELIVERED: Final = {"failures": 0, "next_try": None, "reason": None}
RESTARTED: Final = {**_IS_DELIVERED, "done": False, "given_up_at": None}
"""Column values that restart the deliveries of a webhook at the first record that was not delivered."""


@dataclass(frozen=True, slots=True)
class ListedWebhook:
    """A webhook with undelivered records, as operators see it in a list."""

    owner: str
    task_id: str
    webhook_id: str
    url: str
    failures: int
    next_try: int | None
    reason: str | None
    given_up_at: int | None


def list_webhooks(connection: Connection) -> list[ListedWebhook]:
    """Return all webhooks to which records are still to be delivered, and those that were given up, by owner and
    task."""
    columns = (_HOOK.c[name] for name in ListedWebhook.__slots__)
    rows = connection.execute(
        select(*columns)
        .where(or_(_HOOK.c.done.is_(False), _HOOK.c.given_up_at.is_not(None)))
        .order_by(_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    )
    return [ListedWebhook(*row) for row in rows]


def count_webhooks(connection: Connection) -> tuple[int, int]:
    """Return the number of webhooks to which records are still to be delivered, and how many of them failed at the last
    attempt."""
    is_failing = func.sum(case((_HOOK.c.failures > 0, 1), else_=0))
    due, failing = connection.execute(select(func.count(), is_failing).where(_HOOK.c.done.is_(False))).one()
    return due, failing or 0


def retry_webhooks(tx: Transaction, wanted: str | None) -> Sequence[tuple[str, str]]:
    """Restart the deliveries of webhooks that were given up or wait for a retry, at the first record that was not
    delivered.

    `wanted` is the id of a webhook or of a task; None means all. Return the task id and webhook id of each. Their rows
    then belong to no node, so that in a cluster a node adopts them at its next heartbeat."""
    failed = or_(_HOOK.c.given_up_at.is_not(None), (_HOOK.c.failures > 0) & _HOOK.c.done.is_(False))
    named = () if wanted is None else (or_(_HOOK.c.webhook_id == wanted, _HOOK.c.task_id == wanted),)
    keys = (_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    rows = tx.connection.execute(select(*keys).where(failed, *named).order_by(*keys)).all()
    for owner, task_id, webhook_id in rows:
        this = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
        tx.connection.execute(update(_HOOK).where(*this).values(**RESTARTED, node=None))
    return [(task_id, webhook_id) for _, task_id, webhook_id in rows]


def advance_cursor(tx: Transaction, due: Due, seq: int, *, done: bool, forget: bool = False) -> bool:
    """Store that all records up to the number `seq` were delivered to a webhook. `done` is true if no later record is
    to be delivered. With `forget`, delete the webhook instead.

    Return False, and change nothing, if another gateway has adopted the webhook, or if the webhook or its thread was
    deleted.
    """
    values = {"delivered_seq": seq, "done": done, **_IS_DELIVERED}
    return _change(tx, due, _HOOK.delete() if forget else update(_HOOK).values(**values))


def note_failure(tx: Transaction, due: Due, failures: int, next_try: int, reason: str) -> bool:
    """Store the number of failed attempts, the reason of the last one, and the time of the next.

    Return False, and change nothing, if another gateway has adopted the webhook or it was deleted."""
    return _change(tx, due, update(_HOOK).values(failures=failures, next_try=next_try, reason=reason))


def end_webhook(tx: Transaction, due: Due, failures: int, reason: str, given_up_at: int | None) -> bool:
    """Store that no further attempt will be made to deliver to a webhook.

    `given_up_at` is the time if the gateway gave up, or None if the receiver refused all further deliveries. Return
    False, and change nothing, if another gateway has adopted the webhook or it was deleted."""
    values = {"done": True, "next_try": None, "failures": failures, "reason": reason, "given_up_at": given_up_at}
    return _change(tx, due, update(_HOOK).values(**values))


def _change(tx: Transaction, due: Due, statement: Any) -> bool:
    state = tx.thread(due.owner, due.thread_id)
    if state is None or state.pk != due.pk:  # the thread was erased, and the row may belong to a new thread of its id
        return False
    return tx.connection.execute(statement.where(*_is_delivered_here(tx, due))).rowcount > 0


def _is_delivered_here(tx: Transaction, due: Due) -> list[ColumnElement[bool]]:
    """Return the SQL conditions that select the webhook's row only if it is as this gateway last saw it.

    They select nothing if the row was deleted or replaced, its cursor was moved, or another node has adopted it."""
    here = [
        _HOOK.c.owner == due.owner,
        _HOOK.c.task_id == due.webhook.task_id,
        _HOOK.c.webhook_id == due.webhook.webhook_id,
        _HOOK.c.url == due.webhook.url,
        _HOOK.c.delivered_seq == due.delivered_seq,
        _HOOK.c.done.is_(False),
    ]
    return here if tx.node is None else [*here, _HOOK.c.node == tx.node]


def insert_webhook(tx: Transaction, state: ThreadState, task_id: str, hook: Webhook, after: int, most: int) -> None:
    """Register a webhook for a task, or replace the one with the same id.

    A new webhook receives the records after the sequence number `after`. One that is registered again with the same URL
    continues where it was. If it had failed or was given up, its attempts begin again. Raises invalid if the task
    already has `most` webhooks."""
    table = _HOOK
    body = json.dumps(hook.config, ensure_ascii=False).encode()
    of_task = (table.c.owner == state.thread.owner) & (table.c.task_id == task_id)
    same = of_task & (table.c.webhook_id == hook.webhook_id)
    registered = tx.connection.execute(select(table).where(same)).one_or_none()
    is_active = registered is not None and (not registered.done or registered.given_up_at is not None)
    if registered is not None and is_active and (registered.dialect, registered.url) == (hook.dialect, hook.url):
        if registered.body != body or registered.failures or registered.done:
            tx.connection.execute(update(table).where(same).values(**RESTARTED, body=body, node=tx.node))
        return
    count = tx.connection.execute(select(func.count()).select_from(table).where(of_task)).scalar_one()
    if registered is None and count >= most:
        raise FaultError(FaultCode.INVALID, f"The task already has {most} webhooks, the maximum: delete one first")
    tx.connection.execute(table.delete().where(same))
    tx.connection.execute(
        table.insert(),
        {
            "owner": state.thread.owner,
            "task_id": task_id,
            "webhook_id": hook.webhook_id,
            "thread_id": state.thread.thread_id,
            "dialect": hook.dialect,
            "url": hook.url,
            "delivered_seq": after,
            "done": False,
            "node": tx.node,
            "body": body,
        },
    )


def delete_webhook(tx: Transaction, owner: str, task_id: str, webhook_id: str) -> bool:
    """Delete a webhook. Return False if there was none."""
    deleted = tx.connection.execute(
        _HOOK.delete().where(_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
    )
    return deleted.rowcount > 0


def forget_webhooks(tx: Transaction, cutoff: int) -> bool:
    """Delete up to 200 completed webhooks of tasks that ended before `cutoff`, in microseconds since 1970.

    A webhook that was given up after `cutoff` stays. Return True if there may be more to delete."""
    key = (_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    of_task = (_TASK.c.owner == _HOOK.c.owner) & (_TASK.c.task_id == _HOOK.c.task_id)
    is_old = (_TASK.c.changed_at < cutoff) & (func.coalesce(_HOOK.c.given_up_at, 0) < cutoff)
    finished = select(*key).join(_TASK, of_task).where(_HOOK.c.done.is_(True), is_old).limit(_DELETED_AT_ONCE)
    rows = tx.connection.execute(finished).all()
    for owner, task_id, webhook_id in rows:
        this = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
        tx.connection.execute(_HOOK.delete().where(*this))
    return len(rows) == _DELETED_AT_ONCE
