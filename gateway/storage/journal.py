"""Journal (event store): the single writer of a gateway with its group commit, and the reads of the log.

Commands run on the writer's thread, in the order in which they were queued. One transaction contains all commands that
arrived during the previous commit. If the writer is idle, a command is committed at once. The failure of one command
does not affect the others in its transaction. Records are published, and callers get their results, only after the
commit.

Gateways that share a database have one writer each. If two of them write to a thread at the same time, the second one
repeats its commands (`babelgate.gateway.storage.shared`).

`Journal` is the interface. Its parts are the writer (`writer`, `write_queue`, `writer_link`, `group_commit`,
`command_runner`), the reader threads (`reader_pool`), and the notices of other gateways (`remote_commits`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar, cast

from sqlalchemy import Connection

from babelgate.canonical.event import Record
from babelgate.canonical.fault import FaultCode, FaultError
from babelgate.canonical.thread import Run, Task, Thread, ThreadView
from babelgate.gateway.background import STOPPING, until_ended
from babelgate.gateway.clock import Clock
from babelgate.gateway.ids import new_id
from babelgate.gateway.observe import NO_OBSERVER, GatewayObserver
from babelgate.gateway.storage import queries, unavailable, writer
from babelgate.gateway.storage.audit import Act, record_act, with_origin
from babelgate.gateway.storage.change_feed import ChangeFeed, read_remote_threads
from babelgate.gateway.storage.database import open_database
from babelgate.gateway.storage.live import Channels
from babelgate.gateway.storage.locked import Locked
from babelgate.gateway.storage.log_pages import CreatedIds, read_ends, read_page, read_sized_page
from babelgate.gateway.storage.notices import Remote
from babelgate.gateway.storage.notifier import Notifier
from babelgate.gateway.storage.publisher import Publisher
from babelgate.gateway.storage.reader_pool import ReaderPool
from babelgate.gateway.storage.remote_commits import RemoteCommits
from babelgate.gateway.storage.row_cache import Row, ThreadStanding
from babelgate.gateway.storage.shared import SharedTransaction
from babelgate.gateway.storage.transaction import Published, Transaction
from babelgate.gateway.storage.unavailable import Unreachable, Unstored, keep_trying
from babelgate.gateway.storage.write_queue import Commit, QueuedCommand
from babelgate.gateway.storage.writer import JournalWriter

T = TypeVar("T")
P = ParamSpec("P")

_ROW_READS: Final[Mapping[type, Callable[[Connection, str, str], object]]] = {
    Thread: queries.thread,
    Task: queries.task,
    Run: queries.run,
}
"""Functions that read one row by owner and id, by type of the row."""
log = logging.getLogger("babelgate.journal")

_NOTICES: Final = 2.0
"""Maximum seconds for sending the last notices at shutdown. Chosen: without them, other gateways see the commits when
they check the database, every ten seconds."""
_ROOM: Final = 256 * 1024
"""Maximum size in bytes of a page of records that several readers share. Chosen: 512 tokens take a third of it."""


def _read_row(connection: Connection, kind: type[Row], owner: str, row_id: str) -> Row | None:
    return cast("Row | None", _ROW_READS[kind](connection, owner, row_id))


_WITHOUT_TRANSACTION: Final = frozenset[Callable[..., object]](
    (queries.thread_key, queries.log_position, queries.task, queries.run, _read_row, read_page, read_sized_page)
)
"""Read functions that run outside of a transaction, which would cost two more round trips to a server.

Each executes one statement, or otherwise reads only rows that never change."""


class Journal:
    """The event store of one gateway: it runs commands that write to the database, and queries that read it."""

    def __init__(
        self,
        url: str,
        *,
        power: bool = False,
        pooler: str | None = None,
        clock: Clock | None = None,
        on_commit: Callable[[Sequence[Published]], None] | None = None,
        shared: bool = False,
        node: str = "",
        on_remote: Callable[[Sequence[Remote]], None] | None = None,
        observer: GatewayObserver = NO_OBSERVER,
        audits: bool = False,
    ) -> None:
        """Create a journal for the database at a URL. `open` connects it.

        `power` and `pooler` are options of `open_database`. `clock` is the source of the time; None is the system's
        clock. With `shared`, other gateways use the database at the same time, each with a different `node` id. With
        `audits`, the audit log records what callers delete or share.

        `on_commit` receives the records of each commit of this gateway on the event loop. `on_remote` receives notices
        of the commits of other gateways there, in order of commit for each thread. Both are optional.
        """
        self._audits = audits
        self.database = open_database(url, power=power, shared=shared, pooler=pooler)
        self.is_shared = shared
        self.node = node or (new_id() if shared else "")
        self.channels = Channels()
        self.changes = ChangeFeed(partial(self.query, read_remote_threads), clock or Clock())
        self._publisher = Publisher(self.channels, self.changes, on_commit)
        listeners = (self.changes.note_remotes, *(() if on_remote is None else (on_remote,)))
        self._remote_commits = RemoteCommits(self.channels, listeners)
        self._remote_commits.add_look(self._look_for_missed_hints)
        self._notifier = Notifier(self.node, self.database) if shared else None
        self._writer = JournalWriter(
            self.database, clock or Clock(), self._hand_over, node=self.node if shared else None, observer=observer
        )
        self._readers = ReaderPool(self.database, _WITHOUT_TRANSACTION, observer)
        self._created: CreatedIds = {}
        self._closed = False

    async def open(self, *, wait: bool = False) -> None:
        """Lock the database, migrate its schema, and start the writer, the readers and the listener.

        If another gateway uses the database, raise conflict, or with `wait` retry until that gateway has stopped."""
        self._loop = asyncio.get_running_loop()
        is_logged = False
        while not await self._try_to_open(wait=wait):
            if not is_logged:
                log.warning("database is in use by another gateway: waiting until that gateway ends")
            is_logged = True
            await asyncio.sleep(writer.RETRY_DELAY)
        if self._notifier is not None:
            self._notifier.start()
        self._writer.start()
        if self.is_shared:
            note = cast("SharedTransaction", self._writer.tx).note_remote
            try:
                await self._remote_commits.start(self.node, self.database.listen, note, partial(self.query, read_ends))
            except BaseException:
                await self.close()
                raise

    async def _try_to_open(self, *, wait: bool) -> bool:
        """Open the database. If another gateway has locked it, return False if `wait` is set, else raise the error."""
        try:
            self.database.acquire()
            await asyncio.to_thread(self._open)
        except BaseException as error:
            self._dispose()
            if wait and isinstance(error, Locked):
                return False
            raise
        return True

    def _open(self) -> None:
        self._writer.open()
        self._readers.open()

    async def close(self, seconds: float = 2 * STOPPING) -> None:
        """Commit the queued commands, send the last notices, and release the database.

        A statement to which the server does not respond within its share of `seconds` is interrupted, and its command
        fails. Notices that `Notifier.close` cannot send in time are dropped."""
        self._closed = True
        self.changes.close()
        await self._remote_commits.stop()
        if self._writer.is_started:
            self._writer.end()
            if not await until_ended(self._writer.join, self._writer.give_up, seconds / 2):
                log.error("the database does not answer: the gateway stops without closing its connections")
                return
            self._writer.note_ended()
        if self._notifier is not None:
            await self._notifier.close(min(_NOTICES, seconds / 4))
        if await until_ended(self._readers.shut_down, self._readers.abort, seconds / 2):
            self._dispose()

    def _dispose(self) -> None:
        self._writer.link.close()
        self._readers.close()
        self._writer.link.dispose()
        self._readers.dispose()
        self.database.release()

    @property
    def folders(self) -> Sequence[Path]:
        """Folders of this machine that hold the database. Empty if it is on a server."""
        return self.database.folders

    @property
    def failure(self) -> str | None:
        """Reason why the last transaction could not be stored. None if it was stored."""
        return self._writer.link.failure

    @property
    def races(self) -> int:
        """Number of transactions that this gateway repeated because another gateway had committed a change of the same
        rows first."""
        return self._writer.races

    @property
    def queue_length(self) -> int:
        """Number of commands that wait for the writer."""
        return self._writer.queue_length

    @property
    def is_superseded(self) -> bool:
        """True if another gateway has taken over the database, so that this one refuses all writes."""
        return self._writer.link.is_superseded

    @property
    def is_closed(self) -> bool:
        return self._closed

    # Writing

    def write(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> "asyncio.Future[T]":
        """Queue a command with its arguments. Return a future of its result, which is set after the commit.

        A FaultError of the command becomes the exception of the future. A command may run twice, and only the second
        run counts, so it must not have effects outside of its transaction.
        """
        done: asyncio.Future[T] = self._loop.create_future()
        if self._closed:
            done.set_exception(FaultError(FaultCode.SHUTTING_DOWN, "The gateway is shutting down."))
        else:
            self._writer.put(QueuedCommand(command, args, named, done))
        return done

    def write_audited(
        self, act: Act, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> "asyncio.Future[T]":
        """Queue a command like `write`. With the audit log on, record `act` in the command's transaction.

        A command that returns False or None has changed nothing, and is not recorded."""
        if not self._audits:
            return self.write(command, *args, **named)
        act = with_origin(act)

        def run_and_record(tx: Transaction) -> T:
            result = command(tx, *args, **named)
            if not (result is False or result is None):
                record_act(tx, act)
            return cast("T", result)

        return self.write(run_and_record)

    async def write_patiently(
        self, command: Callable[Concatenate[Transaction, P], T], /, *args: P.args, **named: P.kwargs
    ) -> T:
        """Run a command like `write` and return its result. Retry for half a minute while the database cannot store it.

        A command is only repeated if it is known not to be stored, so nothing is stored twice."""

        def write() -> Awaitable[T]:
            return self.write(command, *args, **named)

        return await keep_trying(write, Unstored, seconds=unavailable.PATIENCE_OF_RUNS)

    def _hand_over(self, commit: Commit) -> None:
        """Publish a committed group on the event loop, and send notices of it to the other gateways."""
        self._loop.call_soon_threadsafe(self._publisher.publish, commit)
        if self._notifier is not None:
            self._notifier.add(commit.remotes)

    def add_listener(self, listener: Callable[[Sequence[Remote]], None]) -> None:
        """Add a function that receives the notices of commits by other gateways. It is called before `on_remote`."""
        self._remote_commits.add_listener(listener)

    def add_look(self, look: Callable[[], Awaitable[None]]) -> None:
        """Add a function that checks the database for changes whose notices were missed.

        It is called after each connect of the listener and every ten seconds. It must raise nothing."""
        self._remote_commits.add_look(look)

    async def _look_for_missed_hints(self) -> None:
        if not self.is_listening:  # the connection was lost
            self.changes.note_missed()

    @property
    def is_listening(self) -> bool:
        """True while the connection is open on which notices of other gateways arrive."""
        return self._remote_commits.is_listening

    # Reading

    async def row(self, kind: type[Row], owner: str, row_id: str) -> Row | None:
        """Return the row of a thread, task or run, or None if it does not exist. Recently changed rows come from
        memory.

        Raises shutting_down, and unavailable if the database cannot be reached."""
        self._check_open()
        row = None if self.is_shared else self._publisher.rows.get(kind, owner, row_id)
        if row is None:
            row = await self.query(_read_row, kind, owner, row_id)
        return row

    def cached_view(self, owner: str, thread_id: str) -> ThreadView | None:
        """Return a thread with its status from memory, or None if it has not changed recently. Raises shutting_down."""
        self._check_open()
        if self.is_shared:
            return None
        rows = self._publisher.rows
        thread, standing = rows.get(Thread, owner, thread_id), rows.get(ThreadStanding, owner, thread_id)
        if thread is None or standing is None:
            return None
        return ThreadView(thread=thread, status=standing.status, updated_at=standing.updated_at)

    async def query(self, read: Callable[Concatenate[Connection, P], T], /, *args: P.args, **named: P.kwargs) -> T:
        """Run a read function with its arguments on a reader thread, in a transaction, and return its result.

        Raises shutting_down, and unavailable if the database cannot be reached within `PATIENCE` seconds."""
        self._check_open()
        try:
            return await self._readers.submit(self._loop, read, args, named)
        except Unreachable:
            pass  # the closure below is not created for the many reads that succeed

        async def again() -> T:
            self._check_open()
            return await self._readers.submit(self._loop, read, args, named)

        return await keep_trying(again, Unreachable, seconds=unavailable.PATIENCE)

    def _check_open(self) -> None:
        if self._closed:
            raise FaultError(FaultCode.SHUTTING_DOWN, "The gateway is shutting down.")

    async def page(self, pk: int, after: int, limit: int = 512, until: int | None = None) -> list[Record]:
        """Return up to `limit` records of a thread with a sequence number above `after` and up to `until`.

        Large records make the page shorter. It is empty only if there are no more records."""
        return await self.query(read_page, pk, after, limit, until, self._created)

    async def sized_page(self, pk: int, after: int, until: int) -> tuple[Sequence[Record], Sequence[int], bool]:
        """Return the records of a thread with a sequence number above `after` and up to `until`.

        Also return their sizes in bytes, and True if the page ends before `until` because of `_ROOM`. Raises the same
        faults as `query`."""
        return await self.query(read_sized_page, pk, after, until, _ROOM, self._created)
