"""Tests of SQLite's query plans: no query scans a table that grows with use.

So a gateway that has run for a year starts and answers as fast as on its first day.
"""

from collections.abc import Generator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event

from babelgate.canonical import RunFilter, TaskFilter, ThreadFilter
from babelgate.canonical.hub import ThreadOrder, Turn
from babelgate.canonical.state import WAITING, RunStatus
from babelgate.canonical.thread import ThreadStatus
from babelgate.gateway.storage import listing, queries
from babelgate.gateway.storage.database import migrate
from babelgate.gateway.storage.page_cursor import encode_cursor
from babelgate.gateway.storage.prepared import Statement
from babelgate.gateway.storage.run_page import run_page
from babelgate.gateway.storage.run_rows import bound_runs
from babelgate.gateway.storage.run_summaries import RunQuery, count_runs, list_runs, summarize_runs
from babelgate.gateway.storage.sqlite import open_engine
from babelgate.gateway.storage.statements import Sql
from babelgate.gateway.storage.thread_summaries import (
    ThreadQuery,
    list_threads,
    read_files,
    read_run_ids,
    summarize_thread,
)
from babelgate.gateway.storage.turns import TurnRecords, find_records, find_turns, read_turns, removed_messages

PARTIAL = ("run_live", "task_open", "webhook_due", "blob_use_blob", "thread_expires")
"""Indexes that may be scanned: they hold only open rows, or a sweep must read all of them."""
LIMITED = "SCAN newest"
"""Step that reads a subquery with a limit."""
NOTHING = ("CONSTANT ROW", "(subquery-1)")
"""Steps in the plan of a query with an empty list of values, for which SQLAlchemy inserts a subquery without rows."""


def plan(connection: Connection, sql: str, parameters: Any) -> list[str]:
    return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", parameters)]


def walks(steps: list[str]) -> list[str]:
    scans = (step for step in steps if step.startswith("SCAN") and step != LIMITED)
    return [step for step in scans if not step.endswith((*PARTIAL, *NOTHING))]


def test_no_statement_of_the_writer_scans_a_table(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        statements = {name: value for name, value in vars(Sql(engine.dialect)).items() if isinstance(value, Statement)}
        assert len(statements) > 10
        for name, statement in statements.items():
            if not statement.sql.startswith("INSERT"):
                steps = plan(connection, statement.sql, ("x",) * statement.sql.count("?"))
                assert not walks(steps), f"{name}: {steps}"
    engine.dispose()


@contextmanager
def recorded_queries(engine: Engine) -> Generator[list[tuple[str, Any]]]:
    """Record the queries of an engine, with their parameters."""
    statements: list[tuple[str, Any]] = []

    def record(_: Any, __: Any, sql: str, parameters: Any, *___: Any) -> None:
        if sql.startswith("SELECT"):
            statements.append((sql, parameters))

    event.listen(engine, "before_cursor_execute", record)
    yield statements
    event.remove(engine, "before_cursor_execute", record)


def test_a_page_of_threads_uses_an_index(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    orders: tuple[ThreadOrder, ...] = ("created_at", "updated_at", "status")
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            for order, where in product(orders, (ThreadFilter(), ThreadFilter(status="idle"))):
                listing.threads(connection, "o", where, order=order, descending=True, limit=10, offset=0)
        assert len(executed) == 6
        for sql, parameters in executed:
            steps = plan(connection, sql, parameters)
            assert not [step for step in steps if "TEMP B-TREE" in step], f"{sql}: {steps}"
    engine.dispose()


def test_a_page_of_the_overview_uses_an_index(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            for owner, status in product(("o", None), (None, frozenset({RunStatus.ERROR}))):
                list_runs(
                    connection, owner, RunQuery(status=status, after=encode_cursor((1, *["x"] * (2 - bool(owner)))))
                )
            wanted: ThreadStatus | None
            for wanted in (None, "idle"):
                list_threads(connection, "o", ThreadQuery(status=wanted, after=encode_cursor((1, 1))))
        assert len(executed) == 6
        for sql, parameters in executed:
            steps = plan(connection, sql, parameters)
            assert not [step for step in steps if "TEMP B-TREE" in step], f"{sql}: {steps}"
    engine.dispose()


def test_reads_of_the_overview_sort_a_limited_number_of_rows(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            for owner in ("o", None):
                list_runs(connection, owner, RunQuery(status=frozenset({RunStatus.RUNNING})))
                count_runs(connection, owner, 1)
        indexes = (
            "INDEX run_live",
            "run_created (owner=? AND created_at>?)",
            "INDEX run_live",
            "run_newest (created_at>?)",
        )
        assert len(executed) == 4
        for (sql, parameters), index in zip(executed, indexes, strict=True):
            steps = plan(connection, sql, parameters)
            assert any(step.endswith(index) for step in steps), f"{sql}: {steps}"
            limited = steps.index(LIMITED)
            assert not [step for step in steps[:limited] if "TEMP B-TREE" in step], f"{sql}: {steps}"
    engine.dispose()


def test_waiting_tasks_are_found_by_an_index(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            listing.tasks(connection, "o", TaskFilter(agent="a", states=WAITING), 10, None)
        assert len(executed) == 2
        for sql, parameters in executed:
            steps = plan(connection, sql, parameters)
            assert any(step.endswith("USING INDEX task_open") for step in steps), f"{sql}: {steps}"
    engine.dispose()


def test_runs_of_a_task_are_found_by_an_index(tmp_path: Path) -> None:
    """Check that a task does not read all runs of its thread, which would take quadratic time."""
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            listing.runs(connection, "o", RunFilter(), limit=10, offset=0)
            listing.runs(connection, "o", RunFilter(metadata={"a": 1}), limit=10, offset=0)
        ordered, candidates = (" ".join(plan(connection, *each)) for each in executed)
        assert "USING INDEX run_thread (thread_pk=? AND first_seq>? AND first_seq<?)" in ordered
        assert candidates == "SEARCH run USING PRIMARY KEY (owner=?)"
    engine.dispose()


def test_tasks_of_ephemeral_threads_are_found_by_an_index(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        with recorded_queries(engine) as executed:
            listing.tasks(connection, "o", TaskFilter(agent="a", stateless=False), 10, None)
        assert len(executed) == 3
        for sql, parameters in executed[1:]:
            steps = plan(connection, sql, parameters)
            assert "thread USING INDEX thread_expires" in " ".join(steps), f"{sql}: {steps}"
            assert not [step for step in steps if "task USING PRIMARY KEY" in step], f"{sql}: {steps}"
    engine.dispose()


def test_no_query_of_a_reader_scans_a_table(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection, recorded_queries(engine) as executed:
        migrate(connection)
        executed.clear()
        queries.thread_key(connection, "o", "t")
        queries.thread(connection, "o", "t")
        queries.task(connection, "o", "t")
        queries.run(connection, "o", "r")
        queries.last_begun(connection, 1, None)
        queries.last_begun(connection, 1, 9)
        queries.chain(connection, "o", "t")
        listing.tasks(connection, "o", TaskFilter(agent="a", thread_id="t", changed_after=1), 10, None)
        listing.threads_at(connection, keys=[1, 2])
        listing.runs_at(connection, "o", keys=["r", "s"])
        listing.tasks_at(connection, "o", keys=["t", "u"])
        run_page(connection, 1, "a", 10, 0)
        find_turns(connection, 1, limit=10, beyond=None, descending=True)
        find_records(connection, 1, "o", [Turn(seq=3, until=9, task_id="t"), Turn(seq=2, until=2, message_id="m")])
        some: Any = {
            "runs": frozenset({"r"}),
            "tasks": frozenset({"t"}),
            "tasks_begun": frozenset({1}),
            "message_ranges": [(2, 2)],
        }
        read_turns(connection, 1, TurnRecords(first=1, until=9, **some), 0)
        removed_messages(connection, 1)
        queries.open_interrupts(connection, "o", "t")
        queries.thread_of(connection, "o", "p", "a", "x")
        queries.aliases(connection, "o", "p", ["t"])
        listing.file(connection, "o", "b")
        queries.blobs_in_use(connection)
        queries.live_runs(connection)
        queries.open_tasks(connection)
        queries.webhooks(connection, "o", "t")
        queries.due_webhooks(connection)
        queries.due_webhook(connection, "o", "t", "w")
        listing.passing_threads(connection, [1])
        bound_runs(connection, 1, "a")
        listing.thread_view(connection, "o", "t")
        page: Any = {"limit": 10, "offset": 0, "descending": True}
        where = ThreadFilter(ids=("t",), status="busy", agent="a", protocol="p", metadata={"a": 1})
        listing.threads(connection, "o", where, order="created_at", **page)
        listing.threads(connection, "o", ThreadFilter(), order="updated_at", **page)
        listing.count_threads(connection, "o", where)
        listing.count_threads(connection, "o", ThreadFilter(status="busy"))
        listing.count_threads(connection, "o", ThreadFilter(status="interrupted"))
        listing.count_threads(connection, "o", ThreadFilter())
        listing.runs(connection, "o", RunFilter(thread_id="t", agent="a"), limit=10, offset=0)
        listing.runs(connection, "o", RunFilter(status=frozenset({RunStatus.PENDING})), limit=10, offset=0)
        queries.expiring_threads(connection)
        for owner, statuses in product(("o", None), (None, {RunStatus.PENDING}, {RunStatus.ERROR})):
            status = None if statuses is None else frozenset(statuses)
            list_runs(connection, owner, RunQuery(agent="a", status=status, since=1, words="x"))
            count_runs(connection, owner, 1)
        summarize_runs(connection, [("o", "r"), ("o", "s"), ("p", "r")])
        list_threads(connection, "o", ThreadQuery(agent="a", status="busy", words="x", metadata={"a": "1"}))
        summarize_thread(connection, "o", "t")
        read_run_ids(connection, 1)
        read_files(connection, 1)
        assert len(executed) >= 16
        for sql, parameters in list(executed):
            steps = plan(connection, sql, parameters)
            assert not walks(steps), f"{sql}: {steps}"
    engine.dispose()
