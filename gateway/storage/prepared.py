"""Prepared statements: SQL for the hot path is written once with SQLAlchemy, compiled once for the database at hand,
and executed with plain tuples."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, Table, insert
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.sql.expression import ClauseElement


class Statement:
    """A compiled statement. `run` takes its parameters as one tuple, in the order of `names`."""

    def __init__(
        self, clause: ClauseElement, dialect: Dialect, names: Sequence[str], columns: Sequence[str] | None = None
    ) -> None:
        compiled = clause.compile(
            dialect=dialect,
            column_keys=list(columns or ()) or None,
            compile_kwargs={"render_postcompile": True},
        )
        self.sql = str(compiled)
        places: Sequence[str] = getattr(compiled, "positiontup", None) or list(compiled.params or {})
        if set(places) != set(names):
            raise ValueError(f"{self.sql}: parameters {sorted(set(places) ^ set(names))} are not in both lists")
        self._order = [list(names).index(place) for place in places]
        self._plain = self._order == list(range(len(names)))

    def run(self, connection: Connection, values: tuple[Any, ...]) -> Any:
        return connection.exec_driver_sql(self.sql, values if self._plain else tuple(values[i] for i in self._order))

    def run_many(self, connection: Connection, rows: Iterable[tuple[Any, ...]]) -> None:
        """The same for many rows, straight on the driver: what SQLAlchemy does around each call costs as much as the
        call. Raises IntegrityError, OperationalError of SQLAlchemy."""
        values = list(rows) if self._plain else [tuple(row[i] for i in self._order) for row in rows]
        driver: Any = connection.dialect.loaded_dbapi
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(self.sql, values)
        except driver.IntegrityError as error:
            raise IntegrityError(self.sql, None, error) from error
        except driver.OperationalError as error:
            raise OperationalError(self.sql, None, error) from error
        finally:
            cursor.close()


def inserting(table: Table, dialect: Dialect, *columns: str) -> Statement:
    """INSERT of all columns, or of the named ones, in the table's order."""
    names = columns or tuple(column.name for column in table.columns)
    return Statement(insert(table), dialect, names, names)
