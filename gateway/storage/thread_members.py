"""Index of threads by the members of their metadata, for searches.

A top-level member of a thread's metadata has a row if its value is a text, a number, true, false or null. The row is a
hash of the owner, the name and the value, with the key of the thread. The rows that a search finds are candidates: the
search compares the metadata itself. Members whose values are objects or lists have no rows, so a filter of only such
members reads the owner's threads one by one. Ephemeral threads have no rows, because no search finds them.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from hashlib import blake2b
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, exists, select

from babelgate.canonical.thread import Thread
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.statements import Sql, table_of
from babelgate.gateway.storage.tables import ThreadMemberRow, ThreadRow

_MEMBERS: Final = 32
"""Maximum number of members of one thread that have rows. Chosen. A thread with more has one more row, by which every
search of its owner finds it."""
FEW: Final = 1000
"""Maximum number of candidates that are read by their keys. Chosen. If there are more, the threads are read in the
order of the search, which stops as soon as its page is full."""
_ENCODE: Final = msgspec.json.Encoder().encode
_MEMBER, _THREAD = table_of(ThreadMemberRow), table_of(ThreadRow)


def keys_of(thread: Thread) -> frozenset[int]:
    """Return the keys of the rows that a thread has in the index. The keys are part of the database's format."""
    if thread.ephemeral or not thread.metadata:
        return frozenset()
    keys = list(_keys(thread.owner, thread.metadata))
    return frozenset(keys[:_MEMBERS] if len(keys) <= _MEMBERS else [*keys[:_MEMBERS], _overflow(thread.owner)])


def _keys(owner: str, metadata: JsonObject) -> Iterator[int]:
    for name, value in sorted(metadata.items()):
        if value is None or isinstance(value, str | bool | int | float):
            yield _hash([owner, name, value if isinstance(value, str) else _plain(value)])


def _plain(value: float | bool | None) -> Any:
    """Return equal numbers as the same value, because 1 and 1.0 are equal in JSON. true and false are not numbers."""
    if isinstance(value, bool) or value is None:
        return [value]
    return [int(value)] if isinstance(value, int) or value.is_integer() else [value]


def _overflow(owner: str) -> int:
    return _hash([owner])


def _hash(parts: Sequence[Any]) -> int:
    """Return a hash of 64 bits, as the databases store it: with a sign."""
    return int.from_bytes(blake2b(_ENCODE(parts), digest_size=8).digest(), signed=True)


def write_members(sql: Sql, connection: Connection, changes: Mapping[int, tuple[Set[int], Set[int]]]) -> None:
    """Write the rows of threads whose metadata has changed. `changes` has the keys before and after the change, by
    database key of the thread."""
    added = [(key, pk) for pk, (before, after) in changes.items() for key in after - before]
    removed = [(key, pk) for pk, (before, after) in changes.items() for key in before - after]
    if added:
        sql.insert_member.run_many(connection, added)
    if removed:
        sql.delete_member.run_many(connection, removed)


def find_candidates(connection: Connection, owner: str, metadata: JsonObject) -> Set[int] | ColumnElement[bool] | None:
    """Return which threads of an owner can have all members of `metadata`: the database keys of a few threads, or an
    SQL condition on the table of threads. Return None if the index cannot tell."""
    keys = list(_keys(owner, metadata))[:_MEMBERS]
    if not keys:
        return None
    overflow = _overflow(owner)
    for key in keys:
        found = select(_MEMBER.c.thread_pk).where(_MEMBER.c.key.in_((key, overflow))).limit(FEW + 1)
        pks = frozenset(connection.execute(found).scalars())
        if len(pks) <= FEW:
            return pks
    here = _MEMBER.c.thread_pk == _THREAD.c.pk
    return exists().where(here, _MEMBER.c.key.in_((keys[0], overflow)))
