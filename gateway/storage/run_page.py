"""Pagination of a thread's runs: one page of an agent's runs, with their records.

The database searches the log, however long it is, and only the records of the page are decoded.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select, text

from babelgate.canonical.hub import RunPage
from babelgate.canonical.state import TERMINAL, WAITING
from babelgate.gateway.storage.log_key import IN_ORDER, is_in_log
from babelgate.gateway.storage.log_pages import decode_records
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, refer
from babelgate.gateway.storage.statements import of_kind, table_of
from babelgate.gateway.storage.tables import OPEN, EventRow, RunRow, TaskRow

_TASK, _RUN, _EVENT = table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_COLUMNS: Final = (_EVENT.c.seq, _EVENT.c.at, _EVENT.c.task_id, _EVENT.c.run_id, _EVENT.c.attempt, _EVENT.c.body)
_OF_TASK: Final = (_TASK.c.task_id, _TASK.c.first_seq, _TASK.c.last_seq, _TASK.c.state)
_MAX_NAMES: Final = 10_000
"""Maximum number of references to tasks in one query. Chosen: SQLite allows three times as many parameters."""
_ANYWHERE: Final = or_(_EVENT.c.task_id.is_(None), of_kind("step_started", "run_removed"))
"""SQL condition for records that a page needs from the whole log. All other needed records belong to a task of the
page, and are between the first and the last record of that task."""
_STEP: Final = beginnings("step_started")
_EARLIER_STEP: Final = b'"kind":"step_started"'
"""Text that marks a `step_started` record as earlier releases stored it. A match in the text of a message is harmless:
`run_page` then returns None, and the whole log is read."""
_TERMINAL: Final = frozenset(map(str, TERMINAL))

_ROOM: Final = 256 * 1024
"""Maximum stored size of a page's records, in bytes. Chosen. For a larger page the whole thread is read, and this read
is shared and cached."""


def run_page(connection: Connection, pk: int, agent: str, limit: int, offset: int) -> RunPage | None:
    """Return one page of an agent's runs on a thread with their records, as `babelgate.canonical.hub.Reads.run_page`
    specifies.

    Return None if the page is larger than `_ROOM`, or if agents have marked steps on the thread, because AIEF then
    shows one run as several steps. Then the whole thread has to be read.
    """
    is_shown = (_RUN.c.thread_pk == pk, _RUN.c.agent == agent, _RUN.c.removed == false())
    total = connection.execute(select(func.count()).select_from(_RUN).where(*is_shown)).scalar_one()
    page = select(_RUN.c.run_id, *_OF_TASK).where(*is_shown).order_by(_RUN.c.first_seq).limit(limit).offset(offset)
    of_task = (_TASK.c.owner == _RUN.c.owner) & (_TASK.c.task_id == _RUN.c.task_id)
    runs = connection.execute(page.join(_TASK, of_task)).all()
    waits = (_TASK.c.agent == agent, text(f"task.{OPEN}"), _TASK.c.state.in_([str(state) for state in WAITING]))
    selected = select(*_OF_TASK).where(_TASK.c.thread_pk == pk, *waits).limit(_MAX_NAMES)
    waiting = connection.execute(selected.with_hint(_TASK, "INDEXED BY task_open", "sqlite")).all()
    if 2 * (len(runs) + len(waiting)) > _MAX_NAMES:
        return None
    names = _names((*runs, *waiting))
    rows_by_seq: dict[int, tuple[Any, ...]] = {}
    size = 0
    anywhere = and_(is_in_log(pk), _ANYWHERE)
    for where in (anywhere, *(_of_tasks(pk, tasks) for tasks in (runs, waiting) if tasks)):
        log = select(*_COLUMNS).where(where).order_by(IN_ORDER)
        with closing(connection.execute(stream_rows(log))) as rows:
            for row in rows:
                if row.body.startswith(_STEP) or (row.body.startswith(b"{") and _EARLIER_STEP in row.body):
                    return None
                if row.seq not in rows_by_seq and (row.task_id is None or row.task_id in names):
                    rows_by_seq[row.seq] = tuple(row)
                    size += len(row.body)
                if size > _ROOM:
                    return None
    records = decode_records(connection, pk, [rows_by_seq[seq] for seq in sorted(rows_by_seq)])
    return RunPage(run_ids=[run.run_id for run in runs], total=total, records=records)


def _names(tasks: Iterable[Any]) -> set[str | None]:
    """Return all texts with which rows of the log may refer to these tasks: their ids and the short references."""
    return {refer(task.task_id, created) for task in tasks for created in (task.first_seq, None)}


def _of_tasks(pk: int, tasks: Sequence[Any]) -> ColumnElement[bool]:
    """Return the SQL condition for the records of these tasks of a thread.

    It limits the search to records after the beginning of the earliest task and, if all tasks have ended, before the
    end of the latest."""
    has_end = all(task.state in _TERMINAL for task in tasks)
    until = max(task.last_seq for task in tasks) if has_end else None
    near = is_in_log(pk, after=min(task.first_seq for task in tasks) - 1, until=until)
    return and_(near, _EVENT.c.task_id.in_(_names(tasks)))
