"""Pagination of a thread's runs: a page of those of one agent, with the records that tell of them. The database looks
through a log of any length, and little of it is decoded."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select, text

from babelgate.canonical.hub import RunPage
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.gateway.storage.log_pages import decode_records
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, refer
from babelgate.gateway.storage.statements import of_kind, table_of
from babelgate.gateway.storage.tables import OPEN, EventRow, RunRow, TaskRow

_TASK, _RUN, _EVENT = table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_COLUMNS: Final = (_EVENT.c.seq, _EVENT.c.at, _EVENT.c.task_id, _EVENT.c.run_id, _EVENT.c.attempt, _EVENT.c.body)
_OF_TASK: Final = (_TASK.c.task_id, _TASK.c.first_seq, _TASK.c.last_seq, _TASK.c.state)
_MOST_NAMES: Final = 10_000
"""Names in one query: SQLite allows three times as many."""
_ANYWHERE: Final = or_(_EVENT.c.task_id.is_(None), of_kind("step_started", "run_removed"))
"""Records that tell something wherever they are. All others of a task end with it."""
_STEP: Final = beginnings("step_started")
_EARLIER_STEP: Final = b'"kind":"step_started"'
"""The same in a record of an earlier release, where it is not the first member. What is only said in these words falls
back on the whole log, too."""
_TERMINAL: Final = frozenset(map(str, TERMINAL))

_ROOM: Final = 256 * 1024
"""Bytes of the records of a page. Beyond them the whole thread is read, which readers share."""


def run_page(connection: Connection, pk: int, agent: str, limit: int, offset: int) -> RunPage | None:
    """As `babelgate.canonical.hub.Reads.run_page`."""
    shown = (_RUN.c.thread_pk == pk, _RUN.c.agent == agent, _RUN.c.removed == false())
    total = connection.execute(select(func.count()).select_from(_RUN).where(*shown)).scalar_one()
    page = select(_RUN.c.run_id, *_OF_TASK).where(*shown).order_by(_RUN.c.first_seq).limit(limit).offset(offset)
    of_task = (_TASK.c.owner == _RUN.c.owner) & (_TASK.c.task_id == _RUN.c.task_id)
    runs = connection.execute(page.join(_TASK, of_task)).all()
    waits = (_TASK.c.agent == agent, text(f"task.{OPEN}"), _TASK.c.state.in_([str(state) for state in WAITING]))
    found = select(*_OF_TASK).where(_TASK.c.thread_pk == pk, *waits).limit(_MOST_NAMES)
    waiting = connection.execute(found.with_hint(_TASK, "INDEXED BY task_open", "sqlite")).all()
    if 2 * (len(runs) + len(waiting)) > _MOST_NAMES:
        return None
    names = _names((*runs, *waiting))
    kept: dict[int, tuple[Any, ...]] = {}
    size = 0
    for where in (_ANYWHERE, *(_of_tasks(tasks) for tasks in (runs, waiting) if tasks)):
        log = select(*_COLUMNS).where(_EVENT.c.thread_pk == pk, where).order_by(_EVENT.c.seq)
        with closing(connection.execute(stream_rows(log))) as rows:
            for row in rows:
                if row.body.startswith(_STEP) or (row.body.startswith(b"{") and _EARLIER_STEP in row.body):
                    return None
                if row.seq not in kept and (row.task_id is None or row.task_id in names):
                    kept[row.seq] = tuple(row)
                    size += len(row.body)
                if size > _ROOM:
                    return None
    records = decode_records(connection, pk, [kept[seq] for seq in sorted(kept)])
    return RunPage(run_ids=[run.run_id for run in runs], total=total, records=records)


def _names(tasks: Iterable[Any]) -> set[str | None]:
    """What the log may hold in the place of the ids of tasks."""
    return {refer(task.task_id, made) for task in tasks for made in (task.first_seq, None)}


def _of_tasks(tasks: Sequence[Any]) -> ColumnElement[bool]:
    """What of the log is of these tasks, between the beginning of the first and the end of the last of them."""
    its = [_EVENT.c.seq >= min(task.first_seq for task in tasks), _EVENT.c.task_id.in_(_names(tasks))]
    if all(task.state in _TERMINAL for task in tasks):
        its.append(_EVENT.c.seq <= max(task.last_seq for task in tasks))
    return and_(*its)
