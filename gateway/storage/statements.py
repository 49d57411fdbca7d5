"""SQL statements of the hot path, compiled once per database. `babelgate.gateway.storage.prepared` states the gain."""

from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Dialect,
    Integer,
    Table,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import ClauseElement
from sqlalchemy.sql.functions import GenericFunction

from babelgate.gateway.storage.log_key import IN_ORDER, inserting_events, is_in_log, is_record, newest_seq
from babelgate.gateway.storage.prepared import Statement, inserting
from babelgate.gateway.storage.short_form import beginnings
from babelgate.gateway.storage.tables import (
    LIVE,
    OPEN,
    AliasRow,
    BlobUseRow,
    CheckpointRow,
    CheckpointValueRow,
    CheckpointWriteRow,
    EventRow,
    GrantRow,
    InterruptRow,
    RunRow,
    SpendRow,
    TaskRow,
    ThreadMemberRow,
    ThreadRow,
    ThreadValueRow,
    TombstoneRow,
    WebhookRow,
)

PAGE: Final = 2 * 2**20
"""Maximum stored size of the events in one page, in bytes. Chosen: decoded events take several times as much memory."""
_JSON: Final = b"{"
"""First byte of every event that an early release has stored, of any kind."""


def table_of(model: Any) -> Table:
    return cast("Table", model.__table__)


def of_kind(*kinds: str) -> ColumnElement[bool]:
    """Return the SQL condition for records that may have one of these kinds.

    It also selects all records that an early release stored as plain JSON, so the kind of each selected record must be
    checked. Comparing the whole body takes half the time of extracting its first byte.
    """
    event = table_of(EventRow)
    heads = {_JSON, *(head[:1] for kind in kinds for head in beginnings(kind))}
    return or_(*(and_(event.c.body >= head, event.c.body < bytes((head[0] + 1,))) for head in sorted(heads)))


class Position(GenericFunction[int]):
    """SQL function for the position of one byte string within another, counted from 1. 0 means that it does not
    occur."""

    name = "instr"
    type = Integer()
    inherit_cache = True


@compiles(Position, "postgresql")
def _in_postgresql(element: Position, compiler: SQLCompiler, **options: Any) -> str:
    value, wanted = (compiler.process(each, **options) for each in element.clauses)
    return f'pg_catalog."position"({value}, {wanted})'


class Sql:
    """All compiled statements of the hot path for one dialect of SQLAlchemy."""

    def __init__(self, dialect: Dialect) -> None:
        thread, task, run = table_of(ThreadRow), table_of(TaskRow), table_of(RunRow)
        interrupt, event, tombstone = table_of(InterruptRow), table_of(EventRow), table_of(TombstoneRow)
        self.insert_event = inserting_events(dialect)
        self.insert_task = inserting(task, dialect)
        # `crashes` is not part of the fold: a new row gets the default of the column, and an update does not change it.
        folded = tuple(column.name for column in run.columns if column.name != "crashes")
        self.insert_run = inserting(run, dialect, *folded)
        self.insert_interrupt = inserting(interrupt, dialect)
        self.insert_tombstone = inserting(tombstone, dialect)
        alias = table_of(AliasRow)
        self.insert_alias = inserting(alias, dialect)
        named = ("owner", "protocol", "agent", "alias")
        self.thread_of = Statement(
            select(alias.c.thread_id).where(*(alias.c[name] == bindparam(name) for name in named)), dialect, named
        )
        self.insert_thread = inserting(thread, dialect)
        member = table_of(ThreadMemberRow)
        key, pk = bindparam("b_key", type_=BigInteger()), bindparam("b_pk", type_=BigInteger())
        # Both databases have this syntax, and SQLAlchemy has it only as two dialects' own statements.
        added = text("INSERT INTO thread_member (key, thread_pk) VALUES (:b_key, :b_pk) ON CONFLICT DO NOTHING")
        self.insert_member = Statement(added.bindparams(key, pk), dialect, ("b_key", "b_pk"))
        self.delete_member = Statement(
            delete(member).where(member.c.key == key, member.c.thread_pk == pk), dialect, ("b_key", "b_pk")
        )
        self.update_thread = Statement(
            update(thread)
            .where(thread.c.pk == bindparam("b_pk"))
            .values(
                changed_at=bindparam("b_at"),
                ephemeral=bindparam("b_ephemeral"),
                expires=bindparam("b_expires"),
                status=bindparam("b_status"),
                updated_at=bindparam("b_updated"),
                body=bindparam("b_body"),
            ),
            dialect,
            ("b_pk", "b_at", "b_ephemeral", "b_expires", "b_status", "b_updated", "b_body"),
        )
        self.update_standing = Statement(
            update(thread)
            .where(thread.c.pk == bindparam("b_pk"))
            .values(status=bindparam("b_status"), updated_at=bindparam("b_updated")),
            dialect,
            ("b_pk", "b_status", "b_updated"),
        )
        self.update_task = Statement(
            update(task)
            .where(task.c.owner == bindparam("b_owner"), task.c.task_id == bindparam("b_id"))
            .values(
                state=bindparam("b_state"),
                changed_at=bindparam("b_at"),
                last_seq=bindparam("b_seq"),
                body=bindparam("b_body"),
            ),
            dialect,
            ("b_owner", "b_id", "b_state", "b_at", "b_seq", "b_body"),
        )
        self.update_run = Statement(
            update(run)
            .where(run.c.owner == bindparam("b_owner"), run.c.run_id == bindparam("b_id"))
            .values(
                status=bindparam("b_status"),
                attempt=bindparam("b_attempt"),
                last_seq=bindparam("b_seq"),
                removed=bindparam("b_removed"),
                node=func.coalesce(bindparam("b_node", type_=run.c.node.type), run.c.node),
                body=bindparam("b_body"),
            ),
            dialect,
            ("b_owner", "b_id", "b_status", "b_attempt", "b_seq", "b_removed", "b_node", "b_body"),
        )
        self.update_interrupt = Statement(
            update(interrupt)
            .where(
                interrupt.c.owner == bindparam("b_owner"),
                interrupt.c.task_id == bindparam("b_task"),
                interrupt.c.interrupt_id == bindparam("b_id"),
            )
            .values(action=bindparam("b_action"), body=bindparam("b_body")),
            dialect,
            ("b_owner", "b_task", "b_id", "b_action", "b_body"),
        )
        self.asked = Statement(
            select(interrupt.c.seq).where(
                interrupt.c.owner == bindparam("owner"),
                interrupt.c.task_id == bindparam("task"),
                interrupt.c.interrupt_id == bindparam("id"),
            ),
            dialect,
            ("owner", "task", "id"),
        )
        self.thread = Statement(
            select(thread.c.pk, thread.c.body).where(
                thread.c.owner == bindparam("owner"), thread.c.thread_id == bindparam("id")
            ),
            dialect,
            ("owner", "id"),
        )
        self.tombstone = Statement(
            select(tombstone.c.at).where(
                tombstone.c.owner == bindparam("owner"), tombstone.c.thread_id == bindparam("id")
            ),
            dialect,
            ("owner", "id"),
        )
        self.delete_tombstone = Statement(
            delete(tombstone).where(tombstone.c.owner == bindparam("owner"), tombstone.c.thread_id == bindparam("id")),
            dialect,
            ("owner", "id"),
        )
        pk = bindparam("pk", type_=BigInteger())
        by_key = (TaskRow, RunRow, InterruptRow, BlobUseRow, GrantRow, ThreadMemberRow, ThreadValueRow)
        by_id = (AliasRow, WebhookRow, CheckpointRow, CheckpointValueRow, CheckpointWriteRow)
        keys = {table_of(row): ("thread_pk",) for row in by_key} | {
            table_of(row): ("owner", "thread_id") for row in by_id
        }
        self.delete_from_tables = [_deleting(each, dialect, *names) for each, names in keys.items()]
        """Statements that delete the rows of an erased thread, by the keys in `keys_of_tables`."""
        self.keys_of_tables = list(keys.values())
        self.has_rows_in_tables = Statement(
            select(
                *(exists().where(*(each.c[name] == bindparam(name) for name in names)) for each, names in keys.items())
            ),
            dialect,
            ("thread_pk", "owner", "thread_id"),
        )
        """Query with a column for each statement of `delete_from_tables`: whether it would delete rows."""
        self.delete_log = Statement(delete(event).where(is_in_log(pk)), dialect, ("pk",))
        self.delete_thread = _deleting(thread, dialect, "pk")
        # As text, because SQLAlchemy adds an OFFSET for SQLite.
        newest_runs = (
            "SELECT body FROM run WHERE thread_pk = :pk AND agent = :agent ORDER BY first_seq DESC LIMIT :most"
        )
        self.newest_runs = Statement(text(newest_runs), dialect, ("pk", "agent", "most"), bounded=True)
        sizes = select(event.c.seq, func.length(event.c.body)).where(is_in_log(pk)).order_by(IN_ORDER)
        self.sizes = Statement(sizes.suffix_with(text("LIMIT :most")), dialect, ("pk", "most"), bounded=True)
        newest = select(event.c.seq, event.c.at).where(is_record(pk, newest_seq(pk)))
        self.head = Statement(newest, dialect, ("pk",))
        here = (thread.c.owner == bindparam("owner"), thread.c.thread_id == bindparam("id"))
        end = newest_seq(thread.c.pk)
        of_task = (task.c.owner == thread.c.owner, task.c.thread_pk == thread.c.pk, task.c.task_id == bindparam("of"))
        of_run = (run.c.owner == thread.c.owner, run.c.thread_pk == thread.c.pk, run.c.run_id == bindparam("of"))
        its_task = select(task.c.body).where(*of_task).scalar_subquery()
        its_run = select(run.c.body).where(*of_run).scalar_subquery()
        self.thread_standing = Statement(select(thread.c.pk, end).where(*here), dialect, ("owner", "id"))
        self.task_standing = Statement(select(thread.c.pk, end, its_task).where(*here), dialect, ("owner", "id", "of"))
        self.run_standing = Statement(select(thread.c.pk, end, its_run).where(*here), dialect, ("owner", "id", "of"))
        hook = table_of(WebhookRow)
        of_hook = (hook.c.owner == task.c.owner, hook.c.task_id == task.c.task_id, hook.c.done == false())
        due = exists().where(task.c.thread_pk == thread.c.pk, *of_hook)
        self.passing_thread = Statement(
            select(thread.c.body, thread.c.status, thread.c.updated_at, end, due).where(thread.c.pk == pk),
            dialect,
            ("pk",),
        )
        self.open_tasks = Statement(
            select(task.c.body).where(task.c.thread_pk == bindparam("pk"), text(OPEN)),
            dialect,
            ("pk",),
        )
        self.live_runs = Statement(
            select(run.c.body).where(run.c.thread_pk == bindparam("pk"), text(LIVE)).order_by(run.c.first_seq),
            dialect,
            ("pk",),
        )
        is_shown = (run.c.thread_pk == bindparam("pk"), run.c.removed == false())
        newest = select(func.max(run.c.first_seq)).where(*is_shown).scalar_subquery()
        self.newest_run = Statement(
            select(run.c.first_seq, run.c.status).where(*is_shown, run.c.first_seq == newest), dialect, ("pk",)
        )
        self.open_interrupts = Statement(
            select(interrupt.c.body)
            .where(interrupt.c.thread_pk == bindparam("pk"), interrupt.c.action.is_(None))
            .order_by(interrupt.c.seq),
            dialect,
            ("pk",),
        )
        self.questions = Statement(
            select(interrupt.c.body)
            .where(
                interrupt.c.owner == bindparam("owner"),
                interrupt.c.task_id == bindparam("task"),
                interrupt.c.action.is_(None),
            )
            .order_by(interrupt.c.seq),
            dialect,
            ("owner", "task"),
        )
        self.page = Statement(_page(dialect), dialect, ("pk", "after", "until"), bounded=True)
        self.creation = Statement(
            select(event.c.body).where(is_record(pk, bindparam("seq", type_=BigInteger()))),
            dialect,
            ("pk", "seq"),
        )
        self.task = Statement(
            select(task.c.body).where(task.c.owner == bindparam("owner"), task.c.task_id == bindparam("id")),
            dialect,
            ("owner", "id"),
        )
        self.run = Statement(
            select(run.c.body, run.c.thread_pk, task.c.thread_id)
            .join(task, (task.c.owner == run.c.owner) & (task.c.task_id == run.c.task_id))
            .where(run.c.owner == bindparam("owner"), run.c.run_id == bindparam("id")),
            dialect,
            ("owner", "id"),
        )
        spend = table_of(SpendRow)
        self.add_spend = Statement(
            text(ADD_SPEND),
            dialect,
            ("scope", "period", "input", "output", "cost", "runs", "unknown", "now"),
        )
        self.forget_spend = Statement(
            delete(spend).where(spend.c.scope == bindparam("b_scope"), spend.c.period == bindparam("b_period")),
            dialect,
            ("b_scope", "b_period"),
        )


ADD_SPEND: Final = (
    "INSERT INTO spend (scope, period, input, output, cost, runs, unknown, extra_cost, extra_tokens, extra_runs, "
    "changed_at) VALUES (:scope, :period, :input, :output, :cost, :runs, :unknown, 0, 0, 0, :now) "
    "ON CONFLICT (scope, period) DO UPDATE SET input = spend.input + excluded.input, "
    "output = spend.output + excluded.output, cost = spend.cost + excluded.cost, runs = spend.runs + excluded.runs, "
    "unknown = spend.unknown + excluded.unknown, changed_at = excluded.changed_at"
)
"""Statement that adds an amount to a row of `spend`, which it creates if there is none."""


def _deleting(table: Table, dialect: Dialect, *columns: str) -> Statement:
    """Return the statement that deletes the rows of a table with these values of columns."""
    matches = (table.c[name] == bindparam(f"b_{name}") for name in columns)
    return Statement(delete(table).where(*matches), dialect, tuple(f"b_{name}" for name in columns))


def _page(dialect: Dialect) -> ClauseElement:
    """Return the query for the records of a thread between two sequence numbers, in order.

    SQLite reads rows only as they are fetched. PostgreSQL sends all rows of a result, so its query stops after the
    record that exceeds `PAGE` bytes."""
    event = table_of(EventRow)
    columns = (event.c.seq, event.c.at, event.c.task_id, event.c.run_id, event.c.attempt, event.c.body)
    pk, after, until = (bindparam(name, type_=BigInteger()) for name in ("pk", "after", "until"))
    wanted = is_in_log(pk, after=after, until=until)
    if dialect.name == "sqlite":
        return select(*columns).where(wanted).order_by(IN_ORDER)
    size = func.length(event.c.body)
    before = (func.sum(size).over(order_by=event.c.seq) - size).label("before")
    some = select(*columns, before).where(wanted).subquery()
    return (
        select(*(some.c[column.name] for column in columns))
        .where(some.c.before <= literal_column(str(PAGE)))
        .order_by(some.c.seq)
    )


def sql_of(dialect: Dialect) -> Sql:
    """Return the compiled statements for a dialect. All connections to one kind of database share them: compiling takes
    4 ms."""
    return _sql_of(type(dialect), dialect.paramstyle)


@cache
def _sql_of(kind: Callable[..., Dialect], paramstyle: str) -> Sql:
    return Sql(kind(paramstyle=paramstyle))
