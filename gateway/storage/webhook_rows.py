"""Rows of webhooks: the cursor, failed tries, and webhooks that were given up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, or_, select, update

from babelgate.gateway.storage.queries import Due
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import WebhookRow
from babelgate.gateway.storage.transaction import Transaction

_HOOK = table_of(WebhookRow)
_IS_DELIVERED: Final = {"failures": 0, "next_try": None, "reason": None}
BEGINS_AGAIN: Final = {**_IS_DELIVERED, "done": False, "given_up_at": None}
"""Values of a webhook whose schedule starts again, at its cursor."""


@dataclass(frozen=True, slots=True)
class ListedWebhook:
    """A webhook that has not received everything, as an operator sees it."""

    owner: str
    task_id: str
    webhook_id: str
    url: str
    failures: int
    next_try: int | None
    reason: str | None
    given_up_at: int | None


def list_webhooks(connection: Connection) -> list[ListedWebhook]:
    """Return all webhooks that have not received everything, pending and given up, by owner and task."""
    columns = (_HOOK.c[name] for name in ListedWebhook.__slots__)
    rows = connection.execute(
        select(*columns)
        .where(or_(_HOOK.c.done.is_(False), _HOOK.c.given_up_at.is_not(None)))
        .order_by(_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    )
    return [ListedWebhook(*row) for row in rows]


def retry_webhooks(tx: Transaction, wanted: str | None) -> Sequence[tuple[str, str]]:
    """Start the schedule again for webhooks that were given up or wait for a retry. Each continues at its cursor.

    `wanted` is the id of a webhook or of a task; None means all. Returns the ids of the tasks and webhooks. No node
    owns them afterwards, so that in a cluster a node adopts them at its next heartbeat.
    """
    failed = or_(_HOOK.c.given_up_at.is_not(None), (_HOOK.c.failures > 0) & _HOOK.c.done.is_(False))
    named = () if wanted is None else (or_(_HOOK.c.webhook_id == wanted, _HOOK.c.task_id == wanted),)
    keys = (_HOOK.c.owner, _HOOK.c.task_id, _HOOK.c.webhook_id)
    rows = tx.connection.execute(select(*keys).where(failed, *named).order_by(*keys)).all()
    for owner, task_id, webhook_id in rows:
        this = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
        tx.connection.execute(update(_HOOK).where(*this).values(**BEGINS_AGAIN, node=None))
    return [(task_id, webhook_id) for _, task_id, webhook_id in rows]


def advance_cursor(tx: Transaction, due: Due, seq: int, *, done: bool, forget: bool = False) -> bool:
    """Move the cursor after a delivery; with `forget`, delete the row. Returns whether this gateway still delivers to
    the webhook."""
    values = {"delivered_seq": seq, "done": done, **_IS_DELIVERED}
    return _change(tx, due, _HOOK.delete() if forget else update(_HOOK).values(**values))


def note_failure(tx: Transaction, due: Due, failures: int, next_try: int, reason: str) -> bool:
    """Store a failed try and the time of the next one. Returns the same as `advance_cursor`."""
    return _change(tx, due, update(_HOOK).values(failures=failures, next_try=next_try, reason=reason))


def end_webhook(tx: Transaction, due: Due, failures: int, reason: str, given_up_at: int | None) -> bool:
    """Store that nothing more is delivered. `given_up_at` is None if the receiver has ended the webhook. Returns the
    same as `advance_cursor`."""
    values = {"done": True, "next_try": None, "failures": failures, "reason": reason, "given_up_at": given_up_at}
    return _change(tx, due, update(_HOOK).values(**values))


def _change(tx: Transaction, due: Due, statement: Any) -> bool:
    state = tx.thread(due.owner, due.thread_id)
    if state is None or state.pk != due.pk:  # erased, and the row may be one of another thread's by now
        return False
    return tx.connection.execute(statement.where(*_is_delivered_here(tx, due))).rowcount > 0


def _is_delivered_here(tx: Transaction, due: Due) -> list[ColumnElement[bool]]:
    """The row, if nobody has deleted it, replaced it or moved its cursor since, and no other node has adopted it."""
    here = [
        _HOOK.c.owner == due.owner,
        _HOOK.c.task_id == due.webhook.task_id,
        _HOOK.c.webhook_id == due.webhook.webhook_id,
        _HOOK.c.url == due.webhook.url,
        _HOOK.c.delivered_seq == due.delivered_seq,
        _HOOK.c.done.is_(False),
    ]
    return here if tx.node is None else [*here, _HOOK.c.node == tx.node]
