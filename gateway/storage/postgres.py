"""PostgreSQL, by psycopg: one session writes, and holds the lock that says that it alone does.

The lock is of the session that writes (a session-level advisory lock, by database and schema), so whoever commits has
it, also after the connection was lost and made anew.
"""

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast
from uuid import uuid4

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import Connection, Engine, create_engine, event, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from canonical.fault import FaultCode, FaultError
from gateway.settings.model import hide_password
from gateway.storage.locked import Locked
from gateway.storage.statements import table_of
from gateway.storage.tables import MetaRow

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""All that one read asks for is of one moment, as it is with SQLite."""
_BEGIN: Final = "BEGIN; SELECT pg_current_xact_id()::text"
_LOCK: Final = "SELECT pg_advisory_lock(hashtext('babelgate'), hashtext(current_schema()))"
_PATIENCE: Final = "2s"
"""For the lock: the server may be about to find that a gateway which was killed is gone."""
_KEEPALIVE: Final = "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3"
"""The server's: the lock of a machine that is gone without a word is free after eleven seconds."""
_DEFAULTS: Final = {
    "application_name": "babelgate",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A server that is gone without a word is noticed within half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    # Of several hosts, the one that takes writes.
    "target_session_attrs": "read-write",
}
"""Parameters of the connection, where the URL does not say otherwise."""
_WRITER: Final = "writer"
"""The name in `meta` under which the gateway stands that had the database last."""


class Postgres:
    """A `gateway.storage.database.Database`."""

    def __init__(self, url: str) -> None:
        """Raises invalid."""
        try:
            self._url = make_url(url).set(drivername="postgresql+psycopg")
        except (ArgumentError, ValueError):  # which may have the password in it
            raise FaultError(FaultCode.INVALID, "database: it is no URL of PostgreSQL") from None
        self._shown = hide_password(url)
        self._me = str(uuid4())
        self._claimed = False
        self._transaction = ""
        """Its id, of the writer's last one."""
        self._committing = False

    @property
    def folders(self) -> Sequence[Path]:
        return ()

    def acquire(self) -> None:
        """`connect` does it."""

    def release(self) -> None:
        """It ends with the writer's session."""

    def open_writer(self) -> Engine:
        return self._engine(1, "BEGIN")

    def open_readers(self, readers: int) -> Engine:
        return self._engine(readers, _READ)

    def _engine(self, connections: int, begin: str) -> Engine:
        given = {name: value for name, value in _DEFAULTS.items() if name not in self._url.query}
        engine = create_engine(
            self._url,
            pool_size=connections,
            max_overflow=0,
            paramstyle="format",
            use_native_hstore=False,
            connect_args=given,
            hide_parameters=True,
        )

        @event.listens_for(engine, "connect")
        def _connect(connection: psycopg.Connection[Any], _: Any) -> None:
            connection.autocommit = True  # transactions are begun here, and not by the driver
            # Else the type of a parameter goes by its value, and hardly any statement would be prepared twice.
            connection.adapters.register_dumper(int, Int8BinaryDumper)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            if _is_idle(_driver(connection)):
                connection.exec_driver_sql(begin)

        return engine

    def connect(self, writer: Engine) -> Connection:
        """With the lock. Raises conflict."""
        connection = writer.connect()
        try:
            driver = _driver(connection)
            driver.execute(f"SET lock_timeout = '{_PATIENCE}'")
            driver.execute(_LOCK)
            driver.execute(_KEEPALIVE, prepare=False)
            driver.execute("RESET lock_timeout")
        except psycopg.errors.LockNotAvailable:
            connection.close()
            raise Locked(self._shown) from None
        except psycopg.Error as error:
            connection.invalidate()
            connection.close()
            raise OperationalError(_LOCK, None, error) from error
        return connection

    def claim(self, connection: Connection) -> None:
        """Raises conflict."""
        meta = table_of(MetaRow)
        here = meta.c.name == _WRITER
        if self._claimed:
            last = connection.execute(select(meta.c.value).where(here)).scalar()
            if last != self._me:
                raise FaultError(
                    FaultCode.CONFLICT,
                    f"{self._shown} was used by another gateway while this one had lost it. Restart this one.",
                )
        else:
            connection.execute(meta.delete().where(here))
            connection.execute(meta.insert(), {"name": _WRITER, "value": self._me})
            self._claimed = True

    @contextmanager
    def writing(self, connection: Connection) -> Generator[None]:
        driver = _driver(connection)
        self._committing = False
        try:
            self._transaction = _begin_numbered(driver)
            yield
            self._committing = True
            _commit(connection, driver)
            self._committing = False
        except BaseException as error:
            self._committing = self._committing and driver.closed
            _roll_back(connection, driver, error)
            raise

    def together(self, connection: Connection) -> AbstractContextManager[Any]:
        return _driver(connection).pipeline()

    @contextmanager
    def reading(self, connection: Connection) -> Generator[None]:
        driver = _driver(connection)
        try:
            driver.execute(_READ)
            yield
            _commit(connection, driver)
        except BaseException as error:
            _roll_back(connection, driver, error)
            raise

    def is_lost(self, connection: Connection) -> bool:
        return connection.closed or connection.invalidated or _driver(connection).closed

    @property
    def unclear(self) -> bool:
        return self._committing

    def was_committed(self, connection: Connection) -> bool:
        self._committing = False
        row = _driver(connection).execute("SELECT pg_xact_status(%s::xid8)", (self._transaction,)).fetchone()
        return row is not None and row[0] == "committed"

    def refusal(self, error: Exception) -> FaultError | None:
        of_driver = error.orig if isinstance(error, DBAPIError) else error
        if isinstance(of_driver, psycopg.errors.ProgramLimitExceeded):
            return FaultError(FaultCode.TOO_LARGE, "An id in this request is too long for the database.")
        if type(of_driver) is psycopg.DataError:  # the only one that psycopg raises by itself
            return FaultError(FaultCode.INVALID, "An id in this request must not contain NUL characters.")
        return None

    def give_back(self, connection: Connection) -> bool:
        """PostgreSQL's autovacuum does it."""
        return False


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)


def _is_idle(driver: psycopg.Connection[Any]) -> bool:
    return driver.info.transaction_status == TransactionStatus.IDLE


def _begin_numbered(driver: psycopg.Connection[Any]) -> str:
    """Begin a transaction, and return its id, in one round trip."""
    cursor = driver.execute(_BEGIN, prepare=False)
    cursor.nextset()
    return cursor.fetchall()[0][0]


def _commit(connection: Connection, driver: psycopg.Connection[Any]) -> None:
    if connection.in_transaction():
        connection.commit()
    else:
        driver.commit()


def _roll_back(connection: Connection, driver: psycopg.Connection[Any], error: BaseException) -> None:
    """Raises OperationalError of SQLAlchemy in the place of psycopg's."""
    with suppress(Exception):  # of a connection that is lost, too
        if connection.in_transaction():
            connection.rollback()
        if not driver.closed and not _is_idle(driver):
            driver.rollback()
    if isinstance(error, psycopg.OperationalError):
        raise OperationalError("transaction", None, error) from error
