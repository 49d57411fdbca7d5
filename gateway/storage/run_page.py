"""A page of an agent's runs on a thread, with the records that tell of them: the database looks through a log of any
length, and little of it is decoded."""

from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Any, Final

from sqlalchemy import Connection, and_, false, func, or_, select, text

from canonical.hub import RunPage
from canonical.state import WAITING
from gateway.storage.journal import decode_records
from gateway.storage.prepared import stream_rows
from gateway.storage.short_form import beginnings, refer
from gateway.storage.statements import PAGE, table_of
from gateway.storage.tables import OPEN, EventRow, RunRow, TaskRow

_TASK, _RUN, _EVENT = table_of(TaskRow), table_of(RunRow), table_of(EventRow)
_COLUMNS: Final = (_EVENT.c.seq, _EVENT.c.at, _EVENT.c.task_id, _EVENT.c.run_id, _EVENT.c.attempt, _EVENT.c.body)
_MOST: Final = 10_000
"""Names in one query: SQLite allows three times as many."""
_STEP: Final = beginnings("step_started")
_EARLIER_STEP: Final = b'"kind":"step_started"'
"""The same in a record of an earlier release, where it is not the first member. What is only said in these words falls
back on the whole log, too."""


def run_page(connection: Connection, pk: int, agent: str, limit: int, offset: int) -> RunPage | None:
    """As `canonical.hub.Reads.run_page`."""
    shown = (_RUN.c.thread_pk == pk, _RUN.c.agent == agent, _RUN.c.removed == false())
    total = connection.execute(select(func.count()).select_from(_RUN).where(*shown)).scalar_one()
    page = select(_RUN.c.run_id, _RUN.c.task_id).where(*shown).order_by(_RUN.c.first_seq).limit(limit).offset(offset)
    runs = connection.execute(page).all()
    names = _names(connection, pk, agent, {run.task_id for run in runs})
    if len(names) > _MOST:
        return None
    first_byte = func.substr(_EVENT.c.body, 1, 1)
    told = or_(_EVENT.c.task_id.is_(None), _EVENT.c.task_id.in_(names), first_byte.in_({each[:1] for each in _STEP}))
    log = select(*_COLUMNS).where(_EVENT.c.thread_pk == pk, told).order_by(_EVENT.c.seq)
    kept: list[tuple[Any, ...]] = []
    size = 0
    with closing(connection.execute(stream_rows(log))) as rows:
        for row in rows:
            if row.body.startswith(_STEP) or (row.body.startswith(b"{") and _EARLIER_STEP in row.body):
                return None
            if row.task_id is None or row.task_id in names:
                kept.append(tuple(row))
                size += len(row.body)
            if size > PAGE:
                return None
    return RunPage(run_ids=[run.run_id for run in runs], total=total, records=decode_records(connection, pk, kept))


def _names(connection: Connection, pk: int, agent: str, task_ids: AbstractSet[str]) -> set[str | None]:
    """What the log may hold in the place of the ids of these tasks, and of the agent's that wait for an answer."""
    waits = (_TASK.c.agent == agent, text(f"task.{OPEN}"), _TASK.c.state.in_([str(state) for state in WAITING]))
    found = select(_TASK.c.task_id, _TASK.c.first_seq).where(
        _TASK.c.thread_pk == pk, or_(_TASK.c.task_id.in_(task_ids), and_(*waits))
    )
    rows = connection.execute(found.limit(_MOST)).all()
    return {refer(row.task_id, made) for row in rows for made in (row.first_seq, None)}
