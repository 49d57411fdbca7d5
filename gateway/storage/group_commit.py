"""Group commit: execution of queued commands that share one transaction.

One class is for a database of a single gateway, the other for a database that several gateways share."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection

from babelgate.canonical.fault import FaultError
from babelgate.gateway.storage.command_runner import CommandRunner, Spoiled
from babelgate.gateway.storage.database import Database
from babelgate.gateway.storage.shared import SharedTransaction
from babelgate.gateway.storage.transaction import Transaction
from babelgate.gateway.storage.write_queue import CommandResult, Commit, HandOver, QueuedCommand, refuse_all
from babelgate.gateway.storage.writer_link import WriterLink

_TRIES: Final = 12
"""Maximum number of attempts at a single command that loses races against other gateways. Chosen.

There is no delay between the attempts: the loser has already waited for the winner's commit."""
_TRIES_TOGETHER: Final = 3
"""Maximum number of attempts at several commands in one transaction before the group is divided. Chosen.

After the same number of attempts, a single command begins by locking its thread's row."""


class GroupCommit:
    """Executor and committer of groups of commands, on a database that no other gateway writes to."""

    def __init__(self, database: Database, link: WriterLink, tx: Transaction, hand_over: HandOver) -> None:
        """Create a committer that uses the connection of `link`, and passes each outcome to `hand_over` after the
        commit."""
        self._database = database
        self._link = link
        self._tx = tx
        self._commands = CommandRunner(database, tx)
        self._hand_over = hand_over

    def commit(self, group: list[QueuedCommand]) -> None:
        """Run a group of commands in one transaction, commit it, and pass the outcome to `hand_over`.

        If a command fails after a change, the group is rolled back and repeated with a savepoint around each command.
        So only the faulty commands fail. If the database refuses the transaction, for example because the disk is full,
        every command fails and no record is published."""
        outcome = Commit()
        connection = self._link.ready(self._tx, group)
        if connection is None:
            return
        try:
            try:
                self._commit_together(connection, group, outcome)
            except Exception as error:
                if self._commands.is_unstorable(error):
                    raise
                self._commit_one_by_one(connection, group, outcome)
            self._link.note_success()
        except Exception as error:
            self._link.note_failure(error, len(group))
            self._tx.forget()
            if self._link.is_unclear:
                self._link.keep(outcome)
                return
            outcome = refuse_all(group)
        self._hand_over(outcome)

    def _commit_together(self, connection: Connection, group: Sequence[QueuedCommand], outcome: Commit) -> None:
        tx = self._tx
        with self._database.writing(connection):
            tx.begin(connection)
            outcome.results = [CommandResult(write, *self._commands.run(write)) for write in group]
            with self._database.together(connection):
                outcome.published = tx.finish()
            outcome.changed = tx.changed

    def _commit_one_by_one(self, connection: Connection, group: Sequence[QueuedCommand], outcome: Commit) -> None:
        tx = self._tx
        with self._database.writing(connection):
            tx.forget()
            tx.begin(connection)
            outcome.results = [
                CommandResult(write, *self._commands.run_in_savepoint(connection, write)) for write in group
            ]
            outcome.published, outcome.changed = tx.finish(), tx.changed


class SharedGroupCommit:
    """Executor and committer of groups of commands, on a database that other gateways write to.

    It uses no savepoints, because these would hold row locks that other gateways wait for."""

    def __init__(self, database: Database, link: WriterLink, tx: SharedTransaction, hand_over: HandOver) -> None:
        """Create a committer that uses the connection of `link`, and passes each outcome to `hand_over` after the
        commit."""
        self._database = database
        self._link = link
        self._tx = tx
        self._commands = CommandRunner(database, tx)
        self._hand_over = hand_over
        self.races = 0
        """Number of transactions that this gateway repeated because another gateway had committed a change of the same
        rows first."""

    def commit(self, group: list[QueuedCommand]) -> None:
        """Run and commit a group of commands as `GroupCommit.commit` does, but in several transactions if needed.

        A transaction that lost a race is repeated. If a command fails, the group is halved until the faulty command is
        alone."""
        parts, tries = [group], 0
        while parts:
            part = parts.pop()
            outcome = Commit()
            connection = self._link.ready(self._tx, _join(part, parts))
            if connection is None:
                return
            try:
                self._commit_part(connection, part, outcome, reserves=tries >= _TRIES_TOGETHER)
            except Exception as error:
                self._tx.forget()
                if isinstance(error, FaultError) or self._commands.is_unstorable(error):
                    self._refuse(error, part, parts, outcome)
                    return
                tries += 1
                if self._commands.is_race(error) and tries < (_TRIES if len(part) == 1 else _TRIES_TOGETHER):
                    self.races += 1
                    self._database.make_way(connection, error)
                    parts.append(part)
                    continue
                if len(part) > 1:
                    middle = len(part) // 2
                    parts += (part[middle:], part[:middle])
                else:
                    self._fail(part[0], error)
            else:
                self._hand_over(outcome)
            tries = 0

    def _commit_part(
        self, connection: Connection, part: Sequence[QueuedCommand], outcome: Commit, *, reserves: bool
    ) -> None:
        tx = self._tx
        with self._database.writing(connection):
            tx.begin(connection)
            tx.reserves = reserves
            outcome.results = [CommandResult(write, *self._commands.run_or_raise_stale(write)) for write in part]
            with self._database.together(connection):
                outcome.published = tx.finish()
            outcome.remotes = tx.remotes
            tx.confirm()
        self._link.note_success()

    def _refuse(
        self, error: Exception, part: list[QueuedCommand], parts: Sequence[list[QueuedCommand]], outcome: Commit
    ) -> None:
        """Pass the failure of the database to the commands of `part` and of all `parts` that remain.

        If it is unknown whether the commit of `part` was stored, keep its outcome until the next connection can
        tell."""
        remaining = _join(part, parts)
        self._link.note_failure(error, len(remaining))
        if self._link.is_unclear:
            self._link.keep(outcome)
            remaining = remaining[len(part) :]
        self._hand_over(refuse_all(remaining))

    def _fail(self, write: QueuedCommand, error: Exception) -> None:
        """Pass the fault of one command, which failed alone, to its caller."""
        cause = error.__cause__ if isinstance(error, Spoiled) else None
        fault = self._commands.fault_of(cause if isinstance(cause, Exception) else error)
        self._hand_over(Commit(results=[CommandResult(write, None, fault)]))


def _join(part: list[QueuedCommand], parts: Sequence[list[QueuedCommand]]) -> list[QueuedCommand]:
    """Return the commands of `part` and of all remaining `parts`, in order. `parts` is a stack: its last element is
    next."""
    return [write for each in (part, *reversed(parts)) for write in each]
