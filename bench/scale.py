"""Speed of a gateway by the size of its database: the same jobs on a database with few runs, and with many.

    .venv/bin/python -m bench.scale [--runs 1000 100000] [--jobs 1000]
    .venv/bin/python -m bench.scale --database postgresql://jane@127.0.0.1/name
    .venv/bin/python -m bench.scale --fill direct --runs 10000 1000000

Each size has its own gateway and its own database, filled over A2A. With `--database`, each size has its own schema in
that database, which is dropped at the end. With `--fill direct`, only the first 1,000 runs are made over A2A, and the
others are copies of their rows with other ids and times (`bench.fill`). The figures are:

- the CPU of one run;
- the 95th percentile and the CPU of searches of threads: in default order, by the newest change, by status, only idle
  ones, and only failed ones;
- the same of a list of tasks, and of the state of one thread from the middle;
- the resident memory after filling the database;
- the bytes on disk per run;
- the seconds from the start to the first response.
"""

import argparse
import asyncio
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, LiteralString, cast
from urllib.parse import quote

import psycopg

from bench import server, work
from bench.client import KeepAliveConnection
from bench.fill import fill_postgres, fill_sqlite
from bench.idle import resident
from bench.server import ServerProcess

_FILLERS = 32
"""Number of concurrent connections over which a database is filled. Chosen."""
_ORIGINALS: Final = 1000
"""Number of runs that are made over A2A before their rows are copied. Chosen."""
_SEARCHES: Final[Mapping[str, Mapping[str, str]]] = {
    "search": {},
    "changed": {"sort_by": "updated_at"},
    "by status": {"sort_by": "status"},
    "idle": {"status": "idle"},
    "failed": {"status": "error", "sort_by": "updated_at"},
}


@dataclass(frozen=True, slots=True)
class RequestTime:
    """Duration and cost of one kind of request, in milliseconds."""

    p95: float
    cpu: float
    """CPU time of the server. Other programs on the machine influence it less."""


@dataclass(frozen=True, slots=True)
class ScaleRow:
    runs: int
    cpu: float
    """CPU time of the server per run, in milliseconds."""
    request_times: Mapping[str, RequestTime]
    memory: float
    """Resident memory of the gateway after its database was filled, in MB."""
    disk: float
    """Size of the database per run, in bytes."""
    start: float
    """Time from the start of a gateway on the database to its first response, in seconds."""


async def fill(port: int, runs: int) -> None:
    """Make runs over A2A."""
    body = work.encode(work.a2a_message("SendMessage")(1))
    left = iter(range(runs))

    async def filler() -> None:
        connection = await KeepAliveConnection.open(port)
        for _ in left:
            await connection.post("/a2a/echo", body, work.A2A)
        connection.close()

    await asyncio.gather(*(filler() for _ in range(_FILLERS)))


def copy_runs(database: Path, url: str, count: int) -> None:
    if url:
        fill_postgres(url, count)
    else:
        fill_sqlite(database, count)


_MIDDLE: Final = "SELECT thread_id FROM thread WHERE pk >= (SELECT max(pk) / 2 FROM thread) ORDER BY pk LIMIT 1"


def _middle(folder: Path, url: str) -> str:
    """Return the id of a thread from the middle of the database."""
    if url:
        with psycopg.connect(url) as connection:
            found = connection.execute(_MIDDLE).fetchone()
    else:
        with closing(sqlite3.connect(folder / "babelgate.db")) as connection:
            found = connection.execute(_MIDDLE).fetchone()
    assert found is not None
    return str(found[0])


async def measure_request(
    gateway: ServerProcess, ask: Callable[[KeepAliveConnection], Awaitable[bytes]], jobs: int
) -> RequestTime:
    """Measure a request on one connection."""
    connection = await KeepAliveConnection.open(gateway.port)
    for _ in range(jobs // 10):
        await ask(connection)  # warms up
    times: list[float] = []
    used = gateway.cpu
    for _ in range(jobs):
        begun = time.perf_counter()
        await ask(connection)
        times.append((time.perf_counter() - begun) * 1000)
    connection.close()
    return RequestTime(statistics.quantiles(times, n=20)[-1], (gateway.cpu - used) / jobs * 1000)


def first_answer(folder: Path, database: Sequence[str]) -> float:
    """Return the seconds from the start of a gateway on this database to its first response."""
    begun = time.perf_counter()
    with server.running(server.gateway(*database), folder) as gateway:

        async def ask() -> None:
            connection = await KeepAliveConnection.open(gateway.port)
            await work.acp()(connection, 0)
            connection.close()

        asyncio.run(ask())
        return time.perf_counter() - begun


def measure(folder: Path, runs: int, jobs: int, schema: str, url: str, *, copies: bool) -> ScaleRow:
    """Fill a database, and measure a gateway on it. With `copies`, only `_ORIGINALS` runs are made over A2A."""
    place = within(url, schema) if url else ""
    database = ["--database", place] if url else []
    calls = min(runs, _ORIGINALS) if copies else runs
    with server.running(server.gateway(*database), folder) as gateway:
        asyncio.run(fill(gateway.port, calls))
        memory = resident(gateway)
        found = None if calls < runs else _measure(gateway, _middle(folder, place), jobs)
    if found is None:
        copy_runs(folder / "babelgate.db", place, runs - calls)
        with server.running(server.gateway(*database), folder) as gateway:
            found = _measure(gateway, _middle(folder, place), jobs)
            memory = resident(gateway)
    first_answer(folder, database)  # compiles what is not compiled yet
    size = bytes_in_schema(url, schema) if url else bytes_of_run(folder / "babelgate.db")
    return ScaleRow(runs, *found, memory / 1e6, size, first_answer(folder, database))


@contextmanager
def new_schema(url: str) -> Generator[str]:
    """Create an empty schema and yield its name. It is dropped at the end. Without a URL the name is empty."""
    name = f"babelgate_bench_{os.getpid()}_{time.time_ns()}"
    if not url:
        yield ""
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(cast("LiteralString", f"CREATE SCHEMA {name}"))
    try:
        yield name
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(cast("LiteralString", f"DROP SCHEMA {name} CASCADE"))


def within(url: str, schema: str) -> str:
    """Return the URL of the database with this schema as its search path."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={schema}')}"


def bytes_in_schema(url: str, schema: str) -> float:
    """Return the bytes per run: all tables with their indexes, including dead rows that are not vacuumed yet."""
    with psycopg.connect(within(url, schema)) as connection:
        found = connection.execute(
            "SELECT sum(pg_total_relation_size(c.oid))::bigint, (SELECT count(*) FROM run)"
            " FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"
        ).fetchone()
    assert found is not None
    return found[0] / found[1]


def bytes_of_run(database: Path) -> float:
    """Return the bytes per run after the gateway has stopped, so that the write-ahead log is merged into the file."""
    with closing(sqlite3.connect(database)) as connection:
        (runs,) = connection.execute("SELECT count(*) FROM run").fetchone()
    return database.stat().st_size / runs


def _measure(gateway: ServerProcess, middle: str, jobs: int) -> tuple[float, Mapping[str, RequestTime]]:
    """Measure runs and lists, and the state of the thread `middle`."""
    listing = work.encode({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 50}})
    server.measure(gateway, work.a2a_1_0(), max(16, jobs // 4), 16)  # warms up
    cpu = min(server.measure(gateway, work.a2a_1_0(), jobs, 16).cpu for _ in range(3))
    count = max(40, jobs // 5)
    asks: dict[str, Callable[[KeepAliveConnection], Awaitable[bytes]]] = {
        name: partial(KeepAliveConnection.post, path="/threads/search", body=work.encode({"limit": 10, **how}))
        for name, how in _SEARCHES.items()
    }
    asks["tasks"] = partial(KeepAliveConnection.post, path="/a2a/echo", body=listing, headers=work.A2A)
    asks["state"] = partial(KeepAliveConnection.get, path=f"/threads/{middle}/state")
    return cpu, {name: asyncio.run(measure_request(gateway, ask, count)) for name, ask in asks.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--runs", type=int, nargs="*", default=[1000, 100_000], help="sizes of the database (1000 100000)"
    )
    parser.add_argument("--jobs", type=int, default=1000, help="jobs of each measurement (1000)")
    parser.add_argument("--database", default="", metavar="URL", help="URL of a PostgreSQL database. Default: SQLite")
    parser.add_argument("--fill", choices=("calls", "direct"), default="calls", help="how to make the runs (calls)")
    options = parser.parse_args()
    server.pin_client()
    print(f"{'runs':>8}{'CPU ms/run':>12}", end="")
    for name in (*_SEARCHES, "tasks", "state"):
        print(f"{name:>10}{'CPU':>7}", end="")
    print(f"{'memory MB':>11}{'bytes/run':>11}{'start s':>9}")
    for runs in options.runs:
        with tempfile.TemporaryDirectory() as folder, new_schema(options.database) as schema:
            direct = options.fill == "direct"
            row = measure(Path(folder), runs, options.jobs, schema, options.database, copies=direct)
        print(f"{row.runs:>8}{row.cpu:>12.3f}", end="")
        for each in row.request_times.values():
            print(f"{each.p95:>10.2f}{each.cpu:>7.2f}", end="")
        print(f"{row.memory:>11.1f}{row.disk:>11.0f}{row.start:>9.2f}", flush=True)


if __name__ == "__main__":
    main()
