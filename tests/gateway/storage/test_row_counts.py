"""Tests of the numbers of rows, in SQLite and PostgreSQL."""

from pathlib import Path

from babelgate.gateway.storage.database import HEAD, open_database
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.row_counts import count_rows, read_revision
from babelgate.gateway.storage.tables import TableRow
from tests.empty import make_database
from tests.postgres import new_schema, url_of


def check_counts(url: str) -> None:
    engine = open_database(url).open_readers(1)
    try:
        with engine.connect() as connection, connection.begin():
            assert read_revision(connection) == HEAD
            counts = count_rows(connection)
    finally:
        engine.dispose()
    assert set(counts) >= set(TableRow.metadata.tables)
    assert (counts["thread"], counts["event"]) == (0, 0)


def test_an_empty_database_has_tables_without_rows(tmp_path: Path) -> None:
    make_database(tmp_path / "hub.db")
    check_counts(f"sqlite:///{tmp_path / 'hub.db'}")


async def test_an_empty_schema_of_postgresql_has_tables_without_rows() -> None:
    with new_schema() as schema:
        journal = Journal(url_of(schema))
        await journal.open()
        await journal.close()
        check_counts(url_of(schema))
