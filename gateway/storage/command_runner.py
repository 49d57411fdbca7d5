"""Execution of one queued command inside the transaction that it shares with others."""

import logging
from typing import Any, cast

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.shared import SharedTransaction, Stale
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.unavailable import Unstored
from babelgate.gateway.storage.write_queue import QueuedCommand
from babelgate.gateway.storage.writer_link import is_unstorable

log = logging.getLogger("babelgate.journal")

Outcome = tuple[Any, BaseException | None]
"""Return value of one command, and its error or None."""


class Spoiled(Exception):
    """Error of a transaction in which a command failed after it had changed something, so that it must be rolled back.

    `__cause__` is the error of the command."""


class CommandRunner:
    """Executor of queued commands in one transaction.

    It returns an error of a command as its outcome. It raises an error of the database, which concerns the whole
    transaction."""

    def __init__(self, database: Database, tx: Transaction) -> None:
        """Create a runner that executes all commands in `tx`."""
        self._database = database
        self._tx = tx

    def run(self, write: QueuedCommand) -> Outcome:
        """Run a command without a savepoint, and return its result, or the fault that it raised before it changed
        anything.

        Raises Spoiled if it failed after a change, and the error of SQLAlchemy or the driver if the database failed."""
        touched = self._tx.touched
        try:
            return write.run(self._tx), None
        except FaultError as error:
            if self._tx.touched != touched:
                raise Spoiled from error
            return None, error
        except Exception as error:
            if self.is_unstorable(error):
                raise
            raise Spoiled from error

    def run_in_savepoint(self, connection: Connection, write: QueuedCommand) -> Outcome:
        """Run a command in a savepoint, and return its result or fault. A failure rolls back only the changes of this
        command.

        Raises the error of SQLAlchemy or the driver if the database failed."""
        tx = self._tx
        tx.seal()
        published, changed = len(tx.published), len(tx.changed)
        connection.exec_driver_sql("SAVEPOINT command")
        try:
            result = write.run(tx)
            tx.flush()
        except Exception as error:
            if self.is_unstorable(error):
                raise
            connection.exec_driver_sql("ROLLBACK TO command")
            connection.exec_driver_sql("RELEASE command")
            del tx.published[published:], tx.changed[changed:]
            tx.forget()
            return None, self.fault_of(error)
        connection.exec_driver_sql("RELEASE command")
        return result, None

    def run_or_raise_stale(self, write: QueuedCommand) -> Outcome:
        """Run a command on a shared database like `run`.

        Raises Stale if the command failed because another gateway has changed a thread that it read."""
        try:
            return self.run(write)
        except Spoiled as spoiled:
            error = cast("Exception", spoiled.__cause__)
            if self.is_race(error):
                raise error from None
            if cast("SharedTransaction", self._tx).is_stale():
                raise Stale from error
            raise

    def is_race(self, error: Exception) -> bool:
        return isinstance(error, Stale) or self._database.is_race(error)

    def is_unstorable(self, error: Exception) -> bool:
        return is_unstorable(self._database, error)

    def fault_of(self, error: Exception) -> FaultError:
        """Convert the error of one failed command into the fault that its caller receives. Unexpected errors are
        logged."""
        if isinstance(error, FaultError):
            return error
        if isinstance(error, IntegrityError):
            return FaultError(FaultCode.CONFLICT, "An id in this request is taken already.")
        if self.is_race(error):
            return Unstored()
        fault = self._database.fault_of(error)
        if fault is not None:
            return fault
        log.error("command failed", exc_info=error)
        return FaultError(FaultCode.INTERNAL, "The gateway failed to do this; nothing was changed.")
