"""Reads of the log: queries for consecutive rows, and their decoding to records."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Connection, func, select

from babelgate.canonical.event import Event, Record, RunCreated, TaskCreated
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.stored import decode_event
from babelgate.gateway.storage.log_key import is_in_log, newest_seq
from babelgate.gateway.storage.short_form import created_id, find_reference, lengthen, plain_id, refer
from babelgate.gateway.storage.statements import PAGE, sql_of, table_of
from babelgate.gateway.storage.tables import EventRow, TaskRow, ThreadRow

_CREATED: Final = 4096
"""Maximum number of task ids and run ids in the cache that all readers of a journal share. Chosen."""
_ENDS: Final = 500
"""Maximum number of threads for which one query reads the newest sequence number. Chosen."""
_TOGETHER: Final = 2048
"""Maximum number of records that one call of `read_tasks` reads. Chosen."""


def read_tasks(connection: Connection, owner: str, task_ids: Sequence[str]) -> dict[str, list[Record]]:
    """Return the records of ended tasks of an owner, by task id.

    Only as many tasks are read as fit into `PAGE` bytes and `_TOGETHER` records. All others have to be read one by one.
    """
    task, event = table_of(TaskRow), table_of(EventRow)
    its = is_in_log(task.c.thread_pk, after=task.c.first_seq - 1, until=task.c.last_seq)
    size = select(func.sum(func.length(event.c.body))).where(its).scalar_subquery()
    columns = (task.c.task_id, task.c.thread_pk, task.c.first_seq, task.c.last_seq, size)
    ended = connection.execute(
        select(*columns).where(
            task.c.owner == owner, task.c.task_id.in_(task_ids), task.c.state.in_([str(state) for state in TERMINAL])
        )
    ).all()
    by_task: dict[str, list[Record]] = {}
    records_left, room = _TOGETHER, PAGE
    for task_id, pk, first, last, length in ended:
        records_left -= last - first + 1
        room -= length
        if records_left < 0 or room < 0:
            break
        records = read_page(connection, pk, first - 1, last - first + 1, last)
        by_task[task_id] = [record for record in records if record.task_id == task_id]
    return by_task


def read_page(
    connection: Connection,
    pk: int,
    after: int,
    limit: int,
    until: int | None = None,
    created: "CreatedIds | None" = None,
) -> list[Record]:
    # Sequence numbers have no gaps, so `after + limit` bounds the rows that a server sends.
    wanted = (pk, after, after + limit if until is None else min(until, after + limit))
    with closing(sql_of(connection.dialect).page.iterate(connection, wanted)) as rows:
        try:
            return decode_records(connection, pk, rows, limit, created)
        except _Erased:
            return []


def read_ends(connection: Connection, pks: Sequence[int]) -> dict[int, int]:
    """Return the sequence number of the newest record of each of these threads, by database key. Erased threads are
    left out."""
    thread = table_of(ThreadRow)
    last = newest_seq(thread.c.pk)
    ends: dict[int, int] = {}
    for start in range(0, len(pks), _ENDS):
        some = pks[start : start + _ENDS]
        rows = connection.execute(select(thread.c.pk, last).where(thread.c.pk.in_(some)))
        ends.update((pk, seq) for pk, seq in rows)
    return ends


def read_sized_page(
    connection: Connection, pk: int, after: int, until: int, room: int, created: "CreatedIds"
) -> tuple[list[Record], list[int], bool]:
    """Return the records of a thread with a number above `after` and up to `until`, and their stored sizes in bytes.

    The page ends after the record that exceeds `room` bytes in total; the third value is then True."""
    sizes: list[int] = []
    with closing(sql_of(connection.dialect).page.iterate(connection, (pk, after, until))) as rows:
        try:
            records = decode_records(connection, pk, _take_until_full(rows, sizes, room), None, created)
        except _Erased:
            return [], [], False
    return records, sizes, sum(sizes) > room


def _take_until_full(rows: Iterable[tuple[Any, ...]], sizes: list[int], room: int) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        sizes.append(len(row[-1]))
        room -= sizes[-1]
        yield row
        if room < 0:
            return


CreatedIds = dict[tuple[int, int], str]
"""Cache of the full ids of tasks and runs, by the database key of the thread and the number of the record that created
them. Rows of the log refer to an id by that number."""


class _Erased(Exception):
    """Raised inside this module if the thread was erased while its log was read."""


def decode_records(
    connection: Connection,
    pk: int,
    rows: Iterable[tuple[Any, ...]],
    limit: int | None = None,
    created: CreatedIds | None = None,
) -> list[Record]:
    """Decode consecutive rows of a log to records: up to `PAGE` bytes, and up to `limit` records unless it is None.

    `created` caches the full ids of tasks and runs, to which the rows refer by number."""
    records: list[Record] = []
    size = 0
    ids = _Ids(connection, pk, {} if created is None else created)
    for seq, at, task_id, run_id, attempt, body in rows:
        event = decode_event(lengthen(body))
        if type(event) in _CREATING:
            ids.note(seq, event)
        records.append(Record(seq, at, ids[task_id], ids[run_id], attempt, event))
        size += len(body)
        if size > PAGE or len(records) == limit:
            break
    return records


_CREATING: Final = frozenset((TaskCreated, RunCreated))


class _Ids(dict[str | None, str | None]):
    """Full ids of the tasks and runs of one thread, by the short reference that is stored in each row of the log.

    A missing id is read from the record that created the task or run."""

    def __init__(self, connection: Connection, pk: int, created: CreatedIds) -> None:
        super().__init__({None: None})
        self._connection = connection
        self._pk = pk
        self._created = created

    def note(self, seq: int, event: Event) -> None:
        new_id = created_id(event)
        if new_id is not None:
            self[refer(new_id, seq)] = new_id

    def __missing__(self, reference: str | None) -> str | None:
        seq = find_reference(reference)
        full_id = self[reference] = plain_id(reference) if seq is None else self._find(seq)
        return full_id

    def _find(self, seq: int) -> str | None:
        full_id = self._created.get((self._pk, seq))
        if full_id is None and (full_id := self._read(seq)) is not None:
            if len(self._created) >= _CREATED:
                self._created.clear()
            self._created[self._pk, seq] = full_id
        return full_id

    def _read(self, seq: int) -> str | None:
        """Read the record with the number `seq`, and return the id of the task or run that it created, or None if it
        created none.

        Raises _Erased if the record does not exist any more."""
        rows = sql_of(self._connection.dialect).creation.run(self._connection, (self._pk, seq))
        if not rows:
            raise _Erased
        ((body,),) = rows
        return created_id(decode_event(lengthen(body)))
