"""Opening the database: engines, pragmas, the lock file, migrations."""

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from canonical.fault import FaultCode, FaultError
from gateway.storage.permission import PRIVATE_FILE, make_folder, make_private

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012")
"""Those in `gateway/storage/migrations/versions`, oldest first. What a release writes that the one before cannot
read is a revision of its own, also where no table changes: then the one before says so, and reads nothing wrong."""
HEAD: Final = REVISIONS[-1]
_FOLDED_OTHERWISE: Final = frozenset({"0001", "0002"})
"""In databases of these, the rows that are folds of the log are not what this release would make of it."""


_SCHEMA: Final = Path(__file__).parent / "migrations" / "schema.sql"
"""What the migrations make of an empty database."""


def sqlite_path(url: str) -> Path | None:
    """The database file, for SQLite. Raises invalid."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return None
    if not parsed.database or parsed.database == ":memory:":
        raise FaultError(FaultCode.INVALID, f"{url}: the journal needs a file; use sqlite:///name.db")
    return Path(parsed.database)


def make_database_file(path: Path) -> None:
    """An empty one, if there is none, that others cannot read. SQLite gives the files beside it (`-wal`, `-shm`,
    `-journal`) the permissions that it has."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    make_private(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal", ".lock"))


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
        if writes:  # of databases that have no page yet
            cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute(f"PRAGMA synchronous={'FULL' if power else 'NORMAL'}")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA journal_size_limit=67108864")
        cursor.execute("PRAGMA cache_size=-8192")
        if not writes:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if not _driver(connection).in_transaction:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _driver(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


@contextmanager
def transaction(connection: Connection, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Generator[None]:
    """A transaction that is begun and ended on the driver, in a tenth of the time that SQLAlchemy takes for it (6 µs
    against 57). Statements of SQLAlchemy's own take part in it: for the first of them it begins one, too, which is the
    same. Raises OperationalError of SQLAlchemy."""
    driver = _driver(connection)
    try:
        driver.execute(begin)
        yield
        if connection.in_transaction():
            connection.commit()
        else:
            driver.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction():
            connection.rollback()
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        if isinstance(error, sqlite3.OperationalError):
            raise OperationalError(begin, None, error) from error
        raise


def migrate(connection: Connection) -> bool:
    """Bring the schema to `HEAD`; whether the rows have to be folded anew. Alembic is imported only for a database of
    an earlier release: it costs a quarter of a second and 10 MB.

    Raises:
        FaultError: conflict, if a newer release has written the database.
    """
    current = None
    tables = inspect(connection).get_table_names()
    if not tables:
        _create_tables(connection)
        return False
    if "alembic_version" in tables:
        current = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if current == HEAD:
            return False
        if current is not None and current not in REVISIONS:
            raise FaultError(
                FaultCode.CONFLICT,
                f"{connection.engine.url.render_as_string()} is of a newer release of Babelgate than this one: it has "
                f"the revision {current}, and this release knows those up to {HEAD}. Install the newer release, or "
                "choose another --database.",
            )
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "gateway.storage:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    return current in _FOLDED_OTHERWISE


def _create_tables(connection: Connection) -> None:
    for statement in _SCHEMA.read_text(encoding="utf-8").split(";\n\n"):
        connection.exec_driver_sql(statement)
    connection.exec_driver_sql("INSERT INTO alembic_version (version_num) VALUES (?)", (HEAD,))


class LockFile:
    """One gateway a database: a second one would take the first one's active runs for leftovers of a crash."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def acquire(self) -> None:
        """Raises conflict."""
        make_folder(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
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
