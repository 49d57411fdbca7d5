"""Search index over the values of thread states, without messages.

A row caches the values of a thread as of one record of its log. It is written when a search first needs it, and
replaced by a later search if the thread has newer records. Values that are too large for a row are computed for each
search."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    delete,
    false,
    insert,
    or_,
    select,
)

from babelgate.canonical.history import StateHistory
from babelgate.canonical.json import has_members
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.log_key import newest_seq
from babelgate.gateway.storage.needles import find_needles, has_needles
from babelgate.gateway.storage.prepared import Statement
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import ThreadRow, ThreadValueRow
from babelgate.gateway.storage.transaction import Transaction

MESSAGES: Final = "messages"
"""Name of the member of a state that is not indexed."""
BATCH: Final = 100
"""Number of index rows that one transaction writes. Chosen."""
_ROW: Final = 16_384
"""Maximum size of the values that a row stores, in bytes. Chosen."""
_VALUE, _THREAD = table_of(ThreadValueRow), table_of(ThreadRow)
_NEWEST: Final = newest_seq(_THREAD.c.pk).correlate(_THREAD)
_ALL: Final = (
    select(_THREAD.c.pk, _THREAD.c.thread_id, _NEWEST, _VALUE.c.seq, _VALUE.c.body)
    .select_from(_THREAD)
    .outerjoin(_VALUE, _VALUE.c.thread_pk == _THREAD.c.pk)
    .where(_THREAD.c.owner == bindparam("owner"), _THREAD.c.ephemeral == false())
)


@dataclass(frozen=True, slots=True)
class ValueMatches:
    """Result of a search by values: threads that match, and threads for which the index cannot tell."""

    matching: set[int]
    """Database keys of the threads whose indexed values match."""
    unknown: Sequence[tuple[int, str]]
    """Database keys and ids of the threads whose row is missing, older than the log, or without values."""


def find(connection: Connection, owner: str, values: JsonObject) -> ValueMatches:
    """Search an owner's threads for those whose state has all members of `values`.

    Return them, and the threads for which the index has no current row."""
    matching: set[int] = set()
    unknown: list[tuple[int, str]] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    needles = find_needles(values)
    names = [f"needle_{number}" for number in range(len(needles))]
    holds = and_(*has_needles(_VALUE.c.body, needles))
    # The database searches the rows: creating an object for each of thousands takes longer than all the rest.
    wanted = _ALL.where(or_(_VALUE.c.body.is_(None), _VALUE.c.seq != _NEWEST, holds))
    rows = Statement(wanted, connection.dialect, ("owner", *names)).iterate(connection, (owner, *needles))
    for pk, thread_id, newest, seq, body in rows:
        if seq != newest or body is None:
            unknown.append((pk, thread_id))
        elif has_members(decode(body), values):
            matching.add(pk)
    return ValueMatches(matching, unknown)


def values_of(history: StateHistory) -> JsonObject:
    head = history.head
    return {} if head is None else {name: value for name, value in head.values.items() if name != MESSAGES}


@dataclass(frozen=True, slots=True)
class ThreadValues:
    """Values of a thread's state, computed from its log up to the record `seq`."""

    pk: int
    """Database key of the thread."""
    thread_id: str
    seq: int
    """Sequence number of the newest record from which the values were computed."""
    values: JsonObject


def keep(tx: Transaction, owner: str, computed: Sequence[ThreadValues]) -> None:
    """Write rows of the index. Threads that have newer records by now are skipped."""
    for each in computed:
        here = (_THREAD.c.pk == each.pk, _THREAD.c.owner == owner, _THREAD.c.thread_id == each.thread_id)
        if tx.connection.execute(select(_NEWEST).where(*here)).scalar() != each.seq:
            continue
        body = msgspec.json.encode(each.values)
        forget(tx.connection, each.pk)
        row = {"thread_pk": each.pk, "seq": each.seq, "body": body if len(body) <= _ROW else None}
        tx.connection.execute(insert(_VALUE), row)


def forget(connection: Connection, pk: int) -> None:
    connection.execute(delete(_VALUE).where(_VALUE.c.thread_pk == pk))
