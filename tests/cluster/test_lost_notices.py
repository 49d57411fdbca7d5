"""Several gateways on one database, one of which dies between a commit and its notice."""

import asyncio
from collections.abc import Generator
from contextlib import suppress

import pytest

from babelgate.canonical import FaultError, Scope, TaskState
from babelgate.gateway.storage import postgres
from tests.cluster.nodes import Nodes, ended, reached
from tests.cluster.test_questions import agent, parked
from tests.gateway.hubs import OWNER, Scripted, eventually, follow, log, registered, submit, within
from tests.gateway.storage.wire import Wire
from tests.postgres import url_of

_NOTICE = b"pg_notify"


@pytest.fixture
def wire(postgres_tables: str) -> Generator[Wire]:
    """Connection of the dying node to the database."""
    with Wire(url_of(postgres_tables)).running() as connection:
        yield connection


@pytest.fixture(autouse=True)
def listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners that do not check for missed notices during a test."""
    monkeypatch.setattr(postgres, "_SILENCE", 1000.0)


async def test_a_cancel_reaches_the_agent_despite_a_lost_notice(wire: Wire, cluster: Nodes) -> None:
    mine = Scripted()
    a = await cluster.start("a", registered("s", Scripted()), database=wire.url)
    b = await cluster.start("b", registered("s", mine))
    receipt = await submit(b, "s")
    activation = await mine.called()
    wire.cut_before = _NOTICE
    cancelling = asyncio.ensure_future(a.cancel(OWNER, receipt.task_id))
    await within(activation.cancelled.wait(), "the cancel of the agent")
    assert (await ended(b, receipt)).state is TaskState.CANCELLED
    wire.mend()
    with suppress(FaultError):
        await within(cancelling)


async def test_an_erasure_stops_the_agent_despite_a_lost_notice(wire: Wire, cluster: Nodes) -> None:
    mine = Scripted()
    a = await cluster.start("a", registered("s", Scripted()), database=wire.url)
    b = await cluster.start("b", registered("s", mine))
    receipt = await submit(b, "s")
    activation = await mine.called()
    wire.cut_before = _NOTICE
    erasing = asyncio.ensure_future(a.delete_thread(OWNER, receipt.thread_id))
    await within(activation.cancelled.wait(), "the end of the agent")
    await within(eventually(lambda: not b.engine.active), "the end of the run")
    wire.mend()
    with suppress(FaultError):
        await within(erasing)


async def test_a_paused_generator_is_closed_despite_a_lost_notice(wire: Wire, cluster: Nodes) -> None:
    a = await cluster.start("a", agent(), database=wire.url)
    b = await cluster.start("b", agent())
    receipt = await submit(b, "ask")
    await reached(b, receipt, TaskState.INPUT_REQUIRED)
    await within(eventually(lambda: parked(b) == 1), "the generator that waits")
    wire.cut_before = _NOTICE
    cancelling = asyncio.ensure_future(a.cancel(OWNER, receipt.task_id))
    await within(eventually(lambda: parked(b) == 0), "the end of the generator")
    wire.mend()
    with suppress(FaultError):
        await within(cancelling)


async def test_readers_get_unannounced_records_after_the_takeover(wire: Wire, cluster: Nodes) -> None:
    """Wait for the records of the takeover, which follow those whose notices were lost."""
    mine, other = Scripted(), Scripted()
    a = await cluster.start("a", registered("s", mine, idempotent=True), database=wire.url)
    b = await cluster.start("b", registered("s", other, idempotent=True))
    c = await cluster.start("c", registered("s", Scripted()))
    assert c.cluster is not None
    c.cluster.nodes.adopts = False
    receipt = await submit(a, "s")
    activation = await mine.called()
    reading = asyncio.ensure_future(follow(c, Scope(receipt.thread_id, "run", receipt.run_id)))
    await within(eventually(lambda: c.journal.channels.get(a.engine.active[0].pk).readers == 1), "the reader")
    wire.cut_before = _NOTICE
    activation.say("lost")
    cluster.silence(a)
    (await other.called()).say("found").end()
    assert (await ended(b, receipt)).state is TaskState.COMPLETED
    assert await within(reading) == await log(b, receipt, "run")
    wire.mend()
