"""The database server with slow flushes that `bench.cluster` uses."""

import time
from collections.abc import Generator

import psycopg
import pytest

from bench.slow_flush import has_compiler, slow_server
from tests.postgres_server import PostgresServer
from tests.skip import missing

pytestmark = pytest.mark.slow


@pytest.fixture
def server() -> Generator[PostgresServer]:
    if not has_compiler():
        missing("a C compiler")
    with slow_server(50) as slow:
        yield slow


def test_a_commit_takes_as_long_as_its_flush(server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (n INTEGER)")
        begun = time.monotonic()
        connection.execute("INSERT INTO t VALUES (1)")
        assert time.monotonic() - begun >= 0.05
