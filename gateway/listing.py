"""Lists of threads and runs. What a row has as a column is filtered and paged by the database; what only its JSON
knows is looked at here, row by row."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, case, exists, false, func, literal, select, text

from canonical.hub import RunFilter, ThreadFilter, ThreadOrder, ThreadPage
from canonical.state import ERRED, WAITING
from canonical.thread import Run, Thread, ThreadView
from canonical.value import JsonObject
from gateway.ledger import RUN, THREAD
from gateway.sql import table_of
from gateway.table import LIVE, OPEN, EventRow, RunRow, TaskRow, ThreadRow

__all__ = ("runs", "thread_view", "threads")

_THREAD, _TASK, _RUN, _EVENT = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow), table_of(EventRow)

_BUSY = exists().where(_RUN.c.thread_pk == _THREAD.c.pk, text(f"run.{LIVE}"))
_ASKS = exists().where(
    _TASK.c.thread_pk == _THREAD.c.pk, text(f"task.{OPEN}"), _TASK.c.state.in_([str(state) for state in WAITING])
)
_LAST = (
    select(_RUN.c.status)
    .where(_RUN.c.thread_pk == _THREAD.c.pk, _RUN.c.removed == false())
    .order_by(_RUN.c.first_seq.desc())
    .limit(1)
    .scalar_subquery()
)
_status = case(
    (_BUSY, literal("busy")),
    (_ASKS, literal("interrupted")),
    (_LAST.in_([str(status) for status in ERRED]), literal("error")),
    else_=literal("idle"),
)
_UPDATED: Final = (
    select(_EVENT.c.at)
    .where(_EVENT.c.thread_pk == _THREAD.c.pk)
    .order_by(_EVENT.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_ORDERS: Final[Mapping[ThreadOrder, Any]] = {
    "thread_id": _THREAD.c.thread_id,
    "status": _status,
    "created_at": _THREAD.c.created_at,
    "updated_at": _UPDATED,
}


def thread_view(connection: Connection, owner: str, thread_id: str) -> ThreadView | None:
    row = connection.execute(
        select(_THREAD.c.body, _status, _UPDATED).where(_THREAD.c.owner == owner, _THREAD.c.thread_id == thread_id)
    ).first()
    return None if row is None else _view(*row)


def _view(body: bytes, status: Any, updated_at: int | None) -> ThreadView:
    thread = THREAD.validate_json(body)
    return ThreadView(thread=thread, status=status, updated_at=updated_at or thread.changed_at)


def threads(
    connection: Connection,
    owner: str,
    where: ThreadFilter,
    *,
    limit: int,
    offset: int,
    order: ThreadOrder,
    descending: bool,
) -> ThreadPage:
    mine: list[ColumnElement[bool]] = [_THREAD.c.owner == owner, _THREAD.c.ephemeral == false()]
    if where.ids is not None:
        mine.append(_THREAD.c.thread_id.in_(where.ids))
    if where.status is not None:
        mine.append(_status == where.status)
    ran = literal(True) if where.agent is None else _ran(where.agent)
    by = _ORDERS[order]
    columns = (_THREAD.c.body, _status, _UPDATED, ran)
    found = select(*columns).where(*mine).order_by(*((c.desc() if descending else c.asc()) for c in (by, _THREAD.c.pk)))
    if where.agent is None and not where.metadata:
        total = connection.execute(select(func.count()).select_from(_THREAD).where(*mine)).scalar_one()
        rows = connection.execute(found.limit(limit).offset(offset))
        return ThreadPage(threads=[_view(*row[:3]) for row in rows], total=total)
    views: list[ThreadView] = []
    total = 0
    for *row, has_run in connection.execute(found):
        view = _view(*row)
        if _contains(view.thread.metadata, where.metadata) and (has_run or _made_for(view.thread, where)):
            if offset <= total < offset + limit:
                views.append(view)
            total += 1
    return ThreadPage(threads=views, total=total)


def _ran(agent: str) -> ColumnElement[bool]:
    return exists().where(_TASK.c.thread_pk == _THREAD.c.pk, _TASK.c.agent == agent)


def _made_for(thread: Thread, where: ThreadFilter) -> bool:
    return _matches(thread.extra.get(where.protocol or ""), {"agent": where.agent})


def _contains(whole: JsonObject, part: JsonObject) -> bool:
    """Whether all of `part` is in `whole`, objects in objects."""
    return all(name in whole and _matches(whole[name], wanted) for name, wanted in part.items())


def _matches(value: object, wanted: object) -> bool:
    if isinstance(value, dict) and isinstance(wanted, dict):
        return _contains(value, wanted)  # pyright: ignore[reportUnknownArgumentType]
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def runs(connection: Connection, owner: str, where: RunFilter, *, limit: int, offset: int) -> Sequence[Run]:
    """Newest first: on one thread by their place in its log, over all threads by the last change of their tasks."""
    mine: list[ColumnElement[bool]] = [_RUN.c.removed == false()]
    if where.agent is not None:
        mine.append(_RUN.c.agent == where.agent)
    if where.status is not None:
        mine.append(_RUN.c.status.in_([str(status) for status in where.status]))
    if where.thread_id is not None:
        place = (_THREAD.c.owner == owner, _THREAD.c.thread_id == where.thread_id)
        found = select(_RUN.c.body).join(_THREAD, _THREAD.c.pk == _RUN.c.thread_pk).where(*place, *mine)
        found = found.order_by(_RUN.c.first_seq.desc())
    else:
        of_task = and_(_RUN.c.thread_pk == _TASK.c.thread_pk, _RUN.c.task_id == _TASK.c.task_id)
        shown = and_(_THREAD.c.pk == _TASK.c.thread_pk, _THREAD.c.ephemeral == false())
        found = select(_RUN.c.body).select_from(_TASK).join(_RUN, of_task).join(_THREAD, shown)
        found = found.where(_TASK.c.owner == owner, *mine)
        found = found.order_by(_TASK.c.changed_at.desc(), _TASK.c.task_id.desc(), _RUN.c.first_seq.desc())
    if not where.metadata:
        found = found.limit(limit).offset(offset)
    listed: Iterable[Run] = (RUN.validate_json(body) for (body,) in connection.execute(found))
    if where.metadata:
        matching = (run for run in listed if _contains(run.metadata, where.metadata))
        listed = islice(matching, offset, offset + limit)
    return list(listed)
