"""Query for threads without recent records, which the settings for retention allow to erase."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, exists, select, text

from babelgate.gateway.storage.log_key import is_record, newest_seq
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import OPEN, EventRow, TaskRow, ThreadRow

_LOOK: Final = 500
"""Maximum number of threads that one call of `idle_threads` examines. Chosen."""

_THREAD, _TASK, _EVENT = table_of(ThreadRow), table_of(TaskRow), table_of(EventRow)


@dataclass(frozen=True, slots=True)
class Idle:
    """A thread whose newest record is older than the retention time."""

    pk: int
    owner: str
    thread_id: str
    seq: int
    """Sequence number of the thread's newest record."""
    unfinished: bool
    """True if one of the thread's tasks has not ended."""


def idle_threads(connection: Connection, after: int, finished: int, unfinished: int) -> tuple[list[Idle], int | None]:
    """Examine the next `_LOOK` threads with a database key above `after`.

    Return the idle ones, and the key after which the next call continues, or None after the last thread. A thread is
    idle if its newest record is older than `finished`, or than `unfinished` if one of its tasks has not ended. Both are
    times in microseconds since 1970."""
    newest = newest_seq(_THREAD.c.pk)
    is_open = exists().where(_TASK.c.thread_pk == _THREAD.c.pk, text(f"task.{OPEN}"))
    some = (
        select(_THREAD.c.pk, _THREAD.c.owner, _THREAD.c.thread_id, newest.label("seq"), is_open.label("is_open"))
        .where(_THREAD.c.pk > after)
        .order_by(_THREAD.c.pk)
        .limit(_LOOK)
        .subquery()
    )
    found_at = some.join(_EVENT, is_record(some.c.pk, some.c.seq))
    rows = connection.execute(select(some, _EVENT.c.at).select_from(found_at)).all()
    found = [
        Idle(row.pk, row.owner, row.thread_id, row.seq, bool(row.is_open))
        for row in rows
        if row.at < (unfinished if row.is_open else finished)
    ]
    return found, max(row.pk for row in rows) if rows else None
