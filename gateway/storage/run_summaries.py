"""Lists of runs for people: one page of the runs of all threads, newest first.

The database pages by time of creation. Filters that have no index are applied row by row, up to a limit.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVarTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    ScalarSelect,
    Select,
    String,
    TextClause,
    and_,
    case,
    cast,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
)

from babelgate.canonical.state import ERRED as ERRED_STATUSES
from babelgate.canonical.state import RunStatus
from babelgate.canonical.thread import Interrupt, Run, Task
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.short_form import beginnings, decode_row
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.summary_page import SEARCHED, find_page, has_words
from babelgate.gateway.storage.tables import (
    DATED,
    ERRED,
    LIVE,
    EventRow,
    InterruptRow,
    NodeRow,
    RunRow,
    TaskRow,
    ThreadRow,
)

Ts = TypeVarTuple("Ts")

_THREAD, _TASK, _RUN = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
_EVENT, _NODE, _INTERRUPT = table_of(EventRow), table_of(NodeRow), table_of(InterruptRow)

SCANNED: Final = 5000
"""Maximum number of rows that one page reads to find those that match. Chosen: 10 ms."""
COUNTED: Final = 10_000
"""Maximum number of runs that are counted by agent. Chosen: 20 ms."""
_TEXTS_SCANNED: Final = 1000
"""Maximum number of rows that a search of texts reads for one page, because it decodes each of them."""
_BEFORE_OUTPUT: Final = 64
"""Maximum number of records of a thread from the creation of a run to its first output. Chosen: there are fewer than
ten, unless many runs are queued meanwhile."""
_OUTPUT: Final = ("part_added", "artifact_added", "tool_started", "interrupt_raised", "custom")
"""Kinds of records that are output of an agent."""
_LIVE_STATUSES: Final = frozenset({RunStatus.PENDING, RunStatus.RUNNING})
QUESTION_BYTES: Final = 256 * 1024
"""Maximum size of a question's row that a list shows, in bytes. Chosen."""
_MAX_QUESTIONS: Final = 500
"""Maximum number of questions per page. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Conditions of a search for runs. Removed runs and runs of ephemeral threads never match."""

    agent: str | None = None
    agents: frozenset[str] | None = None
    """Names of the agents whose runs match. None means all. The guard sets it to those that the caller may read."""
    status: frozenset[RunStatus] | None = None
    since: int | None = None
    """Earliest time of creation, in microseconds since 1970, UTC."""
    words: str = ""
    """Text that the first words of the input contain, in any case."""
    after: str | None = None
    """Cursor of an earlier page."""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run, as lists show it."""

    owner: str
    run: Run
    """The run without its output."""
    protocol: str
    version: str
    node: str | None
    """Name of the node that executes the run, or will start it. Its id if the node is gone; None without a cluster."""
    first_output_at: int | None
    """Time of the first output, in microseconds since 1970, UTC. None if there is none yet, or if it is not known."""
    questions: Sequence[Interrupt] = ()
    """Open questions of the run's task, if the run is paused."""


@dataclass(frozen=True, slots=True)
class RunList:
    """Page of runs."""

    runs: Sequence[RunSummary]
    next_cursor: str | None
    """Cursor of the next page; None if there are no more runs. A page may be empty and have one."""


def list_runs(connection: Connection, owner: str | None, query: RunQuery) -> RunList:
    """Return one page of an owner's runs, or of all owners' runs if it is None. Raises invalid."""
    keys, next_cursor = _find_keys(connection, owner, query)
    return RunList(summarize_runs(connection, keys), next_cursor)


def _find_keys(connection: Connection, owner: str | None, query: RunQuery) -> tuple[list[tuple[str, str]], str | None]:
    """Return the owners and ids of a page's runs, and the cursor of the next page."""
    position = [_RUN.c.created_at, *(() if owner is not None else (_RUN.c.owner,)), _RUN.c.run_id]
    scanned = _TEXTS_SCANNED if query.words else SCANNED
    body: ColumnElement[Any] = literal_column("NULL")
    if query.words:
        body = case((func.length(_RUN.c.body) <= SEARCHED, _RUN.c.body))
    columns = (_RUN.c.owner, _RUN.c.run_id, _RUN.c.created_at, _RUN.c.agent, _RUN.c.status, _RUN.c.removed)
    wanted = select(*columns, _is_ephemeral().label("is_ephemeral"), body.label("searched"))
    wanted = _use_index(wanted, owner, query.status, scanned)
    if query.since is not None:
        wanted = wanted.where(_RUN.c.created_at >= query.since)
    is_match = partial(_is_match, query=query)
    rows, next_cursor = find_page(
        connection, wanted, position, _RUN.c.body, is_match, after=query.after, limit=query.limit, scanned=scanned
    )
    return [(row.owner, row.run_id) for row in rows], next_cursor


@dataclass(frozen=True, slots=True)
class RunCount:
    """Number of runs that were created since a time."""

    runs: int = 0
    failed: int = 0


def count_runs(connection: Connection, owner: str | None, since: int) -> tuple[Mapping[str, RunCount], bool]:
    """Return the number of an owner's runs by agent, or of all owners' if it is None, that were created since a time.
    Removed runs and runs of ephemeral threads are left out.

    The second value is True if `COUNTED` runs or more were created: only the newest ones are counted.
    """
    columns = (_RUN.c.agent, _RUN.c.status, _RUN.c.removed, _RUN.c.thread_pk)
    created = select(*columns).where(*_of_owner(owner), _RUN.c.created_at >= since)
    newest = created.order_by(_RUN.c.created_at.desc()).limit(COUNTED).subquery("newest")
    is_shown = and_(newest.c.removed == false(), _THREAD.c.ephemeral == false())
    has_failed = newest.c.status.in_([str(status) for status in ERRED_STATUSES])
    wanted = select(
        newest.c.agent,
        func.count().label("created"),
        func.sum(case((is_shown, 1), else_=0)).label("shown"),
        func.sum(case((is_shown & has_failed, 1), else_=0)).label("failed"),
    ).select_from(newest.join(_THREAD, _THREAD.c.pk == newest.c.thread_pk))
    rows = connection.execute(wanted.group_by(newest.c.agent).order_by(newest.c.agent)).all()
    counts = {row.agent: RunCount(row.shown, row.failed) for row in rows if row.shown}
    return counts, sum(row.created for row in rows) == COUNTED


def _is_ephemeral() -> ScalarSelect[bool]:
    """Return a query for whether the thread of a run is ephemeral."""
    return select(_THREAD.c.ephemeral).where(_THREAD.c.pk == _RUN.c.thread_pk).correlate(_RUN).scalar_subquery()


def _of_owner(owner: str | None) -> Sequence[ColumnElement[bool] | TextClause]:
    """Return the conditions for the runs of an owner, by which the database finds them in the order of creation."""
    return () if owner is None else (_RUN.c.owner == owner, text(f"run.{DATED}"))


def _use_index(wanted: Select[*Ts], owner: str | None, status: Set[RunStatus] | None, scanned: int) -> Select[*Ts]:
    """Select the runs of an owner, or of all owners if it is None, by an index.

    If the query is for live runs only, select those of the newest threads, at most `scanned`. The index of live runs is
    not in the order of creation, so all selected runs are sorted.
    """
    if status and status <= _LIVE_STATUSES:
        live = _RUN.alias("live")
        of_owner = () if owner is None else (live.c.owner == owner,)
        newest = select(live.c.owner, live.c.run_id).where(text(f"live.{LIVE}"), *of_owner)
        newest = newest.with_hint(live, "INDEXED BY run_live", "sqlite")
        keys = newest.order_by(live.c.thread_pk.desc()).limit(scanned).subquery("newest")
        return wanted.join(keys, and_(_RUN.c.owner == keys.c.owner, _RUN.c.run_id == keys.c.run_id))
    if status and status <= ERRED_STATUSES and owner is not None:
        wanted = wanted.where(_RUN.c.owner == owner, text(f"run.{ERRED}"))
        return wanted.with_hint(_RUN, "INDEXED BY run_erred", "sqlite")
    return wanted.where(*_of_owner(owner))


def _is_match(row: Any, query: RunQuery) -> bool:
    if row.removed or row.is_ephemeral or (query.agent is not None and row.agent != query.agent):
        return False
    if query.agents is not None and row.agent not in query.agents:
        return False
    if query.status is not None and row.status not in query.status:
        return False
    if not query.words:
        return True
    return row.searched is not None and has_words(decode_row(Run, row.searched).first_words or "", query.words)


# Rows of a page


def summarize_runs(connection: Connection, keys: Sequence[tuple[str, str]]) -> list[RunSummary]:
    """Return the runs with these owners and ids, in this order. Runs that were deleted meanwhile are left out."""
    if not keys:
        return []
    of_task = and_(_TASK.c.owner == _RUN.c.owner, _TASK.c.task_id == _RUN.c.task_id)
    columns = (_RUN.c.owner, _RUN.c.run_id, _RUN.c.node, _RUN.c.body, _TASK.c.body.label("task"))
    wanted = (
        select(*columns, _first_output().label("output_at")).join(_TASK, of_task).where(_any_of(_RUN.c.run_id, keys))
    )
    found: dict[tuple[str, str], RunSummary] = {}
    waiting: list[tuple[str, str]] = []
    with closing(connection.execute(stream_rows(wanted))) as rows:
        for row in rows:
            task, run = decode_row(Task, row.task), decode_row(Run, row.body).replace(output=None)
            found[row.owner, row.run_id] = RunSummary(
                owner=row.owner,
                run=run,
                protocol=task.protocol,
                version=task.version,
                node=row.node,
                first_output_at=row.output_at,
            )
            if run.status is RunStatus.PAUSED and task.is_waiting:
                waiting.append((row.owner, run.task_id))
    questions, names = _read_questions(connection, waiting), _read_names(connection, found.values())
    return [_complete(found[key], questions, names) for key in keys if key in found]


def _read_names(connection: Connection, summaries: Iterable[RunSummary]) -> Mapping[str | None, str]:
    """Return the names of the living nodes of runs, by id."""
    ids = {summary.node for summary in summaries if summary.node is not None}
    if not ids:
        return {}
    wanted = select(_NODE.c.node_id, _NODE.c.name).where(_NODE.c.node_id.in_(ids))
    return {row.node_id: row.name for row in connection.execute(wanted)}


def _any_of(column: Column[str], keys: Iterable[tuple[str, str]]) -> ColumnElement[bool]:
    """Return the condition that a row has one of these owners and ids. `column` has the ids."""
    ids: dict[str, list[str]] = {}
    for owner, row_id in keys:
        ids.setdefault(owner, []).append(row_id)
    owner_column = column.table.c.owner  # pyright: ignore[reportAttributeAccessIssue] - a column of a table
    return or_(*(and_(owner_column == owner, column.in_(some)) for owner, some in ids.items()))


def _first_output() -> ScalarSelect[int]:
    """Return a query for the time of a run's first output. It reads a few records after the creation of the run."""
    reference = literal("#") + cast(_RUN.c.first_seq, String)  # `short_form.refer`
    near = _EVENT.c.seq.between(_RUN.c.first_seq + 1, _RUN.c.first_seq + _BEFORE_OUTPUT)
    is_output = or_(*(_begins_with(head) for kind in _OUTPUT for head in beginnings(kind)))
    of_run = (_EVENT.c.thread_pk == _RUN.c.thread_pk, near, _EVENT.c.run_id.in_((reference, _RUN.c.run_id)))
    wanted = select(_EVENT.c.at).where(*of_run, is_output).order_by(_EVENT.c.seq).limit(1)
    return wanted.correlate(_RUN).scalar_subquery()


def _begins_with(head: bytes) -> ColumnElement[bool]:
    return and_(_EVENT.c.body >= head, _EVENT.c.body < head[:-1] + bytes((head[-1] + 1,)))


def _read_questions(
    connection: Connection, tasks: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], Sequence[Interrupt]]:
    """Return the open questions of tasks, given by owner and id."""
    questions: dict[tuple[str, str], list[Interrupt]] = {}
    if not tasks:
        return questions
    is_small = func.length(_INTERRUPT.c.body) <= QUESTION_BYTES
    wanted = select(_INTERRUPT.c.owner, _INTERRUPT.c.task_id, _INTERRUPT.c.body).where(
        _any_of(_INTERRUPT.c.task_id, tasks), _INTERRUPT.c.action.is_(None), is_small
    )
    for row in connection.execute(wanted.order_by(_INTERRUPT.c.seq).limit(_MAX_QUESTIONS)):
        questions.setdefault((row.owner, row.task_id), []).append(decode_row(Interrupt, row.body))
    return questions


def _complete(
    summary: RunSummary,
    questions: Mapping[tuple[str, str], Sequence[Interrupt]],
    names: Mapping[str | None, str],
) -> RunSummary:
    """Return the run with its open questions, and with the name of its node instead of the id."""
    run = summary.run
    of_task = questions.get((summary.owner, run.task_id), ()) if run.status is RunStatus.PAUSED else ()
    # An answer to one question leaves the others open, also those of earlier runs of the task.
    open_questions = [each for each in of_task if each.raised_at <= (run.ended_at or 0)]
    return replace(summary, questions=open_questions, node=names.get(summary.node, summary.node))
