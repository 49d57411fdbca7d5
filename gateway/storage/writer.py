"""The writer of the journal: one thread that runs and commits queued commands."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, cast

from sqlalchemy import Connection, Engine, select

from babelgate.canonical.event import Record
from babelgate.gateway.background import Failures
from babelgate.gateway.clock import Clock
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.storage.database import Database, migrate
from babelgate.gateway.storage.group_commit import GroupCommit, SharedGroupCommit
from babelgate.gateway.storage.log_pages import read_page
from babelgate.gateway.storage.shared import SharedTransaction
from babelgate.gateway.storage.statements import sql_of, table_of
from babelgate.gateway.storage.tables import InterruptRow, RunRow, TaskRow, ThreadRow
from babelgate.gateway.storage.transaction import Transaction, latest_pk
from babelgate.gateway.storage.write_queue import HandOver, QueuedCommand, WriteQueue, refuse_all
from babelgate.gateway.storage.writer_link import WriterLink

log = logging.getLogger("babelgate.journal")

RETRY_DELAY: Final = 1.0
"""Seconds between two attempts to reconnect while no commands are queued, or to take the lock of the database.
Chosen."""


class JournalWriter:
    """The single writer of a journal: its queue, its thread and its connection."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        hand_over: HandOver,
        *,
        node: str | None,
        observer: GatewayObserver = NO_OBSERVER,
    ) -> None:
        """Create a writer. `open` connects it, and `start` starts its thread.

        `node` is the id of this gateway if others use the database at the same time, and otherwise None."""
        self._database = database
        self._clock = clock
        self._node = node
        self._observer = observer
        self._hand_over = hand_over
        self.link = WriterLink(database, hand_over)
        self._queue = WriteQueue()
        self._commits: GroupCommit | SharedGroupCommit | None = None
        self._thread: threading.Thread | None = None
        self._is_abandoned = False
        """True if the gateway stops and has waited too long for the database, so that all further commands are
        refused."""

    def open(self) -> None:
        """Connect, migrate the schema, record this gateway as the writer, and load the state of the first transaction.

        Raises conflict if another gateway uses the database."""
        engine, connection = self.link.open()
        self.tx = self._make_transaction(engine)
        with self._database.writing(connection):
            must_rebuild = migrate(connection, self._database.prepare_migration, shared=self._node is not None)
            self._database.claim(connection)
            self.tx.begin(connection)
            self.tx.begin_keys(latest_pk(connection))
            if must_rebuild:
                _rebuild_rows(self.tx)

    def _make_transaction(self, engine: Engine) -> Transaction:
        sql = sql_of(engine.dialect)
        if self._node is None:
            return Transaction(sql, self._clock)
        return SharedTransaction(sql, self._clock, self._node)

    def start(self) -> None:
        if self._node is None:
            self._commits = GroupCommit(self._database, self.link, self.tx, self._hand_over)
        else:
            shared_tx = cast("SharedTransaction", self.tx)
            self._commits = SharedGroupCommit(self._database, self.link, shared_tx, self._hand_over)
        run = partial(self._run, self._commits.commit)
        self._thread = threading.Thread(target=run, name="babelgate-writer", daemon=True)
        self._thread.start()

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    @property
    def races(self) -> int:
        """Number of transactions that this gateway repeated because another gateway had committed a change of the same
        rows first."""
        return self._commits.races if isinstance(self._commits, SharedGroupCommit) else 0

    @property
    def queue_length(self) -> int:
        """Number of commands that wait in the queue."""
        return len(self._queue)

    def put(self, write: QueuedCommand) -> None:
        """Queue a command. Any thread may call this method."""
        self._queue.put(write)

    def end(self) -> None:
        """Let the thread end after the commands that are queued now. `join` waits for that."""
        self._queue.end()

    def join(self) -> None:
        """Wait until the thread has ended."""
        if self._thread is not None:
            self._thread.join()

    def note_ended(self) -> None:
        """Drop the reference to the ended thread, so that `is_started` is False."""
        self._thread = None

    def give_up(self) -> None:
        """Refuse all commands that are not committed yet, and interrupt the statement that the writer is executing."""
        self._is_abandoned = True
        self.link.abort()

    def _run(self, commit: Callable[[list[QueuedCommand]], None]) -> None:
        failures = Failures("the writer of the journal")
        while (group := self._take_group()) is not None:
            if self._is_abandoned:
                self._hand_over(refuse_all(group))
                continue
            began = time.perf_counter()
            try:
                commit(group)
                if group and self.link.failure is None:
                    self._observer.note_commit(len(group), time.perf_counter() - began)
            except Exception as error:  # the writer must continue, and every caller must get an answer
                failures.note(error)
                self.tx.forget()
                self._hand_over(refuse_all(group))
        self.link.give_up_unclear()
        if not self._is_abandoned:
            self.link.leave()

    def _take_group(self) -> list[QueuedCommand] | None:
        """Wait for queued commands and return them. Return None when the queue has ended.

        While the connection is lost, return an empty list after `RETRY_DELAY`, so that the writer tries to
        reconnect."""
        return self._queue.take_group(RETRY_DELAY if self.link.is_lost() and not self.link.is_superseded else None)


def _rebuild_rows(tx: Transaction) -> None:
    """Compute the rows of all tasks, runs and questions from the logs again, after a migration from an early
    release."""
    connection, thread = tx.connection, table_of(ThreadRow)
    for row in (TaskRow, RunRow, InterruptRow):
        connection.execute(table_of(row).delete())
    threads = connection.execute(select(thread.c.pk, thread.c.owner, thread.c.thread_id)).all()
    for pk, owner, thread_id in threads:
        tx.rebuild_rows(pk, owner, thread_id, _records(connection, pk))
    log.info("threads of an earlier release folded again count=%d", len(threads))


def _records(connection: Connection, pk: int) -> Iterator[Record]:
    """Yield all records of a thread's log, reading page by page."""
    after = 0
    while page := read_page(connection, pk, after, 2048):
        yield from page
        after = page[-1].seq
