"""Pages of the log: reads of rows, decoded to records."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Connection, func, select

from babelgate.canonical.event import Event, Record, RunCreated, TaskCreated
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.stored import decode_event
from babelgate.gateway.storage.short_form import created_id, find_reference, lengthen, plain_id, refer
from babelgate.gateway.storage.statements import PAGE, sql_of, table_of
from babelgate.gateway.storage.tables import EventRow, TaskRow, ThreadRow

_CREATED: Final = 4096
"""Maximum number of task and run ids that readers cache."""
_ENDS: Final = 500
"""Maximum number of threads whose newest records one query reads."""
_TOGETHER: Final = 2048
"""Maximum number of records that are read together for several tasks."""


def read_tasks(connection: Connection, owner: str, task_ids: Sequence[str]) -> dict[str, list[Record]]:
    """Return the records of ended tasks, by task id.

    Reads as many of the tasks as fit into one page together, in the order of the database.
    """
    task, event = table_of(TaskRow), table_of(EventRow)
    its = (event.c.thread_pk == task.c.thread_pk, event.c.seq.between(task.c.first_seq, task.c.last_seq))
    size = select(func.sum(func.length(event.c.body))).where(*its).scalar_subquery()
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
    """Return the sequence number of the newest record of each thread that exists, by key."""
    thread, event = table_of(ThreadRow), table_of(EventRow)
    last = select(func.max(event.c.seq)).where(event.c.thread_pk == thread.c.pk).scalar_subquery()
    ends: dict[int, int] = {}
    for start in range(0, len(pks), _ENDS):
        some = pks[start : start + _ENDS]
        rows = connection.execute(select(thread.c.pk, last).where(thread.c.pk.in_(some)))
        ends.update((pk, seq) for pk, seq in rows)
    return ends


def read_sized_page(
    connection: Connection, pk: int, after: int, until: int, room: int, created: "CreatedIds"
) -> tuple[list[Record], list[int], bool]:
    """Return the records of a thread after one sequence number and up to another, and their sizes in bytes.

    The third value is True if the records end early because they are larger than `room` bytes together.
    """
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
"""Ids of tasks and runs, by thread and by the seq of the record that created them."""


class _Erased(Exception):
    """The thread was erased while its log was read."""


def decode_records(
    connection: Connection,
    pk: int,
    rows: Iterable[tuple[Any, ...]],
    limit: int | None = None,
    created: CreatedIds | None = None,
) -> list[Record]:
    """Decode rows of the log to records, up to the size of a page and the number `limit` (None: no limit). `created` =
    cache of ids in committed records, if there is one."""
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
    """Ids of tasks and runs of a thread, by the reference that the log has instead of each id."""

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
        """Read the id that a record created; None if it created none. Raises _Erased if the record does not exist any
        more."""
        rows = sql_of(self._connection.dialect).creation.run(self._connection, (self._pk, seq))
        if not rows:
            raise _Erased
        ((body,),) = rows
        return created_id(decode_event(lengthen(body)))
