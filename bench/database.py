"""Costs of a PostgreSQL server: the CPU time of its processes, and the size of its write-ahead log."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from bench.server import cpu_seconds, descendants

_WAL_POSITION = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"


@dataclass(frozen=True, slots=True)
class DatabaseCosts:
    """Counters of a server since its start. The difference of two readings is the cost of the work between them."""

    cpu: float | None
    """User and system time of all processes of the server, in seconds. None if the server runs on another machine."""
    wal: int
    """Bytes written to the write-ahead log."""


def read_costs(database: str) -> DatabaseCosts:
    with psycopg.connect(database) as connection:
        found = connection.execute(_WAL_POSITION).fetchone()
        assert found is not None
        return DatabaseCosts(_server_cpu(connection.info.backend_pid), found[0])


def _server_cpu(backend: int) -> float | None:
    """Return the CPU time of the server of a connection, in seconds. The server's main process is the parent of the
    process that serves the connection, and counts the time of its ended processes."""
    try:
        if Path(f"/proc/{backend}/comm").read_text().strip() != "postgres":
            return None  # a process of this machine that only has the same number
        parent = int(Path(f"/proc/{backend}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
    total = 0.0
    for pid in descendants(parent):
        with suppress(OSError):  # a process that has ended meanwhile
            total += cpu_seconds(pid)
    return total + cpu_seconds(parent, ended=True)
