"""Row counts of all tables, in this release's schema or another one."""

from collections.abc import Mapping

from sqlalchemy import Connection, func, inspect, select, table

REVISIONS = "alembic_version"
"""Table with the revision of the schema."""


def read_revision(connection: Connection) -> str | None:
    """Return the revision of the schema; None if the database has none."""
    if not inspect(connection).has_table(REVISIONS):
        return None
    return connection.exec_driver_sql(f"SELECT version_num FROM {REVISIONS}").scalar()


def count_rows(connection: Connection) -> Mapping[str, int]:
    """Return the row count of each table."""
    return {
        name: connection.execute(select(func.count()).select_from(table(name))).scalar_one()
        for name in sorted(inspect(connection).get_table_names())
        if name != REVISIONS
    }
