"""Tests of opening the database: its file, its schema, and the lock that admits one gateway at a time."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect
from sqlmodel import SQLModel

from babelgate.canonical import FaultCode, FaultError, TaskState, Thread, ThreadChange
from babelgate.gateway.storage import migrations
from babelgate.gateway.storage.database import HEAD, REVISIONS, migrate
from babelgate.gateway.storage.short_form import encode_row
from babelgate.gateway.storage.sqlite import open_engine
from tests.gateway.hubs import OWNER, Echo, HubFactory, Scripted, ends, reaches, registered, submit
from tests.gateway.storage.revisions import migrate_to

SCHEMA = Path(migrations.__file__).parent / "schema.sql"


def test_a_new_database_has_the_declared_tables(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
    with engine.begin() as connection:
        migrate(connection)  # nothing to do
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == HEAD
        names = set(inspect(connection).get_table_names()) - {"alembic_version"}
        names_of_models = {name for name, table in SQLModel.metadata.tables.items() if table.name in names}
        assert names == names_of_models
        assert differences_from_models(connection) == []
    engine.dispose()


def differences_from_models(connection: Connection) -> list[Any]:
    """Compare the schema with the models. Only SQLite's log has the column `id`, so the models do not declare it."""

    def is_declared(_: Any, name: str | None, kind: str, *__: Any) -> bool:
        return (name, kind) != ("id", "column")

    context = MigrationContext.configure(connection, opts={"include_object": is_declared})
    return compare_metadata(context, SQLModel.metadata)


def test_a_new_database_equals_a_migrated_empty_one(tmp_path: Path, accept: bool) -> None:
    """Compare the schema file with the migrations. `pytest --accept` writes it again after a new migration."""
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate_to("head", connection)
        statements = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY rowid")
        schema = ";\n\n".join(statements.scalars()) + "\n"
        rows = [
            connection.exec_driver_sql(f'SELECT count(*) FROM "{name}"').scalar_one() for name in _tables(connection)
        ]
        assert sum(rows) == 1  # only the version of Alembic
    engine.dispose()
    if accept:
        SCHEMA.write_text(schema, encoding="utf-8")
    assert SCHEMA.read_text(encoding="utf-8") == schema, "run make accept"


def _tables(connection: Connection) -> list[str]:
    return inspect(connection).get_table_names()


async def test_a_second_hub_does_not_touch_the_firsts_runs(hubs: HubFactory) -> None:
    await hubs.start(registered("echo", Echo()))
    second = hubs.make(registered("echo", Echo()))
    with pytest.raises(FaultError) as error:
        await second.start()
    assert error.value.fault.code is FaultCode.CONFLICT


async def test_the_instance_id_is_created_once(hubs: HubFactory) -> None:
    hub = await hubs.start(registered("echo", Echo()))
    instance = hub.instance
    await hubs.stop(hub)
    assert (await hubs.start(registered("echo", Echo()))).instance == instance
    assert (await hubs.start(registered("echo", Echo()), name="other.db")).instance != instance


async def test_a_file_that_is_no_database_is_refused_unchanged(hubs: HubFactory) -> None:
    (hubs.folder / "hub.db").write_bytes(b"this is no database, whatever its name is" * 100)
    before = (hubs.folder / "hub.db").read_bytes()
    hub = hubs.make(registered("echo", Echo()))
    with pytest.raises(Exception, match="not a database"):
        await hub.start()
    assert (hubs.folder / "hub.db").read_bytes() == before
    (hubs.folder / "hub.db").unlink()
    again = await hubs.start(registered("echo", Echo()))  # the lock was released
    assert again.instance


def test_the_list_of_revisions_is_complete() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__path__[0])))
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(REVISIONS)


def test_a_database_of_an_unknown_revision_is_refused_unchanged(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate(connection)
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(FaultError) as error, engine.begin() as connection:
        migrate(connection)
    assert error.value.fault.code is FaultCode.CONFLICT
    assert "\n" not in error.value.fault.message
    assert all(words in error.value.fault.message for words in ("a.db", "9999", HEAD, "newer release"))
    engine.dispose()


def test_old_indexes_are_migrated(tmp_path: Path) -> None:
    """Restore the indexes of databases from before revision 0001 was changed in place."""
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    with engine.begin() as connection:
        migrate_to("0003", connection)
        for name in ("alias_thread", "interrupt_thread", "run_thread", "task_open", "task_thread", "webhook_due"):
            connection.exec_driver_sql(f"DROP INDEX {name}")
        connection.exec_driver_sql("CREATE INDEX alias_thread ON alias (owner, protocol, thread_id)")
        connection.exec_driver_sql("CREATE INDEX task_thread ON task (thread_pk, state)")
        connection.exec_driver_sql("CREATE INDEX run_task ON run (owner, task_id)")
    with engine.begin() as connection:
        assert migrate(connection) is False
        assert differences_from_models(connection) == []
    engine.dispose()


def test_tallies_are_counted_from_an_earlier_releases_rows(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    thread = """INSERT INTO thread (pk, owner, thread_id, created_at, changed_at, ephemeral, body)
        VALUES (?, ?, ?, 1, 1, ?, ?)"""
    body = encode_row(Thread(thread_id="t", owner="bob", created_at=1, changed_at=1))
    task = "INSERT INTO task VALUES ('bob', ?, 1, 't1', ?, 'completed', 1, 1, 1, 1, NULL, x'')"

    def tally(connection: Connection) -> dict[tuple[str, str, str], int]:
        rows = connection.exec_driver_sql("SELECT owner, kind, agent, rows FROM tally WHERE rows").all()
        return {(owner, kind, agent): count for owner, kind, agent, count in rows}

    with engine.begin() as connection:
        migrate_to("0004", connection)
        for pk, owner, ephemeral in ((1, "bob", 0), (2, "bob", 1), (3, "eve", 0)):
            connection.exec_driver_sql(thread, (pk, owner, f"t{pk}", ephemeral, body))
        connection.exec_driver_sql(task, ("a", "echo"))
        migrate(connection)
        assert tally(connection) == {("bob", "thread", ""): 1, ("bob", "task", "echo"): 1, ("eve", "thread", ""): 1}
        connection.exec_driver_sql(thread, (4, "bob", "t4", 0, body))
        connection.exec_driver_sql(thread, (5, "bob", "t5", 1, body))
        for agent in ("echo", "other"):
            connection.exec_driver_sql(task, (f"b{agent}", agent))
        counted = {("bob", "thread", ""): 2, ("bob", "task", "echo"): 2, ("bob", "task", "other"): 1}
        assert tally(connection) == {**counted, ("eve", "thread", ""): 1}
        connection.exec_driver_sql("UPDATE thread SET ephemeral = NOT ephemeral WHERE pk IN (2, 3)")
        assert tally(connection) == {**counted, ("bob", "thread", ""): 3}
        connection.exec_driver_sql("DELETE FROM thread")
        connection.exec_driver_sql("DELETE FROM task")
        assert tally(connection) == {}
    engine.dispose()


def test_the_previous_release_can_write_to_the_migrated_database(tmp_path: Path) -> None:
    """Insert rows as the release before does: it names only the columns that it knows."""
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    tables = ("run", "webhook")
    with engine.begin() as connection:
        migrate_to("0014", connection)
        before = {each: [column["name"] for column in inspect(connection).get_columns(each)] for each in tables}
        migrate(connection)
        for name, columns in before.items():
            places = ", ".join("?" * len(columns))
            statement = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})"
            connection.exec_driver_sql(statement, ("1",) * len(columns))
        assert connection.exec_driver_sql("SELECT crashes FROM run").all() == [(0,)]
        added = "SELECT failures, next_try, reason, given_up_at FROM webhook"
        assert connection.exec_driver_sql(added).all() == [(0, None, None, None)]
    engine.dispose()


async def test_thread_statuses_are_migrated_from_their_runs(hubs: HubFactory) -> None:
    agent = Scripted()
    hub = await hubs.start(registered("a", agent))
    await hub.create_thread(OWNER, ThreadChange())
    removed, failed, waits, goes = [await submit(hub, "a") for _ in range(4)]
    for receipt in (removed, failed):
        (await agent.called()).fail(ValueError("no"))
        await ends(hub, receipt)
    await hub.remove_run(OWNER, removed.run_id)
    (await agent.called()).ask("q").end()
    await reaches(hub, waits, TaskState.INPUT_REQUIRED)
    await submit(hub, "a", thread_id=goes.thread_id)  # waits for the run before it
    await agent.called()
    threads = "SELECT pk, status, updated_at FROM thread ORDER BY pk"
    copy = hubs.folder / "copy.db"
    with closing(sqlite3.connect(hubs.folder / "hub.db")) as there:
        before = there.execute(threads).fetchall()
        there.execute("VACUUM INTO ?", (str(copy),))
    assert [status for _, status, _ in before] == ["idle", "idle", "error", "interrupted", "busy"]
    engine = open_engine(f"sqlite:///{copy}", writes=True, power=False)
    with engine.begin() as connection:
        migrate_to("0011", connection, back=True)
    with engine.begin() as connection:
        migrate(connection)
        assert connection.exec_driver_sql(threads).all() == before
    engine.dispose()


def test_the_log_gets_one_key_in_bounded_parts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Migrate a log with large events, the records of an erased thread, and keys far apart, and migrate it back."""
    engine = open_engine(f"sqlite:///{tmp_path / 'a.db'}", writes=True, power=False)
    keys = (1, 2, 10_000, 10_001, 25_000)
    rows = [(pk, seq, 7, f"#{seq}", None, 1, bytes([seq]) * 3**seq) for pk in keys for seq in (1, 2, 12)]
    select = "SELECT thread_pk, seq, at, task_id, run_id, attempt, body FROM event ORDER BY thread_pk, seq"
    with engine.begin() as connection:
        migrate_to("0024", connection)
        connection.exec_driver_sql("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        caplog.set_level("INFO", "babelgate.journal")
        migrate(connection)
        assert connection.exec_driver_sql(select).all() == rows
        copied = [message for message in caplog.messages if message.startswith("log copied")]
        assert copied == [f"log copied threads={done} of=25000" for done in (10_000, 20_000, 25_000)]
        migrate_to("0024", connection, back=True)
        assert connection.exec_driver_sql(select).all() == rows
        migrate(connection)
        assert connection.exec_driver_sql(select).all() == rows
    engine.dispose()
