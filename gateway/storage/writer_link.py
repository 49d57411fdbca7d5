"""Connection of the writer. It reconnects, and handles refused transactions and commits whose outcome is unknown."""

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from babelgate.canonical.fault import FaultError
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.unavailable import Unsettled, reason_of
from babelgate.gateway.storage.write_queue import CommandResult, Commit, HandOver, QueuedCommand, refuse, refuse_all

log = logging.getLogger("babelgate.journal")


class WriterLink:
    """Holder of the only connection that writes, and of the engine that creates it."""

    def __init__(self, database: Database, hand_over: HandOver) -> None:
        """Create the link to a database. `open` connects it."""
        self._database = database
        self._hand_over = hand_over
        self._engine: Engine | None = None
        self.connection: Connection | None = None
        """Connection of the writer. None while it is lost."""
        self.failure: str | None = None
        """Reason why the last transaction could not be stored. None if it was stored."""
        self._superseded: FaultError | None = None
        """Error that shows that another gateway has taken over the database, which is final. None if no other gateway
        has."""
        self._unclear: Commit | None = None
        """Outcome of a commit during which the connection was lost. It is handed over once the database tells whether
        it was stored."""

    def open(self) -> tuple[Engine, Connection]:
        """Connect, and return the writer's engine and connection. Raises conflict if another gateway uses the
        database."""
        self._engine = self._database.open_writer()
        self.connection = self._database.connect(self._engine)
        return self._engine, self.connection

    @property
    def is_superseded(self) -> bool:
        """True if another gateway has taken over the database, so that this one refuses all writes."""
        return self._superseded is not None

    def is_lost(self) -> bool:
        return self.connection is None or self._database.is_lost(self.connection)

    def ready(self, tx: Transaction, group: Sequence[QueuedCommand]) -> Connection | None:
        """Return the connection, and reconnect first if it was lost.

        If that fails, pass on the refusal of `group`, of which no command has run, and return None."""
        try:
            return self._reconnect(tx) if self.is_lost() else self.connection
        except Exception as error:
            self.note_failure(error, len(group))
            self._hand_over(refuse_all(group))
            return None

    def _reconnect(self, tx: Transaction) -> Connection:
        """Reconnect, find out whether the commit with an unknown outcome was stored, and hand over its results.

        Raises OperationalError if that fails, and conflict if another gateway has taken over the database."""
        assert self._engine is not None
        if self._superseded is not None:
            raise self._superseded
        lost, self.connection = self.connection, None
        if lost is not None:
            discard(lost)
        tx.forget_all()
        connection = self._database.connect(self._engine)
        try:
            is_stored = self._database.settle(connection)
            if self._unclear is not None:
                unclear, self._unclear = self._unclear, None
                self._hand_over(unclear if is_stored else refuse(unclear.results))
            with self._database.writing(connection):
                self._database.claim(connection)
        except BaseException as error:
            discard(connection)
            if isinstance(error, FaultError):
                self._superseded = error
            raise
        self.connection = connection
        log.warning("database connection restored")
        return connection

    @property
    def is_unclear(self) -> bool:
        """True if the connection was lost during a commit, so that its outcome is unknown."""
        return self._database.is_unclear

    def keep(self, commit: Commit) -> None:
        """Keep the outcome of a commit without response until a new connection can tell whether it was stored."""
        self._unclear = commit

    def note_success(self) -> None:
        self.failure = None

    def note_failure(self, error: Exception, commands: int) -> None:
        self.failure = reason = reason_of(error)
        if not commands:
            return
        if isinstance(error, FaultError) or is_unstorable(self._database, error):
            log.error(
                "commands could not be stored: callers receive an error, and runs retry. Check that the database can "
                "be reached and has free space count=%d error=%s",
                commands,
                reason,
            )
        else:
            log.exception("commands could not be stored count=%d", commands)

    def give_up_unclear(self) -> None:
        """Let the commands of a commit with an unknown outcome fail with Unsettled. Called when the writer ends."""
        if self._unclear is not None:
            self._hand_over(
                Commit(results=[CommandResult(each.write, None, Unsettled()) for each in self._unclear.results])
            )

    def leave(self) -> None:
        """Delete the rows that this gateway has stored only for itself. Called when the writer ends."""
        if self.connection is not None and not self.is_lost():
            self._database.leave(self.connection)

    def abort(self) -> None:
        """Interrupt the statement that the writer is executing. Called on another thread at shutdown."""
        if self._engine is not None:
            self._database.abort(self._engine)

    def close(self) -> None:
        """Close the writer's connection. `dispose` must be called afterwards."""
        if self.connection is not None:
            close_connection(self._database, self.connection)
        self.connection = None

    def dispose(self) -> None:
        if self._engine is not None:
            self._engine.dispose()


def is_unstorable(database: Database, error: Exception) -> bool:
    """Return True if an error means that the database or its disk failed. False: one command is at fault."""
    return database.is_unstorable(error) and database.fault_of(error) is None


def close_connection(database: Database, connection: Connection) -> None:
    if database.is_lost(connection):
        discard(connection)
    else:
        connection.close()


def discard(connection: Connection) -> None:
    """Close a connection without returning it to the pool, because it cannot be used any more."""
    if not connection.closed:
        connection.invalidate()
        connection.close()
