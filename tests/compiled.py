"""Cache of SQLAlchemy's compiled statements, shared by all databases of one kind.

Each engine normally compiles its statements again, which takes longer than the rest of most tests. The tests create
thousands of engines for the same statements; `babelgate serve` creates two.
"""

from typing import Any, Final, cast

from sqlalchemy import Dialect, Engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.util import LRUCache

_STATEMENTS: Final = 4000
"""Maximum number of cached statements."""


def keep_compiled() -> None:
    """Share compiled statements in this process from now on."""
    shared: LRUCache[Any, Any] = LRUCache(_STATEMENTS)
    engine, sqlite, postgres = cast("list[Any]", [Engine, SQLiteDialect_pysqlite, PGDialect_psycopg])
    engine._compiled_cache = property(lambda _: shared, lambda _, value: None)
    # The key of a compiled statement contains the dialect, of which each engine has its own.
    for kind in (sqlite, postgres):
        kind.__hash__ = _hash
        kind.__eq__ = _is_alike


def _hash(dialect: Any) -> int:
    return hash(_kind(dialect))


def _is_alike(dialect: Any, other: Any) -> bool:
    return isinstance(other, Dialect) and _kind(dialect) == _kind(other)


def _kind(dialect: Any) -> tuple[str, str | None]:
    return dialect.name, getattr(dialect, "paramstyle", None)
