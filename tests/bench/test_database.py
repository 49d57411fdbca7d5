"""Costs of a PostgreSQL server, as `bench.cluster` reports them."""

import psycopg

from bench.database import read_costs
from tests.postgres import new_schema, url_of


def test_work_of_the_server_increases_its_costs() -> None:
    with new_schema() as schema:
        url = url_of(schema)
        before = read_costs(url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE filled AS SELECT generate_series(1, 300000) AS number")
        after = read_costs(url)
    assert after.wal - before.wal > 300_000 * 4
    assert (after.cpu is None) == (before.cpu is None)
    if before.cpu is not None and after.cpu is not None:  # the server runs on this machine
        assert after.cpu > before.cpu
