"""Tests of the partitions of PostgreSQL's log, with ten threads per partition."""

from collections.abc import AsyncGenerator, Callable, Generator

import pytest

from babelgate.canonical.event import ThreadChanged
from babelgate.gateway.storage import deletion
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.partitions import drop_empty_partition, list_partitions, make_partitions
from babelgate.gateway.storage.transaction import Transaction
from tests.gateway.hubs import within
from tests.postgres import connect, new_schema, run, url_of

TEN = 10


@pytest.fixture
def schema() -> Generator[str]:
    with new_schema() as name:
        yield name


@pytest.fixture
async def journal(schema: str) -> AsyncGenerator[Journal]:
    opened = Journal(url_of(schema))
    await opened.open()
    await within(opened.write(shrink))
    yield opened
    await within(opened.close())


def shrink(tx: Transaction) -> None:
    """Replace the first partition by one for ten threads."""
    tx.connection.exec_driver_sql("DROP TABLE event_0")
    tx.connection.exec_driver_sql("CREATE TABLE event_0 PARTITION OF event FOR VALUES FROM (MINVALUE) TO (10)")


def make(tx: Transaction) -> int:
    return make_partitions(tx.connection, TEN)


def drop(tx: Transaction) -> bool:
    return drop_empty_partition(tx.connection, TEN)


def names(tx: Transaction) -> list[str]:
    return [each.name for each in list_partitions(tx.connection)]


def partition_threads(tx: Transaction) -> dict[str, list[int]]:
    """Return the keys of the threads that each partition has records of, by name of the partition."""
    rows = tx.connection.exec_driver_sql("SELECT DISTINCT tableoid::regclass::text, thread_pk FROM event ORDER BY 2")
    threads_by_partition: dict[str, list[int]] = {}
    for name, pk in rows:
        threads_by_partition.setdefault(name, []).append(pk)
    return threads_by_partition


def create(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.create_thread("o", f"t{number}", ThreadChanged()).pk


def change(number: int) -> Callable[[Transaction], int]:
    return lambda tx: tx.append(tx.need_thread("o", f"t{number}"), ThreadChanged(metadata={"a": 1})).seq


async def begin(journal: Journal, first: int, end: int) -> None:
    """Create threads with these keys."""
    for number in range(first, end):
        assert await within(journal.write(create(number))) == number


async def erase(journal: Journal, first: int, end: int) -> None:
    for number in range(first, end):
        await within(journal.write(deletion.erase_thread, "o", f"t{number}"))


async def test_partitions_are_created_in_advance(
    journal: Journal,
) -> None:
    assert await within(journal.write(make)) == 2
    await begin(journal, 1, 13)
    assert await within(journal.write(make)) == 1
    assert await within(journal.write(make)) == 0
    assert await within(journal.write(names)) == ["event_0", "event_10", "event_20", "event_30"]
    assert await within(journal.write(partition_threads)) == {"event_0": [*range(1, 10)], "event_10": [10, 11, 12]}
    assert await within(journal.write(change(10))) == 2


async def test_threads_without_a_partition_go_into_the_rest(journal: Journal) -> None:
    await begin(journal, 1, 13)
    assert await within(journal.write(change(12))) == 2
    assert (await within(journal.write(partition_threads)))["event_rest"] == [10, 11, 12]
    await within(journal.write(make))
    assert await within(journal.write(names)) == ["event_0", "event_30"]
    await begin(journal, 13, 33)
    threads_by_partition = await within(journal.write(partition_threads))
    assert (threads_by_partition["event_rest"], threads_by_partition["event_30"]) == ([*range(10, 30)], [30, 31, 32])


async def test_a_partition_is_dropped_once_its_last_thread_is_erased(
    journal: Journal, caplog: pytest.LogCaptureFixture
) -> None:
    await within(journal.write(make))
    await begin(journal, 1, 23)
    await within(journal.write(make))
    await erase(journal, 1, 9)
    assert not await within(journal.write(drop))
    await erase(journal, 9, 10)
    with caplog.at_level("INFO", "babelgate.retention"):
        assert await within(journal.write(drop))
    assert "event_0 was dropped" in caplog.text
    # No thread exists in the partition after the next one, so nodes may still have reserved keys of this one.
    await erase(journal, 10, 20)
    assert not await within(journal.write(drop))
    assert await within(journal.write(names)) == ["event_10", "event_20", "event_30", "event_40"]
    assert await within(journal.write(partition_threads)) == {"event_20": [20, 21, 22]}


async def test_a_partition_change_does_not_wait_for_a_lock(journal: Journal, schema: str) -> None:
    """Lock the log as a backup does. All other statements would queue behind a waiting change."""
    await within(journal.write(make))
    await begin(journal, 1, 23)
    await erase(journal, 1, 10)
    with connect(schema) as backup, backup.transaction():
        run(backup, "LOCK TABLE event, event_rest IN ACCESS SHARE MODE")
        assert not await within(journal.write(drop))
        assert await within(journal.write(make)) == 0
        assert await within(journal.write(change(22))) == 2
    assert await within(journal.write(make)) == 2
    assert await within(journal.write(drop))


async def test_a_thread_begun_during_a_drop_is_not_lost(journal: Journal, schema: str) -> None:
    """Insert a thread with a key that its gateway reserved long ago."""
    await within(journal.write(make))
    await begin(journal, 1, 23)
    await erase(journal, 1, 10)
    with connect(schema) as other:
        with other.transaction():
            run(
                other,
                "INSERT INTO thread SELECT 5, owner, 'late', created_at, changed_at, ephemeral, expires, status, "
                "updated_at, body FROM thread WHERE pk = 20",
                "INSERT INTO event SELECT 5, seq, at, task_id, run_id, attempt, body FROM event WHERE thread_pk = 20",
            )
            assert not await within(journal.write(drop))
        assert not await within(journal.write(drop))
    assert (await within(journal.write(partition_threads)))["event_0"] == [5]


async def test_a_role_without_ddl_rights_gets_a_warning_only(
    journal: Journal, schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    def make_as_another(tx: Transaction) -> int:
        run_ = tx.connection.exec_driver_sql
        run_(f"CREATE ROLE {schema}_reader")
        run_(f"GRANT USAGE ON SCHEMA {schema} TO {schema}_reader")
        run_(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {schema}_reader")
        run_(f"GRANT SELECT ON SEQUENCE thread_key TO {schema}_reader")
        run_(f"SET LOCAL ROLE {schema}_reader")
        created = make_partitions(tx.connection, TEN)
        run_("RESET ROLE")
        run_(f"DROP OWNED BY {schema}_reader")
        run_(f"DROP ROLE {schema}_reader")
        return created

    with caplog.at_level("WARNING", "babelgate.retention"):
        assert await within(journal.write(make_as_another)) == 0
    assert "make it the owner of the table event" in caplog.text
    await begin(journal, 1, 13)
    assert (await within(journal.write(partition_threads)))["event_rest"] == [10, 11, 12]
