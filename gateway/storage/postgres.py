"""PostgreSQL, by psycopg: one session writes, and holds the lock that says that it alone does.

The lock is of the session that writes (a session-level advisory lock, by database and schema), so whoever commits has
it, also after the connection was lost and made anew.
"""

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
"""All that one read asks for is of one moment, as it is with SQLite."""
_LOCK: Final = "SELECT pg_advisory_lock(hashtext('babelgate'), hashtext(current_schema()))"
_SHARE: Final = "SELECT pg_advisory_lock_shared(hashtext('babelgate'), hashtext(current_schema()))"
_IS_ALONE: Final = "SELECT pg_try_advisory_xact_lock(hashtext('babelgate'), hashtext(current_schema()))"
_ENTER: Final = "SELECT pg_advisory_xact_lock(hashtext('babelgate enters'), hashtext(current_schema()))"
"""Lock that lets one starting gateway of a cluster at a time look at the schema, and change it. It belongs to the
transaction, and ends with it in any case. A gateway that reconnects does not look at the schema, and does not take
it."""
_ENTERING: Final = "10s"
"""Time for which a gateway may stand still in the first transaction of a session, where it holds `_ENTER` or the row of
the last writer. Then the server ends the session (`idle_in_transaction_session_timeout`). So a frozen gateway keeps no
other from starting or reconnecting. Chosen: longer than a busy machine delays a statement. `idle_session_timeout` could
bound a lock of the session, but PostgreSQL 13 does not have it."""
_ENTER_PATIENCE: Final = "30s"
"""Time that a starting gateway waits for `_ENTER`. Chosen: longer than `_ENTERING`, with some for those before it."""
_STILL: Final = "5s"
"""A gateway that stands still for that long in the middle of a transaction does not hold up those that share the
database with it: its session is ended. The server's own `idle_in_transaction_session_timeout` does not begin after
statements that were sent together (psycopg flushes after the last one, which the server takes for something to do)."""
_END_STILL: Final = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
    # Between statements that are sent together a session is `active`, and waits for the next one.
    "AND (starts_with(state, 'idle in transaction') OR (state = 'active' AND wait_event_type = 'Client')) "
    "AND state_change < clock_timestamp() - %s::interval AND pid IN "
    "(SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND classid::bigint = hashtext('babelgate')::bigint & 4294967295 "
    "AND objid::bigint = hashtext(current_schema())::bigint & 4294967295)"
)
_SILENCE: Final = 10.0
"""Seconds from one check of the listening connection, and for missed notices, to the next. With `_ANSWER` and the pause
before a new connection, a dead one is noticed and replaced within 22 seconds."""
_ANSWER: Final = 10.0
"""Seconds within which the server must answer on the listening connection. After that the connection is dead. Chosen:
as `connect_timeout`."""
_NOTIFY: Final = f"SELECT set_config('synchronous_commit', 'off', true), pg_notify({CHANNEL}, $1)".encode()
"""One transaction that does not wait for the flush: the lock of NOTIFY is held until the commit is complete."""
_PREPARED: Final = b"babelgate_notify"
_TEXT: Final = types["text"].oid
_PATIENCE: Final = "2s"
"""For the lock: the server may be about to find that a gateway which was killed is gone."""
_KEEPALIVE: Final = (
    "SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3; "
    "SET tcp_user_timeout = 11000"
)
"""Settings of the server for each session: it ends the session of a machine that is gone without a word after eleven
seconds, and with it the locks. Keepalives find that while nothing is under way; `tcp_user_timeout` finds it while data
that the server has sent is not acknowledged, such as a notice to a listener."""
_DEFAULTS: Final = {
    "application_name": "babelgate",
    "client_encoding": "utf8",
    "connect_timeout": "10",
    # A server that is gone without a word is noticed within 15 seconds.
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    # Of several hosts, the one that takes writes.
    "target_session_attrs": "read-write",
}
"""Parameters of the connection, where the URL does not say otherwise."""
_RACES: Final = (
    psycopg.errors.UniqueViolation,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.SerializationFailure,
    psycopg.errors.LockNotAvailable,
)
_ELSEWHERE: Final = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.DivisionByZero)
"""Errors after which the writer needs another connection: the server became read-only, or another session has settled
the commit of this one (`_COUNT`)."""
_UNSTORABLE: Final = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError, *_ELSEWHERE)
"""Errors of the server or its disk, and not of a command. InternalError covers a server that became read-only (25006)
and a damaged page (XX001)."""
_WRITER: Final = "writer"
"""The name in `meta` under which the gateway stands that had the database last."""
_COMMIT: Final = "commit "
"""With a gateway's UUID, the name in `meta` under which its last commit has its number: what became of one whose answer
was lost is found there. PostgreSQL's own numbers (`pg_xact_status`) cannot tell after a server was killed: it may have
given the number to another transaction since."""
_COUNT: Final = (
    "WITH counted AS (UPDATE meta SET value = '{number}' WHERE name = '{name}' AND value = '{before}' RETURNING 1) "
    "SELECT 1 / count(*) FROM counted; COMMIT"
)
"""The end of a transaction that writes: it sets the number of the commit, if the number before it is still there
(compare-and-set). If another session has changed that number, the division by zero fails the transaction. So a commit
that reaches the server late stores nothing."""


class Postgres:
    """A `babelgate.gateway.storage.database.Database`."""

    def __init__(self, url: str, *, shared: bool = False, pooler: str | None = None) -> None:
        """`shared` = with other gateways. `pooler` = where transactions that read go: it may give each of them another
        session. The lock, `LISTEN` and statements that are sent together belong to sessions, and the signs of life of a
        node must not wait for one that is free. Raises invalid."""
        self._url = _parse("database", url)
        self._pooler = None if pooler is None else _parse("pooler", pooler)
        self._shown = hide_password(url)
        self._me = str(uuid4())
        self._shared = shared
        self._claimed = False
        self._commits = 0
        """Number of the last commit that was sent."""
        self._counted = "0"
        """The value in `meta` under `_COMMIT`, as far as this gateway knows."""
        self._entering = False
        self._committing = False
        self._sessions: WeakKeyDictionary[Engine, WeakSet[psycopg.Connection[Any]]] = WeakKeyDictionary()
        """Open connections by engine, for `abort`."""

    @property
    def folders(self) -> Sequence[Path]:
        return ()

    def acquire(self) -> None:
        """`connect` does it."""

    def release(self) -> None:
        """It ends with the writer's session."""

    def open_writer(self) -> Engine:
        return self._engine(self._url, 1, "BEGIN")

    def open_readers(self, readers: int) -> Engine:
        """Raises conflict and OperationalError, where a pooler leads elsewhere."""
        if self._pooler is None:
            return self._engine(self._url, readers, _READ)
        # What one session has prepared, the next one does not know.
        engine = self._engine(self._pooler, readers, _READ, prepare_threshold=None)
        try:
            self._check_pooler(engine)
        except BaseException:
            engine.dispose()
            raise
        return engine

    def _check_pooler(self, engine: Engine) -> None:
        """It reads what is written: a pooler has databases, and a schema, of its own configuration."""
        if not self._claimed:
            return
        meta = table_of(MetaRow)
        try:
            with engine.connect() as connection, connection.begin():
                mine = connection.execute(select(meta.c.value).where(meta.c.name == _COMMIT + self._me)).scalar()
        except ProgrammingError:  # there is no such table
            mine = None
        if mine is None:
            raise FaultError(
                FaultCode.CONFLICT,
                "pooler: it does not lead to the database and schema that are written to. Its search_path is not that "
                "of database, or its server is another one, or a replica.",
            )

    def _engine(self, url: URL, connections: int, begin: str, **more: Any) -> Engine:
        given = {name: value for name, value in _DEFAULTS.items() if name not in url.query} | more
        engine = create_engine(
            url,
            pool_size=connections,
            max_overflow=0,
            paramstyle="format",
            use_native_hstore=False,
            connect_args=given,
            hide_parameters=True,
        )

        @event.listens_for(engine, "connect")
        def _connect(connection: psycopg.Connection[Any], _: Any) -> None:
            self._sessions.setdefault(engine, WeakSet()).add(connection)
            connection.autocommit = True  # transactions are begun here, and not by the driver
            # Else the type of a parameter goes by its value, and hardly any statement would be prepared twice.
            connection.adapters.register_dumper(int, Int8BinaryDumper)
            if url is not self._pooler:  # a setting would stay with a session that the pooler gives to others
                connection.execute(_KEEPALIVE, prepare=False)

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            if _is_idle(_driver(connection)):
                connection.exec_driver_sql(begin)

        return engine

    def connect(self, writer: Engine) -> Connection:
        """Connect the writer, and take the lock. A gateway of a cluster takes it in its first transaction (`_enter`).
        Raises conflict."""
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
            raise Locked(self._shown) from None
        except psycopg.Error as error:
            connection.invalidate()
            connection.close()
            raise OperationalError(_LOCK, None, error) from error
        return connection

    def _enter(self, driver: psycopg.Connection[Any]) -> None:
        """Begin the first transaction of a session that shares the database. Raises conflict and LockNotAvailable."""
        driver.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{_ENTERING}'")
        if self._claimed:
            return
        try:
            driver.execute(f"SET LOCAL lock_timeout = '{_ENTER_PATIENCE}'")
            driver.execute(_ENTER)
        except psycopg.errors.LockNotAvailable:
            raise Entering(self._shown, _ENTER_PATIENCE) from None
        try:
            driver.execute(f"SET LOCAL lock_timeout = '{_PATIENCE}'")
            driver.execute(_SHARE)
        except psycopg.errors.LockNotAvailable:
            raise Locked(self._shown) from None
        driver.execute(f"SET LOCAL lock_timeout = '{_STILL}'")

    def prepare_migration(self, connection: Connection, *, expands: bool) -> None:
        """Raises conflict."""
        if self._shared and not expands and not _is_alone(connection):
            raise FaultError(
                FaultCode.CONFLICT,
                f"{self._shown} is of another release, and gateways of that one use it. Stop them all before the "
                "first one of this release is started.",
            )

    def claim(self, connection: Connection) -> None:
        """Raises conflict."""
        meta = table_of(MetaRow)
        if self._shared:  # for an exclusive gateway that had lost it: what that one has in memory is not true any more
            self._claim_with_others(connection)
            return
        here = meta.c.name == _WRITER
        if self._claimed:
            last = connection.execute(select(meta.c.value).where(here)).scalar()
            if last != self._me:
                raise FaultError(
                    FaultCode.CONFLICT,
                    f"{self._shown} was used by another gateway while this one had lost it. Restart this one.",
                )
        else:
            connection.execute(meta.delete().where(here | meta.c.name.startswith(_COMMIT)))
            rows = {_WRITER: self._me, _COMMIT + self._me: "0"}
            connection.execute(meta.insert(), [{"name": name, "value": value} for name, value in rows.items()])
            self._claimed = True

    def _claim_with_others(self, connection: Connection) -> None:
        meta = table_of(MetaRow)
        self._claimed = True
        mine = upsert(meta).values(name=_WRITER, value=self._me)
        connection.execute(mine.on_conflict_do_update(index_elements=[meta.c.name], set_={"value": self._me}))
        number = upsert(meta).values(name=_COMMIT + self._me, value=self._counted)
        connection.execute(number.on_conflict_do_nothing())

    @contextmanager
    def writing(self, connection: Connection) -> Generator[None]:
        """Raises conflict, and OperationalError and IntegrityError of SQLAlchemy."""
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
            # In one trip: the server takes both, or neither.
            end = _COUNT.format(number=number, name=_COMMIT + self._me, before=self._counted)
            driver.execute(cast("LiteralString", end), prepare=False)
            self._counted = number
            _commit(connection, driver)
            self._committing = self._entering = False
        except BaseException as error:
            self._committing = self._committing and driver.closed
            _roll_back(connection, driver)
            if isinstance(_of_driver(error), _ELSEWHERE):
                driver.close()
            if (shown := _of_sqlalchemy(error)) is not error:
                raise shown from error
            raise

    @contextmanager
    def together(self, connection: Connection) -> Generator[None]:
        pipeline = _driver(connection).pipeline()
        pipeline.__enter__()
        try:
            yield
        except BaseException:
            with suppress(psycopg.Error):  # of what was sent after the statement that failed: psycopg would log it
                pipeline.__exit__(None, None, None)
            raise
        pipeline.__exit__(None, None, None)

    @contextmanager
    def reading(self, connection: Connection) -> Generator[None]:
        """Raises OperationalError of SQLAlchemy."""
        driver = _driver(connection)
        try:
            driver.execute(_READ)
            yield
            _commit(connection, driver)
        except BaseException as error:
            _roll_back(connection, driver)
            if (shown := _of_sqlalchemy(error)) is not error:
                raise shown from error
            raise

    async def listen(self) -> AsyncGenerator[str | None]:
        """Raises OperationalError."""
        try:
            places, named = create_engine(self._url).dialect.create_connect_args(self._url)
            given: dict[str, Any] = {**_DEFAULTS, **named, "autocommit": True}
            async with await psycopg.AsyncConnection[Any].connect(*places, **given) as connection:
                await _ask(connection, _KEEPALIVE)
                found = await (await _ask(connection, f"SELECT {CHANNEL}")).fetchall()
                await _ask(connection, sql.SQL("LISTEN {}").format(sql.Identifier(found[0][0])))
                yield None
                while True:
                    async for notice in connection.notifies(timeout=_SILENCE):
                        yield notice.payload
                    await _ask(connection, "SELECT 1")
                    yield None
        except psycopg.OperationalError as error:
            raise OperationalError("LISTEN", None, error) from error

    def notify(self, connection: Connection, notices: Sequence[str]) -> None:
        """Raises OperationalError of SQLAlchemy."""
        try:
            driver = _driver(connection).pgconn
            if _PREPARED not in connection.info:
                _check(driver.prepare(_PREPARED, _NOTIFY, [_TEXT]))
                connection.info[_PREPARED] = True
            for notice in notices:
                # A cursor takes 60 us of CPU time for this, and a run has several commits; libpq's own call takes 7.
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
        """Raises OperationalError of SQLAlchemy."""
        driver, mine = _driver(connection), _COMMIT + self._me
        number = str(self._commits)
        try:
            driver.execute("BEGIN")
            # Waits for a session that is committing now. A commit that arrives later finds another number, and fails.
            rows = driver.execute("SELECT value FROM meta WHERE name = %s FOR UPDATE", (mine,)).fetchall()
            is_stored = rows == [(number,)]
            counted = number if is_stored else f"-{number}"
            if not is_stored:
                driver.execute("UPDATE meta SET value = %s WHERE name = %s", (counted, mine))
            driver.execute("COMMIT")
        except psycopg.Error as error:
            raise _of_sqlalchemy(error) from error
        self._counted, self._committing = counted, False
        return is_stored

    def leave(self, connection: Connection) -> None:
        if self._shared:
            with suppress(psycopg.Error):  # a row that is left does no harm
                _driver(connection).execute("DELETE FROM meta WHERE name = %s", (_COMMIT + self._me,))

    def abort(self, engine: Engine) -> None:
        """Shut the connections down at this end, because the server may not answer a cancel request either."""
        for driver in list(self._sessions.get(engine, ())):
            _hang_up(driver)

    def is_unstorable(self, error: Exception) -> bool:
        return (
            isinstance(error, PendingRollbackError) or isinstance(_of_driver(error), _UNSTORABLE)
        ) and not self.is_race(error)

    def is_unreadable(self, error: Exception) -> bool:
        return self.is_unstorable(error) and not isinstance(_of_driver(error), _ELSEWHERE)

    def fault_of(self, error: Exception) -> FaultError | None:
        of_driver = _of_driver(error)
        if isinstance(of_driver, psycopg.errors.ProgramLimitExceeded):
            return FaultError(FaultCode.TOO_LARGE, "An id in this request is too long for the database.")
        if type(of_driver) is psycopg.DataError:  # the only one that psycopg raises by itself
            return FaultError(FaultCode.INVALID, "An id in this request must not contain NUL characters.")
        return None

    def is_race(self, error: Exception) -> bool:
        return self._shared and isinstance(_of_driver(error), _RACES)

    def make_way(self, connection: Connection, error: Exception) -> None:
        if not isinstance(_of_driver(error), psycopg.errors.LockNotAvailable):
            return
        with suppress(psycopg.Error):  # of a connection that is lost: the next transaction says so
            ended = _driver(connection).execute(_END_STILL, (_STILL,)).fetchall()[0][0]
            log.warning("stalled database sessions of other gateways ended count=%d", ended)

    def make_room(self, connection: Connection) -> None:
        make_partitions(connection)

    def give_back(self, connection: Connection) -> bool:
        """A partition of the log that is empty. The rest PostgreSQL's autovacuum does."""
        return drop_empty_partition(connection)


def _parse(key: str, url: str) -> URL:
    try:
        return make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # which may have the password in it
        raise FaultError(
            FaultCode.INVALID, f"{key}: must be a URL of PostgreSQL, such as postgresql://host/name"
        ) from None


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", connection.connection.dbapi_connection)


def _check(result: PGresult) -> None:
    """Raises OperationalError of psycopg."""
    if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
        raise psycopg.OperationalError(result.get_error_message())


async def _ask(connection: psycopg.AsyncConnection[Any], query: Query) -> psycopg.AsyncCursor[Any]:
    """Execute a statement within `_ANSWER` seconds, else hang up.

    psycopg answers a cancel by a cancel request, and waits for its effect, which a dead connection never shows.

    Raises:
        OperationalError: the connection is lost, or the server did not answer in time.
    """
    asked = asyncio.ensure_future(connection.execute(query))
    try:
        await asyncio.wait((asked,), timeout=_ANSWER)
    finally:
        if not asked.done():
            _hang_up(connection)
            await asyncio.wait((asked,))
            asked.exception()  # else asyncio logs it where this task was cancelled
    return asked.result()


def _hang_up(driver: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket(fileno=os.dup(driver.fileno())) as near:
        near.shutdown(SHUT_RDWR)


def _is_alone(connection: Connection) -> bool:
    """Whether no other gateway has the database, and none until the transaction ends."""
    return bool(_driver(connection).execute(_IS_ALONE).fetchall()[0][0])


def _is_idle(driver: psycopg.Connection[Any]) -> bool:
    return driver.info.transaction_status == TransactionStatus.IDLE


def _was_hung_up(driver: psycopg.Connection[Any]) -> bool:
    """Whether the server has closed a connection on which nothing is asked. Without this look, which takes no trip, the
    first group after a restart of the server would be refused."""
    waiting = poll()
    waiting.register(driver.fileno(), POLLIN)
    with suppress(psycopg.OperationalError):
        while not driver.closed and waiting.poll(0):  # its last words, and then the end
            driver.pgconn.consume_input()
    return driver.closed


def _commit(connection: Connection, driver: psycopg.Connection[Any]) -> None:
    if connection.in_transaction():
        connection.commit()
    else:
        driver.commit()


def _of_driver(error: BaseException) -> BaseException | None:
    """Return the error of psycopg that SQLAlchemy's error wraps."""
    return error.orig if isinstance(error, DBAPIError) else error


def _roll_back(connection: Connection, driver: psycopg.Connection[Any]) -> None:
    with suppress(Exception):  # of a connection that is lost, too
        # After a commit that failed, SQLAlchemy calls the transaction inactive and refuses all until it is rolled back.
        if (transaction := connection.get_transaction()) is not None:
            transaction.rollback()
        if not driver.closed and not _is_idle(driver):
            driver.rollback()


def _of_sqlalchemy(error: BaseException) -> BaseException:
    """Wrap an error of psycopg in the error of SQLAlchemy that callers expect."""
    if isinstance(error, psycopg.IntegrityError):
        return IntegrityError("transaction", None, error)
    if isinstance(error, _UNSTORABLE):
        return OperationalError("transaction", None, error)
    return error
