"""Fast way to fill a database for a benchmark: copies of runs that a gateway has really stored.

A copy has the rows of its original, with other ids and earlier times, so that the runs that a benchmark then makes are
the newest. Both occur in the columns and in the bodies of rows, as text and as bytes, always with the same length. So
the original bytes are replaced, and nothing is decoded."""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final, LiteralString, cast
from uuid import UUID

import psycopg

from babelgate.gateway.ids import new_id

Rows = Mapping[str, Sequence[tuple[Any, ...]]]
"""Rows of one thread by table, without the key of the thread."""

_TABLES: Final[Mapping[str, Sequence[str]]] = {
    "thread": (
        *("pk", "owner", "thread_id", "created_at", "changed_at", "ephemeral"),
        *("body", "expires", "status", "updated_at"),
    ),
    "task": (
        *("thread_pk", "owner", "task_id", "thread_id", "agent", "state", "created_at", "changed_at"),
        *("first_seq", "last_seq", "continues", "body"),
    ),
    "run": (
        *("thread_pk", "owner", "run_id", "task_id", "agent", "status", "attempt", "created_at", "start_after"),
        *("first_seq", "last_seq", "body", "removed", "node", "crashes"),
    ),
    "event": ("thread_pk", "seq", "at", "task_id", "run_id", "attempt", "body"),
}
"""Tables of a run with their columns. The first column is the key of the thread."""
_TEXT: Final = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PACKED: Final = rb"\x01.{5}[\x70-\x7f].[\x80-\xbf].{7}"
"""UUID of version 7 as bytes. Its time begins with the byte 1 from 2004 to 2039."""
_VARIES: Final = re.compile(rb"(%s|%s|(?<!\d)\d{16}(?!\d))" % (_TEXT, _PACKED), re.DOTALL)
"""Id or time in the body of a row."""
_ID: Final = re.compile(_TEXT)
_STEP: Final = 5000
"""Microseconds between the times of two copies. Chosen."""
_BATCH: Final = 2000
"""Number of runs that one transaction inserts. Chosen."""


class Original:
    """A stored run, of which copies can be made."""

    def __init__(self, rows: Rows) -> None:
        self._varying: dict[bytes, None] = {}
        """Ids and times in the rows, in the order of their first occurrence: ids as text, times as digits."""
        self._rows = {name: [[self._split(value) for value in row] for row in some] for name, some in rows.items()}

    def _split(self, value: Any) -> Any:
        """Return the value if it is the same in every run, and otherwise the list of its parts."""
        if isinstance(value, bytes):
            parts = _VARIES.split(value)
            self._varying |= dict.fromkeys(map(_plain, parts[1::2]))
            return parts
        if (isinstance(value, str) and _ID.fullmatch(value.encode())) or (isinstance(value, int) and value >= 10**15):
            self._varying[str(value).encode()] = None
            return [type(value), str(value).encode()]
        return value

    def copy(self, number: int) -> Rows:
        """Return the rows of a copy whose times are `number` steps before the original's."""
        earlier = number * _STEP
        fresh = {
            each: str(int(each) - earlier).encode() if each.isdigit() else new_id().encode() for each in self._varying
        }
        return self._replace(fresh)

    def normalize(self) -> Rows:
        """Return the rows with the same ids for every run, and without times."""
        places = enumerate(self._varying)
        return self._replace({each: b"0" * 16 if each.isdigit() else b"%032x" % place for place, each in places})

    def _replace(self, fresh: Mapping[bytes, bytes]) -> Rows:
        packed = {UUID(each.decode()).bytes: UUID(new.decode()).bytes for each, new in fresh.items() if len(each) > 16}
        new = {**fresh, **packed}
        return {
            name: [tuple([_fresh(value, new) for value in row]) for row in rows] for name, rows in self._rows.items()
        }


def _plain(varying: bytes) -> bytes:
    """Return an id as text, and a time as it is."""
    return varying if varying.isdigit() or len(varying) > 16 else str(UUID(bytes=varying)).encode()


def _fresh(value: Any, new: Mapping[bytes, bytes]) -> Any:
    """Return a value as it is, or joined from its parts, of which `new` replaces some."""
    if type(value) is not list:
        return value
    parts = cast("list[Any]", value)
    if isinstance(parts[0], type):
        return parts[0](new[parts[1]].decode())
    return b"".join([new.get(part, part) for part in parts])


def _batches(originals: Sequence[Rows], pk: int, count: int) -> Iterator[Sequence[tuple[int, Rows]]]:
    """Yield `count` copies in batches, the oldest first, each copy with the key of its thread: those after `pk`."""
    prepared = [Original(rows) for rows in originals]
    copies = (
        (pk + number, prepared[number % len(prepared)].copy(count + 1 - number)) for number in range(1, count + 1)
    )
    while batch := list(islice(copies, _BATCH)):
        yield batch


def _selected(table: str, place: str) -> str:
    key, *rest = _TABLES[table]
    return f"SELECT {', '.join(rest)} FROM {table} WHERE {key} = {place} ORDER BY {'seq' if table == 'event' else key}"


def read_sqlite(connection: sqlite3.Connection, pk: int) -> Rows:
    rows = {name: connection.execute(_selected(name, "?"), (pk,)).fetchall() for name in _TABLES if name != "event"}
    log = f"SELECT {', '.join(_TABLES['event'][1:])} FROM event WHERE id >= ? << 31 AND id < (? + 1) << 31 ORDER BY id"
    return {**rows, "event": connection.execute(log, (pk, pk)).fetchall()}


def fill_sqlite(database: Path, count: int) -> None:
    """Add copies of the stored runs to a database that no gateway uses."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        keys = [pk for (pk,) in connection.execute("SELECT pk FROM thread ORDER BY pk")]
        originals = [read_sqlite(connection, pk) for pk in keys]
        for some in _batches(originals, keys[-1], count):
            connection.execute("BEGIN")
            for name, (key, *rest) in _TABLES.items():
                columns, places = [key, *rest], ["?"] * (1 + len(rest))
                if name == "event":  # SQLite's log has one key, `id`
                    columns, places = ["id", *rest[1:]], ["(? << 31) | ?", *places[2:]]
                sql = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join(places)})"
                connection.executemany(sql, ((pk, *row) for pk, rows in some for row in rows[name]))
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _sql(text: str) -> LiteralString:
    return cast("LiteralString", text)


def read_postgres(connection: "psycopg.Connection[Any]", pk: int) -> Rows:
    return {name: connection.execute(_sql(_selected(name, "%s")), (pk,)).fetchall() for name in _TABLES}


def fill_postgres(url: str, count: int) -> None:
    """Add copies of the stored runs to a schema that no gateway uses.

    The triggers that count rows are disabled meanwhile. They would update one row for each copy."""
    with psycopg.connect(url, autocommit=True) as connection:
        keys = [pk for (pk,) in connection.execute("SELECT pk FROM thread ORDER BY pk")]
        originals = [read_postgres(connection, pk) for pk in keys]
        for name in ("thread", "task"):
            connection.execute(_sql(f"ALTER TABLE {name} DISABLE TRIGGER USER"))
        for some in _batches(originals, keys[-1], count):
            with connection.transaction(), connection.cursor() as cursor:
                for name, columns in _TABLES.items():
                    with cursor.copy(_sql(f"COPY {name} ({', '.join(columns)}) FROM STDIN")) as copy:
                        for pk, rows in some:
                            for row in rows[name]:
                                copy.write_row((pk, *row))
        for name in ("thread", "task"):
            connection.execute(_sql(f"ALTER TABLE {name} ENABLE TRIGGER USER"))
        connection.execute("UPDATE tally SET rows = rows + %s", (count,))
        connection.execute("SELECT setval('thread_key', (SELECT max(pk) FROM thread))")
        connection.execute("VACUUM ANALYZE")
