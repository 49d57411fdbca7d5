"""Tests of the copies of stored runs that fill a database for a benchmark."""

import sqlite3
from contextlib import closing
from typing import Final

import psycopg

from babelgate.canonical import ThreadFilter
from bench.fill import Original, fill_postgres, fill_sqlite, read_postgres, read_sqlite
from tests.gateway.hubs import OWNER, Echo, HubFactory, check_invariants, registered, submit_to_end

EACH_DATABASE: Final = True
COPIES: Final = 7


async def test_copies_of_runs_have_the_rows_of_real_runs(hubs: HubFactory, postgres: str | None) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    for _ in range(2):
        await submit_to_end(hub, "echo")
    await hubs.stop(hub)
    keys = range(1, 2 + COPIES + 1)
    if postgres is None:
        database = hubs.folder / "hub.db"
        fill_sqlite(database, COPIES)
        with closing(sqlite3.connect(database)) as connection:
            rows = [read_sqlite(connection, pk) for pk in keys]
    else:
        fill_postgres(postgres, COPIES)
        with psycopg.connect(postgres) as connection:
            rows = [read_postgres(connection, pk) for pk in keys]
    first, *others = [Original(each).normalize() for each in rows]
    assert {name: bool(some) for name, some in first.items()} == dict.fromkeys(("thread", "task", "run", "event"), True)
    assert all(each == first for each in others)
    assert len({each["run"][0][1] for each in rows}) == len(keys)
    created = [each["thread"][0][2] for each in rows]
    assert max(created[2:]) < max(created[:2])
    hub = await hubs.start(registered("echo", Echo()))
    assert await hub.reads.count_threads(OWNER, ThreadFilter()) == len(keys)
    await submit_to_end(hub, "echo")
    await check_invariants(hub)  # the rows are those that the logs lead to
