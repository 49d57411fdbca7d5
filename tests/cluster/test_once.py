"""Several gateways on one database: work that must be done once is done by one of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from babelgate.canonical import TaskState, ThreadChange
from babelgate.canonical.event import Custom
from babelgate.gateway.clock import Clock
from babelgate.gateway.hub import GatewayHub
from tests.cluster.nodes import Nodes, ended
from tests.gateway.command import babelgate
from tests.gateway.hubs import OWNER, Echo, Scripted, erased, eventually, registered, submit, within
from tests.gateway.runs.test_crons import SETTINGS, count_runs, hourly, moved_on, stored
from tests.gateway.runs.test_webhooks import Receiver, Saying, deliverer, hook
from tests.gateway.runs.test_webhooks import receiver as receiver
from tests.gateway.test_clock import HOUR, Wall
from tests.postgres import url_of

HOOKED: Any = {"writers": {"test-1": Saying}}


def leads(hub: GatewayHub) -> bool:
    assert hub.cluster is not None
    return hub.cluster.leads


async def test_a_cron_of_any_node_runs_once(cluster: Nodes) -> None:
    wall = Wall()
    nodes = [await cluster.start(name, registered("a", Echo()), clock=Clock(wall), **SETTINGS) for name in "abc"]
    await within(eventually(lambda: sum(map(leads, nodes)) == 1), "a node that leads")
    cron = await next(hub for hub in nodes if not leads(hub)).crons.create(OWNER, hourly())
    wall.moved += HOUR
    after = await moved_on(nodes[0], cron)
    assert after.next_run == (cron.next_run or 0) + HOUR
    assert await count_runs(nodes[0]) == 1


async def test_a_cron_runs_once_even_with_two_leaders(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall()
    nodes = [await cluster.start(name, registered("a", Echo()), clock=Clock(wall), **SETTINGS) for name in "abc"]
    for hub in nodes:
        monkeypatch.setattr(hub.crons, "_leads", lambda: True)
    cron = await nodes[0].crons.create(OWNER, hourly())
    wall.moved += HOUR
    for hub in nodes:
        hub.crons.wake()
    assert (await moved_on(nodes[0], cron)).next_run == (cron.next_run or 0) + HOUR
    for hub in nodes:
        await within(hub.engine.idle())
    assert await count_runs(nodes[0]) == 1
    assert (await stored(nodes[0], cron)).next_run == (cron.next_run or 0) + HOUR


async def test_a_webhook_continues_on_the_node_that_takes_over(cluster: Nodes, receiver: Receiver) -> None:
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("a", mine, idempotent=True), **HOOKED)
    b = await cluster.start("b", registered("a", other, idempotent=True), **HOOKED)
    receipt = await submit(a, "a", webhook=hook(receiver))
    first = await mine.called()
    first.say(Custom(name="x"))
    assert await receiver.receives(2) == ["working", "1 x"]
    cluster.silence(a)
    second = await other.called()
    second.say(Custom(name="x"), Custom(name="y")).end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert await receiver.receives(4) == ["working", "1 x", "2 y", "completed"]


async def test_a_pending_retry_runs_after_a_takeover(
    cluster: Nodes, receiver: Receiver, postgres_tables: str, tmp_path: Path
) -> None:
    wall = Wall()
    agents = registered("a", Echo(), idempotent=True)
    more: Any = {**HOOKED, "clock": Clock(wall), "webhook_retries": (3600.0,) * 3}
    a = await cluster.start("a", agents, **more)
    receiver.statuses = [500] * 4
    receipt = await submit(a, "a", webhook=hook(receiver))
    await ended(a, receipt)
    await receiver.receives(1)
    failed = await within(_failed(a, 1))
    b = await cluster.start("b", agents, **more)
    await cluster.stop(a)
    await within(eventually(lambda: bool(deliverer(b)["_deliveries"])), "the takeover")
    assert await _failed(b, 1) == failed
    await cluster.stop(b)
    wall.moved += 2 * HOUR
    for tries in (2, 3, 4):
        c = await cluster.start("c", agents, **more)
        await receiver.receives(tries)
        await within(_failed(c, tries))
        if tries < 4:
            await cluster.stop(c)
        wall.moved += 2 * HOUR
    done = await asyncio.to_thread(
        babelgate, tmp_path, "webhooks", "--retry", "all", "--database", url_of(postgres_tables)
    )
    assert (done.returncode, done.stdout) == (0, f"task {receipt.task_id}, webhook w: will be tried again\n"), (
        done.stderr
    )
    assert await receiver.receives(6) == ["working"] * 5 + ["completed"]


async def _failed(hub: GatewayHub, tries: int) -> Any:
    """Wait until the webhook has this many failed tries, and return its row."""
    read = "SELECT failures, next_try, reason, given_up_at FROM webhook"
    while True:
        found = await hub.journal.query(lambda connection: connection.exec_driver_sql(read).one())
        if found[0] == tries:
            return found


async def test_a_webhook_deleted_on_another_node_gets_no_more(cluster: Nodes, receiver: Receiver) -> None:
    agent = Scripted()
    a = await cluster.start("a", registered("a", agent), **HOOKED)
    b = await cluster.start("b", registered("a", Echo()), **HOOKED)
    receipt = await submit(a, "a", webhook=hook(receiver))
    activation = await agent.called()
    await receiver.receives(1)
    assert await b.delete_webhook(OWNER, receipt.task_id, "w")
    activation.say(Custom(name="x")).end()
    await ended(a, receipt)
    other = await submit(a, "a", webhook=hook(receiver, webhook_id="v"))
    (await agent.called()).end()
    await ended(a, other)
    assert await receiver.receives(3) == ["working", "working", "completed"]


async def test_a_webhook_set_again_on_another_node_continues(cluster: Nodes, receiver: Receiver) -> None:
    agent = Scripted()
    a = await cluster.start("a", registered("a", agent), **HOOKED)
    b = await cluster.start("b", registered("a", Echo()), **HOOKED)
    receipt = await submit(a, "a", webhook=hook(receiver))
    activation = await agent.called()
    await receiver.receives(1)
    await within(b.set_webhook(OWNER, hook(receiver, task_id=receipt.task_id)))
    activation.say(Custom(name="x")).end()
    await ended(a, receipt)
    assert await receiver.receives(3) == ["working", "1 x", "completed"]
    assert len(receiver.got) == 3


async def test_a_thread_of_a_stopped_node_expires(cluster: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("babelgate.gateway.composition._EXPIRY_HEARTBEATS", 2)
    a = await cluster.start("a", registered("a", Echo()))
    b = await cluster.start("b", registered("a", Echo()))
    thread = await a.create_thread(OWNER, ThreadChange(ttl=1))
    await cluster.stop(a)
    await erased(b, thread.thread_id)


async def test_a_thread_used_on_another_node_does_not_expire_early(cluster: Nodes) -> None:
    """Use a thread on a node that did not create it. The other node counts only the uses that it has seen."""
    wall = Wall()
    steady = Wall()
    a = await cluster.start("a", registered("a", Echo()), clock=Clock(wall, steady))
    b = await cluster.start("b", registered("a", Echo()), clock=Clock(wall, steady))
    look = vars(a)["_parts"].expiry._end_all
    thread = await a.create_thread(OWNER, ThreadChange(ttl=3600))
    wall.moved += HOUR * 3 // 4
    steady.moved += HOUR * 3 // 4
    await ended(b, await submit(b, "a", thread_id=thread.thread_id))
    wall.moved += HOUR // 2
    steady.moved += HOUR // 2
    pk = await a.journal.query(lambda connection: connection.exec_driver_sql("SELECT pk FROM thread").scalar_one())
    await look([pk])
    assert await b.reads.thread(OWNER, thread.thread_id)
    wall.moved += HOUR
    steady.moved += HOUR
    await look([pk])
    await erased(b, thread.thread_id)
