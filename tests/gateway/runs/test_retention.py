"""Tests of retention: the erasure of idle threads, and the space that this frees."""

import asyncio
import os
import time
from typing import Any

import pytest
from sqlalchemy import Connection, func, inspect, select
from sqlmodel import SQLModel

from babelgate.canonical import FaultCode, FaultError, FilePart, Scope, Thread, ThreadChange
from babelgate.canonical.event import Custom
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from babelgate.gateway.settings.model import Limits, Retention
from babelgate.gateway.storage import deletion
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import EventRow, RemnantRow, TombstoneRow, WebhookRow
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.hubs import (
    OWNER,
    Echo,
    HubFactory,
    Scripted,
    batches,
    begin,
    ends,
    erased,
    registered,
    submit,
    submit_and_ask,
    submit_to_end,
    within,
)

DAY = 86_400_000_000


class Time:
    """Clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000 * DAY
        self.clock = Clock(lambda: self.now, lambda: self.now)

    def pass_days(self, days: float) -> None:
        self.now += round(days * DAY)


async def is_gone(hub: GatewayHub, thread_id: str) -> bool:
    try:
        await hub.reads.thread(OWNER, thread_id)
    except FaultError as error:
        assert error.fault.code is FaultCode.NOT_FOUND
        return True
    return False


def count(connection: Connection, model: Any) -> int:
    return connection.execute(select(func.count()).select_from(table_of(model))).scalar_one()


def add_events(tx: Transaction, thread_id: str, events: int, size: int = 10) -> None:
    state = tx.need_thread(OWNER, thread_id)
    for number in range(events):
        tx.append(state, Custom(name="n", value=f"{number}".zfill(size)))


async def long_thread(hub: GatewayHub, events: int, size: int = 10) -> Thread:
    thread = await hub.create_thread(OWNER, ThreadChange())
    await hub.journal.write(add_events, thread.thread_id, events, size)
    return thread


async def test_a_thread_is_erased_after_the_retention_period(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(registered("echo", Echo()), retention=Retention(threads=30 * 86400), clock=time.clock)
    old, used, empty = (
        await submit(hub, "echo"),
        await submit(hub, "echo"),
        await hub.create_thread(OWNER, ThreadChange()),
    )
    for receipt in (old, used):
        await ends(hub, receipt)
    time.pass_days(20)
    await ends(hub, await submit(hub, "echo", thread_id=used.thread_id))
    time.pass_days(9.9)
    assert await hub.retention.sweep() == 0
    time.pass_days(0.2)
    assert await hub.retention.sweep() == 2
    assert await is_gone(hub, old.thread_id) and await is_gone(hub, empty.thread_id)
    assert not await is_gone(hub, used.thread_id)
    for scope in (Scope(old.thread_id), Scope(old.thread_id, "task", old.task_id)):
        with pytest.raises(FaultError, match="not found"):
            await hub.reads.records(OWNER, scope)
    time.pass_days(30)
    assert await hub.retention.sweep() == 1
    assert await hub.journal.query(count, EventRow) == 0
    assert await hub.journal.query(count, TombstoneRow) == 3


async def test_without_a_policy_nothing_is_erased(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(registered("echo", Echo()), clock=time.clock)
    receipt = await submit_to_end(hub, "echo")
    time.pass_days(100_000)
    assert await hub.retention.sweep() == 0
    assert not await is_gone(hub, receipt.thread_id)


async def test_a_waiting_thread_stays_for_the_longer_period(hubs: HubFactory) -> None:
    time, agent = Time(), Scripted()
    agents = (registered("a", agent, concurrency=2), registered("echo", Echo()))
    hub = await hubs.start(*agents, retention=Retention(threads=86400), clock=time.clock)
    asks = await submit_and_ask(hub, agent, "q")
    works, working = await begin(hub, agent)
    waits = await submit(hub, "a", thread_id=works.thread_id)
    delayed = await submit(hub, "echo", start_in=400 * DAY)
    time.pass_days(365)
    assert await hub.retention.sweep() == 0
    assert (await hub.reads.run(OWNER, waits.run_id)).thread_id == works.thread_id
    await hubs.stop(hub)
    hub = await hubs.start(*agents, retention=Retention(threads=86400, unfinished=172800), clock=time.clock)
    await within(working.closed.wait())
    await hub.retention.sweep()
    time.pass_days(3)
    await hub.retention.sweep()
    for receipt in (asks, works, delayed):
        assert await is_gone(hub, receipt.thread_id)


async def test_a_thread_that_is_used_before_its_erasure_stays(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(registered("echo", Echo()), retention=Retention(threads=86400), clock=time.clock)
    receipt = await submit_to_end(hub, "echo")
    thread = await hub.reads.thread(OWNER, receipt.thread_id)
    seq = (await hub.reads.records(OWNER, Scope(receipt.thread_id)))[-1].seq
    pk = await hub.reads.key(OWNER, thread.thread_id)
    assert await hub.journal.write(deletion.erase_unchanged, pk, OWNER, thread.thread_id, seq - 1) is None
    assert not await is_gone(hub, receipt.thread_id)


async def test_a_clock_that_is_set_forward_erases_nothing(hubs: HubFactory) -> None:
    time = Time()
    clock = Clock(lambda: time.now, lambda: 0)
    hub = await hubs.start(registered("echo", Echo()), retention=Retention(threads=86400), clock=clock)
    receipt = await submit_to_end(hub, "echo")
    time.pass_days(1000)
    assert await hub.retention.sweep() == 0
    assert not await is_gone(hub, receipt.thread_id)


async def test_files_are_deleted_with_their_last_thread(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(retention=Retention(threads=86400), clock=time.clock)
    threads = [await hub.create_thread(OWNER, ThreadChange()) for _ in range(2)]
    shared, single = (FilePart(name=name, inline=name.encode()) for name in ("shared", "own"))
    for thread in threads:
        await hub.upload(OWNER, thread.thread_id, shared)
    await hub.upload(OWNER, threads[0].thread_id, single)
    time.pass_days(0.5)
    await hub.change_thread(OWNER, threads[1].thread_id, ThreadChange(metadata={"a": 1}))
    time.pass_days(0.6)
    assert await hub.retention.sweep() == 1
    files = list((hubs.folder / "blobs").glob("??/*"))
    assert len(files) == 2
    for file in files:
        os.utime(file, (0, 0))  # new files may not be referenced by an event yet
    await hub.sweep_files()
    assert [file.read_bytes() for file in files if file.exists()] == [b"shared"]


async def test_finished_webhooks_are_deleted_before_their_threads(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(registered("echo", Echo()), retention=Retention(webhooks=86400), clock=time.clock)
    receipts = [await submit(hub, "echo") for _ in range(2)]
    for receipt, done in zip(receipts, (True, False), strict=True):
        await ends(hub, receipt)
        await hub.journal.write(_add_webhook, receipt.task_id, receipt.thread_id, done)
    time.pass_days(0.9)
    await hub.retention.sweep()
    assert await hub.journal.query(count, WebhookRow) == 2
    time.pass_days(0.2)
    await hub.retention.sweep()
    assert [hook.task_id for hook in await hub.reads.webhooks(OWNER, receipts[1].task_id)] == [receipts[1].task_id]
    assert await hub.reads.webhooks(OWNER, receipts[0].task_id) == []


async def test_a_failed_webhook_stays_for_the_retention_period(hubs: HubFactory) -> None:
    time = Time()
    hub = await hubs.start(registered("echo", Echo()), retention=Retention(webhooks=86400), clock=time.clock)
    receipt = await submit_to_end(hub, "echo")
    time.pass_days(2)
    await hub.journal.write(_add_webhook, receipt.task_id, receipt.thread_id, True, given_up_at=time.now)
    for days, left in ((0.9, 1), (0.2, 0)):
        time.pass_days(days)
        await hub.retention.sweep()
        assert await hub.journal.query(count, WebhookRow) == left


def _add_webhook(tx: Transaction, task_id: str, thread_id: str, done: bool, *, given_up_at: int | None = None) -> None:
    row: dict[str, Any] = {
        "owner": OWNER,
        "task_id": task_id,
        "webhook_id": "w",
        "thread_id": thread_id,
        "dialect": "a2a-1.0",
    }
    values = {**row, "url": "http://127.0.0.1:9", "delivered_seq": 0, "done": done, "body": b"{}"}
    values["given_up_at"] = given_up_at
    tx.connection.execute(table_of(WebhookRow).insert().values(values))


@pytest.mark.slow
@pytest.mark.parametrize(("events", "size"), [(5000, 10), (40, 500_000)])
async def test_a_long_log_is_erased_in_small_steps(hubs: HubFactory, events: int, size: int) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    await hub.retention.stop()
    thread = await long_thread(hub, events, size)
    reading = batches(hub, Scope(thread.thread_id))
    await anext(reading)
    await hub.delete_thread(OWNER, thread.thread_id)
    assert await is_gone(hub, thread.thread_id)
    remaining = await hub.journal.query(sizes)
    assert sum(remaining) > events * size
    receipt = await submit_to_end(hub, "echo")
    unrelated = len(await hub.reads.records(OWNER, Scope(receipt.thread_id)))
    remaining = await hub.journal.query(sizes)
    while await hub.journal.write(deletion.erase_remnant):
        now = await hub.journal.query(sizes)
        erased = remaining[: len(remaining) - len(now)]
        assert len(erased) <= 1000 and sum(erased) <= 4 * 2**20
        remaining = now
    assert len(remaining) == unrelated
    assert [record async for some in reading for record in some] == []


def sizes(connection: Connection) -> list[int]:
    event = table_of(EventRow)
    found = select(func.length(event.c.body)).order_by(event.c.thread_pk, event.c.seq)
    return list(connection.execute(found).scalars())


async def test_an_interrupted_erasure_continues_after_the_start(
    hubs: HubFactory,
) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    thread = await long_thread(hub, 3000)
    pk = await hub.reads.key(OWNER, thread.thread_id)
    await hub.retention.stop()  # this process erases nothing of the log
    await hub.delete_thread(OWNER, thread.thread_id)
    assert await hub.journal.query(count, EventRow) == 3001
    await hubs.stop(hub)
    hub = await hubs.start(registered("echo", Echo()))
    receipt = await submit_to_end(hub, "echo")
    assert await hub.reads.key(OWNER, receipt.thread_id) > pk
    await no_remnants(hub)
    event, mine = table_of(EventRow), await hub.reads.key(OWNER, receipt.thread_id)
    (first,) = await hub.journal.query(lambda connection: connection.execute(select(func.min(event.c.thread_pk))).one())
    assert first == mine


async def no_remnants(hub: GatewayHub) -> None:
    async def look() -> None:
        while await hub.journal.query(count, RemnantRow):
            await hub.create_thread(OWNER, ThreadChange())

    await within(look(), "the end of the log")


@pytest.mark.slow
async def test_the_database_file_shrinks_after_a_large_erasure(hubs: HubFactory) -> None:
    hub = await hubs.start()
    thread = await long_thread(hub, 200, 50_000)
    await hubs.stop(hub)
    file = hubs.folder / "hub.db"
    before = file.stat().st_size
    assert before > 10_000_000
    hub = await hubs.start()
    await hub.delete_thread(OWNER, thread.thread_id)
    await no_remnants(hub)
    await hub.retention.give_back()
    await hubs.stop(hub)
    assert file.stat().st_size < 2_000_000


@pytest.mark.slow
async def test_runs_continue_while_the_file_shrinks(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    thread = await long_thread(hub, 200, 50_000)
    await hub.retention.stop()
    await hub.delete_thread(OWNER, thread.thread_id)
    await hub.retention.erase_remnants()
    free = [await hub.journal.query(free_pages)]
    shrinking = asyncio.ensure_future(hub.retention.give_back())
    while not shrinking.done():
        await ends(hub, await submit(hub, "echo"))
        free.append(await hub.journal.query(free_pages))
    await shrinking
    assert len(set(free)) > 5, "runs ended in between"
    assert free[0] > 2000 and free[-1] < 300


def free_pages(connection: Connection) -> int:
    return connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()


def row_counts(connection: Connection) -> dict[str, int]:
    """Return the number of rows of every table."""
    tables = SQLModel.metadata.sorted_tables
    return {
        table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
        for table in tables
        if table.name in inspect(connection).get_table_names()
    }


@pytest.mark.parametrize("runs", [20, pytest.param(1_000, marks=pytest.mark.slow)])
async def test_stateless_runs_leave_nothing_in_any_table(hubs: HubFactory, runs: int) -> None:
    days = 0.0

    def now() -> int:
        return time.time_ns() // 1000 + round(days * DAY)

    def steady() -> int:
        return time.monotonic_ns() // 1000 + round(days * DAY)

    clock = Clock(now, steady)
    hub = await hubs.start(registered("echo", Echo()), limits=Limits(ephemeral_ttl=0.01), clock=clock)
    before: dict[str, int] = {}
    for count_of_runs in (1, runs):
        for begun in range(0, count_of_runs, 100):
            receipts = [await submit(hub, "echo", ephemeral=True) for _ in range(min(100, count_of_runs - begun))]
            for receipt in receipts:
                await erased(hub, receipt.thread_id)
        assert await hub.journal.query(count, TombstoneRow) == count_of_runs
        days += 31
        await hub.retention.sweep()
        after = await hub.journal.query(row_counts)
        before = before or after
    assert after == before
    assert after["tombstone"] == after["event"] == 0
