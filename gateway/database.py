"""Opening the database: engines, pragmas, the lock file, migrations."""

import fcntl
import os
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url

from canonical.fault import FaultCode, FaultError

__all__ = ("HEAD", "LockFile", "migrate", "open_engine", "sqlite_path")

HEAD = "0003"
"""The newest revision in `gateway/migrations/versions`."""


def sqlite_path(url: str) -> Path | None:
    """The database file, for SQLite."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise FaultError(FaultCode.INVALID, f"{url}: the journal needs a file; use sqlite:///name.db")
    return Path(parsed.database)


def open_engine(url: str, *, writes: bool, power: bool, readers: int = 4) -> Engine:
    """An engine of the writer (one connection) or of the readers. With SQLite, a writer's transactions begin
    IMMEDIATE: a reading transaction that turns into a writing one fails at once when another holds the lock. Python's
    driver would otherwise commit at the release of a savepoint, so transactions are begun here and not by the
    driver."""
    engine = create_engine(
        url,
        pool_size=1 if writes else readers,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": 30, "cached_statements": 256},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if power else 'NORMAL'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA journal_size_limit=67108864")
        cursor.execute("PRAGMA cache_size=-32768")
        if not writes:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def migrate(connection: Connection) -> None:
    """Bring the schema to `HEAD`. Alembic is imported only if there is something to do: it costs a quarter of a
    second."""
    if inspect(connection).has_table("alembic_version"):
        current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if current == HEAD:
            return
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gateway:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


class LockFile:
    """One gateway a database: a second one would take the first one's active runs for leftovers of a crash."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def acquire(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise FaultError(
                FaultCode.CONFLICT,
                f"{self.path} is locked: another gateway uses this database. Stop it, or choose another --database.",
            ) from None
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
