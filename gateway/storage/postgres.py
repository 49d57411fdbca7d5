"""PostgreSQL as the database, through psycopg. One session per gateway writes, and holds the lock of the gateway.

The lock is an advisory lock of the session, named by database and schema. It belongs to the session that writes. So
every commit is made under the lock, even after the connection was lost and replaced."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from select import POLLIN, poll
from socket import SHUT_RDWR, socket
from typing import Any, Final, LiteralString, cast
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from psycopg import sql
from psycopg.abc import Query
from psycopg.postgres import types
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.types.numeric import Int8BinaryDumper
from sqlalchemy import URL, Connection, Engine, create_engine, event, select
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    PendingRollbackError,
    ProgrammingError,
)

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.settings.model import hide_password
from babelgate.gateway.storage.locked import Entering, Locked
from babelgate.gateway.storage.partitions import drop_empty_partition, make_partitions
from babelgate.gateway.storage.shared import CHANNEL
from babelgate.gateway.storage.statements import table_of
from babelgate.gateway.storage.tables import MetaRow

log = logging.getLogger("babelgate.journal")

_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
"""Statement that begins a transaction in which all reads see one snapshot of the database, as with SQLite."""
_LOCK: Final = "SELECT pg_advisory_lock(hashtext('babelgate'), hashtext(current_schema()))"
_SHARE: Final = "SELECT pg_advisory_lock_shared(hashtext('babelgate'), hashtext(current_schema()))"
_IS_ALONE: Final = "SELECT pg_try_advisory_xact_lock(hashtext('babelgate'), hashtext(current_schema()))"
_ENTER: Final = "SELECT pg_advisory_xact_lock(hashtext('babelgate enters'), hashtext(current_schema()))"
"""Statement for the lock under which one starting gateway of a cluster at a time reads the schema and changes it.

The lock always ends with its transaction. A gateway that reconnects does not read the schema, and does not take it."""
_ENTERING: Final = "10s"
"""Maximum time for which a gateway may be idle in the first transaction of a session. Chosen.

In this transaction it holds `_ENTER`, or a lock on the row of the last writer. After that time the server ends the
session (`idle_in_transaction_session_timeout`), so a frozen gateway does not block the others. `idle_session_timeout`
would be simpler, but PostgreSQL 13 does not have it."""
_ENTER_PATIENCE: Final = "30s"
"""Maximum time that a starting gateway waits for the lock `_ENTER`. Chosen: longer than `_ENTERING`, plus time for
gateways that queued before it."""
_STILL: Final = "5s"
"""Idle time in a transaction after which other gateways end the session of a gateway that blocks them. Chosen.

The server's `idle_in_transaction_session_timeout` does not start after pipelined statements: psycopg sends a flush
after the last one, and the server counts that as activity."""
_END_STILL: Final = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    # Between pipelined statements, a session is `active` and waits for the client.
    "AND (starts_with(state, 'idle in transaction') OR (state = 'active' AND wait_event_type = 'Client')) "
    "AND state_change < clock_timestamp() - %s::interval AND pid IN "
    "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = hashtext('babelgate')::bigint & 4294967295 "
    "AND objid::bigint = hashtext(current_schema())::bigint & 4294967295)"
)
_SILENCE: Final = 10.0
"""Seconds between two checks of the listening connection. Chosen. Listeners then also check for missed notices.

Together with `_ANSWER` and the delay before a reconnect, a dead connection is replaced within 22 seconds."""
_ANSWER: Final = 10.0
"""Seconds without a response to a statement after which the listening connection counts as dead. Chosen: as
`connect_timeout`."""
_NOTIFY: Final = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify({CHANNEL}, $1)".encode()
"""Statement that sends a notice in a transaction whose commit does not wait for the flush to disk. NOTIFY holds a lock
of the whole server until the commit is complete."""
_PREPARED: Final = b"babelgate_notify"
_TEXT: Final = types["text"].oid
_PATIENCE: Final = "2s"
"""Maximum time that a gateway waits for the lock on the database, which another gateway holds. Chosen: the server needs
a moment to notice that a gateway was killed."""
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 11000"
)
"""Statements that make the server end a session, and so release its locks, eleven seconds after the client's machine
has vanished. Chosen.

Keepalives detect that on an idle connection. `tcp_user_timeout` detects it while data of the server is not
acknowledged, such as a notice to a listener."""
_DEFAULTS: Final = {
    "application_name": "babelgate",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A server that has vanished is detected within 15 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    # If the URL names several hosts, connect to the one that accepts writes.
    "target_session_attrs": "read-write",
}
"""Default connection parameters of libpq. The URL overrides them."""
_RACES: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
_NEEDS_RECONNECT: Final = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.DivisionByZero)
"""Errors after which the writer must reconnect: the server became read-only, or `_COUNT` failed because another session
has settled the outcome of this session's commit."""
_UNSTORABLE: Final = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError, *_NEEDS_RECONNECT)
"""Errors that mean that the server or its disk failed, and not the command.

InternalError covers a server that became read-only (25006) and a damaged page (XX001)."""
_WRITER: Final = "writer"
"""Key in the table `meta` of the UUID of the gateway that last opened the database."""
_COMMIT: Final = "commit "
"""Prefix of the key in the table `meta` under which a gateway counts its commits. The gateway's UUID follows.

The number shows whether a commit is stored whose response was lost. PostgreSQL's transaction numbers (`pg_xact_status`)
cannot show it after the server was killed, because it may have assigned the same number to another transaction."""
_COUNT: Final = (
    "WITH counted AS (UPDATE meta SET value = '{number}' WHERE name = '{name}' AND value = '{before}' RETURNING 1) "
    "SELECT 1 / count(*) FROM counted; COMMIT"
)
"""End of each transaction that writes: set the number of this commit in `meta`, and commit (compare-and-set).

If the stored number is not that of the previous commit, because `settle` has changed it, a division by zero fails the
transaction. So a commit that reaches the server late stores nothing."""


class Postgres:
    """PostgreSQL implementation of `babelgate.gateway.storage.database.Database`."""

    def __init__(self, url: str, *, shared: bool = False, pooler: str | None = None) -> None:
        """Parse the URLs, without connecting. Raises invalid for a malformed URL.

        With `shared`, other gateways use the database at the same time. `pooler` is the URL of a connection pooler for
        transactions that only read, because each may run in another session. Everything else uses `url`. The lock,
        `LISTEN` and pipelined statements need one session, and the heartbeats of a node must not wait for a free one.
        """
        self._url = _parse("database", url)
        self._pooler = None if pooler is None else _parse("pooler", pooler)
        self._safe_url = hide_password(url)
        self._me = str(uuid4())
        self._shared = shared
        self._claimed = False
        self._commits = 0
        """Number of the last commit that this gateway has sent."""
        self._stored_number = "0"
        """Number of the last stored commit in `meta` (`_COMMIT`), as far as this gateway knows."""
        self._entering = False
        """True until the first transaction of a session on a shared database has ended."""
        self._committing = False
        """True while a commit is sent and has no response, and after its connection was lost without one."""
        self._sessions: WeakKeyDictionary[Engine, WeakSet[psycopg.Connection[Any]]] = WeakKeyDictionary()
        """Open connections by engine, for `abort`."""

    @property
    def folders(self) -> Sequence[Path]:
        return ()

    def acquire(self) -> None:
        """Do nothing: `connect` takes the lock."""

    def release(self) -> None:
        """Do nothing: the lock ends with the session of the writer."""

    def open_writer(self) -> Engine:
        return self._engine(self._url, 1, "BEGIN")

    def open_readers(self, readers: int) -> Engine:
        """Return an engine for the readers.

        Raises conflict if the pooler leads to another database, and OperationalError if it cannot be reached.
        """
        if self._pooler is None:
            return self._engine(self._url, readers, _READ)
        # No prepared statements: the next transaction may use another session, which does not have them.
        engine = self._engine(self._pooler, readers, _READ, prepare_threshold=None)
        try:
            self._check_pooler(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _check_pooler(self, engine: Engine) -> None:
        """Raise conflict if the pooler does not lead to the database and schema that this gateway writes to.

        The pooler maps names to databases and schemas in its own configuration. The check reads the row of `meta` that
        this gateway has written."""
        if not self._claimed:
            return
        meta = table_of(MetaRow)
        try:
            with engine.connect() as connection, connection.begin():
                number = connection.execute(select(meta.c.value).where(meta.c.name == _COMMIT + self._me)).scalar()
        except ProgrammingError:  # the table does not exist
            number = None
        if number is None:
            raise FaultError(
                FaultCode.CONFLICT,
                "pooler: it does not lead to the database and schema of database. Its search_path differs from that "
                "of database, or it leads to another server or to a replica.",
            )

    def _engine(self, url: URL, connections: int, begin: str, **more: Any) -> Engine:
        parameters = {name: value for name, value in _DEFAULTS.items() if name not in url.query} | more
        engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            paramstyle="format",
            use_native_hstore=False,
            connect_args=parameters,
            hide_parameters=True,
        )

        @event.listens_for(engine, "connect")
        def _connect(connection: psycopg.Connection[Any], _: Any) -> None:
            self._sessions.setdefault(engine, WeakSet()).add(connection)
            connection.autocommit = True  # transactions are begun here instead of by the driver
            # By default the parameter type depends on the value, and prepared statements would hardly ever be reused.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            if url is not self._pooler:  # the settings would stay in a session that the pooler gives to other clients
                connection.execute(_KEEPALIVE, prepare=False)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            if _is_idle(_driver(connection)):
                connection.exec_driver_sql(begin)

        return engine

    def connect(self, writer: Engine) -> Connection:
        """Open the connection of the writer, and take the lock of the gateway. Raises conflict if another gateway has
        it.

        The first connection of a gateway in a cluster takes the lock later, in its first transaction (`_enter`)."""
        connection = writer.connect()
        self._entering = self._shared
        try:
            driver = _driver(connection)
            if self._claimed or not self._shared:
                driver.execute(f"SET lock_timeout = '{_PATIENCE}'")
                driver.execute(_SHARE if self._shared else _LOCK)
            driver.execute(f"SET lock_timeout = '{_STILL}'" if self._shared else "RESET lock_timeout")
        except psycopg.errors.LockNotAvailable:
            connection.close()
            raise Locked(self._safe_url) from None
        except psycopg.Error as error:
            connection.invalidate()
            connection.close()
            raise OperationalError(_LOCK, None, error) from error
        return connection

    def _enter(self, driver: psycopg.Connection[Any]) -> None:
        """Take the locks of a new session on a shared database, in its first transaction.

        Raises conflict if another gateway uses the database alone, or if another one of the cluster is starting."""
        driver.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_ENTERING}'")
        if self._claimed:
            return
        try:
            driver.execute(f"SET LOCAL lock_timeout = '{_ENTER_PATIENCE}'")
            driver.execute(_ENTER)
        except psycopg.errors.LockNotAvailable:
            raise Entering(self._safe_url, _ENTER_PATIENCE) from None
        try:
            driver.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            driver.execute(_SHARE)
        except psycopg.errors.LockNotAvailable:
            raise Locked(self._safe_url) from None
        driver.execute(f"SET LOCAL lock_timeout = '{_STILL}'")

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Raise conflict if other gateways use the database and could not continue after the migration (`expands` is
        False)."""
        if self._shared and not expands and not _is_alone(connection):
            raise FaultError(
                FaultCode.CONFLICT,
                f"{self._safe_url} belongs to another release, and gateways of that release use it. Stop them all "
                "before the first gateway of this release is started.",
            )

    def claim(self, connection: Connection) -> None:
        """Record this gateway as the one that last used the database. Raises conflict if another one was recorded
        since."""
        meta = table_of(MetaRow)
        if self._shared:  # tells a gateway that used the database alone, and lost it, that its memory is out of date
            self._claim_with_others(connection)
            return
        is_writer = meta.c.name == _WRITER
        if self._claimed:
            last = connection.execute(select(meta.c.value).where(is_writer)).scalar()
            if last != self._me:
                raise FaultError(
                    FaultCode.CONFLICT,
                    f"{self._safe_url} was used by another gateway while this one was not connected to it. "
                    "Restart this gateway.",
                )
        else:
            connection.execute(meta.delete().where(is_writer | meta.c.name.startswith(_COMMIT)))
            rows = {_WRITER: self._me, _COMMIT + self._me: "0"}
            connection.execute(meta.insert(), [{"name": name, "value": value} for name, value in rows.items()])
            self._claimed = True

    def _claim_with_others(self, connection: Connection) -> None:
        meta = table_of(MetaRow)
        self._claimed = True
        writer = upsert(meta).values(name=_WRITER, value=self._me)
        connection.execute(writer.on_conflict_do_update(index_elements=[meta.c.name], set_={"value": self._me}))
        number = upsert(meta).values(name=_COMMIT + self._me, value=self._stored_number)
        connection.execute(number.on_conflict_do_nothing())

    @contextmanager
    def writing(self, connection: Connection) -> Generator[None]:
        """Run a transaction of the writer. Raises conflict, and OperationalError and IntegrityError of SQLAlchemy."""
        driver = _driver(connection)
        self._committing = False
        try:
            driver.execute("BEGIN")
            if self._entering:
                self._enter(driver)
            yield
            self._commits += 1
            number = str(self._commits)
            self._committing = True
            # One round trip: the server receives both statements or neither.
            end = _COUNT.format(number=number, name=_COMMIT + self._me, before=self._stored_number)
            driver.execute(cast("LiteralString", end), prepare=False)
            self._stored_number = number
            _commit(connection, driver)
            self._committing = self._entering = False
        except BaseException as error:
            self._committing = self._committing and driver.closed
            _roll_back(connection, driver)
            if isinstance(_of_driver(error), _NEEDS_RECONNECT):
                driver.close()
            if (translated := _of_sqlalchemy(error)) is not error:
                raise translated from error
            raise

    @contextmanager
    def together(self, connection: Connection) -> Generator[None]:
        pipeline = _driver(connection).pipeline()
        pipeline.__enter__()
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):  # errors of the statements after the failed one, which psycopg would log
                pipeline.__exit__(None, None, None)
            raise
        pipeline.__exit__(None, None, None)

    @contextmanager
    def reading(self, connection: Connection) -> Generator[None]:
        """Run a transaction that reads one snapshot of the database. Raises OperationalError of SQLAlchemy if the
        database cannot be reached."""
        driver = _driver(connection)
        try:
            driver.execute(_READ)
            yield
            _commit(connection, driver)
        except BaseException as error:
            _roll_back(connection, driver)
            if (translated := _of_sqlalchemy(error)) is not error:
                raise translated from error
            raise

    async def listen(self) -> AsyncGenerator[str | None]:
        """Yield notices, and None at the beginning and every `_SILENCE` seconds. Raises OperationalError if the
        connection is lost."""
        try:
            args, options = create_engine(self._url).dialect.create_connect_args(self._url)
            parameters: dict[str, Any] = {**_DEFAULTS, **options, "autocommit": True}
            async with await psycopg.AsyncConnection[Any].connect(*args, **parameters) as connection:
                await _ask(connection, _KEEPALIVE)
                rows = await (await _ask(connection, f"SELECT {CHANNEL}")).fetchall()
                await _ask(connection, sql.SQL("LISTEN {}").format(sql.Identifier(rows[0][0])))
                yield None
                while True:
                    async for notice in connection.notifies(timeout=_SILENCE):
                        yield notice.payload
                    await _ask(connection, "SELECT 1")
                    yield None
        except psycopg.OperationalError as error:
            raise OperationalError("LISTEN", None, error) from error

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Send notices, each in a transaction that does not wait for the flush. Raises OperationalError if the
        connection is lost."""
        try:
            driver = _driver(connection).pgconn
            if _PREPARED not in connection.info:
                _check(driver.prepare(_PREPARED, _NOTIFY, [_TEXT]))
                connection.info[_PREPARED] = True
            for notice in notices:
                # A run has several commits. A cursor takes 60 µs of CPU time for each notice, and libpq's call 7 µs.
                _check(driver.exec_prepared(_PREPARED, [notice.encode()]))
        except psycopg.Error as error:
            raise OperationalError("NOTIFY", None, error) from error

    def is_lost(self, connection: Connection) -> bool:
        if connection.closed or connection.invalidated:
            return True
        driver = _driver(connection)
        return driver.closed or (_is_idle(driver) and _was_hung_up(driver))

    @property
    def is_unclear(self) -> bool:
        return self._committing

    def settle(self, connection: Connection) -> bool:
        """Return True if the commit without a response was stored. Raises OperationalError of SQLAlchemy if the
        connection is lost.

        If it was not, change the number in `meta`, so that the commit fails if it still arrives."""
        driver, name = _driver(connection), _COMMIT + self._me
        number = str(self._commits)
        try:
            driver.execute("BEGIN")
            # This waits for a session that is committing now. A commit that arrives later finds a changed number and
            # fails.
            rows = driver.execute("SELECT value FROM meta WHERE name = %s FOR UPDATE", (name,)).fetchall()
            is_stored = rows == [(number,)]
            counted = number if is_stored else f"-{number}"
            if not is_stored:
                driver.execute("UPDATE meta SET value = %s WHERE name = %s", (counted, name))
            driver.execute("COMMIT")
        except psycopg.Error as error:
            raise _of_sqlalchemy(error) from error
        self._stored_number, self._committing = counted, False
        return is_stored

    def leave(self, connection: Connection) -> None:
        if self._shared:
            with suppress(psycopg.Error):  # a remaining row does no harm
                _driver(connection).execute("DELETE FROM meta WHERE name = %s", (_COMMIT + self._me,))

    def abort(self, engine: Engine) -> None:
        """Shut down the sockets of the engine's connections on this side, because the server may not respond to a
        cancel request either."""
        for driver in list(self._sessions.get(engine, ())):
            _hang_up(driver)

    def is_unstorable(self, error: Exception) -> bool:
        return (
            isinstance(error, PendingRollbackError) or isinstance(_of_driver(error), _UNSTORABLE)
        ) and not self.is_race(error)

    def is_unreadable(self, error: Exception) -> bool:
        return self.is_unstorable(error) and not isinstance(_of_driver(error), _NEEDS_RECONNECT)

    def fault_of(self, error: Exception) -> FaultError | None:
        of_driver = _of_driver(error)
        if isinstance(of_driver, psycopg.errors.ProgramLimitExceeded):
            return FaultError(FaultCode.TOO_LARGE, "An id in this request is too long for the database.")
        if type(of_driver) is psycopg.DataError:  # psycopg itself raises it for NUL; the server raises subclasses
            return FaultError(FaultCode.INVALID, "An id in this request must not contain NUL characters.")
        return None

    def is_race(self, error: Exception) -> bool:
        return self._shared and isinstance(_of_driver(error), _RACES)

    def make_way(self, connection: Connection, error: Exception) -> None:
        if not isinstance(_of_driver(error), psycopg.errors.LockNotAvailable):
            return
        with suppress(psycopg.Error):  # if the connection is lost, the next transaction reports it
            ended = _driver(connection).execute(_END_STILL, (_STILL,)).fetchall()[0][0]
            log.warning("stalled database sessions of other gateways ended count=%d", ended)

    def make_room(self, connection: Connection) -> None:
        make_partitions(connection)

    def give_back(self, connection: Connection) -> bool:
        """Drop one empty partition of the log. Return True if there may be more.

        All other free space is left to PostgreSQL's autovacuum.
        """
        return drop_empty_partition(connection)


def _parse(key: str, url: str) -> URL:
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # not chained: its text may contain the password
        raise FaultError(
            FaultCode.INVALID, f"{key}: must be a URL of PostgreSQL, such as postgresql://host/name"
        ) from None


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)


def _check(result: PGresult) -> None:
    """Raise psycopg's OperationalError if a statement failed."""
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise psycopg.OperationalError(result.get_error_message())


async def _ask(connection: psycopg.AsyncConnection[Any], query: Query) -> psycopg.AsyncCursor[Any]:
    """Execute a statement and return its cursor. After `_ANSWER` seconds without a response, shut the connection down.

    Cancelling the task is not enough: psycopg then sends a cancel request and waits for its effect, on a dead
    connection without a limit. Raises psycopg's OperationalError if the connection is lost or was shut down."""
    execution = asyncio.ensure_future(connection.execute(query))
    try:
        await asyncio.wait((execution,), timeout=_ANSWER)
    finally:
        if not execution.done():
            _hang_up(connection)
            await asyncio.wait((execution,))
            execution.exception()  # otherwise asyncio logs it if this task was cancelled
    return execution.result()


def _hang_up(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket(fileno=os.dup(driver.fileno())) as near:
        near.shutdown(SHUT_RDWR)


def _is_alone(connection: Connection) -> bool:
    """Return True if no other gateway uses the database. Until the transaction ends, none can start then."""
    return bool(_driver(connection).execute(_IS_ALONE).fetchall()[0][0])


def _is_idle(driver: psycopg.Connection[Any]) -> bool:
    return driver.info.transaction_status == TransactionStatus.IDLE


def _was_hung_up(driver: psycopg.Connection[Any]) -> bool:
    """Return True if the server has closed an idle connection. It reads only data that has already arrived.

    Without this check, the first group of commands after a restart of the server would be refused."""
    waiting = poll()
    waiting.register(driver.fileno(), POLLIN)
    with suppress(psycopg.OperationalError):
        while not driver.closed and waiting.poll(0):  # reads the last messages, and then the end of the stream
            driver.pgconn.consume_input()
    return driver.closed


def _commit(connection: Connection, driver: psycopg.Connection[Any]) -> None:
    if connection.in_transaction():
        connection.commit()
    else:
        driver.commit()


def _of_driver(error: BaseException) -> BaseException | None:
    """Return the psycopg error inside an error of SQLAlchemy, or None if it has none. Return any other error
    unchanged."""
    return error.orig if isinstance(error, DBAPIError) else error


def _roll_back(connection: Connection, driver: psycopg.Connection[Any]) -> None:
    with suppress(Exception):  # such as the error of a lost connection
        # After a failed commit, SQLAlchemy refuses all statements until its transaction is rolled back.
        if (transaction := connection.get_transaction()) is not None:
            transaction.rollback()
        if not driver.closed and not _is_idle(driver):
            driver.rollback()


def _of_sqlalchemy(error: BaseException) -> BaseException:
    """Wrap an error of psycopg in the SQLAlchemy error that callers expect. Return any other error unchanged."""
    if isinstance(error, psycopg.IntegrityError):
        return IntegrityError("transaction", None, error)
    if isinstance(error, _UNSTORABLE):
        return OperationalError("transaction", None, error)
    return error
