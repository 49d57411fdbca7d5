"""Pagination and filters: lists of threads, runs and tasks. What a row has as a column is filtered and paged by the
database; what only its JSON knows is looked at here, row by row.

A list is found first as the places of its rows, and they are read some at a time as somebody asks for them: a thousand
rows of some megabytes each are more than the memory.
"""

import base64
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    exists,
    false,
    func,
    literal,
    literal_column,
    select,
    tuple_,
)

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import RunFilter, TaskFilter, ThreadFilter, ThreadOrder
from babelgate.canonical.json import has_members
from babelgate.canonical.listed import Listed
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Run, Task, Thread, ThreadStatus, ThreadView
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import OPEN, PASSING, EventRow, RunRow, TallyRow, TaskRow, ThreadRow

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Place = tuple[Any, int]
"""A row's key, and the bytes of its body."""

_BYTES: Final = 4 * 2**20
_ROWS: Final = 100
"""Of rows that are read at once."""

_THREAD, _TASK, _RUN, _EVENT = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_TALLY = table_of(TallyRow)

_ORDERS: Final[Mapping[ThreadOrder, Sequence[ColumnElement[Any]]]] = {
    "thread_id": (_THREAD.c.thread_id,),
    "status": (_THREAD.c.status, _THREAD.c.created_at),
    "created_at": (_THREAD.c.created_at,),
    "updated_at": (_THREAD.c.updated_at,),
}
"""An index has each of them, also behind a status that is asked for, but for the ids."""
_OTHER: Final[Sequence[ThreadStatus]] = ("busy", "error", "interrupted")
"""Than idle, as most threads are."""
_VIEW: Final = (_THREAD.c.body, _THREAD.c.status, _THREAD.c.updated_at)


def thread_view(connection: Connection, owner: str, thread_id: str) -> ThreadView | None:
    row = connection.execute(select(*_VIEW).where(_THREAD.c.owner == owner, _THREAD.c.thread_id == thread_id)).first()
    return None if row is None else _view(*row)


def thread_by_key(connection: Connection, pk: int) -> tuple[ThreadView, int] | None:
    """With the seq of its newest record."""
    newest = select(func.max(_EVENT.c.seq)).where(_EVENT.c.thread_pk == pk).scalar_subquery()
    row = connection.execute(select(*_VIEW, newest).where(_THREAD.c.pk == pk)).first()
    if row is None:
        return None
    body, status, updated_at, seq = row
    return _view(body, status, updated_at), seq or 0


def _view(body: bytes, status: ThreadStatus, updated_at: int) -> ThreadView:
    return ThreadView(thread=decode_row(Thread, body), status=status, updated_at=updated_at)


def threads(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    among: Set[int] | None = None,
    *,
    limit: int,
    offset: int,
    order: ThreadOrder,
    descending: bool,
) -> list[Place]:
    """Where they are; with `among` only those with these keys. What only their JSON knows is looked for until the page
    is full."""
    ordered = [column.desc() if descending else column.asc() for column in (*_ORDERS[order], _THREAD.c.pk)]
    if where.agent is None and not where.metadata and among is None:
        found = select(_THREAD.c.pk, func.length(_THREAD.c.body)).where(*_mine(owner, where)).order_by(*ordered)
        return _places(connection.execute(found.limit(limit).offset(offset)))
    return list(islice(_matching(connection, owner, where, among, ordered), offset, offset + limit))


def count_threads(connection: Connection, owner: str, where: ThreadFilter, among: Set[int] | None = None) -> int:
    """How many there are in all is kept beside the rows: counting a hundred thousand takes as long as thirty searches.
    So those that are idle are all but the others."""
    if among is not None and replace(where, values={}) == ThreadFilter():
        return len(among)
    if where == ThreadFilter():
        return _tally(connection, owner, "thread")
    if among is None and where == ThreadFilter(status="idle"):
        others = (count_threads(connection, owner, ThreadFilter(status=status)) for status in _OTHER)
        return _tally(connection, owner, "thread") - sum(others)
    if where.agent is None and not where.metadata and among is None:
        counted = select(func.count()).select_from(_THREAD).where(*_mine(owner, where))
        return connection.execute(counted).scalar_one()
    return sum(1 for _ in _matching(connection, owner, where, among, ()))


def _mine(owner: str, where: ThreadFilter) -> list[ColumnElement[bool]]:
    mine: list[ColumnElement[bool]] = [_THREAD.c.owner == owner, _THREAD.c.ephemeral == false()]
    if where.ids is not None:
        mine.append(_THREAD.c.thread_id.in_(where.ids))
    if where.status is not None:
        mine.append(_THREAD.c.status == where.status)
    return mine


def _matching(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    among: Set[int] | None,
    ordered: Sequence[ColumnElement[Any]],
) -> Iterator[Place]:
    ran = literal(True) if where.agent is None else _has_run(where.agent)
    found = select(_THREAD.c.pk, _THREAD.c.body, ran).where(*_mine(owner, where)).order_by(*ordered)
    with closing(connection.execute(stream_rows(found))) as rows:
        for pk, body, has_run in rows:
            if among is not None and pk not in among:
                continue
            thread = decode_row(Thread, body)
            if has_members(thread.metadata, where.metadata) and (has_run or _is_for_agent(thread, where)):
                yield pk, len(body)


def _tally(connection: Connection, owner: str, kind: str, agent: str | None = None) -> int:
    mine = [_TALLY.c.owner == owner, _TALLY.c.kind == kind]
    if agent is not None:
        mine.append(_TALLY.c.agent == agent)
    return connection.execute(select(func.coalesce(func.sum(_TALLY.c.rows), 0)).where(*mine)).scalar_one()


def threads_at(connection: Connection, *, keys: Sequence[int]) -> dict[int, ThreadView]:
    found = select(_THREAD.c.pk, *_VIEW).where(_THREAD.c.pk.in_(keys))
    return {pk: _view(*row) for pk, *row in connection.execute(found)}


def _has_run(agent: str) -> ColumnElement[bool]:
    return exists().where(_TASK.c.thread_pk == _THREAD.c.pk, _TASK.c.agent == agent)


def _is_for_agent(thread: Thread, where: ThreadFilter) -> bool:
    return has_members(thread.extra.get(where.protocol or ""), {"agent": where.agent})


def runs(connection: Connection, owner: str, where: RunFilter, *, limit: int, offset: int) -> list[Place]:
    """Where they are. Newest first: on one thread by their place in its log, over all threads by the last change of
    their tasks."""
    mine: list[ColumnElement[bool]] = [_RUN.c.removed == false()]
    if where.agent is not None:
        mine.append(_RUN.c.agent == where.agent)
    if where.status is not None:
        mine.append(_RUN.c.status.in_([str(status) for status in where.status]))
    wanted = select(_RUN.c.run_id, _RUN.c.body if where.metadata else func.length(_RUN.c.body))
    if where.thread_id is not None:
        place = (_THREAD.c.owner == owner, _THREAD.c.thread_id == where.thread_id)
        found = wanted.join(_THREAD, _THREAD.c.pk == _RUN.c.thread_pk).where(*place, *mine)
        found = found.order_by(_RUN.c.first_seq.desc())
    else:
        of_task = and_(_RUN.c.thread_pk == _TASK.c.thread_pk, _RUN.c.task_id == _TASK.c.task_id)
        shown = and_(_THREAD.c.pk == _TASK.c.thread_pk, _THREAD.c.ephemeral == false())
        found = wanted.select_from(_TASK).join(_RUN, of_task).join(_THREAD, shown)
        found = found.where(_TASK.c.owner == owner, *mine)
        found = found.order_by(_TASK.c.changed_at.desc(), _TASK.c.task_id.desc(), _RUN.c.first_seq.desc())
    if not where.metadata:
        return _places(connection.execute(found.limit(limit).offset(offset)))
    with closing(connection.execute(stream_rows(found))) as rows:
        matching = (
            (run_id, len(body)) for run_id, body in rows if has_members(decode_row(Run, body).metadata, where.metadata)
        )
        return list(islice(matching, offset, offset + limit))


def runs_at(connection: Connection, owner: str, *, keys: Sequence[str]) -> dict[str, Run]:
    found = select(_RUN.c.run_id, _RUN.c.body).where(_RUN.c.owner == owner, _RUN.c.run_id.in_(keys))
    return {run_id: decode_row(Run, body) for run_id, body in connection.execute(found)}


def tasks(
    connection: Connection, owner: str, where: TaskFilter, limit: int, cursor: str | None
) -> tuple[list[Place], str | None, int]:
    """Where they are, newest change of state first; the cursor of the next page; and how many there are in all."""
    mine: list[ColumnElement[bool]] = [_TASK.c.owner == owner]
    if where.agent is not None:
        mine.append(_TASK.c.agent == where.agent)
    if where.thread_id is not None:
        pk = queries.thread_key(connection, owner, where.thread_id)
        mine.append(_TASK.c.thread_pk == (0 if pk is None else pk))
    page = select(_TASK.c.task_id, func.length(_TASK.c.body), _TASK.c.changed_at)
    counted = select(func.count()).select_from(_TASK)
    if where.states is not None:
        mine.append(_TASK.c.state.in_([str(state) for state in where.states]))
        if where.states.isdisjoint(TERMINAL):  # these are few, however many tasks there are
            mine.append(literal_column(f"task.{OPEN}"))
            page, counted = (each.with_hint(_TASK, "INDEXED BY task_open", "sqlite") for each in (page, counted))
    if where.changed_after is not None:
        mine.append(_TASK.c.changed_at >= where.changed_after)
    kept = _TASK.c.thread_pk.not_in(_ephemeral_keys(owner))
    if len(mine) == 1 + (where.agent is not None):
        total = _tally(connection, owner, "task", where.agent)
        if not where.stateless:
            total -= connection.execute(counted.where(*mine, ~kept)).scalar_one()
    else:
        if not where.stateless:
            mine.append(kept)
        total = connection.execute(counted.where(*mine)).scalar_one()
    page = page.where(*mine, *(() if where.stateless else (kept,)))
    if cursor is not None:
        page = page.where(tuple_(_TASK.c.changed_at, _TASK.c.task_id) < _cursor(cursor))
    rows = connection.execute(page.order_by(_TASK.c.changed_at.desc(), _TASK.c.task_id.desc()).limit(limit + 1)).all()
    following = None
    if len(rows) > limit:
        rows = rows[:limit]
        last = json.dumps([rows[-1].changed_at, rows[-1].task_id]).encode()
        following = base64.urlsafe_b64encode(last).decode().rstrip("=")
    return [(task_id, size) for task_id, size, _ in rows], following, total


def _ephemeral_keys(owner: str) -> Select[tuple[int]]:
    """Select the keys of the threads of stateless runs. They are few, because such threads are deleted soon."""
    passing: ColumnElement[bool] = literal_column(f"thread.{PASSING}")
    return select(_THREAD.c.pk).where(passing, _THREAD.c.ephemeral, _THREAD.c.owner == owner)


def tasks_active_at(connection: Connection, owner: str, moment: int, slack: int, limit: int) -> list[Task]:
    """Return tasks that existed at a moment and changed after it, the earliest change first."""
    mine = (_TASK.c.owner == owner, _TASK.c.changed_at >= moment - slack, _TASK.c.created_at <= moment + slack)
    found = select(_TASK.c.body).where(*mine).order_by(_TASK.c.changed_at, _TASK.c.task_id).limit(limit)
    return [decode_row(Task, body) for (body,) in connection.execute(found)]


def tasks_at(connection: Connection, owner: str, *, keys: Sequence[str]) -> dict[str, Task]:
    found = select(_TASK.c.task_id, _TASK.c.body).where(_TASK.c.owner == owner, _TASK.c.task_id.in_(keys))
    return {task_id: decode_row(Task, body) for task_id, body in connection.execute(found)}


def _cursor(text: str) -> tuple[int, str]:
    try:
        at, task_id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if type(at) is not int or type(task_id) is not str or not -(2**63) <= at < 2**63:
            raise ValueError
        task_id.encode()
    except (ValueError, TypeError, RecursionError):
        raise FaultError(FaultCode.INVALID, "The page token is not one that this gateway gave out") from None
    return at, task_id


def _places(rows: Iterable[Any]) -> list[Place]:
    return [(key, size) for key, size in rows]


# Reading what was found, some at a time


class Read(Protocol[T_co]):
    def __call__(self, connection: Connection, /, *, keys: Sequence[Any]) -> Mapping[Any, T_co]:
        """Some of what is at the places, by key."""
        ...


def create_listing(journal: Journal, places: Sequence[Place], read: Read[T]) -> Listed[T]:
    return Listed(len(places), partial(_each, journal, places, read))


async def _each(journal: Journal, places: Sequence[Place], read: Read[T]) -> AsyncGenerator[T]:
    for keys in _together(places):
        found = await journal.query(read, keys=keys)
        for key in keys:
            if key in found:
                yield found[key]


def _together(places: Sequence[Place]) -> Iterator[list[Any]]:
    """Keys of rows that are read at once."""
    keys: list[Any] = []
    room = _BYTES
    for key, size in places:
        if keys and (size > room or len(keys) == _ROWS):
            yield keys
            keys, room = [], _BYTES
        keys.append(key)
        room -= size
    if keys:
        yield keys
