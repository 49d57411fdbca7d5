"""Range partitioning of PostgreSQL's log table by the key of the thread.

A partition is dropped when all its threads are erased, which frees its disk space at once. Deleted rows alone would
wait for a vacuum, and their space would stay part of the file.

Thread keys are assigned in order of time, and the log is always read and written by thread, so each statement touches
one partition. The records of an erased thread are deleted at once (`babelgate.gateway.storage.deletion`) and not with
their partition: they must not remain until the last thread of a million is erased."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec

import psycopg
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

log = logging.getLogger("babelgate.retention")

P = ParamSpec("P")

THREADS: Final = 1_000_000
"""Number of consecutive thread keys per partition. Chosen."""
_AHEAD: Final = 2
"""Number of empty partitions that exist above the newest thread key. Chosen."""
REST: Final = "event_rest"
"""Name of the default partition. It receives the records of threads whose own partition was not created in time."""
_PATIENCE: Final = "100ms"
"""Timeout for a lock on the whole log table. Chosen: a backup holds that lock for hours, and all other statements queue
behind a waiting request for it."""
_BOUNDS: Final = (
    "SELECT part.relname, pg_get_expr(part.relpartbound, part.oid) FROM pg_inherits JOIN pg_class AS part "
    "ON part.oid = inhrelid WHERE inhparent = 'event'::regclass"
)
_NEWEST: Final = (
    "SELECT greatest((SELECT last_value FROM thread_key), (SELECT max(pk) FROM thread), (SELECT max(thread_pk) "
    f"FROM {REST}))"
)
_RANGE: Final = re.compile(r"FROM \((?:'(-?\d+)'|MINVALUE)\) TO \('(-?\d+)'\)")
_IS_USED: Final = (
    "SELECT EXISTS (SELECT FROM thread WHERE pk >= {first} AND pk < {end}) "
    "OR EXISTS (SELECT FROM remnant WHERE thread_pk >= {first} AND thread_pk < {end})"
)
_LATER: Final = (psycopg.errors.LockNotAvailable, psycopg.errors.CheckViolation, psycopg.errors.DuplicateTable)
"""Database errors after which a change of the partitions is retried later:

- another session has locked the log;
- the default partition has received rows of the new partition meanwhile;
- another gateway has created the partition.
"""


@dataclass(frozen=True, slots=True)
class Partition:
    """Partition of the log table for thread keys from `first` up to, but not including, `end`."""

    name: str
    first: int
    end: int


def list_partitions(connection: Connection) -> list[Partition]:
    """Return all partitions except the default one, in order of keys."""
    partitions: list[Partition] = []
    for name, bounds in connection.exec_driver_sql(_BOUNDS):
        match = _RANGE.search(bounds)
        if match is not None:
            partitions.append(Partition(name, int(match[1] or 0), int(match[2])))
    return sorted(partitions, key=lambda each: each.first)


def make_partitions(connection: Connection, threads: int = THREADS) -> int:
    """Create the partitions that the next threads need, with `threads` keys each. Return the number of created ones.

    Fewer than needed are created if another session has locked the log table."""
    needed = _newest(connection) + _AHEAD * threads
    created = 0
    while (first := _next_first(connection, threads)) < needed and _try(connection, _make, first, first + threads):
        created += 1
    return created


def drop_empty_partition(connection: Connection, threads: int = THREADS) -> bool:
    """Drop one partition whose threads are all erased. Return True if one was dropped, so there may be more."""
    # Nodes reserve keys in advance. A thread whose partition was dropped meanwhile goes to the default partition.
    past = _newest(connection) - threads
    for each in list_partitions(connection):
        if each.end <= past and not _is_used(connection, each):
            return _try(connection, _drop, each)
    return False


def _newest(connection: Connection) -> int:
    return connection.exec_driver_sql(_NEWEST).scalar_one()


def _next_first(connection: Connection, threads: int) -> int:
    """Return the first key of the next partition to create: after the last partition, and after all rows of the default
    one."""
    rest = connection.exec_driver_sql(f"SELECT max(thread_pk) FROM {REST}").scalar_one()
    # Gateways write to the default partition until another exists, so the next range of keys is left to it, too.
    behind = 0 if rest is None else (rest // threads + 2) * threads
    return max(behind, *(each.end for each in list_partitions(connection)))


def _is_used(connection: Connection, partition: Partition) -> bool:
    return connection.exec_driver_sql(_IS_USED.format(first=partition.first, end=partition.end)).scalar_one()


def _make(connection: Connection, first: int, end: int) -> bool:
    name = f"event_{first}"
    connection.exec_driver_sql(f"CREATE TABLE {name} (LIKE event INCLUDING ALL)")
    connection.exec_driver_sql(f"ALTER TABLE event ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({end})")
    return True


def _drop(connection: Connection, partition: Partition) -> bool:
    connection.exec_driver_sql("LOCK TABLE event IN ACCESS EXCLUSIVE MODE")
    if _is_used(connection, partition):  # a thread was added after the check without the lock
        return False
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {partition.name}")
    log.info("%s was dropped: all threads of this part of the log were erased", partition.name)
    return True


def _try(
    connection: Connection, change: Callable[Concatenate[Connection, P], bool], *args: P.args, **named: P.kwargs
) -> bool:
    """Run a change of the partitions in a savepoint, with a short lock timeout, and return its result.

    Return False if it would wait for a lock, if another gateway made the change first, or if the database role lacks
    the permission. Raises DBAPIError for any other error."""
    run = connection.exec_driver_sql
    run("SAVEPOINT partition")
    before = run("SELECT current_setting('lock_timeout')").scalar_one()
    run(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
    try:
        done = change(connection, *args, **named)
    except DBAPIError as error:
        run("ROLLBACK TO SAVEPOINT partition")
        if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            log.warning(
                "the role of the gateway may not change the partitions of its log (%s): make it the owner of the table "
                "event, and let it create tables. Until then new events go to %s, and the space of erased threads is "
                "not freed.",
                error.orig.diag.message_primary,
                REST,
            )
        elif not isinstance(error.orig, _LATER):
            raise
        return False
    run(f"SET LOCAL lock_timeout = '{before}'")
    run("RELEASE SAVEPOINT partition")
    return done
