"""Tests of the notifier: notices are sent after the commit, on a separate connection, and no commit waits for them."""

import asyncio
from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import psycopg
import pytest
from sqlalchemy.exc import OperationalError

from babelgate.canonical import Record
from babelgate.gateway.storage import notifier, postgres
from babelgate.gateway.storage.database import open_database
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.notifier import Notifier
from tests.gateway.hubs import eventually, within
from tests.gateway.storage.test_listener import Node, change, create, erase, opened
from tests.gateway.storage.wire import Wire
from tests.postgres_server import PostgresServer, postgres_server

_NOTICE = b"pg_notify"


@pytest.fixture
def wire(url: str) -> Generator[Wire]:
    with Wire(url).running() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Generator[PostgresServer]:
    """A server with a missing standby: the flush of a session that waits for the standby never ends."""
    with postgres_server(synchronous_standby_names="nobody", synchronous_commit="local") as started:
        yield started


@pytest.mark.slow
async def test_a_commit_does_not_wait_for_another_nodes_flush(server: PostgresServer, tmp_path: Path) -> None:
    """Let another session notify inside its transaction, which holds the lock of NOTIFY until its commit is flushed."""
    url = server.add_schema("flush")
    async with opened(url, tmp_path) as a, opened(url, tmp_path) as b:
        await within(a.write(create()))
        await within(eventually(lambda: len(b.heard) == 1), "the notice")
        async with (
            await psycopg.AsyncConnection.connect(server.url, autocommit=True) as other,
            AsyncExitStack() as stack,
        ):
            looks = stack.enter_context(psycopg.connect(server.url, autocommit=True))
            await other.execute("CREATE TABLE other (n INTEGER)")
            await other.execute("SET synchronous_commit = on")
            writes = "WITH written AS (INSERT INTO other VALUES (1) RETURNING 1) SELECT pg_notify('c', '') FROM written"
            flushing = asyncio.ensure_future(other.execute(writes))

            def flushes() -> bool:
                query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
                return looks.execute(query, (other.info.backend_pid,)).fetchone() is not None

            await within(eventually(flushes), "the flush")
            assert [await within(a.write(change())) for _ in range(3)] == [2, 3, 4]
            assert len(b.heard) == 1 and not flushing.done()
            looks.execute("SELECT pg_cancel_backend(%s)", (other.info.backend_pid,))
            await within(flushing)
        await within(eventually(lambda: b.heard[-1].seq == 4), "the notices")


@pytest.mark.slow
def test_a_notice_does_not_wait_for_the_flush(server: PostgresServer) -> None:
    database = open_database(f"{server.url}?options=-csynchronous_commit%3Don", shared=True)
    engine = database.open_writer()
    with engine.connect() as connection:
        database.notify(connection, ["one", "two"])
    engine.dispose()


async def test_unsent_notices_of_one_thread_are_merged(
    wire: Wire, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "_ANSWER", 0.1)
    monkeypatch.setattr(notifier, "_RETRY_DELAY", 0.2)
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        wire.freeze_after = _NOTICE
        pk = await within(a.write(create()))
        await frozen(wire)
        begun, last = monotonic(), 1
        while not a_hung_up(a):
            last = await within(a.write(change()))
        assert monotonic() - begun < 10, "commits wait for no notice"
        await within(eventually(lambda: bool(b.heard) and b.heard[-1].seq == last), "the notices")
        assert b.heard[-1].pk == pk and len(b.heard) < last
        assert any(remote.created for remote in b.heard)


def a_hung_up(node: Node) -> bool:
    """Return True if the notifier of a node has detected that its connection is dead."""
    sender = node.journal._notifier  # pyright: ignore[reportPrivateUsage]
    assert sender is not None
    return sender._is_lost  # pyright: ignore[reportPrivateUsage]


async def frozen(wire: Wire) -> None:
    assert await asyncio.to_thread(wire.frozen.wait, 10)


async def test_the_oldest_notices_are_dropped_beyond_the_bound(
    wire: Wire, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifier, "_MAX_PENDING", 3)
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        wire.freeze_after = _NOTICE
        await within(a.write(create("lost")))
        await frozen(wire)
        pks = [await within(a.write(create(f"t{number}"))) for number in range(6)]
        monkeypatch.setattr(notifier, "_ANSWER", 0.1)
        while not a_hung_up(a):
            await within(a.write(change("t5")))
        await within(eventually(lambda: pks[-1] in {remote.pk for remote in b.heard}), "the notices")
        assert {remote.pk for remote in b.heard if remote.created} >= set(pks[-2:])
        assert not {remote.pk for remote in b.heard} & set(pks[:3])


async def test_last_notices_are_sent_before_a_journal_closes(url: str, tmp_path: Path) -> None:
    async with opened(url, tmp_path) as b:
        async with opened(url, tmp_path) as a:
            writes = [a.write(create(f"t{number}")) for number in range(300)]
        pks = {await within(each) for each in writes}
        await within(eventually(lambda: {remote.pk for remote in b.heard} == pks), "the notices")


async def test_a_journal_closes_while_its_notice_is_not_answered(wire: Wire, tmp_path: Path) -> None:
    async with opened(wire.url, tmp_path) as a:
        wire.freeze_after = _NOTICE
        await within(a.write(create()))
        await frozen(wire)
        await within(a.journal.close(0.8))


async def test_a_notifier_stops_while_its_server_is_down(url: str) -> None:
    """Stop a notifier that has never been able to connect."""
    with Wire(url).running() as wire:
        alone = Notifier("n", open_database(wire.url, shared=True))
        wire.cut()
        alone.start()
        alone.add([Remote(1, 1)])
        begun = monotonic()
        await within(alone.close())
        assert monotonic() - begun < 5


# Notices that are lost because their node stops


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners that look for missed notices after a fifth of a second."""
    monkeypatch.setattr(postgres, "_SILENCE", 0.2)


@pytest.mark.usefixtures("looks")
async def test_a_commit_whose_node_dies_before_its_notice_reaches_readers(wire: Wire, url: str, tmp_path: Path) -> None:
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        await within(b.write(create()))
        reader = b.records()
        assert (await within(anext(reader))).seq == 1
        wire.cut_before = _NOTICE
        assert await within(a.write(change())) == 2
        assert (await within(anext(reader))).seq == 2


@pytest.mark.usefixtures("looks")
async def test_readers_end_even_if_the_erasure_notice_is_lost(wire: Wire, url: str, tmp_path: Path) -> None:
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        pk = await within(b.write(create()))
        reader = b.records()
        assert (await within(anext(reader))).seq == 1
        wire.cut_before = _NOTICE
        assert await within(a.write(erase)) == pk
        left: Sequence[Record] = [record async for record in reader]
        assert left == []
        assert [remote for remote in b.heard if remote.pk == pk] == [Remote(pk, 1, erased=True)]


async def test_an_awaited_thread_is_found_despite_a_lost_notice(
    wire: Wire, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("babelgate.gateway.storage.subscription._LOOK", 0.2)
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        waiting = asyncio.ensure_future(b.reads.await_thread("o", "t"))
        wire.cut_before = _NOTICE
        await within(a.write(create()))
        assert await within(waiting) is True


async def test_a_settled_commit_is_announced_to_the_other_gateways(
    wire: Wire, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("babelgate.gateway.storage.writer.RETRY_DELAY", 0.05)
    async with opened(wire.url, tmp_path) as a, opened(url, tmp_path) as b:
        await within(a.write(create()))
        await within(eventually(lambda: len(b.heard) == 1), "the notice")
        wire.commits.append("lost after")
        assert await within(a.write(change())) == 2
        await within(eventually(lambda: b.heard[-1].seq == 2), "the notice")


def test_sqlite_has_no_notices(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'a.db'}")
    engine = database.open_writer()
    with engine.connect() as connection, pytest.raises(NotImplementedError):
        database.notify(connection, ["one"])
    engine.dispose()


async def test_a_notice_that_the_server_refuses_is_an_operational_error(url: str) -> None:
    database = open_database(url, shared=True)
    engine = database.open_writer()
    with engine.connect() as connection, pytest.raises(OperationalError):
        database.notify(connection, ["x" * 8000])
    engine.dispose()


async def test_a_gateway_alone_sends_no_notices(url: str) -> None:
    journal = Journal(url)
    assert journal._notifier is None  # pyright: ignore[reportPrivateUsage]
