"""PostgreSQL for tests: a schema of their own, in the database of DATABASE_URL or at the standard local port."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, LiteralString, cast
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

from gateway.storage import migrations
from gateway.storage.database import HEAD
from tests.skip import missing

SERVER: Final = os.environ.get("DATABASE_URL") or "postgresql://postgres@127.0.0.1:5432/postgres"
_SCHEMA: Final = Path(migrations.__file__).parent / "postgresql.sql"


@cache
def _find_problem() -> str | None:
    """Why there is no server to test with."""
    try:
        psycopg.connect(SERVER, connect_timeout=5).close()
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return None


def need_server() -> None:
    """Skip the calling test where there is none, and fail it where there must be one (BABELGATE_PEERS=required)."""
    problem = _find_problem()
    if problem is None:
        return
    if os.environ.get("BABELGATE_PEERS") == "required":
        pytest.fail(f"there is no PostgreSQL: {problem}")
    missing(f"PostgreSQL (DATABASE_URL names one): {problem}")


def connect(schema: str = "public") -> psycopg.Connection[Any]:
    return psycopg.connect(SERVER, autocommit=True, options=f"-csearch_path={schema} -csynchronous_commit=off")


def run(connection: psycopg.Connection[Any], *statements: str) -> None:
    for statement in statements:
        connection.execute(cast("LiteralString", statement))


def url_of(schema: str) -> str:
    """The database, with this schema for everything."""
    return f"{SERVER}{'&' if '?' in SERVER else '?'}options={quote(f'-csearch_path={schema} -csynchronous_commit=off')}"


@contextmanager
def new_schema() -> Generator[str]:
    """The name of an empty one."""
    need_server()
    name = f"babelgate_test_{uuid4().hex}"
    with connect() as connection:
        run(connection, f"CREATE SCHEMA {name}")
        try:
            yield name
        finally:
            run(connection, f"DROP SCHEMA {name} CASCADE")


@contextmanager
def new_tables() -> Generator[str]:
    """The name of a schema with the tables of a gateway. To empty them is a hundred times quicker than to make them:
    one schema is for all tests of a process, one after the other."""
    with new_schema() as name, connect(name) as connection:
        run(connection, _SCHEMA.read_text(encoding="utf-8"))
        yield name


def empty(schema: str) -> None:
    """What an earlier test left."""
    with connect(schema) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        run(
            connection,
            "SET lock_timeout = '10s'",
            *(f'DELETE FROM "{table}"' for (table,) in tables),
            f"INSERT INTO alembic_version VALUES ('{HEAD}')",
        )
