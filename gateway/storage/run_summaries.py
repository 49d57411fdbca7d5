"""List of runs in the console: pages of the runs of all threads, the newest first.

The database pages by time of creation. Filters that have no index are applied row by row, up to a limit of rows."""

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
from babelgate.gateway.storage.log_key import IN_ORDER, is_in_log
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
"""Maximum number of runs that `count_runs` counts. Chosen: 20 ms."""
_TEXTS_SCANNED: Final = 1000
"""Maximum number of rows that one page examines if it searches for words. Chosen: each of these rows is decoded."""
_BEFORE_OUTPUT: Final = 64
"""Number of records after the creation of a run among which its first output is searched. Chosen: the first output
follows within ten records, unless many runs are queued meanwhile."""
_OUTPUT: Final = ("part_added", "artifact_added", "tool_started", "interrupt_raised", "custom")
"""Kinds of events that count as output of an agent."""
_LIVE_STATUSES: Final = frozenset({RunStatus.PENDING, RunStatus.RUNNING})
QUESTION_BYTES: Final = 256 * 1024
"""Maximum size of a question's row that a list shows, in bytes. Larger questions are left out. Chosen."""
_MAX_QUESTIONS: Final = 500
"""Maximum number of questions per page. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Conditions of a search for runs. Removed runs and runs of ephemeral threads never match."""

    agent: str | None = None
    agents: frozenset[str] | None = None
    """Names of the agents whose runs match. None means all. The access guard sets it to the agents that the caller may
    read."""
    status: frozenset[RunStatus] | None = None
    since: int | None = None
    """Time of creation from which on runs match, in microseconds since 1970, UTC."""
    words: str = ""
    """Text that must occur in the first words of the run's input. Case is ignored. Empty matches all."""
    after: str | None = None
    """Value of `RunList.next_cursor` of the previous page. None for the first page."""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """One run in the list of the console."""

    owner: str
    run: Run
    """The run without its output."""
    protocol: str
    version: str
    node: str | None
    """Name of the node that executes the run, or on which it waits. Its id if the node is gone; None without a
    cluster."""
    first_output_at: int | None
    """Time of the agent's first output, in microseconds since 1970, UTC. None if there is none yet, or if it was not
    found among the first records."""
    questions: Sequence[Interrupt] = ()
    """Open questions of the run's task, if the run is paused."""


@dataclass(frozen=True, slots=True)
class RunList:
    """One page of the list of runs."""

    runs: Sequence[RunSummary]
    next_cursor: str | None
    """Value of `RunQuery.after` for the next page. None if there are no more runs. A page without runs may have one, if
    no examined row matched."""


def list_runs(connection: Connection, owner: str | None, query: RunQuery) -> RunList:
    """Return one page of the runs of an owner, or of all owners if `owner` is None. Raises invalid for a malformed
    cursor."""
    keys, next_cursor = _find_keys(connection, owner, query)
    return RunList(summarize_runs(connection, keys), next_cursor)


def _find_keys(connection: Connection, owner: str | None, query: RunQuery) -> tuple[list[tuple[str, str]], str | None]:
    """Return the owner and id of each run on a page, and the cursor of the next page."""
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
    """Number of runs of one agent, and how many of them failed."""

    runs: int = 0
    failed: int = 0


def count_runs(connection: Connection, owner: str | None, since: int) -> tuple[Mapping[str, RunCount], bool]:
    """Count the runs of an owner, or of all owners if `owner` is None, that were created since a time. Return numbers
    by agent.

    `since` is in microseconds since 1970. Removed runs and runs of ephemeral threads are left out. The second value is
    True if at least `COUNTED` runs were created: only the newest are counted then."""
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
    """Return a subquery that is true if the thread of a run is ephemeral."""
    return select(_THREAD.c.ephemeral).where(_THREAD.c.pk == _RUN.c.thread_pk).correlate(_RUN).scalar_subquery()


def _of_owner(owner: str | None) -> Sequence[ColumnElement[bool] | TextClause]:
    """Return the SQL conditions for the runs of an owner. They match the index that is sorted by time of creation."""
    return () if owner is None else (_RUN.c.owner == owner, text(f"run.{DATED}"))


def _use_index(wanted: Select[*Ts], owner: str | None, status: Set[RunStatus] | None, scanned: int) -> Select[*Ts]:
    """Restrict the query to an owner's runs (None: all) in such a form that the database uses the best index.

    If only active runs are wanted, at most `scanned` of them are selected, those of the newest threads. The index of
    active runs is not in order of creation, so all selected runs are sorted."""
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
    """Return the summaries of runs, given by owner and id, in the order of `keys`. Runs that were deleted meanwhile are
    left out."""
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
    """Return the name of each living node that one of the runs belongs to, by node id."""
    ids = {summary.node for summary in summaries if summary.node is not None}
    if not ids:
        return {}
    wanted = select(_NODE.c.node_id, _NODE.c.name).where(_NODE.c.node_id.in_(ids))
    return {row.node_id: row.name for row in connection.execute(wanted)}


def _any_of(column: Column[str], keys: Iterable[tuple[str, str]]) -> ColumnElement[bool]:
    """Return the SQL condition that a row has one of these pairs of owner and id. `column` is the column of the id."""
    ids: dict[str, list[str]] = {}
    for owner, row_id in keys:
        ids.setdefault(owner, []).append(row_id)
    owner_column = column.table.c.owner  # pyright: ignore[reportAttributeAccessIssue] - a column of a table
    return or_(*(and_(owner_column == owner, column.in_(some)) for owner, some in ids.items()))


def _first_output() -> ScalarSelect[int]:
    """Return a subquery for the time of a run's first output, among the `_BEFORE_OUTPUT` records after its creation."""
    reference = literal("#") + cast(_RUN.c.first_seq, String)  # `short_form.refer`
    near = is_in_log(_RUN.c.thread_pk, after=_RUN.c.first_seq, until=_RUN.c.first_seq + _BEFORE_OUTPUT)
    is_output = or_(*(_begins_with(head) for kind in _OUTPUT for head in beginnings(kind)))
    of_run = (near, _EVENT.c.run_id.in_((reference, _RUN.c.run_id)))
    wanted = select(_EVENT.c.at).where(*of_run, is_output).order_by(IN_ORDER).limit(1)
    return wanted.correlate(_RUN).scalar_subquery()


def _begins_with(head: bytes) -> ColumnElement[bool]:
    return and_(_EVENT.c.body >= head, _EVENT.c.body < head[:-1] + bytes((head[-1] + 1,)))


def _read_questions(
    connection: Connection, tasks: Sequence[tuple[str, str]]
) -> Mapping[tuple[str, str], Sequence[Interrupt]]:
    """Return the open questions of tasks by owner and task id: at most `_MAX_QUESTIONS`, each up to
    `QUESTION_BYTES`."""
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
    """Add the open questions to the summary of a run, and replace the id of its node by the node's name."""
    run = summary.run
    of_task = questions.get((summary.owner, run.task_id), ()) if run.status is RunStatus.PAUSED else ()
    # An answer to one question leaves the others open, also those of earlier runs of the task.
    open_questions = [each for each in of_task if each.raised_at <= (run.ended_at or 0)]
    return replace(summary, questions=open_questions, node=names.get(summary.node, summary.node))
