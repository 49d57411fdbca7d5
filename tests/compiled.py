"""What SQLAlchemy has compiled, kept for the next database of the same kind.

Each engine compiles its statements anew, which takes longer than most tests do anything else. These tests make
thousands of engines for the same statements; `babelgate serve` makes two.
"""

from typing import Any, Final, cast

from sqlalchemy import Dialect, Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_STATEMENTS: Final = 4000
"""As many as are kept."""


def keep_compiled() -> None:
    """From now on, in this process."""
    shared: LRUCache[Any, Any] = LRUCache(_STATEMENTS)
    engine, sqlite, postgres = cast("list[Any]", [Engine, SQLiteDialect_pysqlite, PGDialect_psycopg])
    engine._compiled_cache = property(lambda _: shared, lambda _, own: None)
    # The key of what is compiled has the dialect, and each engine has its own.
    for kind in (sqlite, postgres):
        kind.__hash__ = _hash
        kind.__eq__ = _is_alike


def _hash(dialect: Any) -> int:
    return hash(_kind(dialect))


def _is_alike(dialect: Any, other: Any) -> bool:
    return isinstance(other, Dialect) and _kind(dialect) == _kind(other)


def _kind(dialect: Any) -> tuple[str, str | None]:
    return dialect.name, getattr(dialect, "paramstyle", None)
