"""SQL for the hot path: a statement is written once with SQLAlchemy, compiled once for the database at hand, and executed
with plain tuples."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, Table, insert
from sqlalchemy.sql.expression import ClauseElement

__all__ = ("Statement", "inserting")


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
        connection.exec_driver_sql(
            self.sql, list(rows) if self._plain else [tuple(row[i] for i in self._order) for row in rows]
        )


def inserting(table: Table, dialect: Dialect, *columns: str) -> Statement:
    """INSERT of all columns, or of the named ones, in the table's order."""
    names = columns or tuple(column.name for column in table.columns)
    return Statement(insert(table), dialect, names, names)
