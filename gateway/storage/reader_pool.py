"""Reader threads of the journal. Each executes read functions on its own database connection."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine

from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.unavailable import Unreachable
from babelgate.gateway.storage.writer_link import close_connection, discard

T = TypeVar("T")

_READERS: Final = 4
"""Number of reader threads. Chosen."""


class ReaderPool:
    """Threads that execute read functions, with one database connection each. `open` must be called first."""

    def __init__(
        self,
        database: Database,
        without_transaction: Collection[Callable[..., object]],
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create the threads. The functions in `without_transaction` run outside of a transaction, all others in
        one."""
        self._database = database
        self._without_transaction = without_transaction
        self._observer = observer
        self._engine: Engine | None = None
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="babelgate-read")
        self._local = threading.local()
        """Database connection of each reader thread. Taking one from SQLAlchemy's pool costs as much as a small
        read."""
        self._connections: list[Connection] = []

    def open(self) -> None:
        """Create the engine of the readers' connections. Raises conflict if they lead to another database than the
        writer's."""
        self._engine = self._database.open_readers(_READERS)

    def submit(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Callable[..., T],
        args: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> "asyncio.Future[T]":
        """Run `read(connection, *args, **named)` on a reader thread, and return a future of its result.

        The future raises Unreachable if the database cannot be reached."""
        return loop.run_in_executor(self._pool, self._query, read, args, named)

    def _query(self, read: Callable[..., T], args: tuple[Any, ...], named: Mapping[str, Any]) -> T:
        for is_last in (False, True):
            began = time.perf_counter()
            connection = self._connect()
            try:
                value = self._read(connection, read, args, named)
                self._observer.note_read(time.perf_counter() - began)
                return value
            except Exception as error:
                if not self._database.is_unreadable(error):
                    raise
                is_lost = self._database.is_lost(connection)
                if is_lost:
                    self._forget(connection)
                if is_last or not is_lost:
                    raise Unreachable from error
        raise AssertionError

    def _read(
        self, connection: Connection, read: Callable[..., T], args: tuple[Any, ...], named: Mapping[str, Any]
    ) -> T:
        try:
            if read in self._without_transaction:
                return read(connection, *args, **named)
            with self._database.reading(connection):
                return read(connection, *args, **named)
        except Exception as error:
            fault = self._database.fault_of(error)
            if fault is not None:
                raise fault from error
            raise

    def _connect(self) -> Connection:
        """Return the connection of the current reader thread, and open it first if necessary. Raises Unreachable if the
        database cannot be reached."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            assert self._engine is not None
            try:
                connection = self._engine.connect()
            except Exception as error:
                if not self._database.is_unreadable(error):
                    raise
                raise Unreachable from error
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _forget(self, connection: Connection) -> None:
        self._local.connection = None
        self._connections.remove(connection)
        discard(connection)

    def shut_down(self) -> None:
        """Wait for the end of all reads, and stop the threads."""
        self._pool.shutdown()

    def abort(self) -> None:
        """Interrupt the statements that the reader threads are executing. Called on another thread at shutdown."""
        if self._engine is not None:
            self._database.abort(self._engine)

    def close(self) -> None:
        """Close the connections of the ended threads. `dispose` must be called afterwards."""
        for connection in self._connections:
            close_connection(self._database, connection)
        self._connections.clear()

    def dispose(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
