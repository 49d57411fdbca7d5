"""Row counts of all tables and the schema revision, for commands of the CLI. They work with the schema of any
release."""

from collections.abc import Mapping

from sqlalchemy import Connection, func, inspect, select, table

REVISIONS = "alembic_version"
"""Table of Alembic with the schema revision of the database."""


def read_revision(connection: Connection) -> str | None:
    """Return the schema revision of the database, such as `0022`, or None if the database is empty."""
    if not inspect(connection).has_table(REVISIONS):
        return None
    return connection.exec_driver_sql(f"SELECT version_num FROM {REVISIONS}").scalar()


def count_rows(connection: Connection) -> Mapping[str, int]:
    """Return the number of rows of each table, by table name. Alembic's own table is left out."""
    return {
        name: connection.execute(select(func.count()).select_from(table(name))).scalar_one()
        for name in sorted(inspect(connection).get_table_names())
        if name != REVISIONS
    }
