"""Pages of the log: rows of threads → records."""

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
"""Ids of tasks and runs that readers remember."""
_ENDS: Final = 500
"""Threads whose newest records are read at once."""
_TOGETHER: Final = 2048
"""Records of several tasks that are read at once."""


def read_tasks(connection: Connection, owner: str, task_ids: Sequence[str]) -> dict[str, list[Record]]:
    """The records of tasks that have ended, by task: of as many as are together no longer than a page."""
    task, event = table_of(TaskRow), table_of(EventRow)
    its = (event.c.thread_pk == task.c.thread_pk, event.c.seq.between(task.c.first_seq, task.c.last_seq))
    size = select(func.sum(func.length(event.c.body))).where(*its).scalar_subquery()
    columns = (task.c.task_id, task.c.thread_pk, task.c.first_seq, task.c.last_seq, size)
    found = connection.execute(
        select(*columns).where(
            task.c.owner == owner, task.c.task_id.in_(task_ids), task.c.state.in_([str(state) for state in TERMINAL])
        )
    ).all()
    read: dict[str, list[Record]] = {}
    left, room = _TOGETHER, PAGE
    for task_id, pk, first, last, length in found:
        left -= last - first + 1
        room -= length
        if left < 0 or room < 0:
            break
        records = read_page(connection, pk, first - 1, last - first + 1, last)
        read[task_id] = [record for record in records if record.task_id == task_id]
    return read


def read_page(
    connection: Connection,
    pk: int,
    after: int,
    limit: int,
    until: int | None = None,
    created: "CreatedIds | None" = None,
) -> list[Record]:
    # The numbers of a log have no gaps, and a server sends whatever is asked for.
    wanted = (pk, after, after + limit if until is None else min(until, after + limit))
    with closing(sql_of(connection.dialect).page.iterate(connection, wanted)) as rows:
        try:
            return decode_records(connection, pk, rows, limit, created)
        except _Erased:
            return []


def read_ends(connection: Connection, pks: Sequence[int]) -> dict[int, int]:
    """Return the seq of the newest record of each thread that exists, by key."""
    thread, event = table_of(ThreadRow), table_of(EventRow)
    last = select(func.max(event.c.seq)).where(event.c.thread_pk == thread.c.pk).scalar_subquery()
    found: dict[int, int] = {}
    for begun in range(0, len(pks), _ENDS):
        some = pks[begun : begun + _ENDS]
        rows = connection.execute(select(thread.c.pk, last).where(thread.c.pk.in_(some)))
        found.update((pk, seq) for pk, seq in rows)
    return found


def read_sized_page(
    connection: Connection, pk: int, after: int, until: int, room: int, created: "CreatedIds"
) -> tuple[list[Record], list[int], bool]:
    """Return the records of a thread after a seq and up to another, the size of each in bytes, and whether there are
    fewer because they are larger than `room` bytes together."""
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
    """The thread was, while its log was read."""


def decode_records(
    connection: Connection,
    pk: int,
    rows: Iterable[tuple[Any, ...]],
    limit: int | None = None,
    created: CreatedIds | None = None,
) -> list[Record]:
    """The records of a thread in rows of the log, up to a page's bytes. `created` = what is remembered of committed
    ones."""
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
    """Ids of tasks and runs of a thread, by what the log keeps of them."""

    def __init__(self, connection: Connection, pk: int, created: CreatedIds) -> None:
        super().__init__({None: None})
        self._connection = connection
        self._pk = pk
        self._created = created

    def note(self, seq: int, event: Event) -> None:
        made = created_id(event)
        if made is not None:
            self[refer(made, seq)] = made

    def __missing__(self, kept: str | None) -> str | None:
        seq = find_reference(kept)
        found = self[kept] = plain_id(kept) if seq is None else self._find(seq)
        return found

    def _find(self, seq: int) -> str | None:
        found = self._created.get((self._pk, seq))
        if found is None and (found := self._read(seq)) is not None:
            if len(self._created) >= _CREATED:
                self._created.clear()
            self._created[self._pk, seq] = found
        return found

    def _read(self, seq: int) -> str | None:
        """Raises _Erased."""
        rows = sql_of(self._connection.dialect).creation.run(self._connection, (self._pk, seq))
        if not rows:
            raise _Erased
        ((body,),) = rows
        return created_id(decode_event(lengthen(body)))
