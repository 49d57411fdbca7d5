"""List of threads in the console: pages of an owner's threads, the most recently changed first.

The database pages by time of the newest record. Filters other than the status are applied row by row, up to a limit of
rows."""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    ScalarSelect,
    case,
    exists,
    false,
    func,
    literal,
    literal_column,
    select,
)

from babelgate.canonical.event import RunCreated
from babelgate.canonical.message import FilePart, first_words
from babelgate.canonical.stored import decode_event
from babelgate.canonical.thread import Interrupt, Run, Thread, ThreadStatus
from babelgate.canonical.value import JsonObject
from babelgate.gateway.storage.listing import has_only_agents
from babelgate.gateway.storage.log_key import is_record
from babelgate.gateway.storage.prepared import stream_rows
from babelgate.gateway.storage.run_summaries import QUESTION_BYTES
from babelgate.gateway.storage.short_form import decode_row, lengthen
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.summary_page import SEARCHED, find_page, has_words
from babelgate.gateway.storage.tables import BlobUseRow, EventRow, InterruptRow, RunRow, TaskRow, ThreadRow

T = TypeVar("T")

_THREAD, _TASK, _RUN = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
_EVENT, _INTERRUPT, _USE = table_of(EventRow), table_of(InterruptRow), table_of(BlobUseRow)

_SCANNED: Final = 1000
"""Maximum number of rows that one page reads to find those that match. Chosen: 10 ms."""
MAX_RUNS: Final = 1000
"""Maximum number of runs of a thread that are read, the newest ones. Chosen: 1 ms."""
_MAX_QUESTIONS: Final = 100
"""Maximum number of open questions that are read per thread, the oldest ones. Chosen."""
MAX_FILES: Final = 1000
"""Maximum number of files that are listed per thread. Chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadQuery:
    """Conditions of a search for threads. Ephemeral threads never match."""

    agent: str | None = None
    """Name of an agent that must have run on the thread. None means any."""
    agents: frozenset[str] | None = None
    """Names of the agents that alone may have run on the thread. None means any. The access guard sets it to the agents
    that the caller may read."""
    status: ThreadStatus | None = None
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Members that the thread's metadata must have. A value that is not a string is compared by its JSON text."""
    words: str = ""
    """Text that must occur in the title. Case is ignored. Empty matches all."""
    after: str | None = None
    """Value of `ThreadList.next_cursor` of the previous page. None for the first page."""
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadSummary:
    """One thread in the list of the console."""

    thread: Thread
    status: ThreadStatus
    updated_at: int
    """Time of the newest record, in microseconds since 1970, UTC."""
    title: str
    """Member `title` of the metadata, or else the first words of the first run's input. Empty if there are none."""
    agents: Sequence[str]
    """Names of the agents of the newest `MAX_RUNS` runs, the one of the newest run first."""
    runs: int
    """Number of runs, not counting more than `MAX_RUNS`."""
    questions: Sequence[Interrupt]
    """Open questions, the oldest first."""


@dataclass(frozen=True, slots=True)
class ThreadList:
    """One page of the list of threads."""

    threads: Sequence[ThreadSummary]
    next_cursor: str | None
    """Value of `ThreadQuery.after` for the next page. None if there are no more threads. A page without threads may
    have one, if no examined row matched."""


def list_threads(connection: Connection, owner: str, query: ThreadQuery) -> ThreadList:
    """Return one page of the threads of an owner that match a query. Raises invalid for a malformed cursor."""
    conditions: list[ColumnElement[bool]] = [_THREAD.c.owner == owner]
    if query.status is not None:
        conditions.append(_THREAD.c.status == query.status)
    has_agents: ColumnElement[bool] = literal(True) if query.agents is None else has_only_agents(query.agents)
    if query.agent is not None:
        has_agents &= exists().where(_TASK.c.thread_pk == _THREAD.c.pk, _TASK.c.agent == query.agent)
    columns = (_THREAD.c.pk, _THREAD.c.ephemeral, has_agents.label("has_agents"), *_rows_to_search(query))
    rows, next_cursor = find_page(
        connection,
        select(*columns).where(*conditions),
        (_THREAD.c.updated_at, _THREAD.c.pk),
        _THREAD.c.body,
        partial(_is_match, query=query),
        after=query.after,
        limit=query.limit,
        scanned=_SCANNED,
    )
    return ThreadList(_summarize(connection, [row.pk for row in rows]), next_cursor)


def _rows_to_search(query: ThreadQuery) -> Sequence[ColumnElement[Any]]:
    """Return the columns with the body of the thread and of its first run, or NULL where the query does not need
    them."""
    nothing: ColumnElement[Any] = literal_column("NULL")
    thread = run = nothing
    if query.words or query.metadata:
        thread = case((func.length(_THREAD.c.body) <= SEARCHED, _THREAD.c.body))
    if query.words:
        body = case((func.length(_RUN.c.body) <= SEARCHED, _RUN.c.body))
        first = select(body).where(_RUN.c.thread_pk == _THREAD.c.pk).order_by(_RUN.c.first_seq).limit(1)
        run = first.correlate(_THREAD).scalar_subquery()
    return thread.label("thread"), run.label("run")


def _is_match(row: Any, query: ThreadQuery) -> bool:
    if row.ephemeral or not row.has_agents:
        return False
    if not (query.words or query.metadata):
        return True
    if row.thread is None:
        return False
    metadata = decode_row(Thread, row.thread).metadata
    if not all(name in metadata and _as_text(metadata[name]) == value for name, value in query.metadata.items()):
        return False
    if not query.words:
        return True
    words = None if row.run is None else decode_row(Run, row.run).first_words
    return has_words(_title(metadata, words), query.words)


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _title(metadata: JsonObject, words: str | None) -> str:
    title = metadata.get("title")
    return title if isinstance(title, str) and title else words or ""


# Rows of a page


def summarize_thread(connection: Connection, owner: str, thread_id: str) -> ThreadSummary | None:
    """Return the summary of one thread, or None if it does not exist."""
    wanted = select(_THREAD.c.pk).where(_THREAD.c.owner == owner, _THREAD.c.thread_id == thread_id)
    pk = connection.execute(wanted).scalar()
    found = [] if pk is None else _summarize(connection, [pk])
    return found[0] if found else None


def _summarize(connection: Connection, keys: Sequence[int]) -> list[ThreadSummary]:
    """Return the summaries of the threads with these database keys, in this order. Erased threads are left out."""
    if not keys:
        return []
    columns = (_THREAD.c.pk, _THREAD.c.body, _THREAD.c.status, _THREAD.c.updated_at)
    body = case((func.length(_RUN.c.body) <= SEARCHED, _RUN.c.body))
    first = (_of_first_run(_RUN.c.first_seq).label("first_seq"), _of_first_run(body).label("first_run"))
    wanted = select(*columns, *first).where(_THREAD.c.pk.in_(keys))
    with closing(connection.execute(stream_rows(wanted))) as rows:
        threads = {row.pk: (decode_row(Thread, row.body), row) for row in rows}
    questions, agents = _read_questions(connection, keys), _read_agents(connection, keys)
    found: dict[int, ThreadSummary] = {}
    for pk, (thread, row) in threads.items():
        found[pk] = ThreadSummary(
            thread=thread,
            status=row.status,
            updated_at=row.updated_at,
            title=_title(thread.metadata, _read_first_words(connection, pk, row.first_seq, row.first_run)),
            agents=list(agents[pk]),
            runs=sum(agents[pk].values()),
            questions=questions.get(pk, ()),
        )
    return [found[pk] for pk in keys if pk in found]


def _of_first_run(column: ColumnElement[T]) -> ScalarSelect[T]:
    """Return a subquery for one column of a thread's first run that is not removed."""
    is_shown = (_RUN.c.thread_pk == _THREAD.c.pk, _RUN.c.removed == false())
    return select(column).where(*is_shown).order_by(_RUN.c.first_seq).limit(1).correlate(_THREAD).scalar_subquery()


def _read_agents(connection: Connection, keys: Sequence[int]) -> Mapping[int, Mapping[str, int]]:
    """Return, by database key of the thread, the agents of its newest `MAX_RUNS` runs, and how many of these runs each
    has.

    The agent of the newest run is first. Removed runs are left out."""
    newer = _RUN.alias()
    newest = select(newer.c.first_seq).where(newer.c.thread_pk == _THREAD.c.pk).order_by(newer.c.first_seq.desc())
    oldest = newest.limit(1).offset(MAX_RUNS - 1).correlate(_THREAD).scalar_subquery()
    of_thread = (_RUN.c.thread_pk == _THREAD.c.pk) & (_RUN.c.first_seq >= func.coalesce(oldest, 0))
    runs = select(_THREAD.c.pk, _RUN.c.agent, func.count()).select_from(_THREAD.join(_RUN, of_thread))
    wanted = runs.where(_THREAD.c.pk.in_(keys), _RUN.c.removed == false()).group_by(_THREAD.c.pk, _RUN.c.agent)
    agents: dict[int, dict[str, int]] = {pk: {} for pk in keys}
    for pk, agent, count in connection.execute(wanted.order_by(func.max(_RUN.c.first_seq).desc())):
        agents[pk][agent] = count
    return agents


def _read_first_words(connection: Connection, pk: int, seq: int | None, run: bytes | None) -> str | None:
    """Return the first words of the input of a thread's first run, or None if there are none or the run is too large.

    `run` is the row of that run, and `seq` the number of its first record."""
    words = None if run is None else decode_row(Run, run).first_words
    return _read_input(connection, pk, seq) if words is None and seq is not None else words


def _read_input(connection: Connection, pk: int, seq: int) -> str | None:
    """Return the first words of a run's input from its first record in the log.

    Used if the row has none, because an early release wrote it or it is large."""
    is_small = func.length(_EVENT.c.body) <= SEARCHED
    created = select(_EVENT.c.body).where(is_record(pk, seq), is_small)
    body = connection.execute(created).scalar()
    event = None if body is None else decode_event(lengthen(body))
    return first_words(event.messages) if isinstance(event, RunCreated) else None


def _read_questions(connection: Connection, keys: Sequence[int]) -> Mapping[int, Sequence[Interrupt]]:
    """Return the open questions of threads, by database key, the oldest first: at most `_MAX_QUESTIONS` per thread."""
    is_small = func.length(_INTERRUPT.c.body) <= QUESTION_BYTES
    open_now = (_INTERRUPT.c.thread_pk.in_(keys), _INTERRUPT.c.action.is_(None), is_small)
    wanted = select(_INTERRUPT.c.thread_pk, _INTERRUPT.c.body).where(*open_now).order_by(_INTERRUPT.c.seq)
    questions: dict[int, list[Interrupt]] = {}
    with closing(connection.execute(stream_rows(wanted.limit(_MAX_QUESTIONS * len(keys))))) as rows:
        for pk, body in rows:
            of_thread = questions.setdefault(pk, [])
            if len(of_thread) < _MAX_QUESTIONS:
                of_thread.append(decode_row(Interrupt, body))
    return questions


def read_run_ids(connection: Connection, pk: int) -> list[str]:
    """Return the ids of the newest `MAX_RUNS` runs of a thread, the oldest of them first. Removed runs are left out."""
    newest = select(_RUN.c.run_id, _RUN.c.removed).where(_RUN.c.thread_pk == pk).order_by(_RUN.c.first_seq.desc())
    return [run_id for run_id, removed in reversed(connection.execute(newest.limit(MAX_RUNS)).all()) if not removed]


def read_files(connection: Connection, pk: int) -> list[FilePart]:
    """Return up to `MAX_FILES` stored files that a thread refers to."""
    used = select(_USE.c.body).where(_USE.c.thread_pk == pk).order_by(_USE.c.blob).limit(MAX_FILES)
    return [decode_row(FilePart, body) for (body,) in connection.execute(used)]
