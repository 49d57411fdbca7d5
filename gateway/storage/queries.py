"""Read queries (read model) that use only the rows of threads, tasks and runs, not the log."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, TextClause, exists, false, func, or_, select, text

from babelgate.canonical.hub import Scope, Webhook
from babelgate.canonical.state import ENDED, WAITING, RunStatus
from babelgate.canonical.thread import Interrupt, Run, Task, Thread
from babelgate.gateway.storage.short_form import decode_row
from babelgate.gateway.storage.statements import sql_of, table_of
from babelgate.gateway.storage.tables import (
    LIVE,
    OPEN,
    PASSING,
    AliasRow,
    BlobUseRow,
    EventRow,
    InterruptRow,
    RunRow,
    TaskRow,
    ThreadRow,
    WebhookRow,
)

_THREAD, _TASK, _RUN = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
_EVENT = table_of(EventRow)
_INTERRUPT, _ALIAS, _USE, _HOOK = table_of(InterruptRow), table_of(AliasRow), table_of(BlobUseRow), table_of(WebhookRow)


def thread_key(connection: Connection, owner: str, thread_id: str) -> int | None:
    rows = sql_of(connection.dialect).thread.run(connection, (owner, thread_id))
    return rows[0][0] if rows else None


def thread(connection: Connection, owner: str, thread_id: str) -> Thread | None:
    rows = sql_of(connection.dialect).thread.run(connection, (owner, thread_id))
    return decode_row(Thread, rows[0][1]) if rows else None


@dataclass(frozen=True, slots=True)
class LogPosition:
    """End of a thread's log at the time of the query, for a reader of one scope."""

    pk: int
    """Database key of the thread."""
    end: int
    """Sequence number of the thread's newest record."""
    is_open: bool
    """True if more records of the scope may follow: always for a thread, and for a task or run until it has ended."""


def log_position(connection: Connection, owner: str, scope: Scope) -> LogPosition | None:
    """Return the end of a log for a reader of a scope, or None if there is no such thread.

    If the task or run of the scope does not exist, the scope is not open."""
    sql, of_thread = sql_of(connection.dialect), (owner, scope.thread_id)
    if scope.kind == "thread":
        rows = sql.thread_standing.run(connection, of_thread)
        return LogPosition(*rows[0], is_open=True) if rows else None
    statement = sql.task_standing if scope.kind == "task" else sql.run_standing
    rows = statement.run(connection, (*of_thread, scope.id))
    if not rows:
        return None
    pk, end, body = rows[0]
    if body is None:
        return LogPosition(pk, end, is_open=False)
    has_ended = decode_row(Task, body).is_terminal if scope.kind == "task" else decode_row(Run, body).has_ended
    return LogPosition(pk, end, is_open=not has_ended)


def task(connection: Connection, owner: str, task_id: str) -> Task | None:
    rows = sql_of(connection.dialect).task.run(connection, (owner, task_id))
    return decode_row(Task, rows[0][0]) if rows else None


def run(connection: Connection, owner: str, run_id: str) -> Run | None:
    rows = sql_of(connection.dialect).run.run(connection, (owner, run_id))
    return decode_row(Run, rows[0][0]) if rows else None


def last_begun(connection: Connection, pk: int, ended_before: int | None) -> Run | None:
    """Return the run of a thread that was started last, or None. Removed runs do not count.

    With `ended_before`, only runs count that ended before the record with this number. The run with the newest record
    is the one that was started last, because the runs of a thread execute one at a time."""
    selected = select(_RUN.c.body).where(_RUN.c.thread_pk == pk, _RUN.c.attempt > 0, _RUN.c.removed == false())
    if ended_before is not None:
        ended = _RUN.c.status.in_([str(status) for status in ENDED])
        selected = selected.where(ended, _RUN.c.last_seq < ended_before)
    body = connection.execute(selected.order_by(_RUN.c.last_seq.desc()).limit(1)).scalar()
    return None if body is None else decode_row(Run, body)


def chain(connection: Connection, owner: str, task_id: str) -> list[Task]:
    """Return a task, the task that continues it, the task that continues that one, and so on.

    A task continues an ended one if the caller sent another input to it (`Task.continues`). Return an empty list if the
    owner has no task with this id."""
    current = task(connection, owner, task_id)
    tasks: list[Task] = []
    while current is not None:
        tasks.append(current)
        body = connection.execute(
            select(_TASK.c.body)
            .where(_TASK.c.owner == owner, _TASK.c.continues == current.task_id)
            .order_by(_TASK.c.first_seq)
            .limit(1)
        ).scalar()
        current = None if body is None else decode_row(Task, body)
    return tasks


def open_interrupts(connection: Connection, owner: str, task_id: str) -> list[Interrupt]:
    rows = sql_of(connection.dialect).questions.run(connection, (owner, task_id))
    return [decode_row(Interrupt, body) for (body,) in rows]


def known_interrupts(
    connection: Connection, owner: str, thread_id: str, interrupt_ids: Collection[str]
) -> frozenset[str]:
    rows = connection.execute(
        select(_INTERRUPT.c.interrupt_id)
        .join(_THREAD, _THREAD.c.pk == _INTERRUPT.c.thread_pk)
        .where(_THREAD.c.owner == owner, _THREAD.c.thread_id == thread_id)
        .where(_INTERRUPT.c.interrupt_id.in_(list(interrupt_ids)))
    )
    return frozenset(rows.scalars())


def thread_of(connection: Connection, owner: str, protocol: str, agent: str, alias: str) -> str | None:
    rows = sql_of(connection.dialect).thread_of.run(connection, (owner, protocol, agent, alias))
    return rows[0][0] if rows else None


def aliases(connection: Connection, owner: str, protocol: str, thread_ids: Sequence[str]) -> dict[str, str]:
    rows = connection.execute(
        select(_ALIAS.c.thread_id, _ALIAS.c.alias).where(
            _ALIAS.c.owner == owner, _ALIAS.c.protocol == protocol, _ALIAS.c.thread_id.in_(thread_ids)
        )
    )
    return {row.thread_id: row.alias for row in rows}


def agents_of(connection: Connection, owner: str, thread_id: str) -> list[str]:
    """Return the names of the agents that have run on a thread, or an empty list if there is no such thread."""
    pk = thread_key(connection, owner, thread_id)
    if pk is None:
        return []
    return list(connection.execute(select(_TASK.c.agent).where(_TASK.c.thread_pk == pk).distinct()).scalars())


def blobs_in_use(connection: Connection) -> set[str]:
    return {blob for (blob,) in connection.execute(select(_USE.c.blob).distinct())}


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A run that is pending or running, with its task. Its gateway may have stopped."""

    owner: str
    thread_id: str
    pk: int
    """Database key of the thread."""
    agent: str
    run: Run
    task: Task
    crashes: int = 0
    """Number of gateway processes that were killed or crashed during the run."""


def live_runs(connection: Connection, node: str | None = None, pks: Sequence[int] | None = None) -> list[LiveRun]:
    """Return the pending and running runs, the oldest first.

    `node` and `pks` limit the result to runs of one node, and of threads with these database keys, unless they are
    None."""
    conditions: list[ColumnElement[bool] | TextClause] = [text(f"run.{LIVE}")]
    if node is not None:
        conditions.append(_RUN.c.node == node)
    if pks is not None:
        conditions.append(_RUN.c.thread_pk.in_(pks))
    rows = connection.execute(
        select(
            _RUN.c.owner, _TASK.c.thread_id, _RUN.c.thread_pk, _RUN.c.agent, _RUN.c.body, _TASK.c.body, _RUN.c.crashes
        )
        .join(_TASK, (_TASK.c.owner == _RUN.c.owner) & (_TASK.c.task_id == _RUN.c.task_id))
        .where(*conditions)
        .with_hint(_RUN, "INDEXED BY run_live", "sqlite")
        .order_by(_RUN.c.created_at, _RUN.c.thread_pk, _RUN.c.first_seq)
    )
    return [
        LiveRun(owner, thread_id, pk, agent, decode_row(Run, run), decode_row(Task, task), crashes)
        for owner, thread_id, pk, agent, run, task, crashes in rows
    ]


def waiting_threads(connection: Connection, node: str, now: int) -> list[tuple[str, str, str]]:
    """Return owner, thread id and agent of each pending run of a node that may start now, in order of creation.

    It may start if its time `start_after` has come, and no other run of its thread is running. `now` is in microseconds
    since 1970."""
    other = _RUN.alias()
    busy = exists().where(other.c.thread_pk == _RUN.c.thread_pk, other.c.status == str(RunStatus.RUNNING))
    due = or_(_RUN.c.start_after.is_(None), _RUN.c.start_after <= now)
    rows = connection.execute(
        select(_RUN.c.owner, _TASK.c.thread_id, _RUN.c.agent)
        .join(_TASK, (_TASK.c.owner == _RUN.c.owner) & (_TASK.c.task_id == _RUN.c.task_id))
        .where(text(f"run.{LIVE}"), _RUN.c.status == str(RunStatus.PENDING), _RUN.c.node == node, due, ~busy)
        .order_by(_RUN.c.created_at, _RUN.c.thread_pk, _RUN.c.first_seq)
    )
    return list(dict.fromkeys((owner, thread_id, agent) for owner, thread_id, agent in rows))


def open_tasks(connection: Connection) -> list[tuple[int, str]]:
    """Return, for every task that has not ended, the database key of its thread and its id."""
    rows = connection.execute(select(_TASK.c.thread_pk, _TASK.c.task_id).where(text(OPEN)))
    return [(pk, task_id) for pk, task_id in rows]


def count_waiting_tasks(connection: Connection) -> list[tuple[str, str, int]]:
    """Return the number of tasks that wait for an answer, for each agent and state: tuples of agent, state and
    number."""
    is_waiting = _TASK.c.state.in_(sorted(map(str, WAITING)))
    columns = _TASK.c.agent, _TASK.c.state
    rows = connection.execute(select(*columns, func.count()).where(text(OPEN), is_waiting).group_by(*columns))
    return [(agent, state, count) for agent, state, count in rows]


@dataclass(slots=True)
class Due:
    """A webhook to which records of its task are still to be delivered, and the progress of the delivery."""

    owner: str
    thread_id: str
    pk: int
    """Database key of the thread."""
    webhook: Webhook
    delivered_seq: int
    """Sequence number of the last delivered record."""
    node: str | None = None
    """Id of the node that delivers to the webhook. None if no node has taken it yet, or without a cluster."""
    failures: int = 0
    """Number of failed attempts to deliver the next body."""
    next_try: int | None = None
    """Time of the next attempt, in microseconds since 1970, UTC. None means now."""


def _webhook(row: tuple[str, str, str, str, bytes]) -> Webhook:
    task_id, webhook_id, dialect, url, body = row
    return Webhook(webhook_id=webhook_id, task_id=task_id, dialect=dialect, url=url, config=json.loads(body))


_HOOK_COLUMNS = (_HOOK.c.task_id, _HOOK.c.webhook_id, _HOOK.c.dialect, _HOOK.c.url, _HOOK.c.body)


def webhook_node(connection: Connection, owner: str, task_id: str, webhook_id: str) -> str | None:
    """Return the id of the node that delivers to a webhook.

    Return None if no node does, if there is no such webhook, or if everything is delivered."""
    this = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
    return connection.execute(select(_HOOK.c.node).where(*this, _HOOK.c.done.is_(False))).scalar()


def webhooks(connection: Connection, owner: str, task_id: str) -> list[Webhook]:
    rows = connection.execute(
        select(*_HOOK_COLUMNS).where(_HOOK.c.owner == owner, _HOOK.c.task_id == task_id).order_by(_HOOK.c.webhook_id)
    )
    return [_webhook(tuple(row)) for row in rows]


def due_webhooks(connection: Connection, node: str | None = None) -> list[Due]:
    """Return the webhooks to which records are still to be delivered: those of one node, or all if `node` is None."""
    return _due(connection, *(() if node is None else (_HOOK.c.node == node,)))


def due_webhook(connection: Connection, owner: str, task_id: str, webhook_id: str) -> Due | None:
    """Return a webhook with its progress, or None if it does not exist or everything is delivered."""
    this = (_HOOK.c.owner == owner, _HOOK.c.task_id == task_id, _HOOK.c.webhook_id == webhook_id)
    rows = _due(connection, *this)
    return rows[0] if rows else None


def _due(connection: Connection, *where: ColumnElement[bool]) -> list[Due]:
    thread = (_THREAD.c.owner == _HOOK.c.owner) & (_THREAD.c.thread_id == _HOOK.c.thread_id)
    progress = (_HOOK.c.delivered_seq, _HOOK.c.node, _HOOK.c.failures, _HOOK.c.next_try)
    rows = connection.execute(
        select(_HOOK.c.owner, _HOOK.c.thread_id, _THREAD.c.pk, *progress, *_HOOK_COLUMNS)
        .join(_THREAD, thread)
        .where(_HOOK.c.done.is_(False), *where)
    )
    return [
        Due(owner, thread_id, pk, _webhook(tuple(rest)), seq, node, failures, next_try)
        for owner, thread_id, pk, seq, node, failures, next_try, *rest in rows
    ]


def expiring_threads(connection: Connection) -> list[int]:
    """Return the database keys of the threads that are ephemeral or have a time to live."""
    return list(connection.execute(select(table_of(ThreadRow).c.pk).where(text(PASSING))).scalars())
