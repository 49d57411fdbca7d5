"""Tests of the rows of webhooks: lists, retries, and updates that are refused because the row has changed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from babelgate.canonical import Receipt
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.storage.queries import Due, due_webhook
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import WebhookRow
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.webhook_rows import (
    advance_cursor,
    end_webhook,
    list_webhooks,
    note_failure,
    retry_webhooks,
)
from tests.gateway.hubs import OWNER, Echo, HubFactory, registered, submit_to_end

KINDS: dict[str, dict[str, Any]] = {
    "pending": {"done": False},
    "waiting": {"done": False, "failures": 2, "next_try": 5, "reason": "status 500"},
    "given up": {"done": True, "failures": 8, "reason": "status 500", "given_up_at": 7},
    "delivered": {"done": True},
    "ended": {"done": True, "failures": 1, "reason": "status 410"},
}


def insert(tx: Transaction, receipt: Receipt, webhook_id: str, **values: Any) -> None:
    key = {"owner": OWNER, "task_id": receipt.task_id, "thread_id": receipt.thread_id, "webhook_id": webhook_id}
    hook = {"dialect": "d", "url": "http://h.example/secret", "delivered_seq": 3, "body": b"{}"}
    tx.connection.execute(table_of(WebhookRow).insert().values({**key, **hook, **values}))


async def stored(hub: GatewayHub) -> dict[str, Any]:
    rows = await hub.journal.query(lambda connection: connection.execute(select(table_of(WebhookRow))).all())
    return {row.webhook_id: row for row in rows}


async def prepare(hubs: HubFactory) -> tuple[GatewayHub, Receipt]:
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    for name, values in KINDS.items():
        await hub.journal.write(insert, receipt, name, **values)
    return hub, receipt


async def test_pending_and_failed_webhooks_are_listed(hubs: HubFactory) -> None:
    hub, receipt = await prepare(hubs)
    webhooks = await hub.journal.query(list_webhooks)
    assert [each.webhook_id for each in webhooks] == ["given up", "pending", "waiting"]
    assert {each.task_id for each in webhooks} == {receipt.task_id}
    assert (webhooks[0].given_up_at, webhooks[2].next_try, webhooks[2].failures) == (7, 5, 2)


@pytest.mark.parametrize("wanted", [None, "task", "waiting", "pending", "other"])
async def test_failed_webhooks_continue_at_their_cursor(hubs: HubFactory, wanted: str | None) -> None:
    hub, receipt = await prepare(hubs)
    before = await stored(hub)
    failed = ["given up", "waiting"] if wanted in (None, "task") else [each for each in ("waiting",) if each == wanted]
    retried = await hub.journal.write(retry_webhooks, receipt.task_id if wanted == "task" else wanted)
    assert retried == [(receipt.task_id, name) for name in failed]
    for name, row in (await stored(hub)).items():
        if name in failed:
            assert (row.done, row.failures, row.next_try, row.reason, row.given_up_at) == (False, 0, None, None, None)
            assert row.delivered_seq == 3
        else:
            assert row == before[name]


def with_webhook(due: Due, **fields: str) -> Due:
    return replace(due, webhook=msgspec.structs.replace(due.webhook, **fields))


CHANGES: dict[str, Callable[[Due], Due]] = {
    "moved": lambda due: replace(due, delivered_seq=2),
    "erased": lambda due: replace(due, pk=due.pk + 1),
    "replaced": lambda due: with_webhook(due, url="http://h.example/new"),
    "deleted": lambda due: with_webhook(due, webhook_id="none"),
    "done": lambda due: with_webhook(due, webhook_id="delivered"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_row_changed_meanwhile_is_not_updated(hubs: HubFactory, change: str) -> None:
    hub, receipt = await prepare(hubs)
    due = await hub.journal.query(due_webhook, OWNER, receipt.task_id, "waiting")
    assert due is not None
    before = await stored(hub)
    stale = CHANGES[change](due)
    write = hub.journal.write
    assert not await write(advance_cursor, stale, 9, done=True)
    assert not await write(advance_cursor, stale, 9, done=True, forget=True)
    assert not await write(note_failure, stale, 3, 6, "status 400")
    assert not await write(end_webhook, stale, 3, "status 400", 8)
    assert await stored(hub) == before


async def test_progress_of_a_webhook_is_stored(hubs: HubFactory) -> None:
    hub, receipt = await prepare(hubs)

    async def due() -> Due:
        webhook = await hub.journal.query(due_webhook, OWNER, receipt.task_id, "waiting")
        assert webhook is not None
        return webhook

    assert await hub.journal.write(note_failure, await due(), 3, 6, "status 400")
    assert ((await due()).failures, (await due()).next_try) == (3, 6)
    assert await hub.journal.write(advance_cursor, await due(), 9, done=False)
    assert await due() == replace(await due(), delivered_seq=9, failures=0, next_try=None)
    assert await hub.journal.write(end_webhook, await due(), 1, "status 400", 8)
    row = (await stored(hub))["waiting"]
    assert (row.done, row.failures, row.reason, row.given_up_at) == (True, 1, "status 400", 8)
    assert await hub.journal.write(retry_webhooks, "waiting")
    assert await hub.journal.write(advance_cursor, await due(), 10, done=True, forget=True)
    assert "waiting" not in await stored(hub)
