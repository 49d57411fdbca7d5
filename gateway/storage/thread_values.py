"""Search index over thread values, for those who look for a thread by them: a cache of what the log adds up to, as of a
record.

A row is made when it is first looked for, and anew where the thread has gone on since. What is too large for a row is
put together each time. Messages are not in it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, cast

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    literal_column,
    or_,
    select,
)

from babelgate.canonical.history import StateHistory
from babelgate.canonical.json import has_members
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.prepared import Statement
from babelgate.gateway.storage.statements import Position, table_of
from babelgate.gateway.storage.tables import EventRow, ThreadRow, ThreadValueRow
from babelgate.gateway.storage.transaction import Transaction

MESSAGES: Final = "messages"
"""The member that is not kept here."""
BATCH: Final = 100
"""Rows that are written at once."""
_ROW: Final = 16_384
"""Bytes of a row."""
_VALUE, _THREAD, _EVENT = table_of(ThreadValueRow), table_of(ThreadRow), table_of(EventRow)
_NEWEST: Final = (
    select(func.max(_EVENT.c.seq)).where(_EVENT.c.thread_pk == _THREAD.c.pk).correlate(_THREAD).scalar_subquery()
)
_MOST_NEEDLES: Final = 8
"""Members by which rows are chosen before their values are looked at."""
_EXACT: Final = 2**50
"""Up to here a number is written in digits, and a whole one begins with the same, be it an integer or not."""
_NONE: Final[ColumnElement[int]] = literal_column("0")
_ALL: Final = (
    select(_THREAD.c.pk, _THREAD.c.thread_id, _NEWEST, _VALUE.c.seq, _VALUE.c.body)
    .select_from(_THREAD)
    .outerjoin(_VALUE, _VALUE.c.thread_pk == _THREAD.c.pk)
    .where(_THREAD.c.owner == bindparam("owner"), _THREAD.c.ephemeral == false())
)


@dataclass(frozen=True, slots=True)
class Found:
    matching: set[int]
    """Keys of the threads that have the values."""
    unknown: Sequence[tuple[int, str]]
    """Keys and ids of those whose values are in no row."""


def find(connection: Connection, owner: str, values: JsonObject) -> Found:
    """Which of an owner's threads have these members."""
    matching: set[int] = set()
    unknown: list[tuple[int, str]] = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    needles = list(islice(_needles(values), _MOST_NEEDLES))
    names = [f"needle_{number}" for number in range(len(needles))]
    holds = and_(*(Position(_VALUE.c.body, bindparam(name, type_=LargeBinary)) > _NONE for name in names))
    # Rows are read in the database: to make an object of each of thousands takes longer than all else.
    wanted = _ALL.where(or_(_VALUE.c.body.is_(None), _VALUE.c.seq != _NEWEST, holds))
    rows = Statement(wanted, connection.dialect, ("owner", *names)).iterate(connection, (owner, *needles))
    for pk, thread_id, newest, seq, body in rows:
        if seq != newest or body is None:
            unknown.append((pk, thread_id))
        elif has_members(decode(body), values):
            matching.add(pk)
    return Found(matching, unknown)


def _needles(values: JsonObject) -> Iterator[bytes]:
    """What is in the JSON of every object that has these members."""
    for name, value in values.items():
        yield msgspec.json.encode(name) + b":" + _beginning(value)
        if isinstance(value, dict):
            yield from _needles(cast("JsonObject", value))


def _beginning(value: Any) -> bytes:
    """With what the JSON of every value begins that equals this one."""
    match value:
        case str() | bool() | None:
            return msgspec.json.encode(value)
        case int() | float() if 0 < abs(value) < _EXACT:
            return msgspec.json.encode(int(value) if value == int(value) else value)  # 7 is written as 7.0, too
        case dict():
            return b"{"
        case list():
            return b"["
        case _:
            return b""


def values_of(history: StateHistory) -> JsonObject:
    head = history.head
    return {} if head is None else {name: value for name, value in head.values.items() if name != MESSAGES}


@dataclass(frozen=True, slots=True)
class Kept:
    pk: int
    thread_id: str
    seq: int
    values: JsonObject


def keep(tx: Transaction, owner: str, kept: Sequence[Kept]) -> None:
    """Those whose threads have not gone on since."""
    for each in kept:
        here = (_THREAD.c.pk == each.pk, _THREAD.c.owner == owner, _THREAD.c.thread_id == each.thread_id)
        if tx.connection.execute(select(_NEWEST).where(*here)).scalar() != each.seq:
            continue
        body = msgspec.json.encode(each.values)
        forget(tx.connection, each.pk)
        row = {"thread_pk": each.pk, "seq": each.seq, "body": body if len(body) <= _ROW else None}
        tx.connection.execute(insert(_VALUE), row)


def forget(connection: Connection, pk: int) -> None:
    connection.execute(delete(_VALUE).where(_VALUE.c.thread_pk == pk))
