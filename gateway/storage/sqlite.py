"""SQLite as the database: one file, one connection that writes, and a lock file next to it."""

import fcntl
import os
import sqlite3
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Connection, Engine, FromClause, create_engine, event
from sqlalchemy.dialects.sqlite.base import SQLiteCompiler
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError, PendingRollbackError

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.storage.locked import Locked
from babelgate.gateway.storage.permission import PRIVATE_FILE, make_folder, make_private

_SPARE: Final = 256
"""Number of free pages that stay in the database file for later writes. Chosen: one megabyte."""
_PAGES: Final = 64
"""Maximum number of pages that one transaction returns to the file system. Chosen."""
_INCREMENTAL: Final = 2
_NOTHING: Final = nullcontext()


_UNSTORABLE: Final = frozenset(
    (
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    )
)
"""Result codes that mean a failure of the database or its disk, and not of the statement
(https://sqlite.org/rescode.html)."""


class FileReplaced(sqlite3.OperationalError):
    """Error of a write after the opened file was deleted or replaced at its path, so that the write would be lost."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} was deleted or replaced while the gateway had it open, so nothing is stored. Put it back, or "
            "restart the gateway"
        )


def _is_unstorable(error: BaseException | None) -> bool:
    if isinstance(error, FileReplaced):
        return True
    # The low byte is the primary result code. The rest are details.
    return isinstance(error, sqlite3.DatabaseError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _UNSTORABLE


def sqlite_path(url: str) -> Path:
    """Return the path of the database file in a URL. Raises invalid if the URL names no file."""
    parsed = make_url(url)
    if not parsed.database or parsed.database == ":memory:":
        raise FaultError(FaultCode.INVALID, f"{url}: the journal needs a file; use sqlite:///name.db")
    return Path(parsed.database)


def make_database_file(path: Path) -> None:
    """Create the database file if it does not exist, with permissions for the gateway's user only.

    SQLite creates the files next to it (`-wal`, `-shm`, `-journal`) with the same permissions."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE))
    make_private(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal", ".lock"))


class _Compiler(SQLiteCompiler):
    """Compiler that writes hints (`INDEXED BY`) into statements. SQLAlchemy 2.1.9 drops them for SQLite."""

    def get_from_hint_text(self, table: FromClause, text: str | None) -> str | None:
        return text


def open_engine(url: str, *, writes: bool, power: bool, readers: int = 4) -> Engine:
    """Create the engine of the writer, with one connection, or of the readers.

    With `power`, commits survive a power failure. Transactions of the writer begin IMMEDIATE, because one that begins
    with a read and then writes fails at once if another process holds the lock. They are begun here and not by Python's
    driver, which would commit when a savepoint is released.
    """
    engine = create_engine(
        url,
        pool_size=1 if writes else readers,
        max_overflow=0,
        connect_args={"check_same_thread": False, "timeout": 30, "cached_statements": 256},
    )

    engine.dialect.statement_compiler = _Compiler

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        if writes:  # takes effect only for a database without pages
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


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of the file at the path, or None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called in each transaction, and takes a third of the time of Path.stat
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def _transaction(connection: Connection, begin: Literal["BEGIN", "BEGIN IMMEDIATE"]) -> Generator[None]:
    """Run a transaction that the driver begins and ends. This takes 6 µs; a transaction of SQLAlchemy takes 57 µs.

    Statements of SQLAlchemy join it: SQLAlchemy finds an open transaction and does not begin another. Raises
    OperationalError of SQLAlchemy if the database cannot be read or written."""
    driver = _driver(connection)
    try:
        driver.execute(begin)
        yield
        if connection.in_transaction():
            connection.commit()
        else:
            driver.execute("COMMIT")
    except BaseException as error:
        # After a failed commit, SQLAlchemy refuses all statements until its transaction is rolled back.
        if (transaction := connection.get_transaction()) is not None:
            transaction.rollback()
        if driver.in_transaction:
            driver.execute("ROLLBACK")
        if isinstance(error, sqlite3.DatabaseError) and _is_unstorable(error):
            raise OperationalError(begin, None, error) from error
        raise


class Sqlite:
    """SQLite implementation of `babelgate.gateway.storage.database.Database`."""

    def __init__(self, url: str, *, power: bool = False) -> None:
        self._url = url
        self._power = power
        self._path = sqlite_path(url)
        self._lock = LockFile(self._path)
        self._sessions: dict[Engine, list[sqlite3.Connection]] = {}
        """Driver connections of each engine, for `abort`. Engines are opened once and have at most four connections."""
        self._file: tuple[int, int] | None = None
        """Device and inode of the database file when it was opened. Each write checks that the path still leads to this
        file."""

    @property
    def folders(self) -> Sequence[Path]:
        return (self._path.parent,)

    def acquire(self) -> None:
        self._lock.acquire()
        try:
            make_database_file(self._path)
        except BaseException:
            self._lock.release()
            raise

    def release(self) -> None:
        self._lock.release()

    def open_writer(self) -> Engine:
        return self._with_sessions(open_engine(self._url, writes=True, power=self._power))

    def open_readers(self, readers: int) -> Engine:
        return self._with_sessions(open_engine(self._url, writes=False, power=self._power, readers=readers))

    def _with_sessions(self, engine: Engine) -> Engine:
        sessions = self._sessions[engine] = []

        @event.listens_for(engine, "connect")
        def _connect(connection: sqlite3.Connection, _: Any) -> None:
            sessions.append(connection)

        return engine

    def connect(self, writer: Engine) -> Connection:
        connection = writer.connect()
        self._file = _identity(self._path)
        return connection

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Do nothing: a migration is always possible, because only one gateway uses the database at a time."""

    def claim(self, connection: Connection) -> None:
        """Do nothing: the lock file ensures that this is the only gateway."""

    def writing(self, connection: Connection) -> Any:
        """Return a context manager for a transaction that writes. Raises OperationalError, also if the file was
        replaced."""
        if _identity(self._path) != self._file:
            error = FileReplaced(self._path)
            raise OperationalError("BEGIN IMMEDIATE", None, error) from error
        return _transaction(connection, "BEGIN IMMEDIATE")

    def together(self, connection: Connection) -> Any:
        return _NOTHING

    def reading(self, connection: Connection) -> Any:
        return _transaction(connection, "BEGIN")

    def listen(self) -> AsyncGenerator[str | None]:
        """Raise NotImplementedError: SQLite is never shared, so there are no notices."""
        raise NotImplementedError("one gateway uses it at a time")

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Raise NotImplementedError: SQLite is never shared, so there are no listeners."""
        raise NotImplementedError("one gateway uses it at a time")

    def is_lost(self, connection: Connection) -> bool:
        return False

    @property
    def is_unclear(self) -> bool:
        return False

    def settle(self, connection: Connection) -> bool:
        return False

    def leave(self, connection: Connection) -> None:
        """Do nothing: with SQLite, a gateway stores no rows only for itself."""

    def abort(self, engine: Engine) -> None:
        for driver in self._sessions.get(engine, ()):
            with suppress(sqlite3.ProgrammingError):  # the connection is closed
                driver.interrupt()

    def is_unstorable(self, error: Exception) -> bool:
        of_driver = error.orig if isinstance(error, DBAPIError) else error
        return isinstance(error, PendingRollbackError) or _is_unstorable(of_driver)

    def is_unreadable(self, error: Exception) -> bool:
        """Return True if a read failed because of the database or its disk. False for a read that tried to write, which
        is a bug."""
        of_driver = error.orig if isinstance(error, DBAPIError) else error
        is_refused = getattr(of_driver, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_READONLY
        return self.is_unstorable(error) and not is_refused

    def fault_of(self, error: Exception) -> FaultError | None:
        return None

    def is_race(self, error: Exception) -> bool:
        return False

    def make_way(self, connection: Connection, error: Exception) -> None:
        """Do nothing: there are no other gateways, and so no races."""

    def make_room(self, connection: Connection) -> None:
        """Do nothing: the file grows automatically."""

    def give_back(self, connection: Connection) -> bool:
        """Return up to `_PAGES` free pages to the file system. Return True if there may be more.

        A file that an early release created has no incremental vacuum. Its free pages are only reused."""
        free = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        if free <= _SPARE or connection.exec_driver_sql("PRAGMA auto_vacuum").scalar_one() != _INCREMENTAL:
            return False
        with closing(connection.connection.cursor()) as cursor:
            # One page per statement, because the driver steps a statement without columns only once.
            for _ in range(min(_PAGES, free - _SPARE)):
                cursor.execute("PRAGMA incremental_vacuum(1)")
        return connection.exec_driver_sql("PRAGMA freelist_count").scalar_one() < free


class LockFile:
    """Lock file that admits one gateway per database. A second gateway would treat the active runs of the first as
    crashed."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def acquire(self) -> None:
        """Create the file and lock it. Raises conflict if another gateway has locked it."""
        make_folder(self.path.parent)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise Locked(str(self.path)) from None
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
