"""PostgreSQL for tests: each gets a separate schema.

The schema is in the database of DATABASE_URL, in that at the standard local port or, without both, in a server that is
started for the tests.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, LiteralString, cast
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

from babelgate.gateway.storage import migrations
from babelgate.gateway.storage.database import HEAD
from tests.postgres_server import postgres_server
from tests.skip import missing

_LOCAL: Final = "postgresql://postgres@127.0.0.1:5432/postgres"
_SCHEMA: Final = Path(migrations.__file__).parent / "postgresql.sql"


_started: Final = ExitStack()


@cache
def server() -> str:
    """Return the URL of the database. Skips or fails the calling test without one."""
    named = os.environ.get("DATABASE_URL")
    if named is not None or os.environ.get("BABELGATE_PEERS") == "off":
        return _require(named or _LOCAL)
    if _find_problem(_LOCAL) is None:
        return _LOCAL
    return _started.enter_context(postgres_server()).url


def stop_server() -> None:
    """Stop the server that was started."""
    _started.close()


def _require(url: str) -> str:
    problem = _find_problem(url)
    if problem is None:
        return url
    if os.environ.get("BABELGATE_PEERS") == "required":
        pytest.fail(f"there is no PostgreSQL: {problem}")
    missing(f"PostgreSQL (DATABASE_URL names one): {problem}")


def _find_problem(url: str) -> str | None:
    """Return why the server cannot be used for tests, or None."""
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return None


def connect(schema: str = "public") -> psycopg.Connection[Any]:
    return psycopg.connect(server(), autocommit=True, options=f"-csearch_path={schema} -csynchronous_commit=off")


def run(connection: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        connection.execute(cast("LiteralString", statement))


def url_of(schema: str) -> str:
    """Return the URL of the database with this schema for everything."""
    url = server()
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema} -csynchronous_commit=off')}"


@contextmanager
def new_schema() -> Generator[str]:
    """Create an empty schema, and yield its name."""
    name = f"babelgate_test_{uuid4().hex}"
    with connect() as connection:
        run(connection, f"CREATE SCHEMA {name}")
        try:
            yield name
        finally:
            run(connection, f"DROP SCHEMA {name} CASCADE")


@contextmanager
def new_tables() -> Generator[str]:
    """Create a schema with the tables of a gateway, and yield its name.

    Emptying the tables is a hundred times faster than creating them, so all tests of a process share one schema.
    """
    with new_schema() as name, connect(name) as connection:
        run(connection, _SCHEMA.read_text(encoding="utf-8"))
        yield name


def empty(schema: str) -> None:
    """Delete all rows of an earlier test."""
    with connect(schema) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        run(
            connection,
            "SET lock_timeout = '10s'",
            "ALTER TABLE audit DISABLE TRIGGER USER",  # it refuses to delete records
            *(f'DELETE FROM "{table}"' for (table,) in tables),
            "ALTER TABLE audit ENABLE TRIGGER USER",
            f"INSERT INTO alembic_version VALUES ('{HEAD}')",
        )
