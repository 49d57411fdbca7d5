"""Tests of PostgreSQL: its schema, the lock for one gateway at a time, and connections lost at the worst moments.

The other tests of this folder check the behaviour of the journal on each database.
"""

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString, cast

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import event
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import Engine, make_url
from sqlmodel import SQLModel

from babelgate.canonical import FaultCode, FaultError, ItemQuery, ThreadChange
from babelgate.canonical.event import ThreadChanged
from babelgate.canonical.hub import RunFilter, ThreadFilter
from babelgate.canonical.thread import Thread
from babelgate.gateway import demo
from babelgate.gateway.storage import unavailable, writer
from babelgate.gateway.storage.database import HEAD, open_database
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.statements import Sql
from babelgate.gateway.storage.transaction import Published, Transaction
from babelgate.gateway.storage.unavailable import Unreachable, Unsettled, Unstored
from tests.gateway.hubs import eventually, within
from tests.gateway.storage.revisions import migrate_to
from tests.gateway.storage.wire import Commit, Wire
from tests.postgres import connect, new_schema, new_tables, run, url_of
from tests.running import running
from tests.skip import missing


@pytest.fixture
async def journal(url: str) -> AsyncGenerator[Journal]:
    opened_journal = Journal(url)
    await opened_journal.open()
    yield opened_journal
    await within(opened_journal.close())


def create(thread_id: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.create_thread("o", thread_id, ThreadChanged()).pk


def change(thread_id: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(tx.need_thread("o", thread_id), ThreadChanged()).seq


def is_no_partition(name: str | None, _kind: str, _parents: Any) -> bool:
    return name not in ("event_0", "event_rest")


def process(tx: Transaction) -> int:
    """Return the id of the server process for the connection that writes."""
    return tx.connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()


def end_sessions(*processes: int) -> None:
    with connect() as other:
        for each in processes:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", (each,))


def is_there(process: int) -> bool:
    with connect() as other:
        return other.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (process,)).fetchone() is not None


# The schema


async def test_a_new_database_has_the_declared_tables() -> None:
    with new_schema() as schema:
        journal = Journal(url_of(schema))
        await journal.open()
        await within(journal.close())
        engine = open_database(url_of(schema)).open_writer()
        with engine.begin() as connection:
            assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == HEAD
            tables = MigrationContext.configure(connection, opts={"include_name": is_no_partition})
            assert compare_metadata(tables, SQLModel.metadata) == []
            # Text is ordered by its bytes, as in SQLite: pages and prefixes depend on it.
            others = "SELECT count(*) FROM information_schema.columns WHERE table_schema = current_schema() AND "
            others += "data_type = 'character varying' AND collation_name IS DISTINCT FROM 'C'"
            assert connection.exec_driver_sql(others).scalar_one() == 1  # the column of alembic_version
            partial_indexes = connection.exec_driver_sql(
                "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexdef LIKE '%% WHERE %%'"
            )
            indexes = [index for table in SQLModel.metadata.tables.values() for index in table.indexes]
            partial = {index.name for index in indexes if "postgresql_where" in index.info}
            assert set(partial_indexes.scalars()) == partial
        engine.dispose()


async def test_a_database_of_the_previous_release_is_migrated() -> None:
    columns = "SELECT table_name, column_name, data_type, collation_name FROM information_schema.columns "
    columns += "WHERE table_schema = current_schema() ORDER BY 1, 2"
    with new_schema() as schema, connect(schema) as other:
        journal = Journal(url_of(schema))
        await journal.open()
        for name in ("a", "b"):
            await within(journal.write(create(name)))
        await within(journal.close())
        schema_after_open = other.execute(cast("LiteralString", columns)).fetchall()
        engine = open_database(url_of(schema)).open_writer()
        with engine.begin() as connection:
            migrate_to("0012", connection, back=True)
        engine.dispose()
        assert other.execute(cast("LiteralString", columns)).fetchall() != schema_after_open
        assert other.execute("SELECT thread_pk FROM event ORDER BY 1").fetchall() == [(1,), (2,)]
        again = Journal(url_of(schema))
        await again.open()
        assert await within(again.write(create("c"))) == 3
        await within(again.close())
        assert other.execute(cast("LiteralString", columns)).fetchall() == schema_after_open
        assert other.execute("SELECT nextval('thread_key')").fetchone() == (3,)
        assert other.execute("SELECT thread_pk FROM event_0 ORDER BY 1").fetchall() == [(1,), (2,), (3,)]


async def test_a_database_of_a_newer_release_is_refused_unchanged() -> None:
    with new_tables() as schema, connect(schema) as other:
        run(other, "INSERT INTO alembic_version VALUES ('9999')")
        with pytest.raises(FaultError, match="newer release") as error:
            await Journal(f"{url_of(schema)}&password=secret").open()
        assert "secret" not in error.value.fault.message
        assert other.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
        assert other.execute("SELECT count(*) FROM meta").fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("statement", "index"),
    {
        "update_task": "task_pkey",
        "update_run": "run_pkey",
        "update_interrupt": "interrupt_pkey",
        "thread": "thread_id",
        "task": "task_pkey",
        "run": "run_pkey",
    }.items(),
)
def test_lookups_use_an_index_before_tables_are_analyzed(statement: str, index: str) -> None:
    """Check generic plans of an empty database, which the server uses until it has analyzed the tables."""
    sql = vars(Sql(PGDialect_psycopg()))[statement].sql
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    for number, name in enumerate(names, 1):
        sql = sql.replace(f"%({name})s", f"${number}")
    with new_tables() as schema, connect(schema) as connection:
        run(connection, "SET plan_cache_mode = force_generic_plan", f"PREPARE made AS {sql}")
        nulls = ", ".join(["NULL"] * len(names))
        rows = connection.execute(cast("LiteralString", f"EXPLAIN EXECUTE made({nulls})")).fetchall()
    assert any(f"using {index} " in step for (step,) in rows), rows


async def test_rows_of_owners_are_counted_after_any_change(journal: Journal, url: str) -> None:
    await within(journal.write(create("t")))
    with psycopg.connect(url, autocommit=True) as other:

        def tally() -> list[Any]:
            return other.execute("SELECT kind, agent, rows FROM tally").fetchall()

        assert tally() == [("thread", "", 1)]
        for hidden, rows in (("true", 0), ("false", 1), ("false", 1)):
            run(other, f"UPDATE thread SET ephemeral = {hidden}")
            assert tally() == [("thread", "", rows)]
        run(other, "DELETE FROM thread")
        assert tally() == [("thread", "", 0)]


# One gateway per database


async def test_a_second_gateway_on_the_database_is_refused(journal: Journal, url: str) -> None:
    with pytest.raises(FaultError) as error:
        await Journal(f"{url}&password=secret").open()
    assert error.value.fault.code is FaultCode.CONFLICT
    assert "another gateway uses this database" in error.value.fault.message
    assert "\n" not in error.value.fault.message and "secret" not in error.value.fault.message
    assert await within(journal.write(create("t"))) == 1
    await within(journal.close())
    after = Journal(url)
    await after.open()
    assert await within(after.write(change("t"))) == 2
    await within(after.close())


async def test_tcp_keepalives_are_set_for_the_servers_side(journal: Journal, url: str) -> None:
    if make_url(url).host is None:
        missing("PostgreSQL by TCP")
    show = "SELECT setting FROM pg_settings WHERE name = 'tcp_keepalives_idle'"
    assert await within(journal.write(lambda tx: tx.connection.exec_driver_sql(show).scalar_one())) == "5"


# Groups


async def test_a_group_is_one_transaction(journal: Journal, url: str) -> None:
    held, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold(tx: Transaction) -> None:
        loop.call_soon_threadsafe(held.set)
        asyncio.run_coroutine_threadsafe(go.wait(), loop).result(30)

    await within(journal.write(create("t")))
    first = asyncio.ensure_future(journal.write(hold))
    await within(held.wait())
    writes = [journal.write(change("t")) for _ in range(100)]
    go.set()
    await within(asyncio.gather(first, *writes))
    with psycopg.connect(url) as other:
        assert other.execute("SELECT count(*), count(DISTINCT xmin::text) FROM event").fetchone() == (101, 2)


@pytest.mark.parametrize(
    ("thread_id", "code"), [("a\0b", FaultCode.INVALID), ("".join(map(chr, range(300, 3300))), FaultCode.TOO_LARGE)]
)
async def test_an_invalid_id_fails_only_its_command(journal: Journal, thread_id: str, code: FaultCode) -> None:
    writes = [journal.write(create(each)) for each in ("t", thread_id, "u")]
    results = await within(asyncio.gather(*writes, return_exceptions=True))
    assert isinstance(results[1], FaultError) and results[1].fault.code is code
    assert [type(each) for each in results] == [int, FaultError, int] and journal.failure is None


async def test_a_read_of_an_unstorable_id_finds_nothing(journal: Journal) -> None:
    with pytest.raises(FaultError) as error:
        await within(journal.row(Thread, "o", "a\0b"))
    assert error.value.fault.code is FaultCode.INVALID


async def test_large_results_use_a_server_side_cursor(url: str, tmp_path: Path) -> None:
    streams: list[str] = []

    def note(_: Any, cursor: Any, sql: str, *__: Any) -> None:
        if isinstance(cursor, psycopg.ServerCursor):
            streams.append(sql.partition("FROM ")[2].split()[0])

    async with running(tmp_path, {"echo": demo.echo}, database=url) as gateway:
        hub = gateway.hub
        await hub.store.put("o", ("a",), "x", {"n": 1})
        thread = await hub.create_thread("o", ThreadChange(metadata={"n": 1}))
        event.listen(Engine, "after_cursor_execute", note)
        try:
            items = await hub.store.search("o", ItemQuery(filter={"n": 1}))
            await hub.reads.threads("o", ThreadFilter(metadata={"n": 1}), limit=1)
            await hub.reads.runs("o", RunFilter(metadata={"n": 1}, thread_id=thread.thread_id), limit=1)
        finally:
            event.remove(Engine, "after_cursor_execute", note)
        assert len(await items.all()) == 1 and streams == ["item", "thread", "run"]


# Lost connections


async def test_a_reconnect_keeps_acknowledged_changes(journal: Journal) -> None:
    pk = await within(journal.write(create("t")))
    end_sessions(await within(journal.write(process)))
    assert await within(journal.write(change("t"))) == 2
    end_sessions(await within(journal.write(process)))
    assert await within(journal.write(change("t"))) == 3
    assert [record.seq for record in await within(journal.page(pk, 0))] == [1, 2, 3]


async def test_a_reader_survives_a_lost_connection(journal: Journal) -> None:
    pk = await within(journal.write(create("t")))
    query = "SELECT pg_backend_pid()"
    for _ in range(3):
        reading = [journal.query(lambda c: c.exec_driver_sql(query).scalar_one()) for _ in range(20)]
        end_sessions(*{await within(each) for each in reading})
        pages = await within(asyncio.gather(*(journal.page(pk, 0) for _ in range(20))))
        assert all(len(page) == 1 for page in pages)


@pytest.fixture
def wire(url: str) -> Generator[Wire]:
    with Wire(url).running() as running:
        yield running


@asynccontextmanager
async def opened(url: str, published: list[Published], *, shared: bool = False) -> AsyncGenerator[Journal]:
    journal = Journal(url, on_commit=published.extend, shared=shared)
    await journal.open()
    try:
        yield journal
    finally:
        await within(journal.close())


async def test_commands_work_again_after_an_outage(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE", 0.5)
    async with opened(wire.url, []) as journal:
        pk = await within(journal.write(create("t")))
        wire.cut()
        for _ in range(2):
            with pytest.raises(Unstored):
                await within(journal.write(change("t")))
            with pytest.raises(Unreachable):
                await within(journal.page(pk, 0))
        assert journal.failure is not None and "secret" not in journal.failure
        wire.mend()
        await within(eventually(lambda: journal.failure is None), "the connection")
        assert await within(journal.write(change("t"))) == 2
        assert [record.seq for record in await within(journal.page(pk, 0))] == [1, 2]


@pytest.mark.parametrize("stored", [True, False])
async def test_a_caller_learns_the_outcome_of_a_cut_commit(wire: Wire, stored: bool) -> None:
    published: list[Published] = []
    async with opened(wire.url, published) as journal:
        pk = await within(journal.write(create("t")))
        setattr(wire, "cut_after" if stored else "cut_before", b"COMMIT")
        written = journal.write(change("t"))
        await within(eventually(lambda: journal.failure is not None), "the cut")
        with pytest.raises(Unstored):  # later commands do not wait for the connection
            await within(journal.write(create("u")))
        assert not written.done() and [len(each.records) for each in published] == [1]
        wire.mend()
        if stored:
            assert await within(written) == 2
        else:
            with pytest.raises(Unstored):
                await within(written)
        await within(eventually(lambda: journal.failure is None), "the connection")
        next_seq = await within(journal.write(change("t")))
        assert next_seq == (3 if stored else 2)
        seqs = list(range(1, next_seq + 1))
        assert [record.seq for record in await within(journal.page(pk, 0))] == seqs
        assert [record.seq for each in published for record in each.records] == seqs


@pytest.mark.parametrize("shared", [False, True])
async def test_outcomes_of_commits_are_correct_over_many_disconnections(
    wire: Wire, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut also the commits with which the gateway reconnects, settles the lost commit, and claims the database."""
    monkeypatch.setattr(writer, "RETRY_DELAY", 0.02)
    fates: tuple[Commit, ...] = ("stored", "lost before", "lost after")
    async with opened(wire.url, [], shared=shared) as journal:
        pk = await within(journal.write(create("t")))
        stored = [1]
        for plan in itertools.product(fates, repeat=3):
            wire.commits.extend(plan)
            writing = [journal.write(change("t"))]
            while wire.commits:
                await within(asyncio.wait(writing))  # every command gets a result
                writing.append(journal.write(change("t")))
            results = await within(asyncio.gather(*writing, return_exceptions=True))
            stored += [each for each in results if isinstance(each, int)]
            assert {type(each) for each in results} <= {int, Unstored}
        assert [record.seq for record in await within(journal.page(pk, 0))] == stored


async def test_a_late_commit_stores_no_refused_command(wire: Wire) -> None:
    async with opened(wire.url, [], shared=True) as journal:
        pk = await within(journal.write(create("t")))
        lost = await within(journal.write(process))
        wire.commits.append("late")
        refused = journal.write(change("t"))
        with pytest.raises(Unstored):
            await within(refused)
        wire.deliver()
        await within(eventually(lambda: not is_there(lost)), "the end of the session that was lost")
        assert await within(journal.write(change("t"))) == 2
        assert [record.seq for record in await within(journal.page(pk, 0))] == [1, 2]


async def test_a_commit_with_unknown_outcome_is_not_reported_as_refused(wire: Wire) -> None:
    async with opened(wire.url, []) as journal:
        wire.cut_before = b"COMMIT"
        written = journal.write(create("t"))
        await within(eventually(lambda: journal.failure is not None), "the cut")
    with pytest.raises(Unsettled):
        await within(written)


@pytest.mark.parametrize("shared", [False, True])
async def test_a_silent_server_cannot_prevent_the_stop(wire: Wire, shared: bool) -> None:
    async with opened(wire.url, [], shared=shared) as journal:
        pk = await within(journal.write(create("t")))
        await within(journal.page(pk, 0))
        wire.freeze()
        on_their_way = (journal.write(change("t")), asyncio.ensure_future(journal.page(pk, 0)))
        await within(journal.close(0.2))
    results = await within(asyncio.gather(*on_their_way, return_exceptions=True))
    assert all(isinstance(each, FaultError) for each in results), results


async def test_a_gateway_whose_database_hangs_is_not_ready(
    wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("babelgate.gateway.runs.readiness._TIMEOUT", 0.1)
    monkeypatch.setattr("babelgate.gateway.runs.readiness._PROBE_VALIDITY", 0)
    async with running(tmp_path, {"echo": demo.echo}, database=wire.url) as gateway:
        assert (await gateway.http.get("/readyz")).status_code == 200
        wire.freeze()
        for _ in range(2):
            answer = await gateway.http.get("/readyz")
            assert (answer.status_code, answer.json()["status"]) == (503, "failing")
        await within(gateway.hub.stop(1))


async def test_a_gateway_stops_writing_after_another_used_its_database(wire: Wire, url: str, tmp_path: Path) -> None:
    async with running(tmp_path, {"echo": demo.echo}, database=wire.url) as gateway:
        journal = gateway.hub.journal
        await within(journal.write(create("t")))
        assert (await gateway.http.get("/healthz")).status_code == 200
        wire.cut()
        with pytest.raises(Unstored):
            await within(journal.write(change("t")))
        async with opened(url, []) as other:
            assert await within(other.write(change("t"))) == 2
        wire.mend()
        await within(eventually(lambda: journal.is_superseded), "what has happened meanwhile")
        with pytest.raises(Unstored):
            await within(journal.write(change("t")))
        assert "Restart" in (journal.failure or "")
        for path in ("/healthz", "/readyz"):
            assert (await gateway.http.get(path)).status_code == 503
    with psycopg.connect(url) as rows:
        assert rows.execute("SELECT count(*) FROM event").fetchone() == (2,)
