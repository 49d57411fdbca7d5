"""Tests of the writer: which commands commit together, which fail alone, and when records are published."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, LiteralString, cast

import psycopg
import pytest
from sqlalchemy import Connection, delete
from sqlalchemy.exc import IntegrityError

from babelgate.canonical import FaultCode, FaultError, Record
from babelgate.canonical.event import Custom, TaskCreated, ThreadChanged
from babelgate.gateway.storage import unavailable
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import EventRow
from babelgate.gateway.storage.transaction import Published, Transaction, read_meta, write_meta
from babelgate.gateway.storage.unavailable import Unreachable, Unstored
from tests.gateway.commits import Commits
from tests.gateway.hubs import eventually, within

EACH_DATABASE: Final = True
EVENT: Final = table_of(EventRow)


class Writing:
    """A journal, and control over the groups of commands that it commits."""

    def __init__(self, folder: Path, postgres: str | None) -> None:
        self.path = folder / "journal.db"
        self.postgres = postgres
        self.shown: list[Published] = []
        self.journal = Journal(postgres or f"sqlite:///{self.path}", on_commit=self.shown.extend)
        self.commits = Commits()

    async def open(self) -> None:
        await self.journal.open()
        if self.postgres is None:
            await self.commits.watch(self.journal)

    async def group(self, *commands: Callable[[Transaction], Any]) -> list[Any]:
        """Run the commands as one group, and return their results or faults.

        The writer is blocked until all of them are queued.
        """
        held, go = threading.Event(), threading.Event()

        def hold(tx: Transaction) -> None:
            held.set()
            assert go.wait(10)

        first = self.journal.write(hold)
        assert await asyncio.to_thread(held.wait, 10)
        writes = [self.journal.write(command) for command in commands]
        go.set()
        await within(first)
        return await within(asyncio.gather(*writes, return_exceptions=True))

    def others_see(self, sql: str = "SELECT count(*) FROM event") -> int:
        """Return the number that another process reads now."""
        if self.postgres is not None:
            with psycopg.connect(self.postgres) as other:
                return other.execute(cast("LiteralString", sql)).fetchall()[0][0]
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(sql).fetchone()[0]
        finally:
            connection.close()


@pytest.fixture
async def writing(tmp_path: Path, postgres: str | None) -> AsyncGenerator[Writing]:
    opened = Writing(tmp_path, postgres)
    await opened.open()
    yield opened
    await within(opened.journal.close())


def create(thread_id: str) -> Callable[[Transaction], int]:
    def command(tx: Transaction) -> int:
        return tx.create_thread("o", thread_id, ThreadChanged()).pk

    return command


def change(thread_id: str, **metadata: Any) -> Callable[[Transaction], int]:
    def command(tx: Transaction) -> int:
        return tx.append(tx.need_thread("o", thread_id), ThreadChanged(metadata=metadata)).seq

    return command


def failing(thread_id: str, error: BaseException) -> Callable[[Transaction], None]:
    """Return a command that changes a thread and then raises `error`."""

    def command(tx: Transaction) -> None:
        change(thread_id, spoiled=True)(tx)
        raise error

    return command


def refuse(tx: Transaction) -> None:
    raise FaultError(FaultCode.CONFLICT, "no")


def code(result: Any) -> FaultCode:
    assert isinstance(result, FaultError), result
    return result.fault.code


async def records(writing: Writing, pk: int) -> Sequence[Record]:
    return await writing.journal.page(pk, 0)


# Groups


@pytest.mark.sqlite
async def test_a_lone_command_is_committed_at_once(writing: Writing) -> None:
    before = writing.commits.count
    await within(writing.journal.write(create("t")))
    assert writing.commits.count == before + 1
    assert writing.others_see() == 1


@pytest.mark.sqlite
async def test_commands_during_a_commit_form_one_ordered_transaction(writing: Writing) -> None:
    await within(writing.journal.write(create("t")))
    before = writing.commits.count
    results = await writing.group(*(change("t", n=n) for n in range(20)))
    assert results == list(range(2, 22))
    assert writing.commits.count == before + 2  # the command that blocked the writer, and the group
    assert [record.seq for published in writing.shown for record in published.records] == list(range(1, 22))


async def test_a_command_refused_before_changes_keeps_the_group(writing: Writing) -> None:
    await within(writing.journal.write(create("t")))
    ran: list[str] = []

    def note(tx: Transaction) -> int:
        ran.append("note")
        return change("t")(tx)

    results = await writing.group(note, refuse, change("t"))
    assert [results[0], code(results[1]), results[2]] == [2, FaultCode.CONFLICT, 3]
    assert ran == ["note"]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (FaultError(FaultCode.TASK_ENDED, "too late"), FaultCode.TASK_ENDED),
        (IntegrityError("INSERT", None, Exception("UNIQUE")), FaultCode.CONFLICT),
        (KeyError("a mistake of ours"), FaultCode.INTERNAL),
        (RecursionError(), FaultCode.INTERNAL),
    ],
)
async def test_a_command_that_fails_in_the_middle_fails_alone(
    writing: Writing, error: Exception, expected: FaultCode
) -> None:
    pk = await within(writing.journal.write(create("t")))
    results = await writing.group(change("t", a=1), failing("t", error), change("t", b=2), create("u"))
    assert [results[0], code(results[1]), results[2]] == [2, expected, 3]
    log = await records(writing, pk)
    assert [record.seq for record in log] == [1, 2, 3]
    assert "spoiled" not in str(log)
    assert [record for published in writing.shown if published.pk == pk for record in published.records] == list(log)
    assert [record.seq for record in await records(writing, results[3])] == [1]


@pytest.mark.parametrize("number", [2**63, -(2**64)])
async def test_a_value_rejected_by_the_database_fails_one_command(writing: Writing, number: int) -> None:
    """Write a number that the database refuses only when the rows of the group are written, after all commands."""

    def impossible(tx: Transaction) -> None:
        state = tx.create_thread("o", "huge", ThreadChanged())
        state.pk = number
        tx.append(state, ThreadChanged())

    pk = await within(writing.journal.write(create("t")))
    results = await writing.group(change("t"), impossible, change("t"))
    assert [results[0], code(results[1]), results[2]] == [2, FaultCode.INTERNAL, 3]
    assert [record.seq for record in await records(writing, pk)] == [1, 2, 3]


async def test_one_of_two_commands_for_an_id_wins(writing: Writing) -> None:
    def twice(tx: Transaction) -> int:
        return tx.create_thread("o", "same", ThreadChanged()).pk

    results = await writing.group(twice, twice, create("t"))
    assert [isinstance(result, FaultError) for result in results] == [False, True, False]
    assert code(results[1]) is FaultCode.CONFLICT
    assert writing.others_see("SELECT count(*) FROM thread") == 2


@pytest.mark.sqlite
async def test_a_long_queue_becomes_several_transactions(writing: Writing) -> None:
    await within(writing.journal.write(create("t")))
    before = writing.commits.count
    results = await writing.group(*(change("t") for _ in range(1200)))
    assert results == list(range(2, 1202))
    assert writing.commits.count == before + 1 + 3


# Savepoints


async def test_a_released_savepoint_is_invisible_before_the_commit(writing: Writing) -> None:
    """Check for a default of Python's driver, which commits when a savepoint is released."""
    await within(writing.journal.write(create("t")))
    counts: list[int] = []

    def look(tx: Transaction) -> None:
        counts.append(writing.others_see())

    spoiler = failing("t", FaultError(FaultCode.CONFLICT, "no"))
    results = await writing.group(change("t"), spoiler, look, create("u"), look)
    assert code(results[1]) is FaultCode.CONFLICT
    assert counts == [1, 1]  # each ran once, because the first transaction ended at the failing command
    assert writing.others_see() == 3


async def test_a_command_sees_the_changes_of_successful_commands_only(writing: Writing) -> None:
    await within(writing.journal.write(create("t")))

    def metadata(tx: Transaction) -> dict[str, Any]:
        return dict(tx.need_thread("o", "t").thread.metadata)

    spoiler = failing("t", FaultError(FaultCode.CONFLICT, "no"))
    results = await writing.group(change("t", a=1), spoiler, metadata, change("t", b=2), metadata)
    assert (results[2], results[4]) == ({"a": 1}, {"a": 1, "b": 2})


# After the commit


async def test_a_change_is_visible_before_its_caller_is_answered(writing: Writing) -> None:
    for number in range(20):
        await within(writing.journal.write(create(str(number))))
        assert writing.others_see() == number + 1


async def test_a_cancelled_caller_does_not_affect_others(writing: Writing) -> None:
    await within(writing.journal.write(create("t")))
    held, go = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        held.set()
        assert go.wait(10)

    writing.journal.write(hold)
    assert await asyncio.to_thread(held.wait, 10)
    cancelled, stays = writing.journal.write(change("t", a=1)), writing.journal.write(change("t", b=2))
    cancelled.cancel()
    go.set()
    assert await within(stays) == 3


async def test_pages_are_bounded_on_both_sides(writing: Writing) -> None:
    pk = await within(writing.journal.write(create("t")))
    await writing.group(*(change("t", n=n) for n in range(9)))
    seqs = [record.seq for record in await writing.journal.page(pk, 2, limit=3)]
    assert seqs == [3, 4, 5]
    assert [record.seq for record in await writing.journal.page(pk, 2, until=4)] == [3, 4]
    assert await writing.journal.page(pk, 10) == []
    assert await writing.journal.page(pk + 1, 0) == []


async def test_a_page_names_its_tasks_and_is_empty_after_erasure(
    writing: Writing,
) -> None:
    def work(tx: Transaction) -> int:
        state = tx.create_thread("o", "t", ThreadChanged())
        for task_id in ("one", "other"):
            tx.append(state, TaskCreated(task_id=task_id, agent="a"), task_id=task_id)
            tx.append(state, Custom(name=task_id), task_id=task_id)
        return state.pk

    def erase_half(tx: Transaction) -> None:
        tx.connection.execute(delete(EVENT).where(EVENT.c.seq == 4))

    pk = await within(writing.journal.write(work))
    for _ in range(2):
        (record,) = await writing.journal.page(pk, 2, until=3)
        assert record.task_id == "one"
    await within(writing.journal.write(erase_half))
    assert await writing.journal.page(pk, 4) == []


@pytest.mark.slow
async def test_a_page_of_large_records_is_bounded_by_bytes(writing: Writing) -> None:
    pk = await within(writing.journal.write(create("t")))
    for _ in range(9):
        await within(writing.journal.write(change("t", fill="x" * 600_000)))
    pages: list[list[int]] = []
    while page := await writing.journal.page(pk, pages[-1][-1] if pages else 0):
        pages.append([record.seq for record in page])
    assert pages == [[1, 2, 3, 4, 5], [6, 7, 8, 9], [10]]


async def test_all_statements_of_a_query_see_one_snapshot(writing: Writing) -> None:
    pk = await within(writing.journal.write(create("t")))
    half, go = threading.Event(), threading.Event()

    def twice(connection: Connection) -> tuple[int, int]:
        first = len(read_page(connection, pk, 0, 100))
        half.set()
        assert go.wait(10)
        return first, len(read_page(connection, pk, 0, 100))

    reading = asyncio.ensure_future(writing.journal.query(twice))
    assert await asyncio.to_thread(half.wait, 10)
    await within(writing.journal.write(change("t")))
    go.set()
    assert await within(reading) == (1, 1)


async def test_readers_cannot_write(writing: Writing) -> None:
    with pytest.raises(Exception, match=r"read-?only"):
        await writing.journal.query(lambda connection: write_meta(connection, "a", "b"))


# When the database refuses every command


def raw_connection(tx: Transaction) -> sqlite3.Connection:
    """Return the connection of the writer. It may be used only while the writer is idle."""
    return tx.connection.connection.dbapi_connection  # type: ignore[return-value]


def full(tx: Transaction) -> None:
    """Limit the database to its current size, as on a full disk."""
    pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    tx.connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")


def roomy(tx: Transaction) -> None:
    tx.connection.exec_driver_sql("PRAGMA max_page_count=1000000")


def large(thread_id: str) -> Callable[[Transaction], int]:
    return change(thread_id, fill="x" * 100_000)


@pytest.mark.sqlite
async def test_a_full_disk_fails_a_command_without_visible_changes(writing: Writing) -> None:
    pk = await within(writing.journal.write(create("t")))
    await within(writing.journal.write(full))
    before = len(writing.shown)
    results = await writing.group(large("t"), create("u"), refuse)
    assert all(isinstance(result, Unstored) for result in results)
    assert "full" in (writing.journal.failure or "")
    assert len(writing.shown) == before
    assert [record.seq for record in await records(writing, pk)] == [1]
    await within(writing.journal.write(roomy))
    assert writing.journal.failure is None
    assert await within(writing.journal.write(change("t"))) == 2
    assert [record.seq for record in await records(writing, pk)] == [1, 2]


@pytest.mark.sqlite
async def test_a_read_only_database_fails_commands_until_it_recovers(writing: Writing) -> None:
    """Make the database read-only, so that no transaction of the writer can begin."""
    pk = await within(writing.journal.write(create("t")))
    raw = await within(writing.journal.write(raw_connection))
    raw.execute("PRAGMA query_only=ON")
    writes = [writing.journal.write(change("t")) for _ in range(2)]
    results = await within(asyncio.gather(*writes, return_exceptions=True))
    assert all(isinstance(result, Unstored) for result in results)
    assert "readonly" in (writing.journal.failure or "")
    raw.execute("PRAGMA query_only=OFF")
    assert await within(writing.journal.write(change("t"))) == 2
    assert [record.seq for record in await records(writing, pk)] == [1, 2]


@pytest.mark.sqlite
async def test_a_failed_commit_is_also_undone_in_memory(writing: Writing) -> None:
    pk = await within(writing.journal.write(create("t")))
    raw = await within(writing.journal.write(raw_connection))

    def lose(tx: Transaction) -> None:
        """Make the commit fail after all statements have succeeded."""
        change("t")(tx)
        tx.flush()
        tx.connection.exec_driver_sql("PRAGMA query_only=ON")
        change("t")(tx)

    assert all(isinstance(result, Unstored) for result in await writing.group(change("t"), lose))
    raw.execute("PRAGMA query_only=OFF")
    assert await within(writing.journal.write(change("t"))) == 2
    assert [record.seq for record in await records(writing, pk)] == [1, 2]


@pytest.mark.sqlite
async def test_a_failed_commit_does_not_fail_later_commands(writing: Writing) -> None:
    """Let a commit fail after all statements succeeded, as on a full disk: by a constraint that is checked late."""

    def prepare(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("CREATE TABLE parent (id INTEGER PRIMARY KEY)")
        key = "INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED"
        tx.connection.exec_driver_sql(f"CREATE TABLE child (parent {key})")

    def fail(tx: Transaction) -> None:
        tx.connection.exec_driver_sql("INSERT INTO child VALUES (1)")

    await within(writing.journal.write(create("t")))
    await within(writing.journal.write(prepare))
    with pytest.raises(FaultError):
        await within(writing.journal.write(fail))
    assert await within(writing.journal.write(change("t"))) == 2


@pytest.mark.sqlite
@pytest.mark.parametrize("replaced", [False, True])
async def test_no_command_writes_into_a_deleted_file(writing: Writing, replaced: bool) -> None:
    await within(writing.journal.write(create("t")))
    aside = writing.path.with_name("aside.db")
    writing.path.rename(aside)
    if replaced:
        writing.path.touch()
    with pytest.raises(Unstored):
        await within(writing.journal.write(change("t")))
    assert "was deleted or replaced" in (writing.journal.failure or "")
    aside.rename(writing.path)
    assert await within(writing.journal.write(change("t"))) == 2
    assert writing.journal.failure is None


@pytest.mark.sqlite
async def test_a_damaged_file_is_reported_with_sqlites_message(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unavailable, "PATIENCE", 0.05)
    pk = await within(writing.journal.write(create("t")))
    for _ in range(30):
        await within(writing.journal.write(large("t")))
    await within(writing.journal.write(lambda tx: None))
    with sqlite3.connect(writing.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    with writing.path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (writing.path.stat().st_size - 8192))
    with pytest.raises(Unreachable):
        await within(writing.journal.page(pk, 0, 2048))
    with pytest.raises(Unstored):
        await within(writing.journal.write(large("u")))
    assert writing.journal.failure == "DatabaseError: database disk image is malformed"


# Shutdown


async def test_closing_commits_queued_commands_and_refuses_later_ones(tmp_path: Path, postgres: str | None) -> None:
    writing = Writing(tmp_path, postgres)
    await writing.open()
    first = writing.journal.write(create("t"))
    writes = [writing.journal.write(change("t")) for _ in range(5)]
    await within(writing.journal.close())
    assert first.done()
    assert [write.result() for write in writes] == [2, 3, 4, 5, 6]
    with pytest.raises(FaultError) as error:
        await within(writing.journal.write(change("t")))
    assert error.value.fault.code is FaultCode.SHUTTING_DOWN
    with pytest.raises(FaultError) as error:
        await within(writing.journal.page(1, 0))
    assert error.value.fault.code is FaultCode.SHUTTING_DOWN
    assert writing.others_see() == 6


async def test_a_standby_takes_the_database_when_the_other_ends(
    writing: Writing,
    tmp_path: Path,
    postgres: str | None,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("babelgate.gateway.storage.writer.RETRY_DELAY", 0.05)
    await within(writing.journal.write(create("t")))
    second = Writing(tmp_path, postgres)
    opening = asyncio.ensure_future(second.journal.open(wait=True))
    await within(eventually(lambda: "waiting until that gateway ends" in caplog.text), "the look at the lock")
    assert await within(writing.journal.write(change("t"))) == 2
    assert not opening.done()
    await within(writing.journal.close())
    await within(opening)
    assert await within(second.journal.write(change("t"))) == 3
    await within(second.journal.close())


async def test_a_reopened_journal_continues_where_it_ended(tmp_path: Path, postgres: str | None) -> None:
    writing = Writing(tmp_path, postgres)
    await writing.open()
    await within(writing.journal.write(create("t")))
    await within(writing.journal.write(lambda tx: write_meta(tx.connection, "name", "value")))
    await within(writing.journal.close())
    again = Writing(tmp_path, postgres)
    await again.open()
    assert await within(again.journal.write(change("t"))) == 2
    assert await within(again.journal.write(create("u"))) == 2
    assert await again.journal.query(lambda connection: read_meta(connection, "name")) == "value"
    await within(again.journal.close())
