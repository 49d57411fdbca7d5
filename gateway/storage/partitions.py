"""Range partitioning of PostgreSQL's log, by thread: where all threads of a partition were erased it is dropped, and
its space is free at once, where deleted rows would wait for a vacuum and stay part of the file.

Keys of threads are given in order of time and the log is read and written by thread alone, so that each statement needs
one partition. Erased threads leave the log at once (`babelgate.gateway.storage.deletion`), and not with their
partition: what was deleted must not be there until the last thread of a million is.
"""

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
"""Keys of one partition."""
_AHEAD: Final = 2
"""Partitions that are there before they are needed."""
REST: Final = "event_rest"
"""The default partition: of keys that no other is made for, were it ever too late to make one."""
_PATIENCE: Final = "100ms"
"""For a lock on the whole log: a backup has it for hours, and all other statements would wait behind this one."""
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
"""Somebody else has the log; the default partition has rows of the new one since it was looked at; or another gateway
has made it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """Of the threads with keys from `first` up to `end`, without that."""

    name: str
    first: int
    end: int


def list_partitions(connection: Connection) -> list[Partition]:
    """In order of keys, without the default one."""
    found: list[Partition] = []
    for name, bounds in connection.exec_driver_sql(_BOUNDS):
        match = _RANGE.search(bounds)
        if match is not None:
            found.append(Partition(name, int(match[1] or 0), int(match[2])))
    return sorted(found, key=lambda each: each.first)


def make_partitions(connection: Connection, threads: int = THREADS) -> int:
    """Make those that will be needed next. Returns how many were made; fewer than are needed where somebody has a lock
    on the log."""
    needed = _newest(connection) + _AHEAD * threads
    made = 0
    while (first := _next_first(connection, threads)) < needed and _try(connection, _make, first, first + threads):
        made += 1
    return made


def drop_empty_partition(connection: Connection, threads: int = THREADS) -> bool:
    """Drop one that no thread is left in. Whether there may be more."""
    # Nodes have some keys in hand: the thread of one from a partition that is gone is kept in the default one.
    past = _newest(connection) - threads
    for each in list_partitions(connection):
        if each.end <= past and not _is_used(connection, each):
            return _try(connection, _drop, each)
    return False


def _newest(connection: Connection) -> int:
    return connection.exec_driver_sql(_NEWEST).scalar_one()


def _next_first(connection: Connection, threads: int) -> int:
    """The least key of the next partition: behind the last one, and behind all rows of the default one."""
    rest = connection.exec_driver_sql(f"SELECT max(thread_pk) FROM {REST}").scalar_one()
    # Gateways write to the default partition until there is another: one more is left to it.
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
    if _is_used(connection, partition):  # since it was looked at without the lock
        return False
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {partition.name}")
    log.info("%s was dropped: all threads of this part of the log were erased", partition.name)
    return True


def _try(
    connection: Connection, change: Callable[Concatenate[Connection, P], bool], *given: P.args, **named: P.kwargs
) -> bool:
    """What the change returns; False where it would have to wait for a lock, another gateway was there first, or the
    database does not let this one."""
    run = connection.exec_driver_sql
    run("SAVEPOINT partition")
    before = run("SELECT current_setting('lock_timeout')").scalar_one()
    run(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
    try:
        done = change(connection, *given, **named)
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
