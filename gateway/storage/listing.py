"""Pagination and filters of the lists of threads, runs and tasks.

The database filters and pages by columns. Conditions on values that are only in the JSON of a row, such as metadata,
are applied here, row by row.

A search first returns only the keys and sizes of its rows. The rows are then read in batches while the caller iterates,
because a thousand rows of several megabytes each do not fit into memory."""

import base64
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    tuple_,
)

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.hub import RunFilter, TaskFilter, ThreadFilter, ThreadOrder
from babelgate.canonical.json import has_members
from babelgate.canonical.listed import Listed
from babelgate.canonical.message import FilePart
from babelgate.canonical.state import TERMINAL
from babelgate.canonical.thread import Run, Task, Thread, ThreadStatus, ThreadView
from babelgate.gateway.storage import queries
from babelgate.gateway.storage.journal import Journal
from babelgate.gateway.storage.needles import run_conditions
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import sql_of, table_of
from babelgate.gateway.storage.tables import OPEN, PASSING, BlobUseRow, RunRow, TallyRow, TaskRow, ThreadRow
from babelgate.gateway.storage.thread_members import FEW, find_candidates

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Place = tuple[Any, int]
"""Primary key of a row in a list, and size of its body in bytes. The body is read later, in batches."""

_BYTES: Final = 4 * 2**20
"""Maximum total size of the rows that one query reads, in bytes. Chosen. A larger row is read alone."""
_ROWS: Final = 100
"""Maximum number of rows that one query reads. Chosen."""

_THREAD, _TASK, _RUN = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
_TALLY, _USE = table_of(TallyRow), table_of(BlobUseRow)

_ORDERS: Final[Mapping[ThreadOrder, Sequence[ColumnElement[Any]]]] = {
    "thread_id": (_THREAD.c.thread_id,),
    "status": (_THREAD.c.status, _THREAD.c.created_at),
    "created_at": (_THREAD.c.created_at,),
    "updated_at": (_THREAD.c.updated_at,),
}
"""Columns to sort by, for each order that a caller may choose. Except for `thread_id`, each order has an index, also in
combination with a status."""
_NOT_IDLE: Final[Sequence[ThreadStatus]] = ("busy", "error", "interrupted")
"""All statuses except `idle`. Most threads are idle, so the others are faster to count."""
_FEW_KEYS: Final = 2000
"""Maximum number of database keys that one query lists. Chosen: SQLite allows 32,766 parameters, and sorting this many
threads takes milliseconds."""
_MAX_SEQ: Final[ColumnElement[int]] = literal_column(str(2**31 - 1))
_LAST_SEQ: Final = case((_TASK.c.state.in_(sorted(TERMINAL)), _TASK.c.last_seq), else_=_MAX_SEQ)
"""Greatest number that a record of a task can have. It limits the part of the index `run_thread` that is read for a
task, because a thread can have 100,000 tasks."""
_VIEW: Final = (_THREAD.c.body, _THREAD.c.status, _THREAD.c.updated_at)


def thread_view(connection: Connection, owner: str, thread_id: str) -> ThreadView | None:
    row = connection.execute(select(*_VIEW).where(_THREAD.c.owner == owner, _THREAD.c.thread_id == thread_id)).first()
    return None if row is None else _view(*row)


@dataclass(frozen=True, slots=True)
class PassingThread:
    """Thread that expires, as one query has found it."""

    view: ThreadView
    seq: int
    """Number of the thread's newest record."""
    has_due_webhook: bool
    """True if a task of the thread has a webhook that has not received all records yet."""


def passing_threads(connection: Connection, pks: Sequence[int]) -> Mapping[int, PassingThread]:
    """Return the threads with these database keys, by key, without those that do not exist."""
    statement, found = sql_of(connection.dialect).passing_thread, dict[int, PassingThread]()
    for pk in pks:
        for body, status, updated_at, seq, has_due_webhook in statement.run(connection, (pk,)):
            found[pk] = PassingThread(_view(body, status, updated_at), seq or 0, bool(has_due_webhook))
    return found


def _view(body: bytes, status: ThreadStatus, updated_at: int) -> ThreadView:
    return ThreadView(thread=decode_row(Thread, body), status=status, updated_at=updated_at)


def threads(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    among: Set[int] | None = None,
    shared: Set[int] = frozenset(),
    *,
    limit: int,
    offset: int,
    order: ThreadOrder,
    descending: bool,
) -> list[Place]:
    """Return the keys and sizes of one page of an owner's threads, sorted by `order`, the greatest value first if
    `descending`.

    `among` limits the search to threads with these database keys, unless it is None. `shared` adds threads of other
    owners by their keys. If a filter needs the JSON of the rows, they are read one by one until the page is full."""
    ordered = [column.desc() if descending else column.asc() for column in (*_ORDERS[order], _THREAD.c.pk)]
    if where.agent is None and not where.metadata and among is None:
        conditions = _conditions(owner, where, shared)
        selected = select(_THREAD.c.pk, func.length(_THREAD.c.body)).where(*conditions).order_by(*ordered)
        return _places(connection.execute(selected.limit(limit).offset(offset)))
    return list(islice(_matching(connection, owner, where, among, shared, ordered), offset, offset + limit))


def count_threads(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    among: Set[int] | None = None,
    shared: Set[int] = frozenset(),
) -> int:
    """Return the number of an owner's threads that match a filter. `among` and `shared` are as in `threads`.

    The total number per owner is stored in the table `tally`, because counting a hundred thousand rows takes as long as
    thirty searches. The number of idle threads is this total minus the threads of the other statuses."""
    if among is not None and replace(where, values={}) == ThreadFilter():
        return len(among)
    if where == ThreadFilter():
        return _tally(connection, owner, "thread")
    if among is None and where == ThreadFilter(status="idle"):
        others = (count_threads(connection, owner, ThreadFilter(status=status)) for status in _NOT_IDLE)
        return _tally(connection, owner, "thread") - sum(others)
    if where.agent is None and not where.metadata and among is None:
        counted = select(func.count()).select_from(_THREAD).where(*_conditions(owner, where, shared))
        return connection.execute(counted).scalar_one()
    return sum(1 for _ in _matching(connection, owner, where, among, shared, ()))


def _conditions(owner: str, where: ThreadFilter, shared: Set[int]) -> list[ColumnElement[bool]]:
    is_readable = _THREAD.c.owner == owner
    if shared:
        is_readable = or_(is_readable, _THREAD.c.pk.in_(sorted(shared)))
    conditions: list[ColumnElement[bool]] = [is_readable, _THREAD.c.ephemeral == false()]
    if where.ids is not None:
        conditions.append(_THREAD.c.thread_id.in_(where.ids))
    if where.status is not None:
        conditions.append(_THREAD.c.status == where.status)
    if where.agents is not None:
        conditions.append(has_only_agents(where.agents))
    return conditions


def has_only_agents(agents: Set[str]) -> ColumnElement[bool]:
    """Return the SQL condition that no task of the thread is a request to an agent outside of `agents`."""
    return ~exists().where(_TASK.c.thread_pk == _THREAD.c.pk, _TASK.c.agent.not_in(sorted(agents)))


def _matching(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    among: Set[int] | None,
    shared: Set[int],
    ordered: Sequence[ColumnElement[Any]],
) -> Iterator[Place]:
    conditions = _conditions(owner, where, shared)
    candidates = find_candidates(connection, owner, where.metadata)
    if isinstance(candidates, Set):
        candidates |= shared  # threads of other owners are found by their owners' keys
        among = candidates if among is None else among & candidates
    elif candidates is not None:
        conditions.append(or_(candidates, _THREAD.c.pk.in_(sorted(shared))) if shared else candidates)
    if among is not None and not among:
        return
    ran = literal(True) if where.agent is None else _has_run(where.agent)
    selected = select(_THREAD.c.pk, _THREAD.c.body, ran).where(*conditions).order_by(*ordered)
    if among is not None and len(among) <= _FEW_KEYS:
        # Without the hint, SQLite reads all threads of the owner in the order of the list.
        selected = selected.where(_THREAD.c.pk.in_(sorted(among))).with_hint(_THREAD, "NOT INDEXED", "sqlite")
    with closing(connection.execute(stream_rows(selected))) as rows:
        for pk, body, has_run in rows:
            if among is not None and pk not in among:
                continue
            thread = decode_row(Thread, body)
            if has_members(thread.metadata, where.metadata) and (has_run or _is_for_agent(thread, where)):
                yield pk, len(body)


def _tally(connection: Connection, owner: str, kind: str, agent: str | None = None) -> int:
    conditions = [_TALLY.c.owner == owner, _TALLY.c.kind == kind]
    if agent is not None:
        conditions.append(_TALLY.c.agent == agent)
    return connection.execute(select(func.coalesce(func.sum(_TALLY.c.rows), 0)).where(*conditions)).scalar_one()


def threads_at(connection: Connection, *, keys: Sequence[int]) -> dict[int, ThreadView]:
    selected = select(_THREAD.c.pk, *_VIEW).where(_THREAD.c.pk.in_(keys))
    return {pk: _view(*row) for pk, *row in connection.execute(selected)}


def _has_run(agent: str) -> ColumnElement[bool]:
    return exists().where(_TASK.c.thread_pk == _THREAD.c.pk, _TASK.c.agent == agent)


def _is_for_agent(thread: Thread, where: ThreadFilter) -> bool:
    return has_members(thread.extra.get(where.protocol or ""), {"agent": where.agent})


def runs(connection: Connection, owner: str, where: RunFilter, *, limit: int, offset: int) -> list[Place]:
    """Return the ids and sizes of one page of an owner's runs, the newest first.

    Runs of one thread are sorted by their position in its log, and runs of all threads by the last change of their
    tasks. With a filter by metadata, the database searches the bytes of the rows, and only those that can match are
    decoded."""
    wanted = select(_RUN.c.run_id, _RUN.c.body if where.metadata else func.length(_RUN.c.body))
    conditions = [_RUN.c.removed == false(), *_run_conditions(where)]
    if where.metadata:
        conditions += run_conditions(_RUN.c.body, where.metadata)
    if where.thread_id is not None:
        pk = queries.thread_key(connection, owner, where.thread_id)
        selected = wanted.where(_RUN.c.thread_pk == (0 if pk is None else pk), *conditions)
        selected = selected.order_by(_RUN.c.first_seq.desc())
    else:
        if where.metadata:
            candidates = select(_RUN.c.run_id).where(_RUN.c.owner == owner, *conditions).limit(FEW + 1)
            run_ids = connection.execute(candidates).scalars().all()
            if not run_ids:
                return []
            if len(run_ids) <= FEW:
                conditions = [_RUN.c.owner == owner, _RUN.c.run_id.in_(run_ids)]
        of_task = and_(
            _RUN.c.thread_pk == _TASK.c.thread_pk,
            _RUN.c.first_seq.between(_TASK.c.first_seq, _LAST_SEQ),
            _RUN.c.task_id == _TASK.c.task_id,
        )
        is_not_ephemeral = and_(_THREAD.c.pk == _TASK.c.thread_pk, _THREAD.c.ephemeral == false())
        selected = wanted.select_from(_TASK).join(_RUN, of_task).join(_THREAD, is_not_ephemeral)
        selected = selected.where(_TASK.c.owner == owner, *conditions)
        selected = selected.order_by(_TASK.c.changed_at.desc(), _TASK.c.task_id.desc(), _RUN.c.first_seq.desc())
    if not where.metadata:
        return _places(connection.execute(selected.limit(limit).offset(offset)))
    with closing(connection.execute(stream_rows(selected))) as rows:
        matching = (
            (run_id, len(body)) for run_id, body in rows if has_members(decode_row(Run, body).metadata, where.metadata)
        )
        return list(islice(matching, offset, offset + limit))


def _run_conditions(where: RunFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if where.agent is not None:
        conditions.append(_RUN.c.agent == where.agent)
    if where.agents is not None:
        conditions.append(_RUN.c.agent.in_(sorted(where.agents)))
    if where.status is not None:
        conditions.append(_RUN.c.status.in_([str(status) for status in where.status]))
    return conditions


def runs_at(connection: Connection, owner: str, *, keys: Sequence[str]) -> dict[str, Run]:
    selected = select(_RUN.c.run_id, _RUN.c.body).where(_RUN.c.owner == owner, _RUN.c.run_id.in_(keys))
    return {run_id: decode_row(Run, body) for run_id, body in connection.execute(selected)}


def tasks(
    connection: Connection, owner: str, where: TaskFilter, limit: int, cursor: str | None
) -> tuple[list[Place], str | None, int]:
    """Return one page of an owner's tasks, the last changed first, the cursor of the next page, and the number of all
    matches.

    The page has the ids and sizes of the tasks. `cursor` comes from the previous page; None requests the first one. The
    returned cursor is None for the last page. Raises invalid for a malformed cursor."""
    conditions: list[ColumnElement[bool]] = [_TASK.c.owner == owner]
    if where.agent is not None:
        conditions.append(_TASK.c.agent == where.agent)
    if where.agents is not None:
        conditions.append(_TASK.c.agent.in_(sorted(where.agents)))
    if where.thread_id is not None:
        pk = queries.thread_key(connection, owner, where.thread_id)
        conditions.append(_TASK.c.thread_pk == (0 if pk is None else pk))
    page = select(_TASK.c.task_id, func.length(_TASK.c.body), _TASK.c.changed_at)
    counted = select(func.count()).select_from(_TASK)
    if where.states is not None:
        conditions.append(_TASK.c.state.in_([str(state) for state in where.states]))
        if where.states.isdisjoint(TERMINAL):  # few tasks are open, however many there are
            conditions.append(literal_column(f"task.{OPEN}"))
            page, counted = (each.with_hint(_TASK, "INDEXED BY task_open", "sqlite") for each in (page, counted))
    if where.changed_after is not None:
        conditions.append(_TASK.c.changed_at >= where.changed_after)
    is_listed = _TASK.c.thread_pk.not_in(_ephemeral_keys(owner))
    if where.agents is None and len(conditions) == 1 + (where.agent is not None):
        total = _tally(connection, owner, "task", where.agent)
        if not where.stateless:
            hidden = counted.where(*conditions, ~is_listed).with_hint(_TASK, "INDEXED BY task_thread", "sqlite")
            total -= connection.execute(hidden).scalar_one()
    else:
        if not where.stateless:
            conditions.append(is_listed)
        total = connection.execute(counted.where(*conditions)).scalar_one()
    page = page.where(*conditions, *(() if where.stateless else (is_listed,)))
    if cursor is not None:
        page = page.where(tuple_(_TASK.c.changed_at, _TASK.c.task_id) < _cursor(cursor))
    rows = connection.execute(page.order_by(_TASK.c.changed_at.desc(), _TASK.c.task_id.desc()).limit(limit + 1)).all()
    next_cursor = None
    if len(rows) > limit:
        rows = rows[:limit]
        last = json.dumps([rows[-1].changed_at, rows[-1].task_id]).encode()
        next_cursor = base64.urlsafe_b64encode(last).decode().rstrip("=")
    return [(task_id, size) for task_id, size, _ in rows], next_cursor, total


def _ephemeral_keys(owner: str) -> Select[tuple[int]]:
    """Return a subquery for the database keys of the owner's ephemeral threads.

    These belong to runs without a thread in the request. They are few, because they are deleted soon after the run."""
    passing: ColumnElement[bool] = literal_column(f"thread.{PASSING}")
    keys = select(_THREAD.c.pk).where(passing, _THREAD.c.ephemeral, _THREAD.c.owner == owner)
    # Without the hint, SQLite reads all threads of the owner.
    return keys.with_hint(_THREAD, "INDEXED BY thread_expires", "sqlite")


def tasks_active_at(
    connection: Connection, owner: str, moment: int, slack: int, limit: int, agents: Set[str] | None
) -> list[Task]:
    """Return up to `limit` tasks that were created before `moment` and changed after it, the earliest change first.

    Times are in microseconds since 1970. Both comparisons tolerate an error of `slack`. `agents` limits the result to
    tasks of these agents; None means all."""
    conditions = [_TASK.c.owner == owner, _TASK.c.changed_at >= moment - slack, _TASK.c.created_at <= moment + slack]
    if agents is not None:
        conditions.append(_TASK.c.agent.in_(sorted(agents)))
    selected = select(_TASK.c.body).where(*conditions).order_by(_TASK.c.changed_at, _TASK.c.task_id).limit(limit)
    return [decode_row(Task, body) for (body,) in connection.execute(selected)]


def tasks_at(connection: Connection, owner: str, *, keys: Sequence[str]) -> dict[str, Task]:
    selected = select(_TASK.c.task_id, _TASK.c.body).where(_TASK.c.owner == owner, _TASK.c.task_id.in_(keys))
    return {task_id: decode_row(Task, body) for task_id, body in connection.execute(selected)}


def file(connection: Connection, owner: str, blob: str, agents: Set[str] | None = None) -> FilePart | None:
    """Return the description of a stored file from a thread of the owner that refers to it, or None if none does.

    With `agents`, only threads count on which no other agents ran."""
    conditions = [_THREAD.c.owner == owner, _USE.c.blob == blob]
    if agents is not None:
        conditions.append(has_only_agents(agents))
    body = connection.execute(
        select(_USE.c.body).join(_THREAD, _THREAD.c.pk == _USE.c.thread_pk).where(*conditions).limit(1)
    ).scalar()
    return None if body is None else decode_row(FilePart, body)


def _cursor(text: str) -> tuple[int, str]:
    try:
        at, task_id = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        if type(at) is not int or type(task_id) is not str or not -(2**63) <= at < 2**63:
            raise ValueError
        task_id.encode()
    except (ValueError, TypeError, RecursionError):
        raise FaultError(FaultCode.INVALID, "The page token was not issued by this gateway") from None
    return at, task_id


def _places(rows: Iterable[Any]) -> list[Place]:
    return [(key, size) for key, size in rows]


# Reading rows in batches


class Read(Protocol[T_co]):
    def __call__(self, connection: Connection, /, *, keys: Sequence[Any]) -> Mapping[Any, T_co]:
        """Return the rows with these primary keys, by key. Rows that were deleted meanwhile are left out."""
        ...


def create_listing(journal: Journal, places: Sequence[Place], read: Read[T]) -> Listed[T]:
    return Listed(len(places), partial(_each, journal, places, read))


async def _each(journal: Journal, places: Sequence[Place], read: Read[T]) -> AsyncGenerator[T]:
    for keys in _batches(places):
        rows = await journal.query(read, keys=keys)
        for key in keys:
            if key in rows:
                yield rows[key]


def _batches(places: Sequence[Place]) -> Iterator[list[Any]]:
    """Yield the primary keys in batches of at most `_ROWS` rows and `_BYTES` bytes, but of at least one row."""
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
